"""Products of few rows as LLVM functions `void product(ptr buffers, i64 lo, i64 hi)` over units.

Rows of B are read once, in place; the planner's gemv.py has the order of the sums. Where columns are left over, the
last tile of dot products overlaps the one before, and computes the same bits again; of updates it is masked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .....record import record
from .....schedule.kernels.gemm import Product
from ...kernels.gemv import BROADCAST, SUMS, Axpys, Gemv
from .. import ir
from ..contraction.emission import Emission, Range
from ..contraction.loops import divide, i64, least, loop, repeat, share
from ..contraction.micro_kernel import MicroKernel
from ..contraction.vectors import Vectors, prefix
from ..types import I32, PTR
from .operands import batch_offset


@record(frozen=False, eq=False)
class Dots(Emission[Product, Gemv]):
    def emit(self) -> ir.Function:
        b, v, p, g, (a, right, c) = self.b, self.v, self.call, self.plan, self.buffers(3)
        tiles = self._tiles()

        def unit(index: Any) -> None:
            matrix, block = divide(b, index, g.blocks)
            a_at = v.element(a, batch_offset(b, p.a, p.batch, matrix))
            b_at = v.element(right, batch_offset(b, p.b, p.batch, matrix))
            c_at = v.at(c, (matrix, p.m * p.n))
            first, following = (b.mul(b.add(block, i64(k)), i64(g.block)) for k in (0, 1))
            end = b.select(b.icmp_signed("==", block, i64(g.blocks - 1)), i64(p.n), following)

            self._rows(tiles, (a_at, b_at, c_at), first, end)
            above = b.mul(matrix, i64(p.m))
            self.finish((above, b.add(above, i64(p.m))), (first, end))

        return self.over_units(unit)

    def emit_rows(self) -> ir.Function:
        """Over rows lo to hi of one B, at least as many as a tile has."""
        v, p, (a, right, c) = self.v, self.call, self.buffers(3)
        starts = v.element(a, i64(p.a.offset)), v.element(right, i64(p.b.offset)), c
        self._rows(self._tiles(), starts, self.lo, self.hi)
        self.finish((i64(0), i64(p.m)), (self.lo, self.hi))
        self.b.ret_void()
        return self.function

    def _tiles(self) -> dict[int, ir.Function]:
        """The functions of tiles, by their rows of A."""
        g = self.plan
        sizes = {g.rows} | ({g.rows - 1} if g.large < g.tiles else set())
        return {rows: _emit_tile(self.module, f"{self.name}_{rows}", self.call, g, rows) for rows in sorted(sizes)}

    def _rows(self, tiles: Mapping[int, ir.Function], starts: Sequence[Any], first: Any, end: Any) -> None:
        """Rows `first` to `end` of B by all of A: columns of the result."""
        b, v, p, g, (a_at, b_at, c_at) = self.b, self.v, self.call, self.plan, starts

        def columns(j: Any) -> None:
            j = least(b, j, b.sub(end, i64(g.columns)))
            here, there = v.at(b_at, (j, p.b.column)), v.element(c_at, j)
            row = 0
            for tile in range(g.tiles):
                rows = g.rows if tile < g.large else g.rows - 1
                b.call(tiles[rows], [v.element(a_at, i64(row * p.a.row)), here, v.element(there, i64(row * p.n))])
                row += rows

        repeat(b, first, end, g.columns, columns)


def _emit_tile(module: ir.Module, name: str, product: Product, dots: Gemv, rows: int) -> ir.Function:
    """`void tile(ptr a, ptr b, ptr c)`, over all of k."""
    t = MicroKernel(module, name, [PTR, PTR, PTR], product.dtype, dots.lanes)
    b, v, (a, right, c) = t.b, t.v, t.args
    columns, parts = range(dots.columns), range(SUMS // dots.lanes)
    a_rows = [v.element(a, i64(i * product.a.row)) for i in range(rows)]
    b_rows = [v.element(right, i64(j * product.b.column)) for j in columns]
    following = i64(dots.columns * product.b.column)

    def step(k: Any, sums: list[Any], live: int = SUMS) -> list[Any]:
        updated = []
        for part in parts:
            at, mask = b.add(k, i64(part * dots.lanes)), None
            if live < SUMS:
                mask = prefix(dots.lanes, live - part * dots.lanes)
            down = [v.load(v.element(row, at), mask) for row in a_rows]
            for j, row in enumerate(b_rows):
                if dots.far and live == SUMS and part == 0:
                    v.prefetch(v.element(v.element(row, following), at), level=2)
                across = v.load(v.element(row, at), mask)
                before = sums[(part * len(columns) + j) * rows :]
                updated += [v.fma(value, across, total) for value, total in zip(down, before, strict=False)]
        return updated

    left = product.k % SUMS
    sums = loop(b, i64(0), i64(product.k - left), SUMS, t.zeros(len(parts) * len(columns) * rows), step)
    if left:
        sums = step(i64(product.k - left), sums, left)
    for i in range(rows):
        totals = _total(b, [[sums[(part * len(columns) + j) * rows + i] for part in parts] for j in columns])
        Vectors(b, product.dtype, len(columns)).store(totals, v.element(c, i64(i * product.n)))
    b.ret_void()
    return t.function


@record(frozen=False, eq=False)
class Updates(Emission[Product, Axpys]):
    optimized: bool = True

    def emit(self) -> ir.Function:
        b, v, p, plan, (a, right, c) = self.b, self.v, self.call, self.plan, self.buffers(3)
        n, k_end = self.size(p.n), self.size(p.k)
        batch = [size for x in (p.a, p.b) for size in (x.offset, *x.batch, x.row, x.column)]
        for size in (*batch, *p.batch, plan.blocks):  # before all loops
            self.size(size)

        def unit(index: Any) -> None:
            matrix, block = divide(b, index, self.size(plan.blocks))
            rows: tuple[Any, Any] = i64(0), k_end
            if p.blocks > 1:
                rows, row, matrix = share(b, matrix, i64(p.blocks), k_end), matrix, i64(0)
            a_at = v.element(a, batch_offset(b, p.a, p.batch, matrix, self.size))
            b_at = v.element(right, batch_offset(b, p.b, p.batch, matrix, self.size))
            c_at = v.element(c, b.mul(matrix if p.blocks == 1 else row, n))
            first = b.mul(block, i64(plan.block))
            columns = first, least(b, b.add(first, i64(plan.block)), n)
            self._over_columns(columns, lambda j, mask: v.store(v.zero, v.element(c_at, j), mask))
            self._rows((a_at, b_at, c_at), rows, columns)
            self.finish((matrix, b.add(matrix, i64(1))), columns)

        return self.over_units(unit)

    def emit_rows(self) -> ir.Function:
        """Rows lo to hi of one B, added to a row of the result, or put there where they are the first."""
        v, p, (a, right, c) = self.v, self.call, self.buffers(3)
        starts = v.element(a, i64(p.a.offset)), v.element(right, i64(p.b.offset)), c
        self._rows(starts, (self.lo, self.hi), (i64(0), i64(p.n)))
        self.b.ret_void()
        return self.function

    def emit_zeros(self) -> ir.Function:
        """A row of the result."""
        v, c = self.v, self.buffer(2)
        columns = i64(0), i64(self.call.n)
        self._over_columns(columns, lambda j, mask: v.store(v.zero, v.element(c, j), mask))
        self.b.ret_void()
        return self.function

    def _over_columns(self, columns: Range, body: Callable[[Any, Any], None]) -> None:
        """`body(column, mask)` of each vector."""
        b, v, (first, end) = self.b, self.v, columns
        tail = b.urem(b.sub(end, first), i64(self.plan.lanes))
        whole = b.sub(end, tail)
        repeat(b, first, whole, self.plan.lanes, lambda j: body(j, None))
        with b.if_then(b.icmp_signed("<", whole, end)):
            body(whole, v.mask(tail, 0))

    def _rows(self, starts: Sequence[Any], rows: Range, columns: Range) -> None:
        """Adds columns of some rows of B, each times its element of A."""
        b, v, p, (a_at, b_at, c_at), (first, end) = self.b, self.v, self.call, starts, rows
        a_step, b_step = self.size(p.a.column), self.size(p.b.row)
        whole = ir.known(end)  # of all of k, from 0 on
        last = b.sub(end, b.urem(b.sub(end, first), i64(BROADCAST)) if whole is None else i64(whole % BROADCAST))

        def some(k: Any, count: int) -> None:
            steps = [b.add(k, i64(r)) for r in range(count)]
            values = [v.splat(v.scalar(v.element(a_at, b.mul(step, a_step)))) for step in steps]
            places = [v.element(b_at, b.mul(step, b_step)) for step in steps]

            def column(j: Any, mask: Any) -> None:
                total = v.load(v.element(c_at, j), mask)
                for value, place in zip(values, places, strict=True):
                    total = v.fma(value, v.load(v.element(place, j), mask), total)
                v.store(total, v.element(c_at, j), mask)

            self._over_columns(columns, column)

        repeat(b, first, last, BROADCAST, lambda k: some(k, BROADCAST))
        if whole is None:
            repeat(b, last, end, 1, lambda k: some(k, 1))
        elif whole % BROADCAST:
            some(last, whole % BROADCAST)


def _total(b: ir.IRBuilder, sums: list[list[Any]]) -> Any:
    """The sum of each list of vectors, as one vector. Two vectors of one sum are added; then two sums are halved into
    one vector, as long as there are two."""
    while (parts := len(sums[0])) > 1:
        sums = [[b.fadd(x, y) for x, y in zip(s[: parts // 2], s[parts // 2 :], strict=True)] for s in sums]
    vectors = [one for (one,) in sums]
    width = vectors[0].type.count
    while width > 1:
        pairs = zip(vectors[::2], vectors[1::2] or [None], strict=True)
        vectors = [_halves(b, x, y, width) for x, y in pairs]
        width //= 2
    return vectors[0]


def _halves(b: ir.IRBuilder, x: Any, y: Any, width: int) -> Any:
    """For every `width` lanes of x, then of y, the lower half plus the upper."""
    lanes = np.arange(x.type.count * (1 if y is None else 2)).reshape(-1, 2, width // 2)
    low, high = (ir.Constant(ir.VectorType(I32, lanes[:, h].size), lanes[:, h].ravel().tolist()) for h in (0, 1))
    other = x if y is None else y
    return b.fadd(b.shuffle_vector(x, other, low), b.shuffle_vector(x, other, high))
