"""A pass of discrete Fourier transforms as an LLVM function `void f(ptr buffers, i64 lo, i64 hi)` [Note: FFT]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .....schedule.kernels import transform as algorithm
from .....schedule.kernels.roots import roots
from .....schedule.kernels.transform import Transform
from .....sizes.dims import Size
from ...spec import CpuSpec
from .. import ir
from ..contraction.loops import divide, greatest, i64, least, repeat
from ..kernel import KERNEL_TYPE
from ..kind import Kind
from ..types import PTR
from .butterflies import Arithmetic
from .maps import Maps
from .passes import run_passes
from .points import Columns, Points, RowPairs, Scratch, Turned, pairs, stored
from .spectra import HalfSpectra


def emit_transform(module: ir.Module, name: str, spec: Transform) -> ir.Function:
    function = ir.Function(module, KERNEL_TYPE, name)
    emitter = _Emitter(module, function, spec)
    if spec.stage in _STAGES:
        _STAGES[spec.stage](emitter)
    else:
        emitter.all_mapped()
    return function


class _Emitter:
    """The function of a pass; its range is rows, or blocks of columns of all rows."""

    def __init__(self, module: ir.Module, function: ir.Function, spec: Transform) -> None:
        self.spec, self.function = spec, function
        self.b = b = function.build()
        self.v = Arithmetic(b, spec.dtype, module.cpu.lanes(spec.dtype), module.cpu)
        self.table, self.lo, self.hi = function.args
        self.n, self.w = spec.points, self.v.lanes
        self.spectra = HalfSpectra(self.v, spec.points, spec.kind == "c2r")
        if not algorithm.by_rows(self.n) and spec.stage in ("rows", "columns", "squares"):
            self.rows, self.columns = algorithm.split(self.n, self.w)

    # ---- operands

    def operand(self, number: int) -> Any:
        return self.b.operand(self.table, number)

    def memory(self, numbers: int) -> Any:
        """Memory of the thread for so many real numbers."""
        return self.b.memory(self.v.scalar_type, numbers, ir.LINE)

    def scratch(self, points: int) -> list[Any]:
        """Memory for points side by side, twice."""
        return [self.memory(2 * self.w * points) for _ in range(2)]

    def stored(self, name: str, values: np.ndarray) -> Any:
        return stored(self.b.module, name, values, self.v.dtype)

    # ---- stages

    def all_rows(self) -> None:
        """Rows from operand 0 to operand 1, each in one go."""
        if algorithm.by_rows(self.n):
            self._short_rows()
        else:
            self._long_rows()
        self.b.ret_void()

    def _long_rows(self) -> None:
        """Transforms each row by itself. Results are written from its first number to its last, which takes up to a
        quarter less time than in the steps of the matrix where they are in no cache."""
        b, v, spec = self.b, self.v, self.spec
        between = self.memory(algorithm.memory_numbers(self.n, self.w))
        scratch = self.scratch(max(self.rows, self.columns + self.w))
        near = self.memory(2 * self.n)
        source, result = self.operand(0), self.operand(1)
        self.clear_rest(between)

        def row(k: Any) -> None:
            x, y = v.at(source, (k, spec.source_step)), v.at(result, (k, spec.result_step))
            if spec.kind == "c2r":
                self.spectra.of_row(x, near)
                x = near
            self.columns_of(x, between, scratch, i64(0), i64(self.column_blocks))
            self.squares_of(between, near, scratch, i64(0), i64(self.square_blocks))
            if spec.kind == "r2c":
                self.spectra.of_row(near, y)
            else:
                self._copy(near, y)

        repeat(b, self.lo, self.hi, 1, row)

    def _copy(self, x: Any, y: Any) -> None:
        """Copies a row of complex numbers."""
        v, count = self.v, 2 * self.n

        def vectors(at: Any) -> None:
            for k, value in enumerate(v.row(v.element(x, at), [None] * 4)):
                v.store(value, v.element(v.element(y, at), i64(k * self.w)))

        whole = count - count % (4 * self.w)
        repeat(self.b, i64(0), i64(whole), 4 * self.w, vectors)
        for at in range(whole, count, self.w):
            mask = v.first(count - at)
            v.store(v.load(v.element(x, i64(at)), mask), v.element(y, i64(at)), mask)

    def _short_rows(self) -> None:
        """Transforms as many rows as there are lanes at a time; lanes left over do the last row of the range again."""
        b, v, spec, w, n = self.b, self.v, self.spec, self.w, self.n
        first, second = self.scratch(n + w)
        radices = algorithm.radices(n)
        end = second if len(radices) % 2 else first
        spectra = self.memory(2 * n * w) if spec.kind != "c2c" else None
        sources, results = (b.memory(PTR, w) for _ in range(2))
        last = b.sub(self.hi, i64(1))
        source, result = self.operand(0), self.operand(1)

        def tile(start: Any) -> None:
            live = least(b, b.sub(self.hi, start), i64(w))

            def spectrum(k: Any) -> None:
                own, number = v.at(spectra, (k, 2 * n)), b.add(start, k)
                if spec.kind == "c2r":
                    self.spectra.of_row(v.at(source, (number, spec.source_step)), own)
                else:
                    self.spectra.of_row(own, v.at(result, (number, spec.result_step)))

            def row(k: Any) -> None:
                number = least(b, b.add(start, k), last)
                own = None if spectra is None else v.at(spectra, (b.sub(number, start), 2 * n))
                x = own if spec.kind == "c2r" else v.at(source, (number, spec.source_step))
                y = own if spec.kind == "r2c" else v.at(result, (number, spec.result_step))
                self._set(sources, k, x)
                self._set(results, k, y)

            if spec.kind == "c2r":
                repeat(b, i64(0), live, 1, spectrum)
            repeat(b, i64(0), i64(w), 1, row)
            self._turn_in(sources, first)
            run_passes(v, radices, Scratch(v, first), Scratch(v, end), [second, first], "table")
            self._turn_out(end, results)
            if spec.kind == "r2c":
                repeat(b, i64(0), live, 1, spectrum)

        repeat(b, self.lo, self.hi, w, tile)

    def _turn_in(self, rows: Any, points: Any) -> None:
        """Numbers of as many rows as there are lanes to vectors of them: those of a point follow each other."""
        b, v, w, spec = self.b, self.v, self.w, self.spec
        count = (1 if spec.real else 2) * self.n

        def square(at: Any) -> None:
            live = b.sub(i64(count), at) if count % w else None
            mask = None if live is None else v.mask(live, 0)
            found = v.transpose([v.load(v.element(self._get(rows, i64(k)), at), mask) for k in range(w)])
            target = v.at(points, (at, (2 if spec.real else 1) * w))
            for k, value in enumerate(found):
                if spec.scale != 1:
                    value = b.fmul(value, v.number(spec.scale))
                if spec.real:
                    pair = (v.zero, value) if spec.inverse else (value, v.zero)
                    for part in (0, 1):
                        v.store(pair[part], v.element(target, i64((2 * k + part) * w)))
                else:
                    v.store(value, v.element(target, i64((k ^ spec.inverse) * w)))

        repeat(b, i64(0), i64(count), w, square)

    def _turn_out(self, points: Any, rows: Any) -> None:
        """The way back. What lies behind the last point is in no lane that is stored."""
        b, v, w, spec = self.b, self.v, self.w, self.spec
        count = 2 * self.n

        def square(at: Any) -> None:
            live = b.sub(i64(count), at) if count % w else None
            mask = None if live is None else v.mask(live, 0)
            source = v.at(points, (at, w))
            found = v.transpose([v.load(v.element(source, i64((k ^ spec.inverse) * w))) for k in range(w)])
            for k, value in enumerate(found):
                v.store(value, v.element(self._get(rows, i64(k)), at), mask)

        repeat(b, i64(0), i64(count), w, square)

    def _set(self, table: Any, number: Any, pointer: Any) -> None:
        self.b.store(pointer, self.b.gep(table, [number], source_etype=PTR))

    def _get(self, table: Any, number: Any) -> Any:
        return self.b.load(self.b.gep(table, [number], source_etype=PTR), typ=PTR)

    # ---- a long row as a matrix

    @property
    def column_blocks(self) -> int:
        return algorithm.blocks("columns", self.n, 1, self.w)

    @property
    def square_blocks(self) -> int:
        return algorithm.blocks("squares", self.n, 1, self.w)

    def clear_rest(self, between: Any) -> None:
        """Zeros behind the matrix, which lanes without a row compute on: what memory holds may be denormal numbers,
        which take a hundred times as long."""
        v, w = self.v, self.w
        if self.rows % w:
            rest = Scratch(v, v.at(between, (self.column_blocks * self.rows, 2 * w)))
            repeat(self.b, i64(0), i64(w), 1, lambda k: rest.store((v.zero, v.zero), rest.at(k), 0))

    def columns_of(self, x: Any, between: Any, scratch: list[Any], lo: Any, hi: Any) -> None:
        """Transforms of blocks of columns, which lie as they are computed: [block][row of the matrix][lane]."""
        b, v, spec, w = self.b, self.v, self.spec, self.w
        radices = algorithm.radices(self.rows)

        def block(k: Any) -> None:
            column = b.mul(k, i64(w))
            step = 1 if spec.real else 2
            live = b.sub(i64(self.columns), column) if self.columns % w else None
            source = Columns(
                v, v.at(x, (column, step)), step * self.columns, live, real=spec.real, swapped=spec.inverse
            )
            result = Scratch(v, v.at(between, (k, 2 * w * self.rows)))
            run_passes(v, radices, source, result, scratch, "columns")

        repeat(b, lo, hi, 1, block)

    def squares_of(self, between: Any, y: Any, scratch: list[Any], lo: Any, hi: Any) -> None:
        """Squares of the transformed columns turned, times w^(row column), and their rows transformed."""
        b, v, spec, w = self.b, self.v, self.spec, self.w
        padded = -(-self.columns // w) * w
        column, lane = np.arange(padded), np.arange(w)
        inner = roots(np.outer(column, lane), self.n) * spec.scale
        near = self.stored("near", np.stack([inner.real, inner.imag], 1))  # [column][part][lane]
        far = None
        if self.square_blocks > 1:
            rows = w * np.arange(self.square_blocks)
            far = self.stored("far", pairs(roots(np.outer(rows, column), self.n)))

        def block(k: Any) -> None:
            row = b.mul(k, i64(w))
            start = v.at(between, (row, 2 * w))
            turned = scratch[1]

            def square(number: Any) -> None:
                # a half of a square: real or imaginary parts of a block of columns
                columns, part = divide(b, number, 2)
                source = v.at(start, (columns, 2 * w * self.rows), (part, w))
                found = v.transpose([v.load(v.element(source, i64(2 * w * i))) for i in range(w)])
                target = v.at(turned, (columns, 2 * w * w), (part, w))
                for i, value in enumerate(found):
                    v.store(value, v.element(target, i64(2 * w * i)))

            repeat(b, i64(0), i64(2 * self.column_blocks), 1, square)
            factors = None if far is None else v.at(far, (k, 2 * padded))
            live = b.sub(i64(self.rows), row) if self.rows % w else None
            result = Columns(v, v.at(y, (row, 2)), 2 * self.rows, live, swapped=spec.inverse)
            points = Turned(v, turned, near, factors)
            run_passes(v, algorithm.radices(self.columns), points, result, scratch, "squares")

        repeat(b, lo, hi, 1, block)

    # ---- one pass of many rows, or of an array

    def _over(self, blocks: int, body: Callable[[Any, Any, Any], None]) -> None:
        """`body(row, lo, hi)` for the blocks of the range in each row."""
        b = self.b
        first, last = b.udiv(self.lo, i64(blocks)), b.udiv(b.add(self.hi, i64(blocks - 1)), i64(blocks))

        def row(k: Any) -> None:
            start = b.mul(k, i64(blocks))
            body(k, greatest(b, b.sub(self.lo, start), i64(0)), least(b, b.sub(self.hi, start), i64(blocks)))

        repeat(b, first, last, 1, row)
        b.ret_void()

    def all_columns(self) -> None:
        """The columns of rows, from operand 0 to memory."""
        v, spec, source, between = self.v, self.spec, self.operand(0), self.operand(1)
        scratch, numbers = self.scratch(self.rows), algorithm.memory_numbers(self.n, self.w)
        step = (1 if spec.real else 2) * self.n

        def blocks(row: Any, lo: Any, hi: Any) -> None:
            memory = v.at(between, (row, numbers))
            if self.rows % self.w:
                with self.b.if_then(self.b.icmp_signed("==", lo, i64(0))):
                    self.clear_rest(memory)
            self.columns_of(v.at(source, (row, step)), memory, scratch, lo, hi)

        self._over(self.column_blocks, blocks)

    def all_squares(self) -> None:
        """The squares of rows, from memory to operand 1."""
        v, between, result = self.v, self.operand(0), self.operand(1)
        scratch, numbers = self.scratch(self.columns + self.w), algorithm.memory_numbers(self.n, self.w)

        def blocks(row: Any, lo: Any, hi: Any) -> None:
            self.squares_of(v.at(between, (row, numbers)), v.at(result, (row, 2 * self.n)), scratch, lo, hi)

        self._over(self.square_blocks, blocks)

    def all_pairs(self) -> None:
        """Half spectra of rows from operand 0 to operand 1."""
        v, spec, source, result = self.v, self.spec, self.operand(0), self.operand(1)
        long, short = 2 * self.n + 2, 2 * self.n
        steps = (long, short) if spec.kind == "c2r" else (short, long)

        def blocks(row: Any, lo: Any, hi: Any) -> None:
            self.spectra.of_blocks(v.at(source, (row, steps[0])), v.at(result, (row, steps[1])), lo, hi)

        self._over(self.spectra.blocks, blocks)

    def all_mapped(self) -> None:
        """Rows of numbers, by an emitter of `Maps`."""
        v, source, result = self.v, self.operand(0), self.operand(1)
        one, taken, given = getattr(Maps(v, self.spec), self.spec.stage)()
        repeat(self.b, self.lo, self.hi, 1, lambda k: one(v.at(source, (k, taken)), v.at(result, (k, given))))
        self.b.ret_void()

    def all_strided(self) -> None:
        """Columns of an array (outer, points, inner), from operand 0 to operand 1."""
        b, v, spec, w = self.b, self.v, self.spec, self.w
        source, result, scratch = self.operand(0), self.operand(1), self.scratch(self.n)
        radices = algorithm.radices(self.n)
        blocks, spectrum = -(-spec.inner // w), (2 * self.n + 2) * spec.inner
        points = 2 * self.n * spec.inner
        steps = {
            "c2c": (points // 2 if spec.real else points, points),
            "r2c": (points, spectrum),
            "c2r": (spectrum, points),
        }
        width = (1 if spec.real or spec.kind == "r2c" else 2), (1 if spec.kind == "c2r" else 2)
        # Half a spectrum is in the scratch memory that the passes do not read and write at once.
        first, end = Scratch(v, scratch[1]), Scratch(v, scratch[(len(radices) - 1) % 2])

        def block(number: Any) -> None:
            outer, k = divide(b, number, blocks)
            column = b.mul(k, i64(w))
            live = b.sub(i64(spec.inner), column) if spec.inner % w else None
            x = v.at(source, (outer, steps[spec.kind][0]), (column, width[0]))
            y = v.at(result, (outer, steps[spec.kind][1]), (column, width[1]))
            if spec.kind == "c2r":
                self.spectra.beside(Columns(v, x, 2 * spec.inner, live), first)
            taken, given = self._strided(x, y, live)
            run_passes(v, radices, taken or first, given or end, scratch, "table")
            if spec.kind == "r2c":
                self.spectra.beside(end, Columns(v, y, 2 * spec.inner, live, scale=spec.scale))

        repeat(b, self.lo, self.hi, 1, block)
        b.ret_void()

    def _strided(self, x: Any, y: Any, live: Any) -> tuple[Points | None, Points | None]:
        """Columns of the operands, where they have the points themselves and not half a spectrum."""
        v, spec = self.v, self.spec
        inner, swapped = spec.inner, spec.inverse
        if spec.kind == "r2c":
            return RowPairs(v, x, inner, live), None
        if spec.kind == "c2r":
            return None, RowPairs(v, y, inner, live, swapped=True, scale=spec.scale)
        taken = Columns(v, x, (1 if spec.real else 2) * inner, live, real=spec.real, swapped=swapped)
        return taken, Columns(v, y, 2 * inner, live, swapped=swapped, scale=spec.scale)


_STAGES: dict[str, Callable[[_Emitter], None]] = {
    "rows": _Emitter.all_rows,
    "columns": _Emitter.all_columns,
    "squares": _Emitter.all_squares,
    "pairs": _Emitter.all_pairs,
    "strided": _Emitter.all_strided,
}


def _range(spec: Transform, cpu: CpuSpec) -> tuple[Size, int]:
    """Rows, of which short ones are taken side by side; or the blocks of all of them."""
    lanes = cpu.lanes(spec.dtype)
    if spec.stage == "rows":
        return spec.count, lanes if algorithm.by_rows(spec.points) else 1
    if spec.stage not in _STAGES:
        return spec.count, 1
    return spec.count * algorithm.blocks(spec.stage, spec.points, spec.inner, lanes), 1


TRANSFORM = Kind(
    emit=emit_transform,
    source=lambda spec, _: spec.code,
    range=_range,
    nanoseconds=lambda spec: spec.flops * algorithm.NS_PER_FLOP,
)
