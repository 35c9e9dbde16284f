"""Running sums, products and extremes, and linear recurrences, which their gradients are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ShapeError
from . import movement
from .creation import arange, full
from .elementwise import where
from .gather import scatter_along_axis_add
from .indexing import Index, Load, Scalar
from .op import Op, Rule
from .reduction import _in_dtype, _sum_dtype
from .samples import Case, cases, fails
from .shapes import Shape, axis_index

_CASES: tuple[Case, ...] = (
    ([(17,)], {}),
    ([(3, 4)], {"axis": 0}),
    ([(2, 3, 5)], {"axis": -1, "reverse": True}),
    ([(3, 0)], {"axis": 1}),
)


def _axis(name: str, x: Aval | Shape, axis: Any) -> int:
    ndim = x.ndim if isinstance(x, Aval) else len(x)
    if axis is None and ndim != 1:
        raise ShapeError(f"{name}: {x} has {ndim} axes, so an axis is needed; say which, as axis=-1")
    return axis_index(name, 0 if axis is None else axis, x)


def _running(ufunc: Any, x: np.ndarray, axis: int, reverse: bool, dtype: Any) -> np.ndarray:
    if not reverse:
        found: np.ndarray = ufunc.accumulate(x, axis=axis, dtype=dtype)
        return found
    return np.flip(ufunc.accumulate(np.flip(x, axis), axis=axis, dtype=dtype), axis)


def _errors(name: str) -> Callable[[], Any]:
    return lambda: (
        fails(ShapeError, f"{name}: f32[2,3] has 2 axes, so an axis is needed", (2, 3)),
        fails(ShapeError, f"{name}: axis 1 does not exist", (3,), axis=1),
    )


# ---------------------------------------------------------------- sums and products


def _accumulated(name: str, ufunc: Any, combine: str, rule: Rule, more: tuple[Case, ...], doc: str) -> Op:
    def eager(x: np.ndarray, axis: Any, reverse: bool, dtype: Any) -> np.ndarray:
        return _running(ufunc, x, _axis(name, x.shape, axis), reverse, _sum_dtype(Aval(x.shape, x.dtype), dtype))

    def lower(s: Any, i: Index, x: Load, axis: int, reverse: bool, dtype: np.dtype) -> Scalar:
        return s.cast(x(i), dtype)

    return Op(
        name,
        "scan",
        inputs=("x",),
        params={"axis": None, "reverse": False, "dtype": None},
        canon=lambda x, axis, reverse, dtype: {
            "axis": _axis(name, x, axis),
            "reverse": bool(reverse),
            "dtype": _sum_dtype(x, dtype),
        },
        infer=lambda x, axis, reverse, dtype: Aval(
            tuple(x.shape) if _axis(name, x, axis) >= 0 else (), _sum_dtype(x, dtype)
        ),
        eager=eager,
        lower=lower,
        vjp=(rule,),
        samples=cases(*_CASES, *more, domain=(-1.5, 1.5), dtypes="f8 f4 i4 u1 ? c8"),
        error_samples=_errors(name),
        combine=combine,
        complex_kernels=combine == "add",  # a product begins with the first element, which times 1 may be another
        method=name,
        doc=doc,
    )


def linear_recurrence(factors: Any, terms: Any, axis: int) -> Any:
    """y_i = terms_i + factors_i * y_(i-1) along `axis`, y_0 = terms_0, in log2(n) steps by doubling.

    Source: Blelloch, Prefix sums and their applications, 1990: the pairs (a, b) of maps y -> a y + b compose.
    """
    n, by = terms.shape[axis], 1
    while by < n:
        terms = terms + factors * _later(terms, by, axis, 0)
        by *= 2
        if by < n:
            factors = factors * _later(factors, by // 2, axis, 0)
    return terms


def _later(t: Any, by: int, axis: int, fill: float) -> Any:
    """Element i - by at place i, and `fill` where there is none."""
    shape = tuple(t.shape)
    widths = tuple((by if k == axis else 0, 0) for k in range(len(shape)))
    return movement.slice(movement.pad(t, widths=widths, value=fill), starts=(0,) * len(shape), stops=shape)


def _product_rule(g: Any, x: Any, out: Any, x_dtype: Any, axis: int, reverse: bool) -> Any:
    """The products before element i, times sum over j >= i of g_j x_(i+1) ... x_j: no division, so zeros are exact.

    That sum is a recurrence from the end: s_i = g_i + x_(i+1) s_(i+1).
    """
    if x.shape[axis] == 0:
        return _in_dtype(g, x_dtype)
    turned = reverse
    if turned:
        g, x, out = (t.flip(axis=axis) for t in (g, x, out))
    back = x.astype(dtype=g.dtype).flip(axis=axis)
    sums = linear_recurrence(_later(back, 1, axis, 0), g.flip(axis=axis), axis).flip(axis=axis)
    found = _in_dtype(sums * _later(out, 1, axis, 1), x_dtype)
    return found.flip(axis=axis) if turned else found


cumulative_sum = _accumulated(
    "cumulative_sum",
    np.add,
    "add",
    lambda g, x_dtype, axis, reverse: _in_dtype(g.cumulative_sum(axis=axis, reverse=not reverse), x_dtype),
    (([(3,)], {"dtype": "complex128"}),),
    "Running sum along `axis` in order (from the end with `reverse`), dtypes as `sum`.",
)
cumulative_prod = _accumulated(
    "cumulative_prod",
    np.multiply,
    "mul",
    _product_rule,
    (
        ([np.array([[2.0, 0.0, 3.0, -1.0, 0.5], [0.0, 2.0, 0.0, 0.0, 4.0]])], {"axis": 1}),
        ([np.array([0.0, 3.0, 0.0, 2.0])], {"reverse": True}),
        ([(1, 3)], {"axis": 0}),
        ([np.array([1 + 2j, 0.5, 0, 1 - 1j])], {}),
    ),
    "Running product along `axis` in order (from the end with `reverse`), dtypes as `sum`. Its gradient multiplies the "
    "other elements and never divides, so zeros have the true one.",
)

# ---------------------------------------------------------------- extremes


def running_places(x: Any, out: Any, axis: int, reverse: bool) -> Any:
    """Positions of the running extreme `out` of x: the last of equal elements, and of nans."""
    n = x.shape[axis]
    shape = tuple(n if k == axis else 1 for k in range(len(x.shape)))
    places = arange(start=0, stop=n, dtype=dtypes.int64).reshape(shape=shape)
    here = (x == out) | (x != x)
    first = full(shape=(), value=n - 1 if reverse else 0, dtype=dtypes.int64)
    combined = cumulative_min if reverse else cumulative_max
    return combined(where(here, places, first), axis=axis, reverse=reverse)


def _extreme(name: str, ufunc: Any) -> Op:
    def rule(g: Any, x: Any, out: Any, x_shape: Shape, x_dtype: Any, axis: int, reverse: bool) -> Any:
        if x_shape[axis] == 0:
            return g
        zeros = full(shape=x_shape, value=0.0, dtype=x_dtype)
        return scatter_along_axis_add(zeros, running_places(x, out, axis, reverse), g, axis=axis)

    return Op(
        f"cumulative_{name}",
        "scan",
        inputs=("x",),
        params={"axis": None, "reverse": False},
        canon=lambda x, axis, reverse: {"axis": _axis(f"cumulative_{name}", x, axis), "reverse": bool(reverse)},
        infer=lambda x, axis, reverse: Aval(
            tuple(x.shape) if _axis(f"cumulative_{name}", x, axis) >= 0 else (), x.dtype
        ),
        eager=lambda x, axis, reverse: _running(ufunc, x, _axis(f"cumulative_{name}", x.shape, axis), reverse, x.dtype),
        lower=lambda s, i, x, axis, reverse: x(i),
        vjp=(rule,),
        samples=cases(
            *_CASES,
            values=[([np.array([[1.0, 3.0, np.nan, 4.0], [-np.inf, -0.0, 0.0, np.inf]])], {"axis": 1})],
            dtypes="f8 f4 i4 u1 ?",
        ),
        error_samples=_errors(f"cumulative_{name}"),
        accepts="ordered",
        combine=name,
        method=f"cumulative_{name}",
        doc=f"Running {name}imum along `axis` (from the end with `reverse`); nan from the first nan on. The gradient "
        "goes to the last of equal elements, as PyTorch's.",
    )


cumulative_max = _extreme("max", np.maximum)
cumulative_min = _extreme("min", np.minimum)

ROWS = (cumulative_sum, cumulative_prod, cumulative_max, cumulative_min)
