"""log, log2, log10, log1p over the scalar instruction set.

Method: x = 2^k m with sqrt(1/2) <= m < sqrt(2), log x = k ln2 + log1p(m - 1), where m - 1 is exact. float32 uses one
polynomial; float64 the series in s = r / (2 + r) of fdlibm's e_log.c (a division is cheaper than its 12 more terms).
"""

from __future__ import annotations

from ..dtypes import float32, float64
from .notation import Value, fma, polynomial, where
from .transcendental_exp import LN2

INF, NAN = float("inf"), float("nan")
# bits of sqrt(1/2): the mantissa's lower end
_SQRT_HALF = {float32: 0x3F3504F3, float64: 0x3FE6A09E667F3BCD}
# (log1p(r) - r) / r^2 on the reduced range: relative error of the logarithm 2^-25
_LOG32 = (-0.49999991059303284, 0.33333954215049744, -0.25001826882362366, 0.1996196061372757, -0.165684312582016,
          0.14916907250881195, -0.14323939383029938, 0.08760112524032593)  # fmt: skip
# (2 atanh(s) / s - 2) / s^2 in s^2: relative error of the logarithm 2^-58.9
_LOG64 = (0.666666666666667, 0.3999999999975944, 0.28571428677005206, 0.22222204492723968, 0.18183286943111485,
          0.1532054562461665, 0.1473582084171525)  # fmt: skip


def reduce(x: Value) -> tuple[Value, Value, Value]:
    """(k, r, e) with x = 2^k (1 + r): k as an integer, e = k in the exponent field. x positive and normal."""
    form = x.format
    offset = x.bits() - _SQRT_HALF[x.dtype]
    exponent = offset & -(1 << form.mantissa)
    return offset >> form.mantissa, (x.bits() - exponent).bitcast(x.dtype) - 1.0, exponent


def log1p_tail(r: Value) -> Value:
    """log1p(r) - r on the reduced range."""
    if r.dtype == float32:
        return (r * r) * polynomial(r, _LOG32)
    s = r / (r + 2.0)
    z = s * s
    return -s * (r - z * polynomial(z, _LOG64))


def combine(k: Value, r: Value) -> Value:
    """k ln2 + log1p(r), k an integer-valued float."""
    high, low = LN2[r.dtype]
    return fma(k, high, r + fma(k, low, log1p_tail(r)))


def normalised(x: Value) -> tuple[Value, Value]:
    """(k, r) with x = 2^k (1 + r) for positive x, subnormals included; k integer-valued float."""
    subnormal = x < x.format.tiny
    shift = x.format.mantissa + 1
    k, r, _ = reduce(where(subnormal, x * 2.0**shift, x))
    k = k.cast(x.dtype)
    return where(subnormal, k - float(shift), k), r


def at_the_ends(x: Value, y: Value) -> Value:
    """y = log(x) where 0 < x < inf; -inf at zero, nan below, and inf and nan as they are."""
    y = where(x < INF, y, x)
    y = where(x < 0.0, NAN, y)
    return where(x.equals(0.0), -INF, y)


def log(x: Value) -> Value:
    """Natural logarithm. float32: degree 9; float64: 7 terms in s^2 and a division."""
    return at_the_ends(x, combine(*normalised(x)))
