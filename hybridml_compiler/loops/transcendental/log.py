"""log, log2, log10, log1p, asinh, acosh, atanh, logaddexp, logaddexp2 over the scalar instruction set.

Method: x = 2^k m with sqrt(1/2) <= m < sqrt(2), log x = k ln2 + log1p(m - 1), where m - 1 is exact. float32 uses one
polynomial; float64 the series in s = r / (2 + r) of fdlibm's e_log.c (a division is cheaper than its 12 more terms).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...dtypes import float32, float64
from ..notation import Value, fast_two_sum, fma, polynomial, rarely, two_sum, where
from .exp import LN2, LOG2_E, exp, exp2

# log2(e), log10(e) and log10(2) as sums of two floats
_LOG2_E = {
    float32: (1.4426950216293335, 1.925963033500011e-08),
    float64: (1.4426950408889634, 2.0355273740931033e-17),
}
_LOG10_E = {
    float32: (0.4342944920063019, -1.0103049952192578e-08),
    float64: (0.4342944819032518, 1.098319650216765e-17),
}
_LOG10_2 = {
    float32: (0.3010300099849701, -1.432098883924482e-08),
    float64: (0.3010299956639812, -2.8037281277851704e-18),
}
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


def combine(k: Value, r: Value, tail: Value) -> Value:
    """k ln2 + r + tail, k an integer-valued float."""
    high, low = LN2[r.dtype]
    return fma(k, high, r + fma(k, low, tail))


def normalised(x: Value) -> tuple[Value, Value]:
    """(k, r) with x = 2^k (1 + r) for positive x, subnormals included; k an integer-valued float."""
    subnormal = x < x.format.tiny
    shift = x.format.mantissa + 1
    k, r, _ = reduce(where(subnormal, x * 2.0**shift, x))
    k = k.cast(x.dtype)
    return where(subnormal, k - float(shift), k), r


def at_the_ends(x: Value, y: Value) -> Value:
    """y = log(x) where 0 < x < inf; -inf at zero, nan below, and inf and nan unchanged."""
    y = where(x < INF, y, x)
    y = where(x < 0.0, NAN, y)
    return where(x.equals(0.0), -INF, y)


def _logarithm(x: Value, formula: Callable[[Value, Value], Value]) -> Value:
    """formula(k, r) for positive normal x. All else is one unsigned comparison and a branch away: a third faster than
    its six selects in every lane."""
    form = x.format
    unsigned = np.dtype(f"u{form.bits.itemsize}")
    smallest, infinite = 1 << form.mantissa, (2 * form.bias + 1) << form.mantissa
    unusual = (x.bits() - smallest).bitcast(unsigned) >= infinite - smallest
    k, r, _ = reduce(x)
    return rarely(unusual, lambda: at_the_ends(x, formula(*normalised(x))), formula(k.cast(x.dtype), r))


def log(x: Value) -> Value:
    """Natural logarithm. float32: degree 9; float64: 7 terms in s^2 and a division."""
    return _logarithm(x, lambda k, r: combine(k, r, log1p_tail(r)))


def log2(x: Value) -> Value:
    """Logarithm to base 2; exact for powers of two."""
    high, low = _LOG2_E[x.dtype]
    return _logarithm(x, lambda k, r: k + fma(r, high, fma(log1p_tail(r), high, r * low)))


def log10(x: Value) -> Value:
    """Logarithm to base 10."""
    (e_high, e_low), (octave_high, octave_low) = _LOG10_E[x.dtype], _LOG10_2[x.dtype]

    def formula(k: Value, r: Value) -> Value:
        y = fma(r, e_high, fma(log1p_tail(r), e_high, r * e_low))
        return fma(k, octave_high, fma(k, octave_low, y))

    return _logarithm(x, formula)


def log1p_sum(x: Value, low: Value | None = None, octaves: Value | None = None) -> Value:
    """log(1 + x + low) + octaves ln2 for x > -1; `low` is the rounding error of x.

    The rounding of 1 + x is kept and added to r: for small x, r is x again, and `low` is not lost either.
    """
    u, lost = two_sum(x.lift(1.0), x)
    lost = lost if low is None else lost + low
    k, r, exponent = reduce(u)
    one = x.lift(1.0).bits()
    lost = where(x < 2.0 ** (x.format.mantissa + 2), lost * (one - exponent).bitcast(x.dtype), 0.0)
    r, lost = fast_two_sum(r, lost)
    k = k.cast(x.dtype)
    return combine(k if octaves is None else k + octaves, r, log1p_tail(r) + lost)


def log1p(x: Value) -> Value:
    """log(1 + x), accurate near zero."""
    y = where(x < INF, log1p_sum(x), x)
    y = where(x < -1.0, NAN, y)
    return where(x.equals(-1.0), -INF, y).copysign(x)


def _inverse_hyperbolic(t: Value, low: Value, x: Value) -> Value:
    """log1p(t + low), or log(2x) where x is so large that both are equal."""
    large = x > 2.0 ** (x.format.mantissa + 2)
    t = where(large, x, t)
    y = log1p_sum(t, where(large, 0.0, low), where(large, t.lift(1.0), 0.0))
    return where(t < INF, y, t)


def asinh(x: Value) -> Value:
    """log1p(a + a^2 / (1 + sqrt(a^2 + 1))) with a = |x|."""
    a = abs(x)
    t, low = fast_two_sum(a, a * a / (fma(a, a, 1.0).sqrt() + 1.0))
    return _inverse_hyperbolic(t, low, a).copysign(x)


def acosh(x: Value) -> Value:
    """log1p(u + sqrt(2u + u^2)) with u = x - 1; nan for x < 1."""
    u = x - 1.0
    t, low = two_sum(u, fma(u, u, u + u).sqrt())
    return where(x < 1.0, NAN, _inverse_hyperbolic(t, low, x))


def atanh(x: Value) -> Value:
    """log1p(2a / (1 - a)) / 2 with a = |x|; nan for |x| > 1."""
    a = abs(x)
    below, lost = fast_two_sum(a.lift(1.0), -a)
    q = (a + a) / below
    rest = fma(-q, lost, fma(-q, below, a + a))  # the remainder; q + rest / (1 - a), and 1 / (1 - a) = 1 + q / 2
    y = log1p_sum(q, fma(rest, q * 0.5, rest)) * 0.5
    y = where(a < 1.0, y, where(a.equals(1.0), a.lift(INF), NAN))
    return y.copysign(x)


def _larger_and(x: Value, y: Value, rest: Callable[[Value], Value]) -> Value:
    """max(x, y) + rest(-|x - y|); infinities of one sign stay."""
    larger, difference = where(x > y, x, y), x - y
    found = where(difference.differs(difference), difference, larger + rest(-abs(difference)))
    return where(x.equals(y) & abs(x).equals(INF), x, found)


def logaddexp(x: Value, y: Value) -> Value:
    """log(e^x + e^y), without overflow."""
    return _larger_and(x, y, lambda d: log1p(exp(d)))


def logaddexp2(x: Value, y: Value) -> Value:
    """log2(2^x + 2^y), without overflow."""

    def rest(d: Value) -> Value:
        power = exp2(d)  # near 1 the sum is exact enough, and log2(2) = 1 is exact
        return where(power > 0.5, log2(power + 1.0), log1p(power) * LOG2_E[d.dtype])

    return _larger_and(x, y, rest)
