"""Putting together, taking apart, padding and repeating, with NumPy's parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

import hybridml as hm

from ..arrays.manipulation import _axis, _tensor
from .table import implements, same


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else hm.astype(x, dtype, copy=False)


@implements(np.concatenate)
def concatenate(arrays: Any, /, axis: int | None = 0, *, dtype: Any = None) -> Any:
    xs = [_tensor(x) for x in arrays]
    out = hm.concat([hm.ravel(x) for x in xs], axis=0) if axis is None else hm.concat(xs, axis=axis)
    return _cast(out, dtype)


@implements(np.stack)
def stack(arrays: Any, axis: int = 0, *, dtype: Any = None) -> Any:
    xs = hm.broadcast_arrays(*arrays) if len({x.dtype for x in map(_tensor, arrays)}) > 1 else list(arrays)
    common = hm.result_type(*map(_tensor, xs))
    return _cast(hm.stack([hm.astype(_tensor(x), common, copy=False) for x in xs], axis=axis), dtype)


@implements(np.append)
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    return hm.append(arr, values, axis=axis)


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    return hm.insert(arr, obj, values, axis=axis)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    return hm.delete(arr, obj, axis=axis)


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    x = _tensor(ary)
    axis = _axis("np.split", axis, x.ndim, x)
    if isinstance(indices_or_sections, int) and x.shape[axis] % indices_or_sections:
        raise hm.ShapeError(f"np.split: {x.shape[axis]} elements do not make {indices_or_sections} equal pieces")
    return hm.array_split(x, indices_or_sections, axis=axis)


@implements(np.tile)
def tile(A: Any, reps: Any) -> Any:
    return hm.tile(_tensor(A), (reps,) if isinstance(reps, int | np.integer) else tuple(int(n) for n in reps))


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Counts that differ decide the size of the result: a traced program asks for their values."""
    x = _tensor(a)
    if isinstance(repeats, int | np.integer):
        return hm.repeat(x, int(repeats), axis=axis)
    if axis is None:
        x, axis = hm.ravel(x), 0
    counts = np.broadcast_to(np.asarray(repeats), (x.shape[axis],))
    return hm.take(x, hm.asarray(np.repeat(np.arange(counts.size), counts)), axis=axis)


same(np, "pad hstack vstack dstack column_stack block array_split hsplit vsplit dsplit resize")
