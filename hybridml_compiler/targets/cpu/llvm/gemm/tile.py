"""The micro-kernel of a matrix product: one tile of the result, over a block of k, whose blocks are added in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....record import record
from ...kernels.low_precision import FLOATS, Format
from .. import ir
from ..contraction.loops import i64, least, loop, share
from ..contraction.micro_kernel import MicroKernel, Sums
from ..types import I1, I64, PTR

_LINE = 64  # bytes
ARGUMENTS = [PTR, PTR, PTR, I64, I64, I1]  # a, b, c, depth, live columns, first?
FETCHING = [*ARGUMENTS, PTR, I64]  # table, element of the matrices in it
# Steps of k that a transposed A is fetched ahead, as every step reads another line of it; and bytes to the right, from
# memory into L2, that later tiles read ([Note: Prefetching]).
PREFETCH = 8
FAR = 2 * _LINE


@record
class Tile:
    """Strides are in elements: A at a + i * a_row + k * a_step, B at b + k * b_step, C at c + i * c_row."""

    dtype: np.dtype
    lanes: int
    rows: int
    vectors: int
    a_row: int
    a_step: int
    b_step: int
    c_row: int
    partial: bool = False  # some tiles have fewer columns than their vectors have lanes
    bounded: bool = False  # B is read in place: beyond the live columns there may be no memory
    adds: bool = False  # k is cut into blocks: all but the first add to the result
    how: Format = FLOATS  # contents of a word of A and of B; a step of k is a word
    far: bool = False  # every step of k reads lines of A that no step before has read
    starts: bool = False  # sums start with the first row of B, which is no part of it
    ahead: tuple[int, ...] = ()  # operands of the table whose lines at the tile's place are fetched meanwhile


def emit_tile(module: ir.Module, name: str, tile: Tile) -> ir.Function:
    """`void tile(ptr a, ptr b, ptr c, i64 depth, i64 live, i1 first)`, depth > 0, 0 < live <= lanes * vectors.

    One with `ahead` takes a table of matrices, as large as that of c, too, and the element where the tile begins; it
    fetches them, a row each few steps of k.
    """
    arguments = FETCHING if tile.ahead else ARGUMENTS
    t = MicroKernel(module, name, arguments, tile.dtype, tile.lanes, tile.vectors, tile.how)
    a, right, c, depth, live, first, *place = t.args
    v, rows = t.v, range(tile.rows)
    masks = v.masks(live, tile.vectors, tile.partial)
    sums = t.zeros(tile.rows)
    if tile.starts:
        sums = t.across(right) * tile.rows
        right = v.element(right, i64(tile.b_step))

    def step(k: Any, sums: Sums) -> Sums:
        across = t.across(v.at(right, (k, tile.b_step)), masks if tile.bounded else None)
        column = v.at(a, (k, tile.a_step))
        if tile.far:
            v.prefetch(v.element(column, i64(PREFETCH * tile.a_step)))
            v.prefetch(v.element(column, i64(FAR // tile.dtype.itemsize)), 2)
        return t.outer((t.down(v.element(column, i64(i * tile.a_row))) for i in rows), across, sums)

    if not tile.ahead:
        sums = loop(t.b, i64(0), depth, 1, sums, step)
    else:
        # As many parts as the tile has rows, if steps are enough, and before each a row is fetched of those that the
        # epilogue reads and writes ([Note: Prefetching]). Where k is cut into blocks the loop around the parts costs as
        # much as it gains.
        parts = least(t.b, i64(tile.rows), depth)
        bases = [v.element(t.b.operand(place[0], k), place[1]) for k in tile.ahead]

        def part(number: Any, sums: Sums) -> Sums:
            for base in bases:
                row = v.at(base, (number, tile.c_row))
                for line in range(0, tile.vectors * tile.lanes * tile.dtype.itemsize, _LINE):
                    v.prefetch(v.element(row, i64(line // tile.dtype.itemsize)), 2)
            return loop(t.b, *share(t.b, number, parts, depth), 1, sums, step)

        sums = loop(t.b, i64(0), parts, 1, sums, part)
    return t.store(c, [i * tile.c_row for i in rows], masks, sums, unless=first if tile.adds else None)
