"""asin, acos, atan, atan2 over the scalar instruction set.

Method: odd polynomials on [0, 1/2] (asin) and [0, 1] (atan), and beyond them the identities asin(x) = pi/2 -
2 asin(sqrt((1 - x) / 2)) and atan(x) = pi/2 - atan(1/x), with pi/2 as a sum of two floats. Coefficients: our own fits.
"""

from __future__ import annotations

from ...dtypes import float32, float64
from ..notation import Value, fma, polynomial, where

INF = float("inf")
# pi/2 as a sum of two floats
_HALF_PI = {
    float32: (1.5707963705062866, -4.371138828673793e-08),
    float64: (1.5707963267948966, 6.123233995736766e-17),
}
# (atan(r) / r - 1) / r^2 in r^2 on |r| <= 1: relative error of the arctangent 2^-27.9 and 2^-57.5
_ATAN = {
    float32: (-0.3333333432674408, 0.19999471306800842, -0.14273089170455933, 0.10994808375835419,
              -0.08519844710826874, 0.05984070897102356, -0.03296613693237305, 0.011835704557597637,
              -0.0019922310020774603),
    float64: (-0.3333333333333307, 0.19999999999951748, -0.14285714282587955, 0.11111111007336943, -0.09090907007691831,
              0.07692279887494943, -0.06666404410549025, 0.05880529726068343, -0.052535263948812305,
              0.04722346994766435, -0.0421923988164052, 0.03664308289107571, -0.02990562271788796, 0.021986921334174975,
              -0.013902426227036987, 0.0071977736442730275, -0.002885549231007374, 0.0008315372742187064,
              -0.0001522060944714271, 1.3229474761841704e-05),
}  # fmt: skip
# (asin(r) / r - 1) / r^2 in r^2 on |r| <= 1/2: relative error of the arcsine 2^-27.1 and 2^-59.6
_ASIN = {
    float32: (0.16666680574417114, 0.07497624307870865, 0.04522068426012993, 0.025273114442825317,
              0.04047978296875954),
    float64: (0.16666666666666666, 0.07499999999990899, 0.04464285715860118, 0.030381943375314503,
              0.02237219822011923, 0.01735188536763078, 0.013977807076540167, 0.011421818253130153,
              0.010660004113507988, 0.004134677158166397, 0.020719444557799217, -0.019667092610705598,
              0.03183188734406692),
}  # fmt: skip


def _asin_parts(x: Value) -> tuple[Value, Value, Value]:
    """(r, t, far): asin(r) = r + t, where r = |x|, or sqrt((1 - |x|) / 2) for |x| > 1/2 (far)."""
    a = abs(x)
    far = a > 0.5
    z = where(far, fma(a, -0.5, 0.5), a * a)
    r = where(far, z.sqrt(), a)
    return r, r * z * polynomial(z, _ASIN[x.dtype]), far


def asin(x: Value) -> Value:
    """Arcsine; nan for |x| > 1."""
    r, t, far = _asin_parts(x)
    high, low = _HALF_PI[x.dtype]
    beyond = fma(r + (t - 0.5 * low), -2.0, high)
    return where(far, beyond, r + t).copysign(x)


def acos(x: Value) -> Value:
    """Arccosine: pi/2 - asin(x) in the middle, 2 asin(sqrt((1 - x) / 2)) near 1, pi minus that near -1."""
    r, t, far = _asin_parts(x)
    high, low = _HALF_PI[x.dtype]
    middle = high - (r.copysign(x) - (low - t.copysign(x)))
    near_one = (r + t) * 2.0
    near_minus_one = fma(r + (t - low), -2.0, 2.0 * high)
    return where(far, where(x < 0.0, near_minus_one, near_one), middle)


def _atan_reduced(r: Value) -> Value:
    """atan(r) for 0 <= r <= 1."""
    z = r * r
    return fma(r * z, polynomial(z, _ATAN[r.dtype]), r)


def atan(x: Value) -> Value:
    """The arctangent, by a polynomial on [0, 1]."""
    a = abs(x)
    inverted = a > 1.0
    y = _atan_reduced(where(inverted, 1.0 / a, a))
    high, low = _HALF_PI[x.dtype]
    return where(inverted, high - (y - low), y).copysign(x)


def atan2(y: Value, x: Value) -> Value:
    """The angle of the point (x, y), in [-pi, pi]; signed zeros and infinities as C99."""
    ay, ax = abs(y), abs(x)
    steep = ay > ax
    top, bottom = where(steep, ax, ay), where(steep, ay, ax)
    ratio = top / where(bottom.equals(0.0), 1.0, bottom)
    ratio = where(top.equals(INF), 1.0, ratio)  # both infinite
    angle = _atan_reduced(ratio)
    high, low = _HALF_PI[x.dtype]
    angle = where(steep, high - (angle - low), angle)
    left = x.bits() < 0
    angle = where(left, 2.0 * high - (angle - 2.0 * low), angle)
    return where(x.differs(x), x, angle).copysign(y)
