"""erf over the scalar instruction set."""

from __future__ import annotations

from .notation import Value, at_most, fma, polynomial, where

# erf(x) / x - 1 in x^2 on |x| <= 1.125: relative error of erf 2^-27.2
_ERF32_LOW = (0.12837916612625122, -0.3761260211467743, 0.11283256113529205, -0.02683922089636326,
              0.005160253029316664, -0.0007765732007101178, 7.063274824758992e-05)  # fmt: skip
# erf(x) in x - 2.25 on 1.125 <= x <= 3.92: absolute error 2^-24.6
_ERF32_HIGH = (0.9985373020172119, 0.007142606191337109, -0.016071006655693054, 0.021720515564084053,
               -0.019077809527516365, 0.010674350894987583, -0.002920120256021619, -0.0007014048751443624,
               0.0010235686786472797, -0.00033993186661973596, -3.403176015126519e-05, 5.1637645810842514e-05,
               -1.0004388059314806e-05)  # fmt: skip


def erf(x: Value) -> Value:
    """The error function. float32: two polynomials and a select, 26 instructions."""
    a = at_most(abs(x), 3.9)  # from here on the result is 1
    low = fma(a, polynomial(a * a, _ERF32_LOW), a)
    high = polynomial(a - 2.25, _ERF32_HIGH)
    return where(a < 1.125, low, high).copysign(x)
