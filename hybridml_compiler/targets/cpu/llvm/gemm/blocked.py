"""A matrix product of our own as an LLVM function `void product(ptr buffers, i64 lo, i64 hi)` over units.

The loops around the micro-kernel of tile.py, cut as gemm_blocking.py says. Panels, and rows that are packed or
computed, are in scratch memory: a tile of rows for a block of k, which then meets all panels of the unit. An epilogue
runs over each tile of rows when all of k has been added up there: over 14 rows of a unit, 7 to 28 KB in L1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from .....loops.ir import Kernel
from .....record import record
from .....schedule.kernels.gemm import Product
from ...kernels.gemm_blocking import Blocking
from ...kernels.low_precision import FLOATS, Format, in_place, shifted
from .. import ir
from ..contraction.emission import Emission, Range
from ..contraction.loops import ceiling, divide, greatest, i64, least, repeat, share
from ..contraction.words import Words
from .operands import ComputedRows, PackedPanels, PackedRows, Panels, Rows, batch_offset
from .tile import Tile, emit_tile


class _Block(NamedTuple):
    """A block of k of a unit."""

    left: Any  # where it begins in A
    right: Any  # and in B
    result: Any
    above: Any  # rows of the result that belong to the matrices before
    panels: Range
    k: Any
    depth: Any
    first: Any
    last: Any


@record(frozen=False, eq=False)
class BlockedProduct(Emission[Product, Blocking]):
    """The emission of one function: the operands, and the micro-kernels by their numbers of rows and of vectors.

    `how`: the words of operands that are stored narrower. `ahead`: operands of the epilogue that are fetched while a
    tile is computed. If the result passes, the epilogue is given a copy of the buffers, with the result's replaced.
    """

    how: Format = FLOATS
    prologue: Kernel | None = None
    ahead: Sequence[int] = ()

    def __post_init__(self) -> None:
        self.optimized = self.call.stored is not None
        super().__post_init__()
        p, g, how = self.call, self.plan, self.how
        self.symbolic = p.symbolic
        for size in (p.m, g.large, g.tiles, g.row_blocks):
            self.size(size)
        self.tail = g.tail < g.vectors
        self.partial = p.n % (g.lanes if self.tail else g.columns) != 0  # the last panel
        of_a, of_b = p.stored or (p.dtype, p.dtype)
        starts = p.stored is not None and shifted(p, how)
        self.left, self.right = Words(self.b, of_a, how, g.lanes, starts), Words(self.b, of_b, how, g.lanes)
        packed = g.pack or p.stored is not None
        self.panels = PackedPanels(self, self.right, how, starts) if packed else Panels(self.right, p, g)
        self.before, self.rows = 1, Rows(self.left, p)  # operands before B
        if self.prologue is not None:
            self.rows = ComputedRows(self, self.prologue)
            self.before = self.rows.count
        elif p.stored is not None and not in_place(p, how):
            self.rows = PackedRows(self, self.left)
        if p.passing:
            self.strip = self.memory(g.rows * p.n)
            self.own_table()
        self.fetched = tuple(self.before + 1 + number for number in self.ahead)
        sizes = {g.rows}
        if self.symbolic:
            sizes |= {*self._rests()}
        elif g.large < g.tiles:
            sizes.add(g.rows - 1)
        self.tiles = {
            (rows, vectors): self._tile(rows, vectors, starts, packed)
            for rows in sorted(sizes)
            for vectors in sorted({g.vectors, g.tail})
        }

    def _rests(self) -> list[int]:
        """Heights of the tiles of the rows that are left: their bits, the highest first."""
        return [1 << bit for bit in reversed(range((self.plan.rows - 1).bit_length()))]

    def _tile(self, rows: int, vectors: int, starts: bool, packed: bool) -> ir.Function:
        p, g = self.call, self.plan
        partial = self.partial and vectors == g.tail
        tile = Tile(
            dtype=p.dtype,
            lanes=g.lanes,
            rows=rows,
            vectors=vectors,
            a_row=self.rows.row,
            a_step=self.rows.step,
            b_step=self.panels.step,
            c_row=p.n,
            partial=partial,
            bounded=partial and not packed,
            adds=g.depth * self.how.group < p.k,
            how=self.how,
            far=p.a.transposed and type(self.rows) is Rows,
            starts=starts,
            ahead=self.fetched,
        )
        return emit_tile(self.module, f"{self.name}_{rows}_{vectors}", tile)

    def emit(self) -> ir.Function:
        b, p, g = self.b, self.call, self.plan
        a, right, c = (self.buffer(k) for k in (0, self.before, self.before + 1))

        def unit(index: Any) -> None:
            if self.symbolic:  # one matrix
                matrix, block = i64(0), index
            else:
                matrix, block = divide(b, index, g.row_blocks * g.column_blocks)
            row_blocks = self.size(g.row_blocks)
            column_block, row_block = b.udiv(block, row_blocks), b.urem(block, row_blocks)
            a_at = self.left.element(a, batch_offset(b, p.a, p.batch, matrix))
            b_at = self.right.element(right, batch_offset(b, p.b, p.batch, matrix))
            c_at = c if self.symbolic else self.v.at(c, (matrix, p.m * p.n))
            above = matrix if self.symbolic else b.mul(matrix, i64(p.m))
            tiles = share(b, row_block, row_blocks, self.size(g.tiles))
            panels = share(b, column_block, i64(g.column_blocks), i64(g.panels))
            full = g.depth * self.how.group

            def block_of_k(k: Any) -> None:
                depth = least(b, i64(full), b.sub(i64(p.k), k))
                left, right = self.left.at(a_at, (k, p.a.column)), self.right.at(b_at, (k, p.b.row))
                self.panels.pack(right, panels, depth)
                first, last = b.icmp_signed("==", k, i64(0)), b.icmp_signed(">=", b.add(k, i64(full)), i64(p.k))
                self._rows(tiles, _Block(left, right, c_at, above, panels, k, depth, first, last))

            repeat(b, i64(0), i64(p.k), full, block_of_k)

        return self.over_units(unit)

    def _rows(self, tiles: Range, block: _Block) -> None:
        """The tiles of rows of a unit: the larger ones, then the smaller ones, or the rows that are left."""
        b, g = self.b, self.plan

        def of_height(rows: int, skipped: int) -> Callable[[Any], None]:  # every larger tile before has one row more
            return lambda t: self._row(rows, b.add(b.mul(t, i64(rows)), i64(skipped)), block)

        repeat(b, tiles[0], least(b, tiles[1], self.size(g.large)), 1, of_height(g.rows, 0))
        if self.symbolic:
            with b.if_then(b.icmp_signed(">", tiles[1], self.size(g.large))):
                whole = b.mul(self.size(g.large), i64(g.rows))
                rest = b.sub(self.size(self.call.m), whole)
                for height in self._rests():
                    with b.if_then(b.icmp_signed("!=", b.and_(rest, i64(height)), i64(0))):
                        self._row(height, b.add(whole, b.and_(rest, i64(-2 * height))), block)
        elif g.large < g.tiles:
            repeat(b, greatest(b, tiles[0], i64(g.large)), tiles[1], 1, of_height(g.rows - 1, g.large))

    def _row(self, rows: int, row: Any, block: _Block) -> None:
        """One tile of rows, against every panel."""
        b, p, g, panels = self.b, self.call, self.plan, block.panels
        a_at = self.rows.of_tile(block.left, row, rows, block.k, block.depth)
        words = ceiling(b, block.depth, self.how.group)

        def panel(vectors: int, j: Any) -> None:
            column = b.mul(j, i64(g.columns))
            live = least(b, i64(g.columns), b.sub(i64(p.n), column))
            at = column if p.passing else b.add(b.mul(row, i64(p.n)), column)
            out = self.v.element(self.strip if p.passing else block.result, at)
            b_at = self.panels.panel(block.right, j, panels[0])
            arguments = [a_at, b_at, out, words, live, block.first]
            if self.fetched:
                arguments += [self.table, b.add(b.mul(block.above, i64(p.n)), at)]
            b.call(self.tiles[rows, vectors], arguments)

        whole = least(b, panels[1], i64(g.whole_panels)) if self.tail else panels[1]
        repeat(b, panels[0], whole, 1, partial(panel, g.vectors))
        if self.tail:
            repeat(b, whole, panels[1], 1, partial(panel, g.tail))
        if self.epilogue is None:
            return
        start, (low, high) = b.add(block.above, row), (b.mul(j, i64(g.columns)) for j in panels)
        if p.passing:  # the result would start there
            self.replace_buffer(2, self.v.at(self.strip, (start, -p.n)))
        with b.if_then(block.last):
            self.finish((start, b.add(start, i64(rows))), (low, least(b, high, i64(p.n))), self.before + 1)
