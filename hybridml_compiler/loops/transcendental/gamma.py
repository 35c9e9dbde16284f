"""gamma, lgamma, digamma, trigamma over the scalar instruction set, in float64 (float32 by way of it).

Method: below 8 the recurrence brings x to 2 + t with |t| <= 1/2 (1 + t for digamma), where one polynomial answers; from
8 on Stirling's series, a polynomial in 1 / x^2 that is fitted to the rest after its leading terms; below zero the
reflection formulas (DLMF 5.5.1, 5.5.3, 5.5.4, 5.11.1, 5.11.2). gamma from 8 on is e^(h + l) of a logarithm in two
floats, so that an exponent of 700 costs no accuracy. Coefficients: our own fits.
"""

from __future__ import annotations

import math

from ...dtypes import float64
from ..notation import (
    Value,
    at_most,
    fast_two_sum,
    fma,
    in_float64,
    ldexp,
    polynomial,
    rarely,
    two_product,
    two_sum,
    where,
)
from .exp import EXP, reduce
from .log import log
from .pow import log_in_two_floats
from .trig import cos, sin

INF, NAN = float("inf"), float("nan")
# lgamma(2 + t) / t on |t| <= 1/2: relative error 2^-55.6
_LGAMMA = (0.42278433509846713, 0.3224670334241132, -0.06735230105319809, 0.02058080842778463, -0.007385551028674025,
           0.0028905103307344045, -0.0011927539116998527, 0.0005096695250241955, -0.00022315475858818615,
           9.94575066878814e-05, -4.4926233820610826e-05, 2.0507291996563825e-05, -9.439526202058818e-06,
           4.374223481082048e-06, -2.0389077825677104e-06, 9.584207048594987e-07, -4.508168225446838e-07,
           2.0193835401136915e-07, -9.558178101635195e-08, 6.472569840064724e-08, -3.085985478390577e-08)  # fmt: skip
# 1 / gamma(2 + t) on |t| <= 1/2: 2^-57.2
_RECIPROCAL = (1.0, -0.42278433509846713, -0.23309373642178674, 0.1910911013876916, -0.024552490005400007,
               -0.017645244550148063, 0.008023273022266813, -0.0008043297755100693, -0.00036083781624140577,
               0.0001455961408820355, -1.7545859930322217e-05, -2.5889854891223673e-06, 1.3385028943473512e-06,
               -2.0551560651695188e-07, -1.6530712714336896e-10, 6.3709256998596e-09,
               -1.2605152941784441e-09)  # fmt: skip
# x (lgamma(x) - (x - 1/2) log x + x - log(2 pi) / 2) in 1 / x^2 - 2^-7 for x >= 8: 2^-55
_STIRLING = (0.08331168010291162, -0.0027654844038270993, 0.0007799993560250166, -0.0005700461967015645,
             0.0007722653292124906, -0.0016506945302510803, 0.00505414519051507, -0.020768241807951646,
             0.11010140282534561, -0.7175427451820513)  # fmt: skip
# digamma(x) / (x - root) in x - 3/2 on 1 <= x <= 2: 2^-54.3; the root as a sum of two floats
_DIGAMMA = (0.9510558760318328, -0.42362742128146047, 0.24054248424078736, -0.14840492305391761, 0.09498872445283,
            -0.06192213327165706, 0.04076083394462657, -0.02697579684427536, 0.017907248195969127,
            -0.011908215172584002, 0.007927024067961237, -0.00528001782089874, 0.0035180800751066694,
            -0.002344650082351321, 0.0015635679757533885, -0.001042261556504223, 0.0006899717801166841,
            -0.0004599625144612576, 0.0003268068044141764, -0.0002178682145501451, 9.173383289174792e-05,
            -6.11554261750751e-05, 0.00012230983055406747, -8.153978973309418e-05)  # fmt: skip
_ROOT = (1.4616321449683622, 9.549995429965697e-17)
# x^2 (digamma(x) - log x + 1 / (2 x)) in 1 / x^2 - 2^-7 for x >= 8: 2^-53.9
_DIGAMMA_TAIL = (-0.08326846940633634, 0.008272078230045516, -0.0038732758629445453, 0.0039420567908074544,
                 -0.006821427455642425, 0.017683809499994294, -0.06343201949684149, 0.2978650080963415,
                 -1.7740162220433706, 12.784518865737837)  # fmt: skip
# x^3 (trigamma(x) - 1 / x - 1 / (2 x^2)) in 1 / x^2 - 2^-7 for x >= 8: 2^-54.5
_TRIGAMMA_TAIL = (0.16640768758205615, -0.032967273041718495, 0.023054871253772223, -0.031110115084350323,
                  0.06683272667086182, -0.20625888263484604, 0.8554808491991083, -4.546059509208827,
                  29.855987829831886, -239.57116096602948, 2231.17012988646)  # fmt: skip
_CENTRE = 0.0078125005
_HALF_LOG_TAU = (0.9189385332046728, -3.8782941580672414e-17)
_LOG_PI = 1.1447298858494002
_FAR = 8.0  # where Stirling's series begins


def sin_pi(x: Value) -> Value:
    """sin(pi x): x less the nearest integer is exact."""
    n = x.rint()
    s = sin((x - n) * math.pi)
    return where(_odd(n), -s, s)


def cot_pi(x: Value) -> Value:
    r = (x - x.rint()) * math.pi
    return cos(r) / sin(r)


def _odd(n: Value) -> Value:
    half = n * 0.5
    return half.differs(half.rint())


def _recurrence(a: Value) -> tuple[Value, Value, Value]:
    """(t, p, inverse) with gamma(a) = p gamma(2 + t), or gamma(2 + t) / p where inverse, |t| <= 1/2; 0 < a < 8."""
    t, p = a - 2.0, a.lift(1.0)
    for k in range(1, 7):
        step = a > k + 1.5
        factor = a - float(k)
        p = where(step, p * factor, p)
        t = where(step, factor - 2.0, t)
    inverse, near_zero = a < 1.5, a < 0.5
    t = where(near_zero, a, where(inverse, a - 1.0, t))
    return t, where(near_zero, a * (a + 1.0), where(inverse, a, p)), inverse


def _stirling(a: Value) -> Value:
    """The rest of lgamma(a) after its leading terms, a >= 8."""
    u = 1.0 / a
    return u * polynomial(fma(u, u, -_CENTRE), _STIRLING)


@in_float64
def lgamma(x: Value) -> Value:
    """log |gamma(x)|; inf at 0, -1, -2, ... Beside the zeros below -2 the error is absolute, not relative."""
    a = abs(x)
    t, p, inverse = _recurrence(a)
    far = a >= _FAR
    logarithm = log(where(far, a, p))
    stirling = fma(a - 0.5, logarithm, -a) + (_HALF_LOG_TAU[0] + _stirling(a))
    near = fma(t, polynomial(t, _LGAMMA), where(inverse, -logarithm, logarithm))
    y = where(far, where(a < INF, stirling, a), near)

    def reflected() -> Value:
        s = abs(sin_pi(a))
        z = _LOG_PI - log(a * s) - y
        return where(s.equals(0.0), INF, where(a < 1e-20, y, where(a < INF, z, INF)))

    return where(x.differs(x), x, rarely(x < 0.0, reflected, y))


@in_float64
def gamma(x: Value) -> Value:
    """The gamma function; nan at -1, -2, ..., inf of its sign at zeros."""
    a = abs(x)
    negative = x < 0.0
    t, p, inverse = _recurrence(a)
    reciprocal = polynomial(t, _RECIPROCAL)
    top, bottom = where(inverse, 1.0, p), where(inverse, p * reciprocal, reciprocal)
    near = where(negative, bottom, top) / where(negative, top, bottom)
    # (a - 1/2) log a - a as a sum of two floats; below zero the reciprocal, which need not overflow
    high, low = log_in_two_floats(at_most(a, 200.0))
    product, lost = two_product(a - 0.5, high)
    h, rest = two_sum(product, -a)
    h, more = two_sum(h, a.lift(_HALF_LOG_TAU[0]))
    rest = rest + more + fma(a - 0.5, low, lost) + (_HALF_LOG_TAU[1] + _stirling(a))
    h, rest = where(negative, -h, h), where(negative, -rest, rest)
    h, rest = fast_two_sum(h, rest)
    h = where(h > 720.0, 720.0, where(h < -800.0, -800.0, h))
    n, r, _ = reduce(h)
    y = where(a < _FAR, near, ldexp(polynomial(r + rest, EXP[float64]), n))
    y = where(x.equals(INF), INF, y)

    def reflected() -> Value:
        s = sin_pi(a)
        return where(s.equals(0.0), NAN, y * (-math.pi / (a * s)))

    y = rarely(negative, reflected, y)
    return where(x.differs(x), x, where(x.equals(0.0), a.lift(INF).copysign(x), y))


@in_float64
def digamma(x: Value) -> Value:
    """The derivative of lgamma; -inf and inf at 0 and -0, nan at -1, -2, ..."""
    a = abs(x)
    # below 8: digamma(a) = digamma(z) + sum of 1 / (a - k), as one quotient; z = a + 1 for a < 1
    z, top, bottom = a, a.lift(0.0), a.lift(1.0)
    for k in range(1, 7):
        step = a > k + 1.0
        factor = a - float(k)
        top = where(step, fma(top, factor, bottom), top)
        bottom = where(step, bottom * factor, bottom)
        z = where(step, factor, z)
    below = a < 1.0
    z = where(below, a + 1.0, z)
    top, bottom = where(below, -1.0, top), where(below, a, bottom)
    # a + 1 rounds; (z - a) is exact and a - root needs no sum
    from_root = where(below, (a - (_ROOT[0] - 1.0)) - _ROOT[1], (z - _ROOT[0]) - _ROOT[1])
    near = fma(from_root, polynomial(where(below, a - 0.5, z - 1.5), _DIGAMMA), top / bottom)
    u = 1.0 / a
    w = u * u
    far = log(a) - fma(u, 0.5, -w * polynomial(w - _CENTRE, _DIGAMMA_TAIL))
    y = where(a < _FAR, near, where(a < INF, far, a))

    def reflected() -> Value:
        integer = a.rint().equals(a)
        return where(integer, NAN, y + u + math.pi * cot_pi(a))

    y = rarely(x < 0.0, reflected, y)
    return where(x.differs(x), x, where(x.equals(0.0), a.lift(-INF).copysign(-x), y))


@in_float64
def trigamma(x: Value) -> Value:
    """The derivative of digamma; inf at 0, -1, -2, ..."""
    a = abs(x)
    z, total = a, a.lift(0.0)
    for _ in range(8):  # all positive: nothing cancels
        step = z < _FAR
        total = where(step, total + 1.0 / (z * z), total)
        z = where(step, z + 1.0, z)
    u = 1.0 / z
    w = u * u
    y = fma(w * u, polynomial(w - _CENTRE, _TRIGAMMA_TAIL), fma(w, 0.5, u)) + total

    def reflected() -> Value:
        s = sin_pi(a)
        ratio = math.pi / s
        return where(s.equals(0.0), INF, ratio * ratio - (y - 1.0 / (a * a)))

    return where(x.differs(x), x, rarely(x < 0.0, reflected, y))
