"""Rows about the storage of floats: sign bits, classes (nan, inf), the neighbour of a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from .elementwise import elementwise, where, zero_gradient
from .indexing import Scalar
from .op import Op

copysign = elementwise(
    "copysign",
    np.copysign,
    (
        lambda g, out, x: where(x == 0, 0.0, g * (out / x)),
        lambda g, y_shape, y_dtype: zero_gradient(g, y_shape, y_dtype),
    ),
    "|x| with the sign of y, also of a zero. Gradient at x = 0 is 0, as abs.",
    accepts="float",
)


def _class_of_float(name: str, ufunc: Any, lower: Callable[..., Any], of_integers: bool, doc: str) -> Op:
    def scalar(s: Any, x: Scalar) -> Scalar:
        if s.dtype(x).kind == "c":  # finite where both parts are, inf or nan where one is
            return (s.and_ if of_integers else s.or_)(lower(s, s.real(x)), lower(s, s.imag(x)))
        return lower(s, x) if s.dtype(x).kind == "f" else s.const(of_integers, dtypes.bool_)

    return elementwise(
        name, ufunc, (None,), doc, lower=scalar, accepts="any", result=dtypes.bool_, constant_of="biu",
        complex_kernels=True,
    )  # fmt: skip


def _size_against_inf(compare: str) -> Callable[..., Any]:
    return lambda s, x: getattr(s, compare)(s.abs(x), s.const(float("inf"), s.dtype(x)))


isnan = _class_of_float("isnan", np.isnan, lambda s, x: s.ne(x, x), False, "True where x is nan.")
isinf = _class_of_float("isinf", np.isinf, _size_against_inf("eq"), False, "True where x is inf or -inf.")
isfinite = _class_of_float(
    "isfinite", np.isfinite, _size_against_inf("lt"), True, "True where x is neither inf nor nan."
)

signbit = elementwise(
    "signbit",
    np.signbit,
    (None,),
    "True where the sign bit of x is set, also of -0 and of a nan.",
    lower=lambda s, x: s.lt(s.copysign(s.const(1, s.dtype(x)), x), s.const(0, s.dtype(x))),
    accepts="float",
    result=dtypes.bool_,
)


def _nextafter_lower(s: Any, x: Scalar, y: Scalar) -> Scalar:
    """Floats of one sign are ordered as their bits read as integers: away from zero is one more."""
    dtype = s.dtype(x)
    bits = np.dtype(f"i{dtype.itemsize}")
    away = s.eq(s.lt(x, y), s.gt(x, s.const(0, dtype)))
    step = s.select(away, s.const(1, bits), s.const(-1, bits))
    moved = s.bitcast(s.add(s.bitcast(x, bits), step), dtype)
    from_zero = s.copysign(s.const(float(np.finfo(dtype).smallest_subnormal), dtype), y)
    moved = s.select(s.eq(x, s.const(0, dtype)), from_zero, moved)
    unordered = s.or_(s.ne(x, x), s.ne(y, y))
    return s.select(unordered, s.add(x, y), s.select(s.eq(x, y), y, moved))


nextafter = elementwise(
    "nextafter",
    np.nextafter,
    (lambda g: g, lambda g, y_shape, y_dtype: zero_gradient(g, y_shape, y_dtype)),
    "The float next to x in the direction of y; y where both are equal. The gradient is that of x, one step away.",
    lower=_nextafter_lower,
    accepts="float",
)

ROWS = (copysign, isnan, isinf, isfinite, signbit, nextafter)
