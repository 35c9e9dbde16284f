"""Reductions that leave NaN out: `nansum`, `nanmean`, `nanmax`, ... As NumPy's, compositions of rows."""

from __future__ import annotations

import math
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.ops.table import OPS

from ...core import ops
from ...core.precision.composites import in_float32
from ...core.tensor import Tensor
from ..inspection import finfo
from ..shaping.manipulation import _tensor, root

_where, _isnan, _sum, _full = (OPS[name] for name in ("where", "isnan", "sum", "full"))


def filled(x: Any, value: float) -> Tensor:
    """x with `value` in the place of NaN; integers have none."""
    x = _tensor(x)
    return _where(_isnan(x), _full(shape=(), value=value, dtype=x.dtype), x) if x.dtype.kind in "fcV" else x


def present(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Number of elements along an axis that are not NaN, as int64."""
    return _sum(ops.logical_not(_isnan(x)), axis, keepdims, dtypes.int64)


def nansum(x: Tensor, /, axis: Any = None, *, keepdims: bool = False, dtype: Any = None) -> Tensor:
    """Sum of the elements that are not NaN, along `axis` (all); 0 where there is none. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.nansum(hm.tensor([1.0, hm.nan, 3.0])).item()
    4.0
    """
    return _sum(filled(x, 0.0), axis, keepdims, dtype)


def nanprod(x: Tensor, /, axis: Any = None, *, keepdims: bool = False, dtype: Any = None) -> Tensor:
    """Product of the elements that are not NaN, along `axis` (all); 1 where there is none. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.nanprod(hm.tensor([2.0, hm.nan, 3.0])).item()
    6.0
    """
    return ops.prod(filled(x, 1.0), axis, keepdims, dtype)


@in_float32
def nanmean(x: Tensor, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Mean of the elements that are not NaN, along `axis` (all); NaN where there is none. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.nanmean(hm.tensor([1.0, hm.nan, 3.0])).item()
    2.0
    """
    total = nansum(x, axis=axis, keepdims=keepdims)
    return ops.divide(total, present(x, axis, keepdims))


@in_float32
def nanvar(x: Tensor, /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Variance of the elements that are not NaN, along `axis` (all), divided by their number less `correction`; NaN
    where that is not positive. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.nanvar(hm.tensor([1.0, hm.nan, 3.0])).item()
    1.0
    """
    x = _tensor(x)
    apart = x - nanmean(x, axis=axis, keepdims=True)
    if x.dtype.kind in "fcV":  # before they are squared, whose slope is nan as well
        apart = _where(_isnan(x), _full(shape=(), value=0.0, dtype=apart.dtype), apart)
    squares = _sum(apart * apart, axis, keepdims)
    number = present(x, axis, keepdims) - correction
    return _where(number > 0, ops.divide(squares, ops.maximum(number, 1)), math.nan)


@in_float32
def nanstd(x: Tensor, /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Standard deviation of the elements that are not NaN: the root of `nanvar`. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.nanstd(hm.tensor([1.0, hm.nan, 3.0])).item()
    1.0
    """
    return root(nanvar(x, axis=axis, correction=correction, keepdims=keepdims))


def _extreme(name: str, other: float, x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    x = _tensor(x)
    if x.dtype.kind not in "fV":
        return getattr(ops, name)(x, axis, keepdims)
    found = getattr(ops, name)(filled(x, other), axis, keepdims)
    return _where(ops.all(_isnan(x), axis, keepdims), math.nan, found)


def nanmax(x: Tensor, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Greatest of the elements that are not NaN, along `axis` (all); NaN where there is none. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.nanmax(hm.tensor([1.0, hm.nan, 3.0])).item()
    3.0
    """
    return _extreme("max", -math.inf, x, axis, keepdims)


def nanmin(x: Tensor, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Least of the elements that are not NaN, along `axis` (all); NaN where there is none. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.nanmin(hm.tensor([1.0, hm.nan, 3.0])).item()
    1.0
    """
    return _extreme("min", math.inf, x, axis, keepdims)


def nanargmax(x: Tensor, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Place of the greatest element that is not NaN, as int64; 0 where there is none, and NumPy raises.

    >>> import hybridml as hm
    >>> hm.nanargmax(hm.tensor([1.0, hm.nan, 3.0])).item()
    2
    """
    return ops.argmax(filled(x, -math.inf), axis, keepdims)


def nanargmin(x: Tensor, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Place of the least element that is not NaN, as int64; 0 where there is none, and NumPy raises.

    >>> import hybridml as hm
    >>> hm.nanargmin(hm.tensor([hm.nan, 1.0, 3.0])).item()
    1
    """
    return ops.argmin(filled(x, math.inf), axis, keepdims)


def nancumsum(x: Tensor, /, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Running sum with 0 in the place of NaN. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.nancumsum(hm.tensor([1.0, hm.nan, 3.0])).tolist()
    [1.0, 1.0, 4.0]
    """
    return _running("cumulative_sum", filled(x, 0.0), axis, dtype)


def nancumprod(x: Tensor, /, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Running product with 1 in the place of NaN. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.nancumprod(hm.tensor([2.0, hm.nan, 3.0])).tolist()
    [2.0, 2.0, 6.0]
    """
    return _running("cumulative_prod", filled(x, 1.0), axis, dtype)


def _running(name: str, x: Tensor, axis: int | None, dtype: Any) -> Tensor:
    if axis is None:
        x, axis = x.reshape((-1,)), 0
    return getattr(ops, name)(x, axis=axis, dtype=dtype)


def nan_to_num(x: Tensor, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """x with numbers in the place of NaN and of the infinities (by default the greatest and the least of the dtype).

    >>> import hybridml as hm
    >>> hm.nan_to_num(hm.tensor([1.0, hm.nan, hm.inf]), posinf=9.0).tolist()
    [1.0, 0.0, 9.0]
    """
    x = _tensor(x)
    if x.dtype.kind not in "fV":
        return x.clone()
    limits = finfo(x.dtype)
    most, least = (float(b) if given is None else given for b, given in ((limits.max, posinf), (limits.min, neginf)))
    x = filled(x, nan)
    x = _where(ops.equal(x, math.inf), _full(shape=(), value=most, dtype=x.dtype), x)
    return _where(ops.equal(x, -math.inf), _full(shape=(), value=least, dtype=x.dtype), x)


__all__ = [
    "nan_to_num", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod",
    "nanstd", "nansum", "nanvar",
]  # fmt: skip
