"""A matrix product of our own as an LLVM function `void product(ptr buffers, i64 lo, i64 hi)` over units.

The loops around the micro-kernel of tile.py, cut as gemm_blocking.py says. Packed panels are in scratch memory. A
prologue computes a tile of rows of A for a block of k there, which then meets all panels of the unit. An epilogue runs
over each tile of rows when all of k has been added up there: over 14 rows of a unit, 7 to 28 KB in L1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from .....loops.ir import Kernel
from .....schedule.kernels.gemm import Product
from .....sizes.dims import Size, is_dim
from ...kernels.gemm_blocking import Blocking
from .. import ir
from ..convolution.pack import declared_turn
from ..kernel import KERNEL_TYPE
from ..sizes import Sizes
from ..types import PTR
from .computed import ComputedRows
from .kernel import batch_offset, call_epilogue
from .tile import AS_EMITTED, Tile, Vectors, emit_tile, i64, least, repeat, share

Range = tuple[Any, Any]
Starts = tuple[Any, Any, Any]  # of A, B and the result
Left = Callable[[Any, int], Any]  # a tile of rows: its first row, how many
Finish = Callable[[Any, int], None]


def emit_blocked_product(
    module: ir.Module,
    name: str,
    product: Product,
    blocking: Blocking,
    epilogue: ir.Function | None = None,
    turn: str = "",
    *,
    prologue: Kernel | None = None,
    sizes: int = 3,
    ahead: Sequence[int] = (),
) -> ir.Function:
    """`turn` is the function that makes lines columns (see conv_pack), if `turns` says that one is needed. `sizes` is
    where the table of sizes is, of a product whose rows come with the call. `ahead`: operands of the epilogue that are
    fetched while a tile is computed.
    """
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.update(AS_EMITTED)
    _Product(function, product, blocking, epilogue, turn, prologue, sizes, ahead).emit()
    return function


def turns(product: Product, blocking: Blocking) -> bool:
    return blocking.pack and product.b.transposed


class _Block(NamedTuple):
    """A block of k of a unit."""

    left: Left
    right: Any  # where it begins in B
    result: Any
    above: Any  # rows of the result that belong to the matrices before
    panels: Range
    depth: Any
    first: Any
    finish: Finish


class _Product:
    """The emission of one function: the blocking, the micro-kernels by their number of rows, and the place of the
    panels."""

    def __init__(
        self,
        function: ir.Function,
        product: Product,
        blocking: Blocking,
        epilogue: ir.Function | None,
        turn: str,
        prologue: Kernel | None,
        sizes_at: int,
        ahead: Sequence[int],
    ) -> None:
        self.product, self.blocking, self.epilogue = product, blocking, epilogue
        self.table, self.lo, self.hi = function.args
        self.b = function.build()
        self.v = Vectors(self.b, product.dtype, blocking.lanes)
        self.symbolic = product.symbolic
        if self.symbolic:
            table = self.b.load(self.b.gep(self.table, [i64(sizes_at)], source_etype=PTR), typ=PTR)
            self.sizes = Sizes(self.b, table, product.symbols)
            for size in (product.m, blocking.large, blocking.tiles, blocking.row_blocks):
                self.sizes.value(size)
        self.turn: Any = declared_turn(function.module, turn) if turn else None
        self.tail = blocking.tail < blocking.vectors
        self.partial = product.n % (blocking.lanes if self.tail else blocking.columns) != 0  # the last panel
        self.panel = blocking.depth * blocking.columns
        if blocking.pack:
            self.packed = self.b.memory(self.v.scalar_type, self.panel * blocking.unit_panels, ir.LINE)
        self.rows, self.right = None, 1  # where B is in the table
        if prologue is not None:
            self.rows = ComputedRows(self.b, self.table, function.name, product, blocking, prologue)
            self.right = self.rows.count
        self.ahead = tuple(self.right + 1 + number for number in ahead)
        sizes = {blocking.rows}
        if self.symbolic:
            sizes |= {*self._rests()}
        elif blocking.large < blocking.tiles:
            sizes.add(blocking.rows - 1)
        self.tiles = {
            (rows, vectors): emit_tile(function.module, f"{function.name}_{rows}_{vectors}", self._tile(rows, vectors))
            for rows in sorted(sizes)
            for vectors in sorted({blocking.vectors, blocking.tail})
        }

    def _rests(self) -> list[int]:
        """Heights of the tiles of the rows that are left: their bits, the highest first."""
        return [1 << bit for bit in reversed(range((self.blocking.rows - 1).bit_length()))]

    def size(self, size: Size) -> Any:
        return self.sizes.value(size) if is_dim(size) else i64(size)

    def _tile(self, rows: int, vectors: int) -> Tile:
        p, g = self.product, self.blocking
        a_row, a_step = p.a.row, p.a.column
        if p.computed:
            a_row, a_step = (1, g.pitch) if p.a.transposed else (g.pitch, 1)
        return Tile(
            dtype=p.dtype,
            lanes=g.lanes,
            rows=rows,
            vectors=vectors,
            a_row=a_row,
            a_step=a_step,
            far=p.a.transposed and not p.computed,
            b_step=g.columns if g.pack else p.b.row,
            c_row=p.n,
            partial=self.partial and vectors == g.tail,
            bounded=self.partial and vectors == g.tail and not g.pack,
            adds=g.depth < p.k,
            ahead=self.ahead,
        )

    def emit(self) -> None:
        b, p = self.b, self.product
        places = (0, self.right, self.right + 1)
        a, right, c = (b.load(b.gep(self.table, [i64(k)], source_etype=PTR), typ=PTR) for k in places)

        def unit(index: Any) -> None:
            row_blocks = self.size(self.blocking.row_blocks)
            if self.symbolic:  # one matrix
                matrix, block = i64(0), index
            else:
                blocks = self.blocking.row_blocks * self.blocking.column_blocks
                matrix, block = b.udiv(index, i64(blocks)), b.urem(index, i64(blocks))
            column_block, row_block = b.udiv(block, row_blocks), b.urem(block, row_blocks)
            starts = (
                self.v.element(a, batch_offset(b, p.a, p.batch, matrix)),
                self.v.element(right, batch_offset(b, p.b, p.batch, matrix)),
                c if self.symbolic else self.v.element(c, b.mul(matrix, i64(p.m * p.n))),
            )
            self._unit(starts, matrix if self.symbolic else b.mul(matrix, i64(p.m)), row_block, column_block)

        repeat(b, self.lo, self.hi, 1, unit)
        b.ret_void()

    def _unit(self, starts: Starts, above: Any, row_block: Any, column_block: Any) -> None:
        """`above`: rows of the result that belong to the matrices before."""
        b, p, g = self.b, self.product, self.blocking
        a, right, c = starts
        tiles = share(b, row_block, self.size(g.row_blocks), self.size(g.tiles))
        panels = share(b, column_block, i64(g.column_blocks), i64(g.panels))

        def block_of_k(k: Any) -> None:
            depth = least(b, i64(g.depth), b.sub(i64(p.k), k))
            a_at = self.v.element(a, b.mul(k, i64(p.a.column)))
            b_at = self.v.element(right, b.mul(k, i64(p.b.row)))
            if g.pack:
                self._pack(b_at, panels, depth)
            first, last = b.icmp_signed("==", k, i64(0)), b.icmp_signed(">=", b.add(k, i64(g.depth)), i64(p.k))

            def finish(row: Any, rows: int) -> None:
                if self.epilogue is None:
                    return
                row, columns = b.add(above, row), [b.mul(j, i64(g.columns)) for j in panels]
                with b.if_then(last):
                    ends = columns[0], least(b, columns[1], i64(p.n))
                    rows_here = (row, b.add(row, i64(rows)))
                    call_epilogue(b, self.epilogue, self.table, rows_here, ends, self.right + 1)

            def left(row: Any, rows: int) -> Any:
                """Address of the tile's rows of A, from this k on."""
                if self.rows is not None:
                    return self.rows.compute(row, rows, k, depth)
                return self.v.element(a_at, b.mul(row, i64(p.a.row)))

            large = (tiles[0], least(b, tiles[1], self.size(g.large)))
            block = _Block(left, b_at, c, above, panels, depth, first, finish)
            self._rows_of_tiles(g.rows, large, block)
            if self.symbolic:
                with b.if_then(b.icmp_signed(">", tiles[1], self.size(g.large))):
                    self._rest(block)
            elif g.large < g.tiles:
                small = (b.select(b.icmp_signed("<", tiles[0], i64(g.large)), i64(g.large), tiles[0]), tiles[1])
                self._rows_of_tiles(g.rows - 1, small, block)

        repeat(b, i64(0), i64(p.k), g.depth, block_of_k)

    def _rows_of_tiles(self, rows: int, tiles: Range, block: _Block) -> None:
        """The tiles of one height, each against every panel."""
        b, g = self.b, self.blocking
        skipped = 0 if rows == g.rows else g.large  # every larger tile before has one row more
        repeat(b, *tiles, 1, lambda t: self._rows_of_tile(rows, b.add(b.mul(t, i64(rows)), i64(skipped)), block))

    def _rest(self, block: _Block) -> None:
        """The rows behind the whole tiles, of a number that comes with the call."""
        b, rows = self.b, self.blocking.rows
        whole = b.mul(self.size(self.blocking.large), i64(rows))
        rest = b.sub(self.size(self.product.m), whole)
        for height in self._rests():
            with b.if_then(b.icmp_signed("!=", b.and_(rest, i64(height)), i64(0))):
                self._rows_of_tile(height, b.add(whole, b.and_(rest, i64(-2 * height))), block)

    def _rows_of_tile(self, rows: int, row: Any, block: _Block) -> None:
        b, p, g = self.b, self.product, self.blocking
        a_at, panels = block.left(row, rows), block.panels

        def panel(vectors: int, j: Any) -> None:
            column = b.mul(j, i64(g.columns))
            live = least(b, i64(g.columns), b.sub(i64(p.n), column))
            at = b.add(b.mul(row, i64(p.n)), column)
            b_at = self._panel(b.sub(j, panels[0])) if g.pack else self.v.element(block.right, column)
            arguments = [a_at, b_at, self.v.element(block.result, at), block.depth, live, block.first]
            if self.ahead:
                arguments += [self.table, b.add(b.mul(block.above, i64(p.n)), at)]
            b.call(self.tiles[rows, vectors], arguments)

        whole = least(b, panels[1], i64(g.whole_panels)) if self.tail else panels[1]
        repeat(b, panels[0], whole, 1, partial(panel, g.vectors))
        if self.tail:
            repeat(b, whole, panels[1], 1, partial(panel, g.tail))
        block.finish(row, rows)

    def _panel(self, number: Any) -> Any:
        return self.v.element(self.packed, self.b.mul(number, i64(self.panel)))

    def _pack(self, right: Any, panels: Range, depth: Any) -> None:
        """Packs columns of panels as [panel][depth][columns]; columns beyond B are never stored by a tile."""
        b, p, g = self.b, self.product, self.blocking
        if p.b.transposed:

            def panel(j: Any) -> None:
                target, column = self._panel(b.sub(j, panels[0])), b.mul(j, i64(g.columns))

                def group(first: Any) -> None:
                    self._pack_transposed(right, b.add(column, first), self.v.element(target, first), depth)

                repeat(b, i64(0), i64(g.columns), g.lanes, group)

            repeat(b, *panels, 1, panel)
            return
        whole = least(b, panels[1], i64(p.n // g.columns))

        def row(k: Any) -> None:  # a row at once: panels are narrow, and far apart in memory are their rows
            repeat(b, panels[0], whole, 1, lambda j: self._pack_row(right, b.sub(j, panels[0]), j, k, None))
            if p.n % g.columns:
                live = b.sub(i64(p.n), b.mul(whole, i64(g.columns)))
                repeat(b, whole, panels[1], 1, lambda j: self._pack_row(right, b.sub(j, panels[0]), j, k, live))

        repeat(b, i64(0), depth, 1, row)

    def _pack_row(self, right: Any, number: Any, j: Any, k: Any, live: Any) -> None:
        """Packs a row of one panel, which has fewer columns than others where `live` is given."""
        b, v, p, g = self.b, self.v, self.product, self.blocking
        here = v.element(right, b.add(b.mul(k, i64(p.b.row)), b.mul(j, i64(g.columns))))
        there = v.element(self._panel(number), b.mul(k, i64(g.columns)))
        for i in range(g.vectors):
            mask = None if live is None else v.mask(live, i)
            v.store(v.load(v.element(here, i64(i * g.lanes)), mask), v.element(there, i64(i * g.lanes)))

    def _pack_transposed(self, right: Any, column: Any, target: Any, depth: Any) -> None:
        """Packs B from [column][k]: squares of as many columns as a vector has lanes, through registers."""
        b, v, p, g = self.b, self.v, self.product, self.blocking
        line, lines = v.element(right, b.mul(column, i64(p.b.column))), b.sub(i64(p.n), column)

        def square(k: Any) -> None:
            place = v.element(target, b.mul(k, i64(g.columns)))
            step = i64(p.b.column)
            b.call(self.turn, [v.element(line, k), step, place, i64(g.columns), lines, b.sub(depth, k)])

        repeat(b, i64(0), depth, g.lanes, square)
