"""`lower` columns evaluated with NumPy: the meaning that code generators are tested by, and eager transcendentals.

A scalar of this builder is the array of its values over the whole output grid. Reduction variables are axes in front of
the grid's, so that values of an outer level broadcast into an inner one.

    >>> def outer(s, i, x, y):
    ...     return s.mul(x((i[0],)), y((i[1],)))
    >>> evaluate(outer, [np.array([1, 2]), np.array([10, 20, 30])], (2, 3))
    array([[10, 20, 30],
           [20, 40, 60]])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import canonical, int64
from .scalar import Array, NumpyBuilder
from .transcendental import TABLE


class _Last:
    """A ufunc's `at` for setting: of updates to one element the last stays."""

    @staticmethod
    def at(out: Array, places: Any, values: Array) -> None:
        out[places] = values


_COMBINE: dict[str, Any] = {
    "set": _Last,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.logical_and,
    "or": np.logical_or,
}
Index = tuple[Any, ...]
BLOCK = 1 << 14  # elements of a transcendental in one run: its 20 to 40 temporaries stay in the second-level cache


class NumpyLowering(NumpyBuilder):
    """The scalar builder, with the methods that `lower` uses on arrays: loads, masks, data-dependent indices,
    reductions."""

    def __init__(self, rank: int) -> None:
        self._rank = rank  # axes that values have now: the grid's and those of the reductions around
        self._mask: Array | None = None

    def __getattr__(self, name: str) -> Callable[..., Array]:
        function = TABLE.get(name)
        if function is None:
            raise AttributeError(f"no scalar instruction or transcendental {name!r}")
        return lambda *operands: function(self, *operands)

    def const(self, value: bool | int | float, dtype: np.dtype) -> Array:
        return np.atleast_1d(super().const(value, dtype))

    def load(self, array: Array, index: Index) -> Array:
        """array[index]; under a mask only where it holds. An index out of range is an error, negative ones too."""
        places = [np.asarray(k) for k in index]
        if self._mask is not None:
            places = [np.where(self._mask, k, 0) for k in places]
            if not array.size and not np.any(self._mask):
                return np.zeros(np.broadcast_shapes(self._mask.shape, *(k.shape for k in places)), array.dtype)
        for axis, (k, n) in enumerate(zip(places, array.shape, strict=True)):
            if k.size and not (0 <= k.min() and k.max() < n):
                raise IndexError(f"index {k.min()}..{k.max()} of axis {axis} in an array of shape {array.shape}")
        return np.atleast_1d(np.asarray(array[tuple(places)]))

    def masked(self, cond: Array, thunk: Callable[[], Array], default: Any) -> Array:
        outside = self._mask
        self._mask = cond if outside is None else np.logical_and(outside, cond)
        try:
            value = thunk()
        finally:
            self._mask = outside
        return np.where(cond, value, default)

    def bounded(self, value: Array, size: int) -> Array:
        return value

    def checked(self, value: Any, position: Array) -> Any:
        """The value at an index that has been checked."""
        return value

    def index(self, value: Array, extent: int, what: str = "index") -> Array:
        wide = value.astype(int64)
        found = np.where(wide < 0, wide + extent, wide)
        if np.any((found < 0) | (found >= extent)):
            raise IndexError(f"{what}: an index is out of range for size {extent}")
        return found

    def reduce(self, op: str, extents: Sequence[int], body: Callable[[Index], Array]) -> Array:
        below = self._rank
        variables = np.indices(tuple(extents)).reshape(len(extents), *extents, *(1,) * below)
        self._rank = below + len(extents)
        try:
            value = body(tuple(variables))
        finally:
            self._rank = below
        value = np.asarray(value)
        value = np.broadcast_to(value, np.broadcast_shapes(value.shape, (*extents, *(1,) * below)))
        flat = value.reshape(math.prod(extents), *value.shape[len(extents) :])
        if op in ("argmax", "argmin"):
            return np.asarray((np.argmax if op == "argmax" else np.argmin)(flat, axis=0))
        with np.errstate(all="ignore"):
            result: Array = _COMBINE[op].reduce(flat, axis=0, dtype=value.dtype)
        return result


class _Load:
    """An operand as `lower` sees it."""

    def __init__(self, s: NumpyLowering, array: Array) -> None:
        self._s, self._array = s, array
        self.shape, self.dtype = array.shape, canonical(array.dtype)

    def __call__(self, index: Index) -> Array:
        return self._s.load(self._array, index)


def _grid(shape: Sequence[int]) -> tuple[NumpyLowering, Index]:
    return NumpyLowering(max(1, len(shape))), tuple(np.indices(tuple(shape), int64))


def _loads(s: NumpyLowering, arrays: Sequence[Any]) -> list[Any]:
    return [_loads(s, a) if isinstance(a, list) else _Load(s, a) for a in arrays]


def evaluate(
    lower: Callable[..., Any], arrays: Sequence[Any], shape: Sequence[int], params: Mapping[str, Any] | None = None
) -> Array:
    """lower(s, i, *loads, **params) for every index i of `shape`; a list among `arrays` is a variadic operand."""
    s, i = _grid(shape)
    value = np.asarray(lower(s, i, *_loads(s, arrays), **(params or {})))
    return np.broadcast_to(value, tuple(shape) or (1,)).reshape(tuple(shape))


def evaluate_scan(
    lower: Callable[..., Any], arrays: Sequence[Any], shape: Sequence[int], params: Mapping[str, Any], combine: str
) -> Array:
    """Running combination of the elements along params["axis"], from the end if params["reverse"]."""
    axis, reverse = params["axis"], params["reverse"]
    elements = evaluate(lower, arrays, shape, params)
    ordered = np.flip(elements, axis) if reverse else elements
    running: Array = _COMBINE[combine].accumulate(ordered, axis=axis, dtype=elements.dtype)
    return np.flip(running, axis) if reverse else running


def evaluate_scatter(
    lower: Callable[..., Any], arrays: Sequence[Any], params: Mapping[str, Any], combine: str
) -> Array:
    """The base (first array) with one update for every element of the last array, in index order."""
    base, updates = arrays[0], arrays[-1]
    s, i = _grid(updates.shape)
    target, value = lower(s, i, *_loads(s, arrays), **params)
    out = np.array(base)
    places = tuple(np.broadcast_to(k, updates.shape) for k in target)
    _COMBINE[combine].at(out, places, np.broadcast_to(value, updates.shape or (1,)).reshape(updates.shape))
    return out


def transcendental(name: str, *arrays: Array) -> Array:
    """A function of the transcendental table on float arrays of one dtype, broadcast: the bits of compiled code."""
    function, s = TABLE[name], NumpyBuilder()
    operands = np.broadcast_arrays(*arrays) if len(arrays) > 1 else arrays
    flat = [np.ascontiguousarray(a).reshape(-1) for a in operands]
    out = np.empty(flat[0].size, flat[0].dtype)
    for start in range(0, out.size, BLOCK):
        part = slice(start, start + BLOCK)
        out[part] = function(s, *(a[part] for a in flat))
    return out.reshape(operands[0].shape)
