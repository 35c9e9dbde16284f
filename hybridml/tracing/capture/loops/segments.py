"""Loops in segments, whose gradient takes less memory: it has what the loop carries at the start of each segment, and
computes a segment again before it goes back through that.

    for t in range(n): step        ->        for k in range(n // size):  the loop of steps t = size * k ...
                                             the loop of the steps that are left

A step of `saved` bytes and carries of `carried` bytes take n / size * carried + size * saved bytes, least where the
segments have about the square root of n steps: 10,000 steps of 100 kB take 20 MB instead of 1 GB, and one more run.

Source: Griewank and Walther, "Evaluating Derivatives" (2008), chapter 12; Chen et al., "Training deep nets with
sublinear memory cost" (2016).
"""

from __future__ import annotations

import math

from hybridml_compiler.aval import Aval
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import replace
from hybridml_compiler.sizes.dims import LEAST, symbol
from hybridml_compiler.sizes.steps import number_in

from ....core.tensor import Tensor, aval_of
from ..subgraphs import enter, fresh, leave, snapshot
from .loop import Loop

_NUMBERS = 32  # of the symbols of segments, above those of steps: loops are not so deep
_reshape, _slice, _concat = OPS["reshape"], OPS["slice"], OPS["concat"]


def size_of(loop: Loop, most: int) -> int | None:
    """The steps of a segment that take the least memory; None where the gradient takes no more than `most` bytes, or
    where segments take as much."""
    n, saved = loop.length, loop.saves
    if type(n) is not int or loop.go is not None or loop.count is not None or n * saved <= most:
        return None  # a number of steps that comes with the call has no segments
    carried = sum(int(aval_of(t).nbytes) for t in loop.init)
    best = min(max(math.isqrt(n * carried // saved), 1), n)
    size = next((k for k in range(best, best // 2, -1) if n % k == 0), best)  # then no steps are left
    return size if n // size * carried + size * saved < n * saved else None


def run_in_segments(loop: Loop, size: int) -> list[Tensor]:
    """Emits a loop of a known number of steps in segments of so many; its results."""
    assert type(loop.length) is int
    whole = loop.length - loop.length % size
    n, now, ys = len(loop.carries), loop.init, list[list[Tensor]]()
    for low, high in [(0, whole), (whole, loop.length)][:: -1 if loop.reverse else 1]:
        if low < high:
            part = replace(
                loop, init=now, xs=[_rows(x, low, high) for x in loop.xs], length=high - low,
                first=loop.first + low, results=[], gradients={},
            )  # fmt: skip
            found = _segments(part, size) if low == 0 else part.run()
            now = found[:n]
            ys.append(found[n:])
    stacks = [_concat.fn(list(parts), axis=0) for parts in zip(*ys[:: -1 if loop.reverse else 1], strict=True)]
    return [*now, *(stacks if len(ys) > 1 else ys[0])]


def _segments(loop: Loop, size: int) -> list[Tensor]:
    """The loop over all segments, of so many steps each."""
    tracer, n, length = loop.tracer, len(loop.carries), int(loop.length or 0) // size
    name = None if loop.step is None else f"i{number_in(loop.step) + _NUMBERS}"
    first = loop.first
    if name is not None:
        first = loop.first + (symbol(name, LEAST, length + LEAST - 1) - LEAST) * size
    frame = enter(tracer)
    try:
        carries = [fresh(tracer, aval_of(t)) for t in loop.init]
        slices = [fresh(tracer, Aval((size, *x.shape[1:]), x.dtype, device=x.device.type)) for x in loop.xs]
        inner = replace(loop, init=carries, xs=slices, length=size, first=first, results=[], gradients={})
        found = [snapshot(tracer, t) for t in inner.run()]
    finally:
        leave(tracer)
    found = Loop(
        tracer, loop.what, frame.since, frame.made, carries, slices, found[:n], found[n:], loop.init,
        [_reshape.fn(x, (length, size, *x.shape[1:])) for x in loop.xs], length, loop.reverse, step=name,
        again=True, checks=list(frame.checks),
    ).run()  # fmt: skip
    return [*found[:n], *(_reshape.fn(y, (length * size, *y.shape[2:])) for y in found[n:])]


def _rows(x: Tensor, low: int, high: int) -> Tensor:
    if (low, high) == (0, x.shape[0]):
        return x
    rest = (0,) * (x.ndim - 1)
    rows: Tensor = _slice.fn(x, starts=(low, *rest), stops=(high, *x.shape[1:]), steps=(1,) * x.ndim)
    return rows
