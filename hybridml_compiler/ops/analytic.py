"""Elementwise rows that are polynomials of `loops/transcendental`: exponentials, logarithms, angles, erf, sigmoid.

Their eager meaning goes through `hooks.transcendental`, so eager and compiled results have the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import complex_functions
from .elementwise import elementwise, transcendental, where
from .op import TRANSCENDENTAL, Accepts, Op, Rule
from .samples import Domain

_OF_REAL = ("erf", "erfc")


def _row(name: str, vjp: Rule, doc: str, domain: Domain = (-2.0, 2.0)) -> Op:
    accepts: Accepts = "float" if name in _OF_REAL else "inexact"
    return elementwise(
        name, transcendental(name), (vjp,), doc, accepts=accepts, domain=domain, cost=TRANSCENDENTAL,
        complex_kernels=name in complex_functions.COMPILED,
    )  # fmt: skip


def _pair(name: str, dx: Rule, dy: Rule, doc: str) -> Op:
    return elementwise(name, transcendental(name), (dx, dy), doc, accepts="float", cost=TRANSCENDENTAL)


LN2, LN10 = math.log(2), math.log(10)

exp = _row("exp", lambda g, out: g * out, "Exponential, e ** x.")
exp2 = _row("exp2", lambda g, out: g * out * LN2, "Exponential to base 2, 2 ** x.")
expm1 = _row("expm1", lambda g, out: g * (out + 1), "e ** x - 1, exact to rounding near 0.")
log = _row("log", lambda g, x: g / x, "Natural logarithm; -inf at 0, nan below.", (0.1, 3.0))
log2 = _row("log2", lambda g, x: g / (x * LN2), "Logarithm to base 2.", (0.1, 3.0))
log10 = _row("log10", lambda g, x: g / (x * LN10), "Logarithm to base 10.", (0.1, 3.0))
log1p = _row("log1p", lambda g, x: g / (x + 1), "log(1 + x), exact to rounding near 0.", (-0.8, 2.0))

sin = _row("sin", lambda g, x: g * x.cos(), "Sine of x in radians; the argument is reduced exactly for every finite x.")
cos = _row("cos", lambda g, x: -g * x.sin(), "Cosine of x in radians.")
tan = _row("tan", lambda g, out: g * (out * out + 1), "Tangent of x in radians.", (-1.2, 1.2))


def _slope_of_asin(x: Any) -> Any:
    """1 / sqrt(1 - x*x). Of complex numbers by its factors, which keep the sign of a zero: it says which side of the
    cut beyond 1 and -1 is meant."""
    return (1 - x * x).rsqrt() if x.dtype.kind != "c" else (-(x - 1)).rsqrt() * (x - (-1)).rsqrt()


def _slope_of_acosh(x: Any) -> Any:
    """1 / sqrt(x*x - 1). Of complex numbers by its factors: left of 0 the root of the product has the other sign."""
    return (x * x - 1).rsqrt() if x.dtype.kind != "c" else (x - 1).rsqrt() * (x - (-1)).rsqrt()


asin = _row(
    "asin", lambda g, x: g * _slope_of_asin(x), "Inverse sine in [-pi/2, pi/2]; nan outside of [-1, 1].", (-0.9, 0.9)
)
acos = _row(
    "acos", lambda g, x: -g * _slope_of_asin(x), "Inverse cosine in [0, pi]; nan outside of [-1, 1].", (-0.9, 0.9)
)
atan = _row("atan", lambda g, x: g / (x * x + 1), "Inverse tangent in (-pi/2, pi/2).")
sinh = _row("sinh", lambda g, x: g * x.cosh(), "Hyperbolic sine.")
cosh = _row("cosh", lambda g, x: g * x.sinh(), "Hyperbolic cosine.")
tanh = _row("tanh", lambda g, out: g * (1 - out * out), "Hyperbolic tangent.")
asinh = _row("asinh", lambda g, x: g * (x * x + 1).rsqrt(), "Inverse hyperbolic sine.")
acosh = _row("acosh", lambda g, x: g * _slope_of_acosh(x), "Inverse hyperbolic cosine; nan below 1.", (1.2, 3.0))
atanh = _row("atanh", lambda g, x: g / (1 - x * x), "Inverse hyperbolic tangent; nan outside of [-1, 1].", (-0.9, 0.9))

TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)
erf = _row(
    "erf", lambda g, x: g * TWO_OVER_SQRT_PI * (-x * x).exp(), "Error function, 2/sqrt(pi) * integral of exp(-t*t)."
)
erfc = _row("erfc", lambda g, x: g * -TWO_OVER_SQRT_PI * (-x * x).exp(), "1 - erf(x), exact to rounding for large x.")
sigmoid = _row("sigmoid", lambda g, out: g * out * (1 - out), "1 / (1 + exp(-x)), without overflow.")
relu = elementwise(
    "relu",
    lambda x: np.where(x <= 0, x.dtype.type(0), x),
    # From the result, as in PyTorch: what x is afterwards does not matter.
    (lambda g, out: where(out <= 0, 0.0, g),),
    "x where it is positive, else 0; nan stays nan. The gradient at 0 is 0, as in PyTorch.",
    lower=lambda s, x: s.select(s.le(x, s.const(0, s.dtype(x))), s.const(0, s.dtype(x)), x),
    accepts="numeric",
)


def _over_square(part: Any, x: Any, y: Any) -> Any:
    square = x * x + y * y
    zero = square == 0
    return where(zero, 0.0, part / where(zero, 1.0, square))


atan2 = _pair(
    "atan2",
    lambda g, x, y: g * _over_square(y, x, y),
    lambda g, x, y: -g * _over_square(x, x, y),
    "Angle of the point (y, x) in [-pi, pi], i.e. atan(x / y) in the right quadrant; signed zeros as C's atan2(x, y). "
    "Gradient at the origin is 0, as PyTorch.",
)
hypot = _pair(
    "hypot",
    lambda g, out, x: g * where(out == 0, 0.0, x / out),
    lambda g, out, y: g * where(out == 0, 0.0, y / out),
    "sqrt(x*x + y*y) without overflow. Gradient at the origin is 0, as abs.",
)

ROWS = (
    *(
        exp,
        exp2,
        expm1,
        log,
        log2,
        log10,
        log1p,
        sin,
        cos,
        tan,
        asin,
        acos,
        atan,
        sinh,
        cosh,
        tanh,
        asinh,
        acosh,
        atanh,
    ),
    *(erf, erfc, sigmoid, relu, atan2, hypot),
)
