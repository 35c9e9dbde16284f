"""Conversion of a scalar between dtypes, over the scalar builder; bfloat16 and float16 by their bits, so that no
backend knows them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from .indexing import Scalar


def convert(s: Any, x: Scalar, source: np.dtype, target: np.dtype) -> Scalar:
    """The value of `x` in `target`. To bool: not zero. Floats are rounded to the nearest, ties to even."""
    if source is target:
        return x
    if dtypes.is_narrow(source):
        widened = _from_half if source is dtypes.float16 else _widened
        return convert(s, widened(s, x), dtypes.float32, target)
    if dtypes.is_narrow(target):
        rounded = _to_half if target is dtypes.float16 else _rounded
        return rounded(s, convert(s, x, source, dtypes.float32), target)
    return s.ne(x, s.const(0, source)) if target.kind == "b" else s.cast(x, target)


def _widened(s: Any, x: Scalar) -> Scalar:
    """bfloat16 is the upper half of a float32."""
    bits = s.cast(s.bitcast(x, dtypes.uint16), dtypes.uint32)
    return s.bitcast(s.shl(bits, s.const(16, dtypes.uint32)), dtypes.float32)


def _rounded(s: Any, x: Scalar, target: np.dtype) -> Scalar:
    """The upper half of the bits, after adding just less than half of its last place, or half of it if that is odd.

    A nan keeps its sign and becomes quiet, as in ml_dtypes: its payload could round to infinity.
    """

    def number(value: int) -> Scalar:
        return s.const(value, dtypes.uint32)

    bits = s.bitcast(x, dtypes.uint32)
    upper = s.shr(bits, number(16))
    carried = s.shr(s.add(s.add(bits, number(0x7FFF)), s.and_(upper, number(1))), number(16))
    quiet = s.or_(s.and_(upper, number(0x8000)), number(0x7FC0))
    return s.bitcast(s.cast(s.select(s.ne(x, x), quiet, carried), dtypes.uint16), target)


def _from_half(s: Any, x: Scalar) -> Scalar:
    """float16 has 10 bits of fraction and an exponent biased by 15: moved into place, times 2**112 (which also gives
    subnormal numbers their exponent); infinity and nan keep the largest one.

    Source of both ways: F. Giesen, "Half to float done quick" (2012).
    """

    def number(value: int) -> Scalar:
        return s.const(value, dtypes.uint32)

    bits = s.cast(s.bitcast(x, dtypes.uint16), dtypes.uint32)
    moved = s.shl(s.and_(bits, number(0x7FFF)), number(13))
    scaled = s.bitcast(s.mul(s.bitcast(moved, dtypes.float32), s.const(2.0**112, dtypes.float32)), dtypes.uint32)
    special = s.or_(moved, number(0x7F800000))
    sign = s.shl(s.and_(bits, number(0x8000)), number(16))
    return s.bitcast(s.or_(s.select(s.ge(moved, number(0x0F800000)), special, scaled), sign), dtypes.float32)


def _to_half(s: Any, x: Scalar, target: np.dtype) -> Scalar:
    """Rounded to the nearest, ties to even; a subnormal one by adding 0.5, whose last place is that of the result."""

    def number(value: int) -> Scalar:
        return s.const(value, dtypes.uint32)

    bits = s.bitcast(x, dtypes.uint32)
    size = s.and_(bits, number(0x7FFFFFFF))
    odd = s.and_(s.shr(size, number(13)), number(1))
    normal = s.shr(s.add(s.sub(s.add(size, number(0xFFF)), number(112 << 23)), odd), number(13))
    shifted = s.add(s.bitcast(size, dtypes.float32), s.const(0.5, dtypes.float32))
    subnormal = s.sub(s.bitcast(shifted, dtypes.uint32), number(0x3F000000))
    special = s.select(s.gt(size, number(0x7F800000)), number(0x7E00), number(0x7C00))
    found = s.select(s.lt(size, number(113 << 23)), subnormal, normal)
    found = s.select(s.ge(size, number(143 << 23)), special, found)
    sign = s.and_(s.shr(bits, number(16)), number(0x8000))
    return s.bitcast(s.cast(s.or_(found, sign), dtypes.uint16), target)
