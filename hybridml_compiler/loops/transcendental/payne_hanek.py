"""Argument reduction modulo pi for huge arguments, with integers (M. Payne and R. Hanek, "Radian reduction for
trigonometric functions", SIGNUM Newsletter 1983). It runs under `rarely`, so it is short rather than fast.

x = M 2^(8g - bias - mantissa) with an integer M; only the bits of 1/pi whose product with M is neither a multiple of 2
nor below the wanted accuracy matter: a window of 32-bit limbs that starts at byte g.
"""

from __future__ import annotations

from functools import cache

from ...dtypes import float32, float64, int64, uint64
from ..float_format import Format
from ..notation import Value, fma, where

# limbs of the fraction of x / pi, and of the window (the fraction and the guard bits that a 31 or 60 bit M needs)
_FRACTION_LIMBS = {float32: 2, float64: 4}
_WINDOW_LIMBS = {float32: 3, float64: 6}
_LIMIT_EXPONENT = {float32: 17, float64: 24}
_PI = (3.141592653589793, 1.2246467991473532e-16)


@cache
def _pi(bits: int) -> int:
    """floor(pi 2^bits), by Machin's formula."""

    def arctan_inverse(n: int) -> int:
        term = (1 << (bits + 32)) // n
        total, k = term, 1
        while term:
            term //= -n * n
            k += 2
            total += term // k
        return total

    return (16 * arctan_inverse(5) - 4 * arctan_inverse(239)) >> 32


@cache
def _words(form: Format) -> tuple[int, ...]:
    """Word j: 32 bits of 1/pi, 8 bits on from word j - 1; word 0 is for the smallest exponent that comes here."""
    precision = 1400
    inverse = (1 << 2 * precision) // _pi(precision)  # floor(2^precision / pi), but for the last bits
    first, last = (form.bias + _LIMIT_EXPONENT[form.dtype]) >> 3, (2 * form.bias) >> 3
    count = last - first + 1 + 4 * (_WINDOW_LIMBS[form.dtype] - 1)
    start = 8 * first - form.bias - form.mantissa + 31
    return tuple((inverse >> (precision - start - 8 * j)) & 0xFFFFFFFF for j in range(count))


def payne_hanek(x: Value, *, quarter: bool = False, period: int = 1) -> tuple[Value, Value, Value]:
    """(r, low, n) with x = n p + r + low, |r| <= p/2, p = pi / period (1 or 2), and n modulo 2 period.

    `quarter` adds pi/2 to x. For x >= 2^17 (float32) or 2^24 (float64); r is nan for inf and nan, and
    unspecified for the smaller x."""
    form, low32 = x.format, 0xFFFFFFFF
    bits = x.bits().cast(uint64)
    exponent, words = (bits >> form.mantissa) & (2 * form.bias + 1), _words(form)
    mantissa = ((bits & ((1 << form.mantissa) - 1)) | (1 << form.mantissa)) << (exponent & 7)
    first, groups = (form.bias + _LIMIT_EXPONENT[form.dtype]) >> 3, (2 * form.bias) >> 3
    group = exponent >> 3
    index = where(group < first, first, where(group > groups, groups, group)) - first
    window = [(index + 4 * i).lookup(words, uint64) for i in reversed(range(_WINDOW_LIMBS[x.dtype]))]

    parts = [mantissa & low32, mantissa >> 32] if x.dtype == float64 else [mantissa]
    limbs: list[Value] = []
    carry = x.lift(0.0).cast(uint64)
    for column in range(len(window)):
        products = [part * window[column - i] for i, part in enumerate(parts) if column >= i]
        total, high = carry, None
        for product in products:
            total = total + (product & low32)
            high = product >> 32 if high is None else high + (product >> 32)
        assert high is not None
        limbs.append(total & low32)
        carry = high + (total >> 32)
    fraction = limbs[-_FRACTION_LIMBS[x.dtype] :]

    top = (fraction[-1] << 32) | fraction[-2]  # x / pi mod 2 in units of 2^-63
    if quarter:
        top = top + (1 << 62)
    step = 64 - period
    n = (top + (1 << (step - 1))) >> step
    signed = (top - (n << step)).bitcast(int64)
    if x.dtype == float32:
        wide = signed.cast(float64) * (_PI[0] * 2.0**-63)
        r = wide.cast(float32)
        return r + (x - x), (wide - r.cast(float64)).cast(float32), n.cast(form.bits)
    low = ((signed & 0x7FF) << 53).bitcast(uint64) | (fraction[1] << 21) | (fraction[0] >> 11)
    a, b = (signed >> 11).cast(float64) * 2.0**-52, low.cast(float64) * 2.0**-116
    rest = fma(a, _PI[1], b * _PI[0])
    r = fma(a, _PI[0], rest)
    return r + (x - x), fma(a, _PI[0], -r) + rest, n.bitcast(int64)
