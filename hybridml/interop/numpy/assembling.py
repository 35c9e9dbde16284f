"""Putting together, taking apart, padding and repeating, with NumPy's parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybridml_compiler.errors import ShapeError

from ... import arrays as xp
from ...arrays.shaping.manipulation import _axis, _tensor
from ...core.tensor import Tensor
from .table import implements, same


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else xp.astype(x, dtype, copy=False)


@implements(np.concatenate)
def concatenate(arrays: Any, /, axis: int | None = 0, *, dtype: Any = None) -> Any:
    xs = [_tensor(x) for x in arrays]
    out = xp.concat([xp.ravel(x) for x in xs], axis=0) if axis is None else xp.concat(xs, axis=axis)
    return _cast(out, dtype)


@implements(np.stack)
def stack(arrays: Any, axis: int = 0, *, dtype: Any = None) -> Any:
    if all([type(x) is Tensor for x in arrays]) and len({x._array.dtype for x in arrays}) == 1:
        return _cast(xp.stack(arrays, axis=axis), dtype)
    xs = xp.broadcast_arrays(*arrays) if len({x.dtype for x in map(_tensor, arrays)}) > 1 else list(arrays)
    common = xp.result_type(*map(_tensor, xs))
    return _cast(xp.stack([xp.astype(_tensor(x), common, copy=False) for x in xs], axis=axis), dtype)


@implements(np.append)
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    return xp.append(arr, values, axis=axis)


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    return xp.insert(arr, obj, values, axis=axis)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    return xp.delete(arr, obj, axis=axis)


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    x = _tensor(ary)
    axis = _axis("np.split", axis, x.ndim, x)
    if isinstance(indices_or_sections, int) and x.shape[axis] % indices_or_sections:
        raise ShapeError(f"np.split: {x.shape[axis]} elements do not make {indices_or_sections} equal pieces")
    return xp.array_split(x, indices_or_sections, axis=axis)


@implements(np.tile)
def tile(A: Any, reps: Any) -> Any:
    return xp.tile(_tensor(A), (reps,) if isinstance(reps, int | np.integer) else tuple(int(n) for n in reps))


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Elements repeated. Counts that differ decide the size of the result: a traced program asks for their values."""
    x = _tensor(a)
    if isinstance(repeats, int | np.integer):
        return xp.repeat(x, int(repeats), axis=axis)
    if axis is None:
        x, axis = xp.ravel(x), 0
    counts = np.broadcast_to(np.asarray(repeats), (x.shape[axis],))
    return xp.take(x, xp.asarray(np.repeat(np.arange(counts.size), counts)), axis=axis)


same(np, "pad hstack vstack dstack column_stack block array_split hsplit vsplit dsplit resize")
