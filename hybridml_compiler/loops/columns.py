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

from ..record import replace
from ..sizes.dims import is_symbolic
from .builder import LoopBuilder, identity
from .ir import Buffer, Expr, For, Reduce, Stmt, Store, extent

_UNROLLED = (4, 3, 2, 1)  # rows added up before they are added to the accumulators, which are read and written once
_ROW = 2048  # elements of a row of accumulators: 8 KB, a quarter of the first-level cache
_MOST_BYTES = 1 << 16  # of all accumulators, which are in the scratch memory of a thread
_SHORTEST, _LONGEST = 16, 512  # rows from which on it pays; additions one after the other to one accumulator


def accumulated(
    s: LoopBuilder, vars_: Sequence[Expr], reduces: Sequence[Reduce], stores: Sequence[Store]
) -> tuple[Stmt, ...] | None:
    """The loop nest with accumulators in scratch memory, loops over `vars_` included; None where it does not apply."""
    *outer, column = vars_
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
    if not outer:
        return None
    body: list[Stmt] = []
    rows: list[tuple[Expr, Buffer]] = []  # results, and the accumulators that they are in

    def loop(make: Sequence[Store] | Sequence[Reduce | Store]) -> For:
        """A vector loop over the columns of the chunk; every loop has a variable of its own."""
        inside = s.var("i", width)
        at = s.add(s.mul(outer[-1], width), inside) if chunks > 1 else inside
        mapping: dict[Expr, Expr] = {column: at, marker: inside}
        mapping |= {result: s.load(row, inside) for result, row in rows}
        memo: dict[Expr, Expr] = {}
        stmts: list[Stmt] = []
        for stmt in make:
            if isinstance(stmt, Reduce):
                value = s.substitute(stmt.value, mapping, memo)
                result = s.reduction_result(stmt.op, value, stmt.vars)
                mapping[stmt.result] = result
                stmts.append(replace(stmt, result=result, value=value))
            else:
                index, value = (s.substitute(e, mapping, memo) for e in (stmt.index, stmt.value))
                stmts.append(Store(stmt.buffer, index, value))
        return For(inside, tuple(stmts), vector=True)

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
            total = getattr(s, _COMBINE.get(part.op, part.op))(s.load(row, marker), part.result)
            step.append(Store(row, marker, total))
        inner: Stmt = loop(step)
        for var in (group, *reversed(before)):
            inner = For(var, (inner,))
        body += [loop(start), inner]
        rows += made
    body.append(loop(stores))
    nest: tuple[Stmt, ...] = tuple(body)
    for var in reversed(outer):
        nest = (For(var, nest),)
    return nest


_COMBINE = {"min": "minimum", "max": "maximum", "and": "and_", "or": "or_"}


def _width(size: int) -> int | None:
    """Columns of a chunk: all of them, or a divisor."""
    if size <= 2 * _ROW:
        return size
    return next((n for n in range(_ROW, _ROW // 4, -16) if size % n == 0), None)


def _fits(r: Reduce) -> bool:
    rows = math.prod(map(extent, r.vars))
    additions = rows // next(n for n in _UNROLLED if extent(r.vars[-1]) % n == 0)
    return rows >= _SHORTEST and additions <= _LONGEST and not r.op.startswith("arg")
