"""exp, exp2, expm1, sigmoid, tanh, sinh, cosh as polynomials over the scalar instruction set.

Method (Cody and Waite 1980; Muller, "Elementary Functions", 2016): x = n ln2 + r with |r| <= ln2/2, e^x = 2^n e^r.
Adding `Format.magic` rounds n and leaves it in the low bits, so no conversion to integer is needed. `ldexp` applies
2^n, so that subnormal results are rounded once and not flushed. Coefficients: our own weighted Remez fits, rounded one
by one with the rest refitted.
"""

from __future__ import annotations

import numpy as np

from ...dtypes import float32, float64
from ..float_format import FORMATS
from ..notation import Value, at_least, at_most, fast_two_sum, fma, ldexp, polynomial, where

LOG2_E = {float32: 1.4426950216293335, float64: 1.4426950408889634}
# ln2 as a sum of two floats; the products with n are exact inside fma
LN2 = {
    float32: (0.6931471824645996, -1.9046542121259336e-09),
    float64: (0.6931471805599453, 2.3190468138462996e-17),
}
# e^r = 1 + r + r^2 q(r) on |r| <= ln2/2: relative error 2^-28.2 and 2^-57.7
EXP = {
    float32: (1.0, 1.0, 0.4999999403953552, 0.16666515171527863, 0.04166807979345322, 0.008369365707039833,
              0.0013841380132362247),
    float64: (1.0, 1.0, 0.5000000000000011, 0.16666666666666302, 0.041666666666524056, 0.008333333333570486,
              0.0013888888945632503, 0.00019841269332351283, 2.4801490700208658e-05, 2.7557749325930413e-06,
              2.7631198932343453e-07, 2.4946463340796406e-08),
}  # fmt: skip
# 2^r on |r| <= 1/2: relative error 2^-27.5 and 2^-55.5
_EXP2 = {
    float32: (1.0, 0.6931472420692444, 0.24022655189037323, 0.05550272762775421, 0.009617061354219913,
              0.001341770519502461, 0.00015826676099095494),
    float64: (1.0, 0.6931471805599457, 0.240226506959101, 0.05550410866478786, 0.009618129107605603,
              0.001333355815397243, 0.00015403530443921257, 1.5252726931826344e-05, 1.3215441246228618e-06,
              1.01808154423113e-07, 7.072855548774582e-09, 4.055630689943773e-10),
}  # fmt: skip
# (e^r - 1 - r) / r^2, weighted by the relative error of e^r - 1: 2^-26.1 and 2^-57.7
_EXPM1 = {
    float32: (0.4999999701976776, 0.16666537523269653, 0.041667740792036057, 0.008367318660020828,
              0.0013837878359481692),
    float64: EXP[float64][2:],
}  # fmt: skip
# Below and above, e^x is 0 and inf. The same for 2^x. Below, the last step is given a 0: a result that underflows takes
# the processor ten times as long, and the scores that a mask leaves out are all there.
EXP_RANGE = {float32: (-104.0, 89.0), float64: (-746.0, 710.0)}
_EXP2_RANGE = {float32: (-151.0, 129.0), float64: (-1076.0, 1025.0)}
# sinh(x) / x = 1 + z q(z), z = x^2, on |x| <= 1: relative error 2^-30 and 2^-62
_SINH = {
    float32: (0.1666666716337204, 0.008333291858434677, 0.00019847857765853405, 2.750657813521684e-06),
    float64: (0.16666666666666666, 0.00833333333333344, 0.00019841269841253188, 2.7557319207931603e-06,
              2.5052115745833946e-08, 1.6057791675761342e-10, 7.743708277127745e-13),
}  # fmt: skip


def reduce(x: Value, offset: int = 0) -> tuple[Value, Value, Value]:
    """(n, r, bits) with x = n ln2 + r, and n + offset in the low bits of `bits`."""
    magic = x.format.magic + offset
    shifted = fma(x, LOG2_E[x.dtype], magic)
    n = shifted - magic
    high, low = LN2[x.dtype]
    return n, fma(n, -low, fma(n, -high, x)), shifted.bits()


def power_of_two(biased: Value, dtype: np.dtype) -> Value:
    """2^n as a float, from bits whose low part is n + bias; the bits above are shifted out."""
    form = FORMATS[dtype]
    return (biased << form.mantissa).bitcast(form.dtype)


def in_two_factors(p: Value, n: Value) -> Value:
    """p 2^n for a builder that has no instruction for it; only the last product rounds."""
    shifted = (at_least(n, 4.0 - 2 * p.format.bias) + (p.format.magic + 2 * p.format.bias)).bits()
    half = shifted >> 1
    return p * power_of_two(half, p.dtype) * power_of_two(shifted - half, p.dtype)


def exp(x: Value) -> Value:
    """e^x. float32: degree 6; float64: degree 11."""
    low, high = EXP_RANGE[x.dtype]
    n, r, _ = reduce(at_most(x, high))
    return ldexp(where(x < low, 0.0, polynomial(r, EXP[x.dtype])), n)


def exp2(x: Value) -> Value:
    """2^x. float32: degree 6; float64: degree 11."""
    low, high = _EXP2_RANGE[x.dtype]
    inside = at_most(x, high)
    n = (inside + x.format.magic) - x.format.magic
    return ldexp(where(x < low, 0.0, polynomial(inside - n, _EXP2[x.dtype])), n)


def expm1(x: Value) -> Value:
    """e^x - 1, accurate near zero: 2 (2^(n-1) p + (2^(n-1) - 1/2)) with p = e^r - 1."""
    low = {float32: -18.0, float64: -40.0}[x.dtype]  # from here on the result is -1
    n, r, shifted = reduce(at_most(at_least(x, low), EXP_RANGE[x.dtype][1]), x.format.bias - 1)
    p = fma(r * r, polynomial(r, _EXPM1[x.dtype]), r)
    half = power_of_two(shifted, x.dtype)
    y = fma(half, p, half - 0.5)
    return where(n.equals(0.0), p, y + y).copysign(x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + e^-x), with full relative accuracy where it underflows: c / (c 2^n e^r + c), c = 2^-(bias / 2).

    2^n (1 + t) + 1 is rounded once (2^n t and, below 2^24, 2^n + 1 are exact), so that e^r is never rounded to a
    float.
    """
    form, c = x.format, 2.0 ** -(x.format.bias // 2)
    low = EXP_RANGE[x.dtype][0]
    inside = at_most(at_least(x, low), {float32: 18.0, float64: 40.0}[x.dtype])
    _, r, shifted = reduce(-inside, form.bias - form.bias // 2)
    t = fma(r * r, polynomial(r, EXP[x.dtype][2:]), r)
    power = power_of_two(shifted, x.dtype)
    whole, lost = fast_two_sum(power, power.lift(c))
    return where(x < low, 0.0, power.lift(c)) / (fma(power, t, lost) + whole)


def tanh(x: Value) -> Value:
    """h / (h + 1) with h = (e^2|x| - 1) / 2, from the polynomial of expm1 with its argument doubled."""
    a = at_most(abs(x), {float32: 9.02, float64: 19.1}[x.dtype])  # from here on the result is 1
    magic = x.format.magic + x.format.bias
    shifted = fma(a, 2.0 * LOG2_E[x.dtype], magic)
    n = shifted - magic
    high, low = LN2[x.dtype]
    r = fma(n, -0.5 * low, fma(n, -0.5 * high, a))
    half_p = fma(r * r, polynomial(r, [c * 2.0 ** (k + 1) for k, c in enumerate(_EXPM1[x.dtype])]), r)
    power = power_of_two(shifted.bits(), x.dtype)
    h = fma(power, half_p, fma(power, 0.5, -0.5))
    y = h / (h + 1.0)
    # near zero h - h y, where the rounding of the quotient weighs little
    return where(a < 0.26, fma(-h, y, h), y).copysign(x)


def _half_exp(a: Value) -> Value:
    """e^a / 2 for a >= 0, finite as long as sinh and cosh are."""
    high = {float32: 90.0, float64: 711.0}[a.dtype]
    n, r, _ = reduce(at_most(a, high))
    return ldexp(polynomial(r, EXP[a.dtype]), n - 1.0)


def sinh(x: Value) -> Value:
    """x + x^3 q(x^2) for |x| < 1, else h - 1 / (4h) with h = e^|x| / 2."""
    h, z = _half_exp(abs(x)), x * x
    small = fma(x * z, polynomial(z, _SINH[x.dtype]), x)
    return where(abs(x) < 1.0, small, (h - 0.25 / h).copysign(x))


def cosh(x: Value) -> Value:
    """h + 1 / (4h) with h = e^|x| / 2."""
    h = _half_exp(abs(x))
    return h + 0.25 / h
