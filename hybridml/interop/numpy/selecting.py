"""Choosing, writing in place, sorting, searching and sets, with NumPy's parameters."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError

from ... import arrays as xp
from ...arrays.shaping.manipulation import _axis, _tensor
from ...core.aliasing import assign
from ...core.tensor import Tensor
from .table import implements, same

# -- choosing


@implements(np.where)
def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None and y is None:
        return xp.nonzero(_tensor(condition))
    return xp.where(_truth(condition), x, y)


def _truth(x: Any) -> Tensor:
    x = _tensor(x)
    return x if x.dtype.kind == "b" else xp.not_equal(x, 0)


@implements(np.nonzero)
def nonzero(a: Any) -> Any:
    return xp.nonzero(_tensor(a))


@implements(np.argwhere)
def argwhere(a: Any) -> Any:
    return xp.argwhere(_tensor(a))


@implements(np.flatnonzero)
def flatnonzero(a: Any) -> Any:
    return xp.nonzero(xp.ravel(_tensor(a)))[0]


def _inside(places: Tensor, n: int, mode: str, what: str) -> Tensor:
    """Places along an axis of size n by NumPy's modes; `raise` is what the rows do."""
    if mode == "wrap":
        return xp.remainder(places, n)
    if mode == "clip":
        return xp.clip(places, 0, n - 1)
    if mode != "raise":
        raise ArgumentError(f"{what}: mode must be raise, wrap or clip; got {mode!r}")
    return places


@implements(np.take)
def take(a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    x = _tensor(a)
    if axis is None:
        x, axis = xp.ravel(x), 0
    axis = _axis("np.take", axis, x.ndim, x)
    return xp.take(x, _inside(_tensor(indices), x.shape[axis], mode, "np.take"), axis=axis)


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    x, places = _tensor(arr), _tensor(indices)
    return xp.take_along_axis(xp.ravel(x), places, axis=0) if axis is None else xp.take_along_axis(x, places, axis=axis)


@implements(np.compress)
def compress(condition: Any, a: Any, axis: int | None = None) -> Any:
    x = _tensor(a)
    if axis is None:
        x, axis = xp.ravel(x), 0
    return xp.take(x, xp.nonzero(_truth(condition))[0], axis=axis)


@implements(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    return xp.take(xp.ravel(_tensor(arr)), xp.nonzero(xp.ravel(_truth(condition)))[0], axis=0)


@implements(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """Functions of parts of x, each of its own elements: their number is a value, which a traced program asks for."""
    x = _tensor(x)
    conditions = [_truth(c) for c in condlist] if isinstance(condlist, list | tuple) else [_truth(condlist)]
    if len(conditions) == 1 and conditions[0].ndim == x.ndim + 1:
        conditions = list(xp.unstack(conditions[0], axis=0))
    if len(funclist) == len(conditions) + 1:
        conditions.append(xp.logical_not(functools.reduce(xp.logical_or, conditions)))
    if len(funclist) != len(conditions):
        raise ShapeError(f"np.piecewise: {len(funclist)} functions for {len(conditions)} conditions")
    out = xp.zeros_like(x)
    for condition, function in zip(conditions, funclist, strict=True):
        value = function(x[condition], *args, **kw) if callable(function) else function
        out = out.at[condition].set(xp.astype(value, x.dtype) if isinstance(value, Tensor) else value)
    return out


# -- in place


def _written(x: Any, what: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise DTypeError(f"{what}: writes into {type(x).__name__}, and the values are a tensor's; use .numpy() of them")
    return x


def _assign(x: Tensor, value: Tensor, what: str) -> None:
    assign(x, xp.astype(value, x.dtype, copy=False), what)


def _repeated(values: Any, shape: Sequence[int], dtype: Any) -> Any:
    return xp.resize(xp.astype(_tensor(values), dtype, copy=False), tuple(shape))


@implements(np.copyto)
def copyto(dst: Any, src: Any, where: Any = True) -> None:
    if isinstance(dst, np.ndarray):
        value = _tensor(src) if where is True else xp.where(_truth(where), _tensor(src), dst)
        if not np.can_cast(value.dtype, dst.dtype, "same_kind"):
            raise DTypeError(f"np.copyto: {value.dtype.name} into an array of {dst.dtype.name}; cast it with astype")
        dst[...] = value
        return
    x = _written(dst, "np.copyto")
    value = xp.broadcast_to(xp.astype(_tensor(src), x.dtype, copy=False), x.shape)
    _assign(x, value if where is True else xp.where(_truth(where), value, x), "np.copyto")


@implements(np.putmask)
def putmask(a: Any, /, mask: Any, values: Any) -> None:
    x = _written(a, "np.putmask")
    _assign(x, xp.where(_truth(mask), _repeated(values, x.shape, x.dtype), x), "np.putmask")


@implements(np.place)
def place(arr: Any, mask: Any, vals: Any) -> None:
    x = _written(arr, "np.place")
    chosen = xp.broadcast_to(_truth(mask), x.shape)
    values = xp.ravel(xp.astype(_tensor(vals), x.dtype, copy=False))
    which = xp.cumulative_sum(xp.astype(xp.ravel(chosen), xp.int64), axis=0) - 1
    taken = xp.take(values, xp.remainder(xp.maximum(which, 0), values.size), axis=0)
    _assign(x, xp.where(chosen, xp.reshape(taken, x.shape), x), "np.place")


@implements(np.put)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    x = _written(a, "np.put")
    places = _inside(xp.ravel(_tensor(ind)), x.size, mode, "np.put")
    values = _repeated(v, places.shape, x.dtype)
    _assign(x, xp.reshape(xp.ravel(x).at[places].set(values), x.shape), "np.put")


@implements(np.put_along_axis)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    x, places = _written(arr, "np.put_along_axis"), _tensor(indices)
    values = xp.astype(_tensor(values), x.dtype, copy=False)
    if axis is None:
        _assign(x, xp.reshape(xp.ravel(x).at[places].set(values), x.shape), "np.put_along_axis")
        return
    axis = _axis("np.put_along_axis", axis, x.ndim, x)
    key = [
        places if k == axis else xp.reshape(xp.arange(n, dtype=xp.int64), (-1,) + (1,) * (x.ndim - k - 1))
        for k, n in enumerate(x.shape)
    ]
    _assign(x, x.at[tuple(key)].set(values), "np.put_along_axis")


@implements(np.fill_diagonal)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    x = _written(a, "np.fill_diagonal")
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) != 1):
        raise ShapeError(f"np.fill_diagonal: needs a matrix or axes of one length, got shape {x.shape}")
    if x.ndim == 2:
        step, stop = x.shape[1] + 1, x.size if wrap else min(x.size, x.shape[1] ** 2)
    else:
        step, stop = 1 + int(np.cumprod(x.shape[:-1]).sum()), x.size
    count = len(range(0, stop, step))
    values = _repeated(val, (count,), x.dtype)
    _assign(x, xp.reshape(xp.ravel(x).at[0:stop:step].set(values), x.shape), "np.fill_diagonal")


# -- sorting and searching


def _line(a: Any, axis: int | None) -> tuple[Tensor, int]:
    return (xp.ravel(_tensor(a)), 0) if axis is None else (_tensor(a), axis)


def _no_fields(name: str, order: Any) -> None:
    if order is not None:
        raise DTypeError(f"np.{name}: order= names fields of records, which tensors have not")


@implements(np.sort)
def sort(a: Any, axis: int | None = -1, order: Any = None, *, stable: Any = None, descending: bool = False) -> Any:
    _no_fields("sort", order)
    if not descending:
        return xp.sort(a, axis=axis)
    x, axis = _line(_tensor(a), axis)
    return xp.take_along_axis(x, _descending(x, axis), axis=axis)


@implements(np.argsort)
def argsort(a: Any, axis: int | None = -1, order: Any = None, *, stable: Any = None, descending: bool = False) -> Any:
    _no_fields("argsort", order)
    return _descending(*_line(_tensor(a), axis)) if descending else xp.argsort(a, axis=axis)


def _descending(x: Tensor, axis: int) -> Tensor:
    """Indices of the elements from the largest to the smallest; NaN is last, as NumPy has it, and not the largest."""
    return xp.argsort(-x, axis=axis) if x.dtype.kind in "fcV" else xp.argsort(x, axis=axis, descending=True)


@implements(np.partition)
def partition(a: Any, kth: Any, axis: int | None = -1, order: Any = None) -> Any:
    _no_fields("partition", order)
    return xp.partition(a, kth, axis=axis)


@implements(np.argpartition)
def argpartition(a: Any, kth: Any, axis: int | None = -1, order: Any = None) -> Any:
    _no_fields("argpartition", order)
    return xp.argpartition(a, kth, axis=axis)


@implements(np.sort_complex)
def sort_complex(a: Any) -> Any:
    """The elements sorted by the real part, then by the imaginary one."""
    x = _tensor(a)
    x = xp.astype(x, xp.complex64 if x.dtype == np.float32 else xp.complex128, copy=False)
    order = xp.lexsort([xp.imag(x), xp.real(x)], axis=-1)
    return xp.take_along_axis(x, order, axis=-1)


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    side = {"l": "left", "r": "right"}.get(str(side)[:1].lower(), side)
    return xp.searchsorted(_tensor(a), v, side=side, sorter=sorter)


@implements(np.isin)
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    return xp.isin(element, test_elements, invert=invert)


same(np, "lexsort digitize unique unique_all unique_counts unique_inverse unique_values")


@implements(np.trim_zeros)
def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """The tensor without zeros at its ends: their number is a value, which a traced program asks for."""
    x = _tensor(filt)
    nonzero = np.argwhere(np.asarray(xp.not_equal(x, 0)))
    axes = range(x.ndim) if axis is None else [k % x.ndim for k in (axis if isinstance(axis, tuple) else (axis,))]
    if not nonzero.size:
        return x[tuple(slice(0, 0) if k in axes else slice(None) for k in range(x.ndim))]
    first, last = nonzero.min(axis=0), nonzero.max(axis=0) + 1
    ends = (
        (int(a) if "f" in trim.lower() else 0, int(b) if "b" in trim.lower() else None)
        for a, b in zip(first, last, strict=True)
    )
    return x[tuple(slice(*end) if k in axes else slice(None) for k, end in enumerate(ends))]


# -- places in several axes


@implements(np.ix_)
def ix_(*args: Any) -> tuple[Tensor, ...]:
    lines = [_tensor(x) for x in args]
    lines = [xp.nonzero(x)[0] if x.dtype.kind == "b" else x for x in lines]
    return tuple(xp.reshape(x, tuple(-1 if j == k else 1 for j in range(len(lines)))) for k, x in enumerate(lines))


@implements(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Tensor, ...]:
    if order == "C":
        return xp.unravel_index(indices, shape)
    return xp.unravel_index(indices, tuple(shape)[::-1])[::-1]


@implements(np.ravel_multi_index)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    if isinstance(mode, tuple):  # a mode for each axis
        each = zip(multi_index, dims, mode, strict=True)
        multi_index, mode = [_inside(_tensor(x), n, how, "np.ravel_multi_index") for x, n, how in each], "raise"
    turn = slice(None, None, 1 if order == "C" else -1)
    return xp.ravel_multi_index(tuple(multi_index)[turn], tuple(dims)[turn], mode)


# -- bits


@implements(np.packbits)
def packbits(a: Any, /, axis: int | None = None, bitorder: str = "big") -> Any:
    x, axis = _line(_truth(a), axis)
    x = xp.moveaxis(x, axis, -1)
    n = -(-x.shape[-1] // 8)
    x = xp.pad(xp.astype(x, xp.uint8), (*((0, 0),) * (x.ndim - 1), (0, 8 * n - x.shape[-1])))
    powers = xp.asarray(np.array([1 << k for k in range(8)], np.uint8)[:: -1 if bitorder == "big" else 1].copy())
    found = xp.sum(xp.reshape(x, (*x.shape[:-1], n, 8)) * powers, axis=-1, dtype=xp.uint8)
    return xp.moveaxis(found, -1, axis)


@implements(np.unpackbits)
def unpackbits(a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    x, axis = _line(a, axis)
    if x.dtype != np.uint8:
        raise DTypeError(f"np.unpackbits: needs uint8, got {x.dtype.name}")
    x = xp.moveaxis(x, axis, -1)
    shifts = xp.asarray(np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1].copy())
    bits = xp.bitwise_and(xp.bitwise_right_shift(xp.expand_dims(x, axis=-1), shifts), 1)
    bits = xp.reshape(bits, (*x.shape[:-1], 8 * x.shape[-1]))
    if count is not None:
        more = count - bits.shape[-1]
        bits = xp.pad(bits, (*((0, 0),) * (x.ndim - 1), (0, more))) if more > 0 and count >= 0 else bits[..., :count]
    return xp.moveaxis(bits, -1, axis)


# -- functions of lines


@implements(np.apply_along_axis)
def apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    x = _tensor(arr)
    axis = _axis("np.apply_along_axis", axis, x.ndim, x)
    rest = tuple(n for k, n in enumerate(x.shape) if k != axis)
    lines = xp.reshape(xp.moveaxis(x, axis, -1), (-1, x.shape[axis]))
    found = [_tensor(func1d(line, *args, **kwargs)) for line in xp.unstack(lines, axis=0)]
    if not found:
        raise ShapeError(f"np.apply_along_axis: shape {x.shape} has no line along axis {axis}")
    out = xp.reshape(xp.stack(found, axis=0), (*rest, *found[0].shape))
    order = [*range(axis), *range(len(rest), out.ndim), *range(axis, len(rest))]
    return xp.permute_dims(out, tuple(order))


@implements(np.apply_over_axes)
def apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    x = _tensor(a)
    for axis in (axes,) if isinstance(axes, int) else axes:
        axis = _axis("np.apply_over_axes", axis, x.ndim, x)
        found = func(x, axis)
        x = found if found.ndim == x.ndim else xp.expand_dims(found, axis=axis)
    return x


# -- elementwise functions that are no ufuncs


@implements(np.clip)
def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None, **kwargs: Any) -> Any:
    low, high = (b if b is not None else other for b, other in ((a_min, min), (a_max, max)))
    return xp.clip(_tensor(a), min=low, max=high) if low is not None or high is not None else _tensor(a).clone()


@implements(np.round, np.around)
def round(a: Any, decimals: int = 0) -> Any:
    return xp.round(_tensor(a), decimals)


@implements(np.fix)
def fix(x: Any) -> Any:
    return xp.trunc(_tensor(x))


@implements(np.array_equiv)
def array_equiv(a1: Any, a2: Any) -> Any:
    a, b = _tensor(a1), _tensor(a2)
    try:
        xp.broadcast_shapes(a.shape, b.shape)
    except ShapeError:
        return xp.full((), False, dtype=xp.bool)
    return xp.all(xp.equal(a, b))


@implements(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    found = xp.nan_to_num(_tensor(x), nan=nan, posinf=posinf, neginf=neginf)
    return found if copy else assign(_written(x, "np.nan_to_num"), found, "np.nan_to_num")


same(np, "choose select isclose allclose array_equal isposinf isneginf i0 sinc")
same(np, "union1d intersect1d setdiff1d setxor1d diff")
