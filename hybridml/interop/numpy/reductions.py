"""Reductions with NumPy's parameters: `dtype=`, `initial=`, `where=`, `ddof=`, and those that leave NaN out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ...arrays.shaping.manipulation import _tensor, root
from ...core.tensor import Tensor
from .table import implements, same


def _chosen(a: Any, where: Any, other: Any) -> Tensor:
    """The tensor with `other` where an element is not to be counted."""
    x = _tensor(a)
    return x if where is True else xp.where(where, x, xp.full((), other, dtype=x.dtype))


def _cast(x: Tensor, dtype: Any) -> Tensor:
    return x if dtype is None else xp.astype(x, dtype, copy=False)


def _axes(axis: Any) -> Any:
    return tuple(int(a) for a in axis) if isinstance(axis, tuple | list) else axis


@implements(np.sum)
def sum(
    a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Any:
    out = xp.sum(_chosen(a, where, 0), axis=_axes(axis), keepdims=keepdims, dtype=dtype)
    return out if initial is None else out + initial


@implements(np.prod)
def prod(
    a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Any:
    out = xp.prod(_chosen(a, where, 1), axis=_axes(axis), keepdims=keepdims, dtype=dtype)
    return out if initial is None else out * initial


def _number(a: Any, axis: Any, keepdims: bool, where: Any) -> Any:
    """Number of elements that are counted."""
    return xp.count_nonzero(xp.broadcast_to(_tensor(where), _tensor(a).shape), axis=axis, keepdims=keepdims)


@implements(np.mean)
def mean(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True) -> Any:
    x, axis = _cast(_tensor(a), dtype), _axes(axis)
    if where is True:
        return xp.mean(x, axis=axis, keepdims=keepdims)
    return xp.divide(xp.sum(_chosen(x, where, 0), axis=axis, keepdims=keepdims), _number(x, axis, keepdims, where))


@implements(np.var)
def var(
    a: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False, where: Any = True,
    mean: Any = None, correction: float | None = None,
) -> Any:  # fmt: skip
    x, axis = _cast(_tensor(a), dtype), _axes(axis)
    if x.dtype.kind == "c":
        means = (None, None) if mean is None else (xp.real(mean), xp.imag(mean))
        parts = zip((xp.real(x), xp.imag(x)), means, strict=True)
        first, second = (var(part, axis, None, ddof, keepdims, where, at, correction) for part, at in parts)
        return first + second
    less = ddof if correction is None else correction
    if where is True and mean is None:
        return xp.var(x, axis=axis, correction=less, keepdims=keepdims)
    apart = x - (_mean(x, axis, where) if mean is None else mean)
    squares = xp.sum(_chosen(apart * apart, where, 0), axis=axis, keepdims=keepdims)
    return xp.divide(squares, xp.maximum(_number(x, axis, keepdims, where) - less, 0))


_mean_of = mean


def _mean(x: Tensor, axis: Any, where: Any) -> Any:
    return _mean_of(x, axis, keepdims=True, where=where)


@implements(np.std)
def std(
    a: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False, where: Any = True,
    mean: Any = None, correction: float | None = None,
) -> Any:  # fmt: skip
    return root(var(a, axis, dtype, ddof, keepdims, where, mean, correction))


def _extreme(name: str, either: Any, a: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    if where is not True and initial is None:
        raise ArgumentError(f"np.{name}: where= needs initial=, the result where no element is chosen")
    x = _chosen(a, where, initial)
    if initial is not None and x.size == 0:
        return xp.sum(x, axis=axis, keepdims=keepdims) + xp.full((), initial, dtype=x.dtype)
    out = getattr(xp, name)(x, axis=_axes(axis), keepdims=keepdims)
    return out if initial is None else either(out, initial)


@implements(np.max, np.amax)
def max(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Any:
    return _extreme("max", xp.maximum, a, axis, keepdims, initial, where)


@implements(np.min, np.amin)
def min(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Any:
    return _extreme("min", xp.minimum, a, axis, keepdims, initial, where)


def _truth(a: Any) -> Tensor:
    x = _tensor(a)
    return x if x.dtype.kind == "b" else xp.not_equal(x, 0)


@implements(np.all)
def all(a: Any, axis: Any = None, keepdims: bool = False, where: Any = True) -> Any:
    return xp.all(_chosen(_truth(a), where, True), axis=_axes(axis), keepdims=keepdims)


@implements(np.any)
def any(a: Any, axis: Any = None, keepdims: bool = False, where: Any = True) -> Any:
    return xp.any(_chosen(_truth(a), where, False), axis=_axes(axis), keepdims=keepdims)


def _running(name: str, a: Any, axis: int | None, dtype: Any) -> Any:
    x = _tensor(a)
    if axis is None:
        x, axis = xp.reshape(x, (-1,)), 0
    return getattr(xp, name)(x, axis=axis, dtype=dtype)


@implements(np.cumsum)
def cumsum(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
    return _running("cumulative_sum", a, axis, dtype)


@implements(np.cumprod)
def cumprod(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
    return _running("cumulative_prod", a, axis, dtype)


@implements(np.nansum)
def nansum(
    a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Any:
    return sum(xp.nan_to_num(_tensor(a), posinf=math.inf, neginf=-math.inf), axis, dtype, keepdims, initial, where)


@implements(np.nanprod)
def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Any:
    filled = xp.nan_to_num(_tensor(a), nan=1.0, posinf=math.inf, neginf=-math.inf)
    return prod(filled, axis, dtype, keepdims, initial, where)


@implements(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True) -> Any:
    return xp.nanmean(_cast(_chosen(a, where, math.nan), dtype), axis=_axes(axis), keepdims=keepdims)


@implements(np.nanvar)
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False, where: Any = True,
    mean: Any = None, correction: float | None = None,
) -> Any:  # fmt: skip
    x = _cast(_chosen(a, where, math.nan), dtype)
    less = ddof if correction is None else correction
    if mean is None:
        return xp.nanvar(x, axis=_axes(axis), correction=less, keepdims=keepdims)
    return var(x, axis, None, less, keepdims, xp.logical_not(xp.isnan(x)), mean)


@implements(np.nanstd)
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False, where: Any = True,
    mean: Any = None, correction: float | None = None,
) -> Any:  # fmt: skip
    return root(nanvar(a, axis, dtype, ddof, keepdims, where, mean, correction))


@implements(np.nanmax)
def nanmax(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Any:
    out = xp.nanmax(_chosen(a, where, math.nan), axis=_axes(axis), keepdims=keepdims)
    return out if initial is None else xp.fmax(out, initial)


@implements(np.nanmin)
def nanmin(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Any:
    out = xp.nanmin(_chosen(a, where, math.nan), axis=_axes(axis), keepdims=keepdims)
    return out if initial is None else xp.fmin(out, initial)


same(np, "argmax argmin cumulative_prod cumulative_sum count_nonzero nanargmax nanargmin nancumprod nancumsum ptp")
