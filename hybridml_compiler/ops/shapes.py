"""Shape arithmetic of the rows: user forms (negative axes, -1, None, one int) to canonical tuples, with errors."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ..aval import Aval
from ..errors import ArgumentError, ShapeError

Shape = tuple[int, ...]


def listing(items: Iterable[Any]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *head, last = map(str, items)
    return f"{', '.join(head)} and {last}" if head else last


def integer(name: str, what: str, value: Any) -> int:
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


def broadcast(name: str, *operands: Aval) -> Shape:
    """Common shape by NumPy's rule: right-aligned, size 1 stretches."""
    first = operands[0].shape
    if all(a.shape == first for a in operands):
        return first
    ndim = max(a.ndim for a in operands)
    out = [1] * ndim
    for a in operands:
        for axis, n in enumerate(a.shape, ndim - a.ndim):
            if n == 1 or n == out[axis]:
                continue
            if out[axis] != 1:
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
        raise ShapeError(f"{name}: axis {k} does not exist in {x}; {fix}")
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
