"""Shape arithmetic of the rows: user forms (negative axes, -1, None, one int) to canonical tuples, with errors."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ..aval import Aval
from ..errors import ArgumentError, AxisError, ShapeError
from ..record import record
from ..sizes.dims import at_most, is_dim, same, steps_of
from ..sizes.guards import known

Shape = tuple[int, ...]


def listing(items: Iterable[Any]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *head, last = map(str, items)
    return f"{', '.join(head)} and {last}" if head else last


def integer(name: str, what: str, value: Any) -> int:
    """The value as an int; a size that comes with the call stays symbolic (see sizes/dims.py)."""
    if is_dim(value):
        found: int = value
        return found
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name}: {what} must be an integer, got {value!r}; use int()") from None


def integers(name: str, what: str, value: Any, length: int | None = None) -> tuple[int, ...]:
    """A tuple of ints from one int (repeated `length` times) or a sequence of them."""
    try:
        items = tuple(value)
    except TypeError:
        items = (value,) * (1 if length is None else length)
    found = tuple(integer(name, what, item) for item in items)
    if length is not None and len(found) != length:
        raise ArgumentError(f"{name}: {what} needs {length} numbers, got {len(found)}: {found}; give one for each axis")
    return found


def shape_tuple(name: str, shape: Any) -> Shape:
    found = integers(name, "shape", shape)
    if any(n < 0 for n in found):
        raise ShapeError(f"{name}: a size cannot be negative, got shape {found}; use sizes of 0 or more")
    return found


@record
class Span:
    """A `range` with ends that come with the call: `count` positions from `start` on, `step` apart."""

    start: Any
    stop: Any
    step: int
    count: Any

    def __getitem__(self, k: int) -> Any:
        return self.start + (k if k >= 0 else self.count + k) * self.step

    def __bool__(self) -> bool:
        return bool(self.count)


Positions = range | Span


def positions(start: Any, stop: Any, step: Any) -> Positions:
    """`range(start, stop, step)`; whether it is empty is a decision."""
    if not is_dim(start) and not is_dim(stop):
        return range(start, stop, step)
    by = integer("slice", "step", step)
    by = int(by)
    if by == 1 and steps_of(start, stop) and at_most(start, stop):
        return Span(start, stop, by, stop - start)  # none in some steps of a loop
    ahead = stop > start if by > 0 else start > stop
    count = (stop - start + by - (1 if by > 0 else -1)) // by if ahead else 0
    return Span(start, stop, by, known(count))


def count(r: Positions) -> int:
    return len(r) if type(r) is range else r.count


def ends(r: Positions) -> tuple[Any, Any]:
    """The first and the last of the positions, as numbers."""
    return (r[0], r[-1]) if r.step > 0 else (r[-1], r[0])


def are_apart(a: Positions, b: Positions) -> bool:
    """Whether all positions of one are known to lie before those of the other."""
    if is_empty(a) or is_empty(b):
        return True
    (low, high), (first, last) = ends(a), ends(b)
    return at_most(high + 1, first) or at_most(last + 1, low)


def is_empty(r: Positions) -> bool:
    """Whether there are no positions; there may be none in some steps of a loop only, where nothing is to be done."""
    return not steps_of(count(r)) and not count(r)


def may_be_many(r: Positions) -> bool:
    """Whether there is more than one position; there may be in some steps of a loop only."""
    return bool(steps_of(count(r)) or count(r) > 1)


def is_within(r: Positions, size: Any) -> bool:
    """Whether all positions are in an axis of that size."""
    if type(r) is Span and steps_of(r.count):
        return bool(r.start >= 0 and r.stop <= size)
    return is_empty(r) or bool(0 <= r[0] < size and 0 <= r[-1] < size)


def slices_of(ranges: Iterable[Positions]) -> tuple[slice, ...]:
    """Python's slices; -1 as a stop means wrapping there, so it becomes None."""
    return tuple(slice(r.start, None if r.stop < 0 else r.stop, r.step) if count(r) else slice(0, 0) for r in ranges)


def broadcast(name: str, *operands: Aval) -> Shape:
    """Common shape by NumPy's rule: right-aligned, size 1 stretches."""
    first = operands[0].shape
    if all(len(a.shape) == len(first) and a.shape == first for a in operands):
        return first
    ndim = max(a.ndim for a in operands)
    out = [1] * ndim
    for a in operands:
        for axis, n in enumerate(a.shape, ndim - a.ndim):
            # A size that is 1 in some steps of a loop alone is none that stretches: in others there would be an error.
            if same(n, 1) or same(n, out[axis]) or (not same(out[axis], 1) and n == out[axis]):
                continue
            if not same(out[axis], 1):
                raise ShapeError(
                    f"{name}: shapes {listing(operands)} do not broadcast: axis {axis - ndim} has sizes {out[axis]} "
                    f"and {n}; make them equal or 1 (reshape, expand_dims or a transposition)"
                )
            out[axis] = n
    return tuple(out)


def _ndim(x: Aval | Shape) -> int:
    return x.ndim if isinstance(x, Aval) else len(x)


def axis_index(name: str, axis: Any, x: Aval | Shape) -> int:
    """`axis` counted from the front; an error when `x` has no such axis."""
    k, ndim = integer(name, "axis", axis), _ndim(x)
    if not -ndim <= k < ndim:
        fix = f"use {-ndim} to {ndim - 1}" if ndim else "it has no axes"
        raise AxisError(f"{name}: axis {k} does not exist in {x}; {fix}")
    return k % ndim


def axes_tuple(name: str, axis: Any, x: Aval | Shape) -> tuple[int, ...]:
    """None (all axes), one axis or several, as sorted non-negative axes."""
    if axis is None:
        return tuple(range(_ndim(x)))
    found = tuple(axis_index(name, k, x) for k in (axis if isinstance(axis, Iterable) else (axis,)))
    if len(set(found)) < len(found):
        raise ShapeError(f"{name}: axis {tuple(axis)} names an axis of {x} twice; name each axis once")
    return tuple(sorted(found))


def reduced(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """Shape without `axes`, or with size 1 there."""
    if keepdims:
        return tuple(1 if k in axes else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in axes)
