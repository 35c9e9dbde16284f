"""erfcx, erfinv, erfcinv and the normal distribution: ndtr, log_ndtr, ndtri, in float64 (float32 by way of it).

Method: tails are e^(-a^2) R(a) with the slowly falling R of `transcendental_erf` and the square in two floats;
inverses three quotients of polynomials, about the centre and in sqrt(-log p) towards the ends (M. Wichura, "Algorithm
AS 241: the percentage points of the normal distribution", 1988, whose coefficients these are).
"""

from __future__ import annotations

import math

from ...dtypes import float64
from ..notation import Value, at_most, fma, in_float64, ldexp, polynomial, two_product, where
from .erf import erf, scaled_tail, tail
from .exp import EXP, reduce
from .log import log, log1p

INF, NAN = float("inf"), float("nan")
_SQRT_HALF = 0.7071067811865476
# about p = 1/2, in 0.425^2 - (p - 1/2)^2
_CENTRAL = (
    (3.3871328727963665, 133.14166789178438, 1971.5909503065513, 13731.69376550946, 45921.95393154987, 67265.7709270087,
     33430.57558358813, 2509.0809287301227),
    (1.0, 42.31333070160091, 687.1870074920579, 5394.196021424751, 21213.794301586597, 39307.89580009271,
     28729.085735721943, 5226.495278852854),
)  # fmt: skip
# r - 1.6 with r = sqrt(-log p) up to 5
_MIDDLE = (
    (1.4234371107496835, 4.630337846156546, 5.769497221460691, 3.6478483247632045, 1.2704582524523684,
     0.2417807251774506, 0.022723844989269184, 0.0007745450142783414),
    (1.0, 2.053191626637759, 1.6763848301838038, 0.6897673349851, 0.14810397642748008, 0.015198666563616457,
     0.0005475938084995345, 1.0507500716444169e-09),
)  # fmt: skip
# r - 5
_FAR = (
    (6.657904643501103, 5.463784911164114, 1.7848265399172913, 0.29656057182850487, 0.026532189526576124,
     0.0012426609473880784, 2.7115555687434876e-05, 2.0103343992922881e-07),
    (1.0, 0.599832206555888, 0.1369298809227358, 0.014875361290850615, 0.0007868691311456133, 1.8463183175100548e-05,
     1.421511758316446e-07, 2.0442631033899397e-15),
)  # fmt: skip
# a sqrt(pi) e^(a^2) erfc(a) in 1 / a^2 for a > 27.3 (DLMF 7.12.1)
_ERFCX_FAR = (1.0, -1 / 2, 3 / 4, -15 / 8, 105 / 16, -945 / 32, 10395 / 64)


def _erfcx_positive(a: Value) -> Value:
    u = 1.0 / a
    far = u * (1 / math.sqrt(math.pi)) * polynomial(u * u, _ERFCX_FAR)
    return where(a > 27.3, far, scaled_tail(at_most(a, 27.3)))


@in_float64
def erfcx(x: Value) -> Value:
    """e^(x^2) erfc(x): 1 / (sqrt(pi) x) for large x, where erfc underflows."""
    a = abs(x)
    y = _erfcx_positive(a)
    square, lost = two_product(a, a)
    n, r, _ = reduce(at_most(square, 709.9))
    grown = ldexp(polynomial(r + where(a < 27.0, lost, 0.0), EXP[float64]), n)
    grown = where(a > 26.7, INF, grown + grown - y)
    return where(x.differs(x), x, where(x < 0.0, grown, y))


def _upper(a: Value) -> Value:
    """The probability of more than a >= 0, in units of the standard deviation."""
    square, lost = two_product(a, a)
    beyond = tail(at_most(a * _SQRT_HALF, 27.4), square * 0.5, where(a < 50.0, lost * 0.5, 0.0)) * 0.5
    return where(a < 1.0, fma(erf(a * _SQRT_HALF), -0.5, 0.5), beyond)


@in_float64
def ndtr(x: Value) -> Value:
    """The distribution function of the standard normal distribution."""
    a = abs(x)
    middle = fma(erf(x * _SQRT_HALF), 0.5, 0.5)
    upper = _upper(a)
    return where(x.differs(x), x, where(a < 1.0, middle, where(x < 0.0, upper, 1.0 - upper)))


@in_float64
def log_ndtr(x: Value) -> Value:
    """log(ndtr(x)), finite and accurate where ndtr underflows."""
    a = abs(x)
    upper = _upper(a)
    below = log(0.5 * _erfcx_positive(a * _SQRT_HALF)) - a * a * 0.5
    middle = where(x < 0.0, log(upper), log1p(-upper))
    return where(x.differs(x), x, where(x < -1.0, below, middle))


def _quantile(q: Value, p: Value) -> Value:
    """The argument at which ndtr is 1/2 + q, where p is the smaller side; inf where p is 0."""
    central = abs(q) <= 0.425
    r = (-log(p)).sqrt()
    near, middle, far = (
        [polynomial(t, c) for c in quotient]
        for t, quotient in ((fma(-q, q, 0.180625), _CENTRAL), (r - 1.6, _MIDDLE), (r - 5.0, _FAR))
    )
    moderate = r <= 5.0
    top = where(central, near[0] * q, where(moderate, middle[0], far[0]))
    bottom = where(central, near[1], where(moderate, middle[1], far[1]))
    y = abs(top / bottom)
    return where(p.equals(0.0), INF, y).copysign(q)


@in_float64
def ndtri(x: Value) -> Value:
    """The inverse of ndtr; -inf at 0, inf at 1, nan outside."""
    return where((x >= 0.0) & (x <= 1.0), _quantile(x - 0.5, where(x > 0.5, 1.0 - x, x)), NAN)


@in_float64
def erfinv(x: Value) -> Value:
    """The inverse of erf; -inf at -1, inf at 1, nan outside."""
    a = abs(x)
    return where(a <= 1.0, _quantile(x * 0.5, fma(a, -0.5, 0.5)) * _SQRT_HALF, NAN)


@in_float64
def erfcinv(x: Value) -> Value:
    """The inverse of erfc; inf at 0, -inf at 2, nan outside."""
    p = where(x > 1.0, 2.0 - x, x) * 0.5
    return where((x >= 0.0) & (x <= 2.0), _quantile((1.0 - x) * 0.5, p) * _SQRT_HALF, NAN)
