"""Functions of float64 that samplers need, as compositions of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import ops
from ..creation import ones_like
from ..tensor import Tensor


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Coefficients from the lowest power up."""
    total = x * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        total = (total + c) * x
    return total + coefficients[0]


def ndtr(x: Tensor) -> Tensor:
    """The share of standard normal numbers below x."""
    return ops.erfc(x * -math.sqrt(0.5)) * 0.5


# numerator and denominator, from the lowest power up: central, tail, far tail
_CENTRAL = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_TAIL = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_FAR = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def ndtri(p: Tensor) -> Tensor:
    """The number below which a share p of standard normal numbers is (Wichura, algorithm AS 241, 1988: 16 digits);
    -38.4 for 0, where float64 ends.
    """
    q = p - 0.5
    r = 0.180625 - q * q
    central = q * _polynomial(r, _CENTRAL[0]) / _polynomial(r, _CENTRAL[1])
    depth = ops.sqrt(-ops.log(ops.maximum(ops.minimum(p, 1 - p), 5e-324)))
    near, far = depth - 1.6, depth - 5.0
    tail = ops.where(
        depth <= 5.0,
        _polynomial(near, _TAIL[0]) / _polynomial(near, _TAIL[1]),
        _polynomial(far, _FAR[0]) / _polynomial(far, _FAR[1]),
    )
    return ops.where(ops.abs(q) <= 0.425, central, ops.copysign(tail, q))


# Stirling's series of log(gamma(x)), its terms divided by x, x**3, ...
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_SHIFT = 8  # from 9! on the next term is below 3e-15


def log_factorial(k: Tensor) -> Tensor:
    """log(k!) of whole numbers k >= 0 in float64."""
    product = ones_like(k)
    small = k < _SHIFT
    for n in range(2, _SHIFT):
        product = ops.where(k >= n, product * n, product)
    x = ops.where(small, float(_SHIFT), k + 1)
    inverse = 1 / x
    series = inverse * _polynomial(inverse * inverse, _STIRLING)
    stirling = (x - 0.5) * ops.log(x) - x + 0.5 * math.log(2 * math.pi) + series
    return ops.where(small, ops.log(product), stirling)


_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 5 / 660)


def digamma(x: Tensor) -> Tensor:
    """The derivative of log(gamma(x)) for x > 0 in float64: x is moved up by 8, where its series holds 12 digits."""
    y = x + 8
    square = 1 / (y * y)
    series = ops.log(y) - 0.5 / y - square * _polynomial(square, _DIGAMMA)
    for n in range(8):
        series = series - 1 / (x + n)
    return series
