"""Elementwise rows of special functions that are polynomials: gamma and error functions, Bessel functions, integrals.

Functions that need iterations are in `zeta.py` and `incomplete_*.py`; formulas of rows in `hybridml.special`. Gradients
where a quotient is 0 / 0 are their limits.
"""

from __future__ import annotations

import math
from typing import Any

from .elementwise import elementwise, transcendental, where
from .op import SPECIAL, Accepts, Op, Rule
from .samples import Domain
from .zeta import digamma_by_order


def _row(name: str, vjp: Rule, doc: str, domain: Domain = (-2.0, 2.0)) -> Op:
    return elementwise(name, transcendental(name), (vjp,), doc, accepts="float", domain=domain, cost=SPECIAL)


def _over(y: Any, x: Any, at_zero: float) -> Any:
    """y / x, and its limit where x is 0."""
    zero = x == 0
    return where(zero, at_zero, y / where(zero, 1.0, x))


HALF_SQRT_PI, SQRT_TAU, TWO_OVER_SQRT_PI = math.sqrt(math.pi) / 2, math.sqrt(2 * math.pi), 2 / math.sqrt(math.pi)
POSITIVE, PROBABILITY = (0.3, 5.0), (0.1, 0.9)

cbrt = _row("cbrt", lambda g, out: g / (out * out * 3), "Cube root, of the sign of x.", (0.2, 3.0))

gamma = _row("gamma", lambda g, out, x: g * out * digamma(x), "The gamma function; nan at -1, -2, ...", POSITIVE)
lgamma = _row(
    "lgamma", lambda g, x: g * digamma(x), "log |gamma(x)|; inf at 0, -1, -2, ... scipy.special's gammaln.", POSITIVE
)
digamma: Op = _row(
    "digamma", lambda g, x: g * trigamma(x), "Derivative of lgamma; -inf at 0, nan at -1, -2, ...", POSITIVE
)
trigamma: Op = _row(
    "trigamma", lambda g, x: g * digamma_by_order(x, order=2), "Derivative of digamma, polygamma(1, x).", POSITIVE
)

erfcx: Op = _row(
    "erfcx", lambda g, out, x: g * (2 * x * out - TWO_OVER_SQRT_PI), "exp(x * x) * erfc(x), where erfc underflows too."
)
erfinv = _row(
    "erfinv",
    lambda g, out: g * HALF_SQRT_PI * (out * out).exp(),
    "Inverse of erf; inf at 1, nan outside of [-1, 1].",
    (-0.9, 0.9),
)
erfcinv = _row(
    "erfcinv",
    lambda g, out: -g * HALF_SQRT_PI * (out * out).exp(),
    "Inverse of erfc; inf at 0, nan outside of [0, 2].",
    (0.1, 1.9),
)
ndtr = _row(
    "ndtr",
    lambda g, x: g * (x * x * -0.5).exp() / SQRT_TAU,
    "Distribution function of the standard normal distribution.",
)
log_ndtr = _row(
    "log_ndtr",
    lambda g, x: g * math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5)),
    "log(ndtr(x)), where ndtr underflows too.",
)
ndtri = _row(
    "ndtri",
    lambda g, out: g * SQRT_TAU * (out * out * 0.5).exp(),
    "Inverse of ndtr; inf at 1, nan outside of [0, 1].",
    PROBABILITY,
)

i0 = _row("i0", lambda g, x: g * i1(x), "Modified Bessel function of the first kind, order 0.")
i0e = _row("i0e", lambda g, out, x: g * (i1e(x) - x.sign() * out), "exp(-|x|) * i0(x).", (0.2, 3.0))
i1: Op = _row(
    "i1", lambda g, out, x: g * (i0(x) - _over(out, x, 0.5)), "Modified Bessel function of the first kind, order 1."
)
i1e: Op = _row(
    "i1e",
    lambda g, out, x: g * (i0e(x) - x.sign() * out - _over(out, x, 0.5)),
    "exp(-|x|) * i1(x).",
    (0.2, 3.0),
)
j0 = _row("j0", lambda g, x: -g * j1(x), "Bessel function of the first kind, order 0.", (-12.0, 12.0))
j1: Op = _row(
    "j1",
    lambda g, out, x: g * (j0(x) - _over(out, x, 0.5)),
    "Bessel function of the first kind, order 1.",
    (-12.0, 12.0),
)

y0 = _row("y0", lambda g, x: -g * y1(x), "Bessel function of the second kind, order 0; nan below 0.", (0.5, 12.0))
y1: Op = _row(
    "y1",
    lambda g, out, x: g * (y0(x) - out / x),
    "Bessel function of the second kind, order 1; nan below 0.",
    (0.5, 12.0),
)

exp1 = _row(
    "exp1", lambda g, x: -g * (-x).exp() / x, "Integral of exp(-t) / t from x to infinity; nan below 0.", POSITIVE
)
expi = _row(
    "expi", lambda g, x: g * x.exp() / x, "Integral of exp(t) / t from -infinity to x, its principal value.", POSITIVE
)


def _share(g: Any, difference: Any, base: float) -> Any:
    """The part of one side: 1 / (1 + base ** -difference), and half where both are infinite."""
    unknown = difference != difference
    return g * where(unknown, 0.5, (where(unknown, 0.0, difference) * base).sigmoid())


def _sum_of_powers(name: str, base: float, doc: str, accepts: Accepts = "float") -> Op:
    return elementwise(
        name,
        transcendental(name),
        (lambda g, x, y: _share(g, x - y, base), lambda g, x, y: _share(g, y - x, base)),
        doc,
        accepts=accepts,
        cost=SPECIAL,
    )


logaddexp = _sum_of_powers("logaddexp", 1.0, "log(exp(x) + exp(y)) without overflow.", "inexact")
logaddexp2 = _sum_of_powers("logaddexp2", math.log(2), "log2(2 ** x + 2 ** y) without overflow.")

ROWS = (
    *(cbrt, gamma, lgamma, digamma, trigamma, erfcx, erfinv, erfcinv, ndtr, log_ndtr, ndtri, i0, i0e, i1, i1e, j0, j1),
    *(y0, y1, exp1, expi, logaddexp, logaddexp2),
)
