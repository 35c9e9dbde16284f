"""Reductions: accumulators in registers, in lanes along the reduced axis or across it; the shape fixes the order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from .... import dtypes
from ....loops.builder import identity
from ....loops.index import coefficient
from ....loops.ir import Expr, Reduce, extent
from ....sizes.dims import Size, at_most, is_dim
from ..spec import CpuSpec
from . import ir
from .emitter import LoopEmitter
from .scalars import Lanes
from .types import constant

_CASCADE = 256  # additions in a row before a float sum starts a new partial sum
_UNROLLED = 4  # iterations that are written out


def reduce(e: LoopEmitter, joined: Sequence[Reduce]) -> list[Lanes]:
    """The results of reductions over the same variables, computed in one loop."""
    first = joined[0]
    if first.op in ("argmin", "argmax"):
        return [_position(e, first)]
    if first.kind == "vector":
        return _in_lanes(e, joined)
    if len(first.vars) == 1 and _unrolls(extent(first.vars[0])):
        return _unrolled(e, joined)
    widths = [_width(e, r) for r in joined]
    return _combined(e, joined, [(var, 1) for var in first.vars], widths, lambda: [e.value(r.value) for r in joined])


def _unrolls(size: Size) -> bool:
    return not is_dim(size) and size <= _UNROLLED


def _unrolled(e: LoopEmitter, joined: Sequence[Reduce]) -> list[Lanes]:
    """A few iterations, one after the other without a loop. A sum of zeros has the sign that it has in a loop."""
    totals = [_neutral(r.op, r.value.dtype, _width(e, r)) for r in joined]
    for k in range(int(extent(joined[0].vars[0]))):
        with e.iteration(joined[0].vars[0], constant(k, dtypes.int64)):
            values = [e.s.splat(e.value(r.value), _width(e, r)) for r in joined]
        totals = [
            e.combine(r.op, total, value) if k or r.op == "add" else value
            for r, total, value in zip(joined, totals, values, strict=True)
        ]
    return totals


def _width(e: LoopEmitter, stmt: Reduce) -> int:
    """Lanes of the vector loop around, if the reduction is another one in each of them."""
    return e.width if e.vector is not None and e.vector in stmt.result.depends else 1


def _neutral(op: str, dtype: np.dtype, width: int) -> Lanes:
    return Lanes(constant(identity(op, dtype), dtype, width), dtype, width)


def reduce_width(size: Size, dtype: np.dtype) -> int:
    """Lanes of a reduction: up to four 64-byte accumulators, enough to hide the latency of an addition.

    Depends on shape and dtype alone, never on the machine, so that a sum has the same bits everywhere. Where the size
    comes with the call, it is the most.
    """
    most = 256 // max(dtype.itemsize, 4)
    if is_dim(size):
        return most
    width = 4
    while width < most and width * 2 <= size:
        width *= 2
    return width


def _combined(
    e: LoopEmitter,
    joined: Sequence[Reduce],
    loops: Sequence[tuple[Expr, int]],
    widths: Sequence[int],
    values: Callable[[], list[Lanes]],
    whole: Callable[[], list[Lanes]] | None = None,
) -> list[Lanes]:
    """The reductions of values() over nested loops, given as (variable, step), outer to inner; of `whole()` where no
    lane is beyond the end, if that is cheaper.

    A float sum is a cascade: at most `_CASCADE` values are added one after the other, then their sums are. One
    running sum of 100,000 float32 was wrong by 3e-5; the cascade costs nothing and depends on the shape alone.
    """
    starts = [_neutral(r.op, r.value.dtype, width) for r, width in zip(joined, widths, strict=True)]
    cascades = any(r.op == "add" and r.value.dtype.kind == "f" for r in joined)

    def combine(a: list[Lanes], b: list[Lanes]) -> list[Lanes]:
        return [e.combine(r.op, x, y) for r, x, y in zip(joined, a, b, strict=True)]

    def over(rest: Sequence[tuple[Expr, int]], totals: list[Lanes]) -> list[Lanes]:
        if not rest:
            return combine(totals, values())
        (var, step), *inner = rest
        size = extent(var)
        apart = cascades and not _few(math.prod(-(-extent(v) // by) for v, by in inner), _CASCADE // 8)

        def once(carried: list[Lanes]) -> list[Lanes]:
            return combine(carried, over(inner, starts)) if apart else over(inner, carried)

        def run(first: Any, last: Any, carried: list[Lanes]) -> list[Lanes]:
            if inner or whole is None:
                return e.loop(var, first, last, step, carried, once)
            rest = e.b.srem(e.b.sub(last, first), constant(step, dtypes.int64))
            middle = e.b.sub(last, rest)
            carried = e.loop(var, first, middle, step, carried, lambda c: combine(c, whole()), True)
            return e.loop(var, middle, last, step, carried, once, True)

        zero, end = constant(0, dtypes.int64), e.size(size)
        if not cascades or at_most(size, _CASCADE * step):
            return run(zero, end, totals)
        block, number = step * _CASCADE, Expr()  # a loop over blocks, which no expression refers to

        def one_block(carried: list[Lanes]) -> list[Lanes]:
            first = e.scalar_var[number]
            last = e.b.add(first, constant(block, dtypes.int64))
            last = e.b.select(e.b.icmp_signed("<", last, end), last, end)
            return combine(carried, run(first, last, starts))

        return e.loop(number, zero, end, block, totals, one_block)

    return over(loops, starts)


def _few(count: Size, most: int) -> bool:
    return not is_dim(count) and count <= most


def _in_lanes(e: LoopEmitter, joined: Sequence[Reduce]) -> list[Lanes]:
    """Lane accumulators over the last variable, combined by halving: a tree fixed by the shape alone.

    Where the machine's registers cannot hold so many lanes of every intermediate value, they are computed in several
    runs.
    """
    *outer, inner = joined[0].vars
    size = extent(inner)
    width = reduce_width(size, joined[0].value.dtype)
    lanes = min(width, _lanes_at_once(e.b.module.cpu, max(r.value.dtype.itemsize for r in joined)))
    parts = range(width // lanes)

    def values(masked: bool = True) -> list[Lanes]:
        first, found = e.scalar_var[inner], []
        for part in parts:
            with (
                e.iteration(inner, e.b.add(first, constant(part * lanes, dtypes.int64))),
                e.tail_mask(inner, size, e.size(size), width) if masked else nullcontext(),
            ):
                found += [_inside(e, r.op, r.value, lanes) for r in joined]
        return found

    with e.in_lanes(inner, lanes):
        apart = e.has_loop_of_tail(inner, size, width)
        loops = [*((v, 1) for v in outer), (inner, width)]
        every = [*joined] * len(parts)
        totals = _combined(e, every, loops, [lanes] * len(every), values, (lambda: values(False)) if apart else None)
    return [_halved(e, r.op, totals[k :: len(joined)]) for k, r in enumerate(joined)]


def _lanes_at_once(cpu: CpuSpec, itemsize: int) -> int:
    """Lanes computed at once: an eighth of the registers, as an exponential has up to eight values in each lane
    ([Note: Micro-kernels])."""
    return max(cpu.registers, 16) * cpu.vector_bits // (8 * 8 * max(itemsize, 4))


def _inside(e: LoopEmitter, op: str, value: Expr, width: int) -> Lanes:
    """The value in the lanes that are inside of the loop, the identity in the others."""
    found = e.s.splat(e.value(value), width)
    run = e.vector is not None and value.op == "load" and coefficient(value.args[0], e.vector) == 1
    zeros = run and op == "add"  # as a masked load gives
    return found if e.mask is None or zeros else e.s.select(e.mask, found, _neutral(op, found.dtype, width))


def _halved(e: LoopEmitter, op: str, parts: list[Lanes]) -> Lanes:
    """One value from the lanes of all parts: the lower half combined with the upper, and again."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [e.combine(op, x, y) for x, y in zip(parts[:half], parts[half:], strict=True)]
    (x,) = parts
    while x.lanes > 1:
        x = e.combine(op, *_halves(e, x))
    return x


def _halves(e: LoopEmitter, x: Lanes) -> tuple[Lanes, Lanes]:
    half = x.lanes // 2
    if half == 1:
        parts = [e.b.extract_element(x.value, constant(k, dtypes.int32)) for k in (0, 1)]
    else:
        picks = [ir.Constant(ir.VectorType(ir.IntType(32), half), [*range(k, k + half)]) for k in (0, half)]
        parts = [e.b.shuffle_vector(x.value, x.value, pick) for pick in picks]
    return Lanes(parts[0], x.dtype, half), Lanes(parts[1], x.dtype, half)


# ---- positions of extremes


def _position(e: LoopEmitter, stmt: Reduce) -> Lanes:
    """Position of the first extreme; nan counts as the extreme, as in NumPy.

    Every lane keeps the best value that it has seen and where its vector began, in 32 bits if those are enough.
    """
    inner, dtype = stmt.vars[-1], stmt.value.dtype
    size = extent(inner)
    sign = "max" if stmt.op == "argmax" else "min"
    width = reduce_width(size, dtype) if stmt.kind == "vector" else _width(e, stmt)
    step = width if stmt.kind == "vector" else 1
    counter = dtypes.int32 if _few(math.prod(map(extent, stmt.vars)), (1 << 31) - 1) else dtypes.int64

    def once(carried: list[Lanes]) -> list[Lanes]:
        best, at = carried
        first = Lanes(constant(0, dtypes.int64), dtypes.int64)
        for var in stmt.vars:
            first = e.s.add(
                e.s.mul(first, Lanes(e.size(extent(var)), dtypes.int64)), Lanes(e.scalar_var[var], dtypes.int64)
            )
        if stmt.kind == "vector":
            with e.tail_mask(inner, size, e.size(size)):
                value = _inside(e, sign, stmt.value, width)
        else:
            value = e.value(stmt.value)
        better = _better(e, sign, value, best)
        return [e.s.select(better, value, best), e.s.select(better, e.s.cast(first, counter), at)]

    def over(rest: Sequence[Expr], carried: list[Lanes]) -> list[Lanes]:
        if not rest:
            return once(carried)
        by, end = step if rest[0] is inner else 1, e.size(extent(rest[0]))
        return e.loop(rest[0], constant(0, dtypes.int64), end, by, carried, lambda c: over(rest[1:], c))

    start = [_neutral(sign, dtype, width), Lanes(constant(0, counter, width), counter, width)]
    if stmt.kind != "vector":
        return e.s.cast(over(stmt.vars, start)[1], dtypes.int64)
    with e.in_lanes(inner, width):
        best, at = over(stmt.vars, start)
        at = e.s.add(at, e.lane_numbers(counter))
    while best.lanes > 1:
        (a, b), (i, j) = _halves(e, best), _halves(e, at)
        earlier = e.s.and_(e.s.not_(_better(e, sign, a, b)), e.s.lt(j, i))
        second = e.s.or_(_better(e, sign, b, a), earlier)
        best, at = e.s.select(second, b, a), e.s.select(second, j, i)
    return e.s.cast(at, dtypes.int64)


def _better(e: LoopEmitter, sign: str, value: Lanes, best: Lanes) -> Lanes:
    """Whether the value replaces the best so far: it is more extreme, or the first nan."""
    symbol = ">" if sign == "max" else "<"
    if value.dtype.kind != "f":
        return e.s.compare("gt" if sign == "max" else "lt", value, best)
    value, best = e.s.splat(value, max(value.lanes, best.lanes)), e.s.splat(best, max(value.lanes, best.lanes))
    beats = Lanes(e.b.fcmp_unordered(symbol, value.value, best.value), dtypes.bool_, value.lanes)
    return e.s.and_(beats, e.s.eq(best, best))
