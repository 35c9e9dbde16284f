"""pow, hypot, rsqrt, cbrt over the scalar instruction set.

pow is 2^(y log2 |x|) with the cases of C99 put right afterwards. The logarithm needs as many bits beyond the format's
as the exponent field has: float32 computes in float64 (two-float arithmetic takes more instructions than two half
vectors of float64); float64 takes the logarithm in two floats from a table of 128 reciprocals (the method of pow.c in
ARM's optimized routines; our own table). cbrt is a polynomial of the reduced argument and one step of Halley's method.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache

import numpy as np

from ...dtypes import float32, float64
from ..notation import (
    Value,
    at_least,
    at_most,
    fast_two_sum,
    fma,
    in_float64,
    ldexp,
    polynomial,
    two_product,
    two_sum,
    where,
)
from .exp import EXP, power_of_two, reduce
from .log import normalised
from .log import reduce as reduce_log

INF, NAN = float("inf"), float("nan")
# log2(1 + r) / r for m = 1 + r in [sqrt(1/2), sqrt(2)): relative error 2^-35.8
_LOG2 = (1.4426950408687054, -0.7213475208680888, 0.48089836139773545, -0.3606736748740329, 0.28853729322715505,
         -0.24045316382971332, 0.20617536621863874, -0.18030063757920406, 0.1587697423349727, -0.1431561058292071,
         0.14474847300729918, -0.14284061878969345, 0.07737154592591941)  # fmt: skip
# 2^r on |r| <= 1/2: relative error 2^-34.5
_EXP2 = (0.9999999999617212, 0.6931471807290995, 0.24022651198038142, 0.05550410351476604, 0.00961802725391293,
         0.0013333923865030874, 0.00015469292932048054, 1.5201676180707842e-05)  # fmt: skip

# (1 + r)^(1/3) for the same: relative error 2^-22
_CBRT = (0.999999843138507, 0.3333346641496163, -0.11108084330222155, 0.061608400429298105, -0.04196258340701144,
         0.03305103372498255, -0.01926717343884374)  # fmt: skip
_CBRT2 = 1.2599210498948732
_TABLE_BITS = 7
# bits of the lower end, 0.7057, of the range of m: 1 is inside of its interval, whose reciprocal is 1
_LOWER_END = 0x3FE6955500000000


@cache
def _log_table() -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """(c, high, low) for 128 intervals of m: a reciprocal c, and -log(c) as a sum of two floats.

    c has 8 fractional bits, 7 for m < 1, so that r = m c - 1 is exact: it is a multiple of 2^-60 below 2^-7. The first
    of the two floats is a multiple of 2^-42, so that adding k ln2 is exact.
    """
    edges = (_LOWER_END + (np.arange((1 << _TABLE_BITS) + 1, dtype=np.int64) << (52 - _TABLE_BITS))).view(np.float64)
    reciprocals = [
        1.0 if low <= 1.0 < high else round(2.0 / (low + high) * steps) / steps
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        for steps in (128 if low < 1.0 else 256,)
    ]
    high_parts, low_parts = zip(*(_two_floats(-_ln(Decimal(c))) for c in reciprocals), strict=True)
    return tuple(reciprocals), high_parts, low_parts


def _ln(x: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = 40
        return x.ln()


def _two_floats(x: Decimal) -> tuple[float, float]:
    with localcontext() as context:
        context.prec = 40
        high = float(round(x * 2**42)) * 2.0**-42
        return high, float(x - Decimal(high))


def log_in_two_floats(a: Value) -> tuple[Value, Value]:
    """log(a) as a sum of two floats with a relative error near 2^-65, for positive finite float64."""
    subnormal = a < a.format.tiny
    bits = where(subnormal, a * 2.0**53, a).bits()
    offset = bits - _LOWER_END
    index = (offset >> (52 - _TABLE_BITS)) & ((1 << _TABLE_BITS) - 1)
    m = (bits - (offset & -(1 << 52))).bitcast(float64)
    k = (offset >> 52).cast(float64)
    k = where(subnormal, k - 53.0, k)
    reciprocal, log_high, log_low = (index.lookup(column, float64) for column in _log_table())
    ln2_high, ln2_low = _two_floats(_ln(Decimal(2)))
    r = fma(m, reciprocal, -1.0)
    high, rest = two_sum(fma(k, ln2_high, log_high), r)
    half = r * -0.5
    square, square_rest = two_product(r, half)
    high, second = two_sum(high, square)
    series = polynomial(r, [(-1.0) ** i / (i + 3) for i in range(7)])
    low = fma(k, ln2_low, log_low) + rest + square_rest + second + square * (r * -2.0) * series
    return fast_two_sum(high, low)


def _power64(a: Value, y: Value) -> Value:
    """a^y for positive finite a (else garbage)."""
    high, low = log_in_two_floats(a)
    high = where(a.equals(0.0), -INF, where(a < INF, high, a))
    product, lost = two_product(y, high)
    lost = where(abs(product) < 800.0, fma(y, low, lost), 0.0)
    n, r, _ = reduce(at_most(at_least(product, -800.0), 800.0))
    return ldexp(polynomial(r + lost, EXP[float64]), n)


def _power32(a: Value, y: Value) -> Value:
    """a^y for positive float32 a, zero and infinity included."""
    a, y = a.cast(float64), y.cast(float64)
    k, r, _ = reduce_log(a)  # subnormals of float32 are normal here
    logarithm = fma(r, polynomial(r, _LOG2), k.cast(float64))
    logarithm = where(a.equals(0.0), -INF, where(a < INF, logarithm, a))
    magic = a.format.magic + a.format.bias
    exponent = at_most(at_least(y * logarithm, -200.0), 200.0)
    shifted = exponent + magic
    power = power_of_two(shifted.bits(), float64)
    return (polynomial(exponent - (shifted - magic), _EXP2) * power).cast(float32)


def pow(x: Value, y: Value) -> Value:
    """x^y with the special cases of C99: pow(1, y) = pow(x, 0) = 1 even for nan; nan for finite x < 0, y no integer."""
    a = abs(x)
    power = _power32(a, y) if x.dtype == float32 else _power64(a, y)
    power = where(a.equals(1.0) | y.equals(0.0), 1.0, power)
    half = y * 0.5
    integer = y.rint().equals(y)
    odd = integer & half.rint().differs(half)
    power = where(odd, power.copysign(x), power)
    undefined = (x < 0.0) & (x > -INF) & ~integer
    return where(undefined | (x.differs(x) & y.differs(0.0)), NAN, power)


def hypot(x: Value, y: Value) -> Value:
    """sqrt(x^2 + y^2) without overflow or underflow on the way; inf if either is, even beside nan."""
    a, b = abs(x), abs(y)
    larger = where(a > b, a, b)
    limit, factor = {float32: (2.0**60, 2.0**90), float64: (2.0**500, 2.0**600)}[x.dtype]
    big, small = larger > limit, larger < 1.0 / limit
    up = where(big, 1.0 / factor, where(small, x.lift(factor), 1.0))
    down = where(big, factor, where(small, x.lift(1.0 / factor), 1.0))
    c, d = a * up, b * up
    return where(a.equals(INF) | b.equals(INF), INF, fma(c, c, d * d).sqrt() * down)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x), two roundings."""
    return 1.0 / x.sqrt()


@in_float64
def cbrt(x: Value) -> Value:
    """The cube root, of the sign of x. With x = 2^(3q + j) m, |j| <= 1: 2^q times that of 2^j m."""
    a = abs(x)
    k, r = normalised(a)
    q = (k * (1 / 3)).rint()
    j = fma(q, -3.0, k)
    up, down = j > 0.5, j < -0.5
    y = polynomial(r, _CBRT) * where(up, _CBRT2, where(down, x.lift(1 / _CBRT2), 1.0))
    octave = where(up, 2.0, where(down, x.lift(0.5), 1.0))
    m = fma(r, octave, octave)
    square, lost = two_product(y, y)
    over = fma(lost, y, fma(square, y, -m))  # y^3 - m
    y = fma(-y, over / fma(square, y + y, m), y)
    y = y * power_of_two((q + (x.format.magic + x.format.bias)).bits(), x.dtype)
    return where((a < INF) & a.differs(0.0), y, a).copysign(x)
