"""Conversion of a scalar between dtypes, over the scalar builder; bfloat16 by its bits, so that no backend knows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from .indexing import Scalar


def convert(s: Any, x: Scalar, source: np.dtype, target: np.dtype) -> Scalar:
    """The value of `x` in `target`. To bool: not zero. Floats are rounded to the nearest, ties to even."""
    if source is target:
        return x
    if source.kind == "V":
        return convert(s, _widened(s, x), dtypes.float32, target)
    if target.kind == "V":
        return _rounded(s, convert(s, x, source, dtypes.float32), target)
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
