"""Index arithmetic for `lower`: index tuples hold int64 scalars of the builder or plain ints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..sizes.dims import same

# A scalar of whatever builder runs the row: an array (NumPy), an IR value (loops), text (a printer).
Scalar: TypeAlias = Any
Index: TypeAlias = tuple[Any, ...]


class Load(Protocol):
    """An operand inside `lower`: `x(index) -> scalar`."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    def __call__(self, index: Index) -> Scalar: ...


def at(load: Load, i: Index) -> Scalar:
    """The operand's element at output index `i`, with broadcasting: right-aligned, index 0 on axes of size 1."""
    tail = i[len(i) - len(load.shape) :]
    return load(tuple(0 if same(n, 1) else k for k, n in zip(tail, load.shape, strict=True)))


def flatten(s: Any, i: Index, shape: Sequence[int]) -> Scalar:
    """Row-major position in Horner form, ((i0*n1 + i1)*n2 + i2), which the loop simplifier can take apart again."""
    position: Scalar = None
    for k, n in zip(i, shape, strict=True):
        if n == 1:
            continue
        position = k if position is None else s.add(s.mul(position, n), k)
    return 0 if position is None else position


def unflatten(s: Any, position: Scalar, shape: Sequence[int]) -> Index:
    """Index of a row-major position: remainders from the right; the first long axis needs none."""
    long = [axis for axis, n in enumerate(shape) if n != 1]
    index: list[Scalar] = [0] * len(shape)
    for axis in reversed(long):
        if axis == long[0]:
            index[axis] = position
        else:
            index[axis] = s.mod(position, shape[axis])
            position = s.floordiv(position, shape[axis])
    return tuple(index)


def reshaped(s: Any, i: Index, shape: Sequence[int], source: Sequence[int]) -> Index:
    """Index in an array of shape `source` of the element at `i` of its reshape."""
    long, own = ([axis for axis, n in enumerate(sizes) if n != 1] for sizes in (shape, source))
    if len(long) != len(own) or not all(same(shape[a], source[b]) for a, b in zip(long, own, strict=True)):
        return unflatten(s, flatten(s, i, shape), source)
    at = dict(zip(own, (i[axis] for axis in long), strict=True))  # axes of one element come or go
    return tuple([at.get(axis, 0) for axis in range(len(source))])


def replace(i: Index, axis: int, value: Scalar) -> Index:
    return (*i[:axis], value, *i[axis + 1 :])


def all_of(s: Any, conditions: Sequence[Scalar]) -> Scalar:
    """Conjunction; None when there is nothing to hold."""
    result: Scalar = None
    for condition in conditions:
        result = condition if result is None else s.and_(result, condition)
    return result
