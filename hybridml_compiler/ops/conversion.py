"""Conversion between dtypes: of a scalar over the scalar builder, bfloat16 and float16 by their bits, so that no
backend knows them; and of an array by NumPy, with the same bits ([Note: Numerics]).

Floats are cut to integers. NumPy leaves open the result for nan and for numbers that the integer cannot hold; here it
is that of x86-64, in both styles and on every machine, so that -1.0 is 255 in uint8:

    up to 16 bits, int32   the low bits of the int32; for nan, and numbers that it cannot hold, -2**31
    uint32, int64          the low bits of the int64; for nan, and numbers that it cannot hold, -2**63
    uint64                 the same below 2**63; from there on 2**63 plus the int64 of the rest, modulo 2**64
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
    if source.kind == "f" and target.kind in "iu":
        return _to_integer(s, x, source, target)
    return s.ne(x, s.const(0, source)) if target.kind == "b" else s.cast(x, target)


def _to_integer(s: Any, x: Scalar, source: np.dtype, target: np.dtype) -> Scalar:
    if target is not dtypes.uint64:
        return s.cast(_cut(s, x, source, _through(target)), target)
    high = s.ge(x, s.const(2.0**63, source))
    low = s.cast(_cut(s, s.select(high, s.sub(x, s.const(2.0**63, source)), x), source, dtypes.int64), target)
    return s.select(high, s.xor(low, s.const(1 << 63, target)), low)


def _cut(s: Any, x: Scalar, source: np.dtype, target: np.dtype) -> Scalar:
    least = s.const(_least(target), source)
    return s.cast(s.select(s.lt(s.abs(x), s.neg(least)), x, least), target)


def _through(target: np.dtype) -> np.dtype:
    """The signed integer that a float is cut to."""
    return dtypes.int64 if target.itemsize == 8 or target is dtypes.uint32 else dtypes.int32


def _least(target: np.dtype) -> float:
    return -(2.0 ** (8 * target.itemsize - 1))


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
    """Conversion to float16, rounded to the nearest, ties to even; a subnormal one by adding 0.5, whose last place is
    that of the result."""

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


# ---------------------------------------------------------------- arrays


def cast(x: np.ndarray, target: np.dtype) -> np.ndarray:
    """The values of an array in another dtype, as `convert` has them."""
    source = x.dtype
    if source.kind not in "fV" or target.kind not in "iu":
        once = x.astype(np.float32) if source == np.float64 and dtypes.is_narrow(target) else x
        return once.astype(target)
    if dtypes.is_narrow(source):
        return cast(x.astype(np.float32), target)
    return x.astype(target) if (source, target) in _AS_NUMPY else _integers(x, target)


def _integers(x: np.ndarray, target: np.dtype) -> np.ndarray:
    if target != np.uint64:
        return _cut_array(x, _through(target)).astype(target, copy=False)
    high = x >= 2.0**63
    low = _cut_array(np.where(high, x - x.dtype.type(2.0**63), x), dtypes.int64).astype(target)
    return np.asarray(low ^ (high.astype(target) << np.uint64(63)))


def _cut_array(x: np.ndarray, target: np.dtype) -> np.ndarray:
    least = _least(target)
    return np.where(np.abs(x) < -least, x, x.dtype.type(least)).astype(target)


def _as_numpy() -> frozenset[tuple[np.dtype, np.dtype]]:
    """The casts that NumPy does so on this machine, in vectors and element by element (not to uint32, with AVX-512)."""
    odd = [np.nan, np.inf, -np.inf, -1.5, 300.0, -70000.0, 3e9, -3e9, 1e10, 1e19, -1e19, 1e30]
    found = set()
    with np.errstate(invalid="ignore"):
        for source in (dtypes.float32, dtypes.float64):
            x = np.array(odd * 13, source)
            for target in map(np.dtype, "bBhHiIqQ"):
                want = _integers(x, target)
                if (x.astype(target) == want).all() and (x[::2].astype(target) == want[::2]).all():
                    found.add((source, target))
    return frozenset(found)


_AS_NUMPY = _as_numpy()
