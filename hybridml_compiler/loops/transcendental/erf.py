"""erf, erfc over the scalar instruction set.

Method: erf(x) = x + x p(x^2) near zero; erfc(a) = e^(-a^2) R(a) for a >= 0, where R falls slowly and is one
approximation for the whole range: a quotient of polynomials with positive coefficients (after W. J. Cody, "Rational
Chebyshev approximations for the error function", 1969), or a polynomial in 1 / (a + 3) (after M. Shepherd and
J. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x", 1981). Coefficients: our own fits.
"""

from __future__ import annotations

from ...dtypes import float32, float64
from ..notation import Value, at_least, at_most, fma, ldexp, polynomial, two_product, two_sum, where
from .exp import EXP, power_of_two, reduce

# erf(x) / x - 1 in x^2: relative error of erf 2^-27.2 on |x| <= 1.125, 2^-56 on |x| <= 1
_LOW = {
    float32: (0.12837916612625122, -0.3761260211467743, 0.11283256113529205, -0.02683922089636326,
              0.005160253029316664, -0.0007765732007101178, 7.063274824758992e-05),
    float64: (0.12837916709551256, -0.37612638903183343, 0.11283791670936952, -0.026866170641959716,
              0.005223977596743996, -0.0008548325485560587, 0.0001205528051867953, -1.4924466166539926e-05,
              1.6444158311203854e-06, -1.618405968013412e-07, 1.3617033932069858e-08, -7.608505155765207e-10),
}  # fmt: skip
# erf(x) in x - 2.25 on 1.125 <= x <= 3.92: absolute error 2^-24.6
_HIGH32 = (0.9985373020172119, 0.007142606191337109, -0.016071006655693054, 0.021720515564084053,
           -0.019077809527516365, 0.010674350894987583, -0.002920120256021619, -0.0007014048751443624,
           0.0010235686786472797, -0.00033993186661973596, -3.403176015126519e-05, 5.1637645810842514e-05,
           -1.0004388059314806e-05)  # fmt: skip
# e^(a^2) erfc(a) = P(a) / Q(a) on a <= 10.2: relative error 2^-27.3
_TAIL32_P = (1.0000000058479026, 1.2392644190956816, 0.7324996120933726, 0.2296460413787822,
             0.03288635042393552)  # fmt: skip
_TAIL32_Q = (1.0, 2.3676441754709776, 2.4040904707899933, 1.327040355698273, 0.4070630039572376,
             0.058288853908028695)  # fmt: skip
# e^(a^2) erfc(a) = v p(v - 3/16), v = 1 / (a + 3), on a <= 27.4: relative error 2^-53.4, most of it from rounding the
# first coefficient
_TAIL64 = (1.1942899073675213, 6.278825694707426, 25.861566217865942, 80.85933422754974, 175.99030812552294,
           193.40218971386517, -189.26793559713516, -952.9890858055131, -290.57030268274946, 3815.1792903588434,
           3082.201512527631, -17859.075043212153, -14895.03592349368, 99877.16192939522, 35486.86261707852,
           -607905.1802604231, 302456.1025138182, 3571603.824673592, -5831103.206089581, -17826407.603791874,
           51651796.82207515, 58472321.49591821, -213024939.57060635)  # fmt: skip


def _falling(a: Value) -> tuple[Value, Value]:
    """(y, delta) with e^(a^2) erfc(a) = y (1 + delta) for 0 <= a <= 27.4; delta is the rounding error of v."""
    u, lost = two_sum(a, a.lift(3.0))
    v = 1.0 / u
    delta = fma(-v, lost, fma(-v, u, 1.0))
    return v * polynomial(fma(v, delta, v - 0.1875), _TAIL64), delta


def scaled_tail(a: Value) -> Value:
    """e^(a^2) erfc(a) for 0 <= a <= 27.4 in float64."""
    y, delta = _falling(a)
    return fma(y, delta, y)


def tail(a: Value, square: Value, square_lost: Value) -> Value:
    """erfc(a) for 0 <= a <= 27.4 in float64, whose square is the sum of two floats."""
    n, r, _ = reduce(at_least(-square, -760.0))
    y, delta = _falling(a)
    product = polynomial(r, EXP[float64]) * y
    return ldexp(fma(product, delta - square_lost, product), n)


def _erfc_tail64(a: Value) -> Value:
    """erfc(a) for a >= 0, in float64."""
    a = at_most(a, 27.3)  # from here on the result is 0
    return tail(a, *two_product(a, a))


def _erfc_tail32(a: Value) -> Value:
    """erfc(a) for a >= 0 in float32, by way of float64: there the square is exact and nothing underflows, which is
    cheaper than the two-float arithmetic that 2 ulp would take in float32."""
    wide = at_most(a, 10.2).cast(float64)  # from here on the result is 0
    _, r, shifted = reduce(-(wide * wide), wide.format.bias)
    p = polynomial(r, EXP[float32]) * power_of_two(shifted, float64)
    return (p * (polynomial(wide, _TAIL32_P) / polynomial(wide, _TAIL32_Q))).cast(float32)


def erf(x: Value) -> Value:
    """The error function. float32: degree 6 in x^2, degree 12 beyond 1.125; float64: degree 11, 1 - erfc beyond 1."""
    if x.dtype == float32:
        a = at_most(abs(x), 3.9)  # from here on the result is 1
        split, high = 1.125, polynomial(a - 2.25, _HIGH32)
    else:
        a = abs(x)
        split, high = 1.0, 1.0 - _erfc_tail64(a)
    low = fma(a, polynomial(a * a, _LOW[x.dtype]), a)
    return where(a < split, low, high).copysign(x)


def erfc(x: Value) -> Value:
    """1 - erf(x), accurate where it is small."""
    y = _erfc_tail32(abs(x)) if x.dtype == float32 else _erfc_tail64(abs(x))
    return where(x < 0.0, 2.0 - y, y)
