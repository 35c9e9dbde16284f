"""Rows about how floats are stored: the neighbour of a number."""

from __future__ import annotations

from typing import Any

import numpy as np

from .elementwise import elementwise, zero_gradient
from .indexing import Scalar


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

ROWS = (nextafter,)
