"""Reductions down columns with their accumulators in a row of scratch memory, so that rows are read from end to end.

    for b < 64 { for j < 1024 vector { s = reduce add over r < 64 of x[(b*64 + r)*1024 + j]; y[b*1024 + j] = s } }
 -> for b < 64 {
      for j < 1024 vector { t[j] = 0 }
      for q < 16 { for j < 1024 vector { s = reduce add over r < 4 of x[(b*64 + q*4 + r)*1024 + j]; t[j] = t[j] + s } }
      for j < 1024 vector { y[b*1024 + j] = t[j] } }

Registers hold a few vectors of accumulators: a loop over rows of more than those reads a piece of every row, and again
the next piece, which the hardware cannot foresee ([Note: Memory order] has times).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from ....loops.builder import LoopBuilder, identity
from ....loops.dependence import independent
from ....loops.ir import Buffer, Expr, For, Kernel, Reduce, Stmt, Store, extent, perfect_nest, serial
from ....loops.scalar import COMBINE
from ....loops.transforms import renamed
from ....sizes.dims import is_symbolic

_UNROLLED = (4, 3, 2, 1)  # rows added up before they are added to the accumulators, which are read and written once
_ROW = 2048  # elements of a row of accumulators: 8 KB, a quarter of the first-level cache
_MOST_BYTES = 1 << 16  # of all accumulators, which are in the scratch memory of a thread
_SHORTEST, _LONGEST = 16, 512  # rows from which on it pays; additions one after the other to one accumulator


def accumulated(s: LoopBuilder, kernel: Kernel, lanes: int) -> Kernel | None:
    """The kernel with accumulators in scratch memory; None where that does not apply."""
    loops, inside = perfect_nest(kernel.body)
    *outer, column = [loop.var for loop in loops]
    reduces = [stmt for stmt in inside if isinstance(stmt, Reduce)]
    stores = [stmt for stmt in inside if isinstance(stmt, Store)]
    if [*reduces, *stores] != [*inside]:
        return None
    if is_symbolic(extent(v) for v in (column, *(v for r in reduces for v in r.vars))):
        return None
    width = _width(extent(column))
    if width is None or not all(_fits(r) for r in reduces):
        return None
    if sum(width * r.value.dtype.itemsize for r in reduces) > _MOST_BYTES:
        return None
    chunks = extent(column) // width
    if chunks > 1:
        outer.append(s.var("i", chunks))
    if not outer or not independent(loops[-1]):
        return None
    body: list[Stmt] = []
    rows: list[tuple[Expr, Buffer]] = []  # results, and the accumulators that they are in

    def loop(make: Sequence[Store] | Sequence[Reduce | Store]) -> For:
        """A vector loop over the columns of the chunk; every loop has a variable of its own."""
        within = s.var("i", width)
        at = s.add(s.mul(outer[-1], width), within) if chunks > 1 else within
        mapping: dict[Expr, Expr] = {column: at, marker: within}
        mapping |= {result: s.load(row, within) for result, row in rows}
        return For(within, renamed(s, make, mapping), "vector")

    marker = s.var("i", width)  # the column inside of the chunk
    for variables, run in groupby(reduces, key=lambda r: r.vars):
        joined = list(run)
        *before, last = variables
        unroll = next(n for n in _UNROLLED if extent(last) % n == 0)
        group, within = s.var("r", extent(last) // unroll), s.var("r", unroll)
        place = {last: s.add(s.mul(group, unroll), within)}
        start: list[Store] = []
        step: list[Reduce | Store] = []
        made: list[tuple[Expr, Buffer]] = []
        memo: dict[Expr, Expr] = {}
        for r in joined:
            row = Buffer(f"sums{len(rows) + len(made)}", r.value.dtype, width, "scratch")
            start.append(Store(row, marker, s.const(identity(r.op, row.dtype), row.dtype)))
            value = s.substitute(r.value, place, memo)
            step.append(Reduce(s.reduction_result(r.op, value, (within,)), r.op, (within,), value))
            made.append((r.result, row))
        for (_, row), part in zip(made, [p for p in step if isinstance(p, Reduce)], strict=True):
            total = getattr(s, COMBINE[part.op])(s.load(row, marker), part.result)
            step.append(Store(row, marker, total))
        body += [loop(start), *serial([*before, group], (loop(step),))]
        rows += made
    body.append(loop(stores))
    scratch = tuple(row for _, row in rows)
    kind = loops[0].kind if len(loops) > 1 else "parallel"
    return Kernel((*kernel.buffers, *scratch), (For(outer[0], serial(outer[1:], body), kind),), lanes)


def _width(size: int) -> int | None:
    """Columns of a chunk: all of them, or a divisor."""
    if size <= 2 * _ROW:
        return size
    return next((n for n in range(_ROW, _ROW // 4, -16) if size % n == 0), None)


def _fits(r: Reduce) -> bool:
    rows = math.prod(map(extent, r.vars))
    additions = rows // next(n for n in _UNROLLED if extent(r.vars[-1]) % n == 0)
    return rows >= _SHORTEST and additions <= _LONGEST and not r.op.startswith("arg")
