"""A product of narrow operands as an LLVM function `void product(ptr buffers, i64 lo, i64 hi)` over units.

As blocked.py, but A too is packed, unless it has words already: one tile of rows after another, for all panels of the
unit. Elements beyond the end of k are zero in both. Panels are in scratch memory, each after a row of initial sums
if A is shifted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..... import dtypes
from .....schedule.kernels.gemm import Product
from ...kernels.gemm_blocking import Blocking
from ...kernels.low_precision import Format, in_place, shifted
from .. import ir
from ..convolution.pack import declared_turn
from ..kernel import KERNEL_TYPE
from ..types import I1, PTR, Literal
from ..vectors.packed_operands import SIGNS, Words, multiply_add
from .kernel import batch_offset, call_epilogue, own_table, set_pointer
from .tile import Tile, Vectors, emit_tile, greatest, i64, least, loop, repeat, share

Range = tuple[Any, Any]


def emit_narrow_product(
    module: ir.Module,
    name: str,
    product: Product,
    how: Format,
    blocking: Blocking,
    epilogue: ir.Function | None = None,
    turn: str = "",
    buffers: int = 0,
) -> ir.Function:
    """The function; `turn` makes lines columns (see convolution/pack.py), and is needed where B is transposed.

    If the result passes, the epilogue is given `buffers` pointers, with that of the result replaced.
    """
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.add("nounwind")
    _Product(function, product, how, blocking, epilogue, turn, buffers).emit()
    return function


class _Product:
    def __init__(
        self,
        function: ir.Function,
        product: Product,
        how: Format,
        blocking: Blocking,
        epilogue: ir.Function | None,
        turn: str,
        buffers: int,
    ) -> None:
        assert product.stored is not None
        self.product, self.how, self.blocking, self.epilogue = product, how, blocking, epilogue
        self.table, self.lo, self.hi = function.args
        b = self.b = function.build()
        self.v = Vectors(b, product.dtype, blocking.lanes)
        self.turn: Any = declared_turn(function.module, turn) if turn else None
        self.shifted, self.in_place = shifted(product, how), in_place(product, how)
        self.left = Words(b, product.stored[0], how, blocking.lanes, self.shifted)
        self.right = Words(b, product.stored[1], how, blocking.lanes)
        self.partial = product.n % blocking.columns != 0
        self.panel = (blocking.depth + self.shifted) * blocking.columns
        self.pitch = -(-blocking.rows // blocking.lanes) * blocking.lanes  # of a step of k in A, where it is transposed
        self.packed = self._memory(self.panel * blocking.unit_panels)
        self.rows = Literal(PTR, "null") if self.in_place else self._memory(self.pitch * blocking.depth)
        self.square: Any = self._memory(blocking.lanes**2) if turn else None
        if product.passing:
            self.strip = self._memory(blocking.rows * product.n)
            self.table = own_table(b, self.table, buffers)
        sizes = {blocking.rows} | ({blocking.rows - 1} if blocking.large < blocking.tiles else set())
        self.tiles = {
            rows: emit_tile(function.module, f"{function.name}_{rows}", self._tile(rows)) for rows in sorted(sizes)
        }

    def _memory(self, words: int) -> Any:
        return self.b.memory(self.v.scalar_type, words, ir.LINE)

    def _tile(self, rows: int) -> Tile:
        p, g = self.product, self.blocking
        a_row, a_step = (1, self.pitch) if p.a.transposed else (g.depth, 1)
        return Tile(
            dtype=p.dtype,
            lanes=g.lanes,
            rows=rows,
            vectors=g.vectors,
            a_row=p.a.row // self.how.group if self.in_place else a_row,
            a_step=a_step,
            b_step=g.columns,
            c_row=p.n,
            partial=self.partial,
            bounded=False,
            adds=g.depth * self.how.group < p.k,
            how=self.how,
            starts=self.shifted,
        )

    def emit(self) -> None:
        b, p, g = self.b, self.product, self.blocking
        a, right, c = (b.load(b.gep(self.table, [i64(k)], source_etype=PTR), typ=PTR) for k in range(3))

        def unit(index: Any) -> None:
            blocks = g.row_blocks * g.column_blocks
            matrix, block = b.udiv(index, i64(blocks)), b.urem(index, i64(blocks))
            tiles = share(b, b.urem(block, i64(g.row_blocks)), i64(g.row_blocks), i64(g.tiles))
            panels = share(b, b.udiv(block, i64(g.row_blocks)), i64(g.column_blocks), i64(g.panels))
            a_at = self.left.element(a, batch_offset(b, p.a, p.batch, matrix))
            b_at = self.right.element(right, batch_offset(b, p.b, p.batch, matrix))
            c_at = self.v.element(c, b.mul(matrix, i64(p.m * p.n)))
            depth = g.depth * self.how.group
            repeat(
                b,
                i64(0),
                i64(p.k),
                depth,
                lambda k: self._block_of_k(k, a_at, b_at, c_at, b.mul(matrix, i64(p.m)), tiles, panels),
            )

        repeat(b, self.lo, self.hi, 1, unit)
        b.ret_void()

    def _block_of_k(self, k: Any, a: Any, right: Any, c: Any, above: Any, tiles: Range, panels: Range) -> None:
        """`above`: rows of the result that belong to the matrices before."""
        b, p, g = self.b, self.product, self.blocking
        full = g.depth * self.how.group
        depth = least(b, i64(full), b.sub(i64(p.k), k))
        words = b.udiv(b.add(depth, i64(self.how.group - 1)), i64(self.how.group))
        first, last = b.icmp_signed("==", k, i64(0)), b.icmp_signed(">=", b.add(k, i64(full)), i64(p.k))
        a = self.left.element(a, b.mul(k, i64(p.a.column)))
        right = self.right.element(right, b.mul(k, i64(p.b.row)))
        self._pack(right, panels, depth, words)

        def tile(rows: int, t: Any) -> None:
            row = b.add(b.mul(t, i64(rows)), i64(0 if rows == g.rows else g.large))
            here = self.left.element(a, b.mul(row, i64(p.a.row)))
            if not self.in_place:
                self._pack_rows(here, rows, depth)
                here = self.rows

            def panel(j: Any) -> None:
                column = b.mul(j, i64(g.columns))
                live = least(b, i64(g.columns), b.sub(i64(p.n), column))
                above_it = i64(0) if p.passing else b.mul(row, i64(p.n))
                c_at = self.v.element(self.strip if p.passing else c, b.add(above_it, column))
                b.call(self.tiles[rows], [here, self._panel(b.sub(j, panels[0])), c_at, words, live, first])

            repeat(b, *panels, 1, panel)
            if self.epilogue is not None:
                start, columns = b.add(above, row), [b.mul(j, i64(g.columns)) for j in panels]
                if p.passing:  # the result would start there
                    set_pointer(b, self.table, 2, self.v.element(self.strip, b.mul(start, i64(-p.n))))
                with b.if_then(last):
                    ends = columns[0], least(b, columns[1], i64(p.n))
                    call_epilogue(b, self.epilogue, self.table, (start, b.add(start, i64(rows))), ends)

        repeat(b, tiles[0], least(b, tiles[1], i64(g.large)), 1, partial(tile, g.rows))
        if g.large < g.tiles:
            repeat(b, greatest(b, tiles[0], i64(g.large)), tiles[1], 1, partial(tile, g.rows - 1))

    def _panel(self, number: Any) -> Any:
        return self.v.element(self.packed, self.b.mul(number, i64(self.panel)))

    # ---- packing

    def _pack_rows(self, source: Any, rows: int, depth: Any) -> None:
        p, g, v = self.product, self.blocking, self.v
        if not p.a.transposed:
            self._lines(self.left, source, i64(p.a.row), i64(rows), self.rows, g.depth, depth)
            return
        masks = [self._first(rows - at) for at in range(0, self.pitch, g.lanes)]

        def word(lines: list[Any], number: Any) -> None:
            self._across(self.left, lines, v.element(self.rows, self.b.mul(number, i64(self.pitch))), masks)

        self._words(self.left, source, p.a.column, depth, word)

    def _pack(self, right: Any, panels: Range, depth: Any, words: Any) -> None:
        """Packs columns of panels as [panel][word][column]; columns beyond B are never stored by a tile."""
        b, p, g = self.b, self.product, self.blocking
        if p.b.transposed:
            repeat(b, *panels, 1, lambda j: self._pack_columns(right, b.sub(j, panels[0]), j, depth))
        else:
            whole = least(b, panels[1], i64(p.n // g.columns))
            live = b.sub(i64(p.n), b.mul(whole, i64(g.columns)))
            some = [self.v.mask(live, k) for k in range(g.vectors)] if self.partial else []

            def word(lines: list[Any], number: Any) -> None:  # to all panels: each has few bytes of a line
                def panel(j: Any, masks: list[Any]) -> None:
                    parts = [self.right.element(line, b.mul(j, i64(g.columns))) for line in lines]
                    self._across(self.right, parts, self._row(b.sub(j, panels[0]), number), masks)

                repeat(b, panels[0], whole, 1, lambda j: panel(j, [None] * g.vectors))
                if self.partial:
                    repeat(b, whole, panels[1], 1, lambda j: panel(j, some))

            self._words(self.right, right, p.b.row, depth, word)
        if self.shifted:
            repeat(b, i64(0), b.sub(panels[1], panels[0]), 1, lambda number: self._start(number, words))

    def _pack_columns(self, right: Any, number: Any, j: Any, depth: Any) -> None:
        """Packs one panel, whose columns are lines of memory."""
        b, g = self.b, self.blocking

        def group(first: Any) -> None:
            column = b.add(b.mul(j, i64(g.columns)), first)
            lines = least(b, i64(g.lanes), b.sub(i64(self.product.n), column))
            source = self.right.element(right, b.mul(column, i64(self.product.b.column)))
            self._turned(source, lines, self.v.element(self._row(number, i64(0)), first), depth)

        repeat(b, i64(0), i64(g.columns), g.lanes, group)

    def _row(self, number: Any, word: Any) -> Any:
        """Address of a word's row in a panel."""
        row = self.b.mul(self.b.add(word, i64(int(self.shifted))), i64(self.blocking.columns))
        return self.v.element(self._panel(number), row)

    def _start(self, number: Any, words: Any) -> None:
        """Stores the initial sums of a panel's columns: minus the excess that the shift of A adds."""
        b, v, g = self.b, self.v, self.blocking
        shift = Literal(self.right.type, SIGNS)

        def add(k: Any, sums: list[Any]) -> list[Any]:
            row = self._row(number, k)
            across = [v.load(v.element(row, i64(j * g.lanes))) for j in range(g.vectors)]
            return [multiply_add(b, self.how, shift, x, total) for x, total in zip(across, sums, strict=True)]

        for j, total in enumerate(loop(b, i64(0), words, 1, [v.zero] * g.vectors, add)):
            v.store(b.neg(total), v.element(self._panel(number), i64(j * g.lanes)))

    def _lines(self, x: Words, source: Any, step: Any, lines: Any, target: Any, pitch: int, depth: Any) -> None:
        """Lines of k that follow each other, `step` elements apart, to lines of words."""

        def line(i: Any) -> None:
            here = x.element(source, self.b.mul(i, step))
            there = self.v.element(target, self.b.mul(i, i64(pitch)))
            self._chunks(x, depth, lambda k, live: self._copy(x, here, k, live, self._word(there, x, k)))

        repeat(self.b, i64(0), lines, 1, line)

    def _turned(self, source: Any, lines: Any, target: Any, depth: Any) -> None:
        """Lines of k, at most as many as there are lanes, to columns of words: squares through registers."""
        b, g, x = self.b, self.blocking, self.right

        def square(k: Any, live: int | None) -> None:
            def line(i: Any) -> None:
                there = self.v.element(self.square, b.mul(i, i64(g.lanes)))
                self._copy(x, x.element(source, b.mul(i, i64(self.product.b.column))), k, live, there)

            repeat(b, i64(0), lines, 1, line)
            place = self.v.element(target, b.mul(b.udiv(k, i64(x.group)), i64(g.columns)))
            lanes = i64(g.lanes)
            b.call(self.turn, [self.square, lanes, place, i64(g.columns), lanes, lanes])

        self._chunks(x, depth, square)

    def _chunks(self, x: Words, depth: Any, body: Any) -> None:
        """`body(k, None)` for every whole vector of words along k, `body(k, live)` for the rest of the last."""
        b, tail = self.b, self.product.k % x.chunk
        whole = b.mul(b.udiv(depth, i64(x.chunk)), i64(x.chunk))
        repeat(b, i64(0), whole, x.chunk, lambda k: body(k, None))
        if tail:
            with b.if_then(b.icmp_signed("<", whole, depth)):
                body(whole, tail)

    def _copy(self, x: Words, source: Any, k: Any, live: int | None, target: Any) -> None:
        self._store(x.along(x.element(source, k), live), target)

    def _word(self, line: Any, x: Words, k: Any) -> Any:
        return self.v.element(line, self.b.udiv(k, i64(x.group)))

    def _words(self, x: Words, source: Any, step: int, depth: Any, body: Callable[[list[Any], Any], None]) -> None:
        """`body(lines, number)` for every word along k, with where the lines of its elements are, `step` apart."""
        b, tail = self.b, self.product.k % x.group

        def word(k: Any, count: int = x.group) -> None:
            lines = [x.element(source, b.mul(b.add(k, i64(i)), i64(step))) for i in range(count)]
            body(lines, b.udiv(k, i64(x.group)))

        whole = b.sub(depth, b.urem(depth, i64(x.group)))
        repeat(b, i64(0), whole, x.group, word)
        if tail:
            with b.if_then(b.icmp_signed("<", whole, depth)):
                word(whole, tail)

    def _across(self, x: Words, lines: list[Any], target: Any, masks: list[Any]) -> None:
        for j, mask in enumerate(masks):
            at = i64(j * x.lanes)
            self._store(x.across([x.element(line, at) for line in lines], mask), self.v.element(target, at))

    def _first(self, count: int) -> Any:
        """The mask of so many lanes."""
        lanes = self.blocking.lanes
        return None if count >= lanes else ir.Constant(ir.VectorType(I1, lanes), [int(k < count) for k in range(lanes)])

    def _store(self, word: Any, target: Any) -> None:
        self.b.store(word, target, align=dtypes.float32.itemsize)
