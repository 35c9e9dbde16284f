"""The incomplete beta function. NumPy computes it, in float64.

Method: the continued fraction (DLMF 8.17.22) on the side where it converges fast. Derivatives with respect to a and b
are integrals of the density times its logarithmic derivative, over t = x e^(-s / a), where its power is e^-s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import GradientError
from .computed import computed
from .elementwise import where
from .iterations import TINY, Array, converged, digamma_of, flat, log1pmx, log_gamma, quadrature, stirling
from .op import Op
from .special import digamma, lgamma, trigamma


def _log_beta(a: Array, b: Array) -> Array:
    """log B(a, b) of positive a and b: where the greater is large, without the difference of two large logarithms."""
    p, q = np.minimum(a, b), np.maximum(a, b)
    far = np.maximum(q, 10.0)
    difference = (far - 0.5) * np.log1p(p / far) + p * (np.log(p + far) - 1) + stirling(p + far) - stirling(far)
    return log_gamma(p) - np.where(q < 10, log_gamma(p + q) - log_gamma(q), difference)


def _beta_power(a: Array, b: Array, x: Array, y: Array) -> Array:
    """x^a y^b / B(a, b), x + y = 1."""
    plain = np.exp(a * np.log(x) + b * np.where(x < 0.5, np.log1p(-x), np.log(y)) - _log_beta(a, b))
    p, q = np.maximum(a, 10.0), np.maximum(b, 10.0)
    total = p + q
    mean, rest = p / total, q / total
    off = np.where(x < 0.5, x - mean, rest - y)
    exponent = p * log1pmx(off / mean, x / mean) + q * log1pmx(-off / rest, y / rest)
    scale = np.sqrt(p * rest / (2 * np.pi)) * np.exp(stirling(total) - stirling(p) - stirling(q))
    return np.where((a >= 10) & (b >= 10), scale * np.exp(exponent), plain)


def _beta_fraction(a: Array, b: Array, x: Array) -> Array:
    """The factor of x^a (1 - x)^b / (a B(a, b)), by the modified Lentz method; x < (a + 1) / (a + b + 2)."""

    def away(v: Array) -> Array:
        return np.where(np.abs(v) < TINY, TINY, v)

    def step(m: Array, state: list[Array]) -> list[Array]:
        a, b, x, c, d, h, _ = state
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / away(1 + even * d), away(1 + even / c)
        h = h * (c * d)
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / away(1 + odd * d), away(1 + odd / c)
        return [a, b, x, c, d, h * (c * d), np.where(np.abs(c * d - 1) < 3e-16, 0.0, 1.0)]

    one = np.ones(a.shape)
    d = 1 / away(1 - (a + b) * x / (a + 1))
    return converged(step, [a, b, x, one, d, d, one], 6)[5]


def _by_order(a: Array, b: Array, x: Array, of_a: int, of_b: int) -> Array:
    """A derivative of I_x(a, b), of order 1 or 2 together."""
    found = np.where((a > 0) & (b > 0) & ((x == 0) | (x == 1)), 0.0, np.nan)
    plain = (a > 0) & (b > 0) & (x > 0) & (x < 1) & (a < np.inf) & (b < np.inf)
    for swap in (False, True):
        side = plain & ((x > (a + 1) / (a + b + 2)) == swap)
        if np.any(side):
            p, q, at, rest = a[side], b[side], x[side], 1 - x[side]
            if swap:
                found[side] = -_integral(q, p, rest, at, of_b, of_a)
            else:
                found[side] = _integral(p, q, at, rest, of_a, of_b)
    return found


def _score(by_a: Any, by_b: Any, trigamma: Any, a: Any, b: Any, of_a: int, of_b: int) -> Any:
    """Derivative of the density over the density; `by_a` and `by_b` are the first derivatives of its logarithm."""
    if of_a + of_b == 1:
        return by_a if of_a else by_b
    if of_a == of_b:
        return by_a * by_b + trigamma(a + b)
    by, own = (by_a, a) if of_a else (by_b, b)
    return by * by + trigamma(a + b) - trigamma(own)


def _integral(a: Array, b: Array, x: Array, y: Array, of_a: int, of_b: int) -> Array:
    """Integral of the density's derivative from 0 to x, x below the mean; s = reach v^4 has more points next to x and
    to 0."""
    (v, weights), columns = quadrature(), [c[..., None] for c in (a, b, x, y)]
    reach = 45 + 12 * np.sqrt(a * b / (a + b))[..., None]
    power = (_beta_power(a, b, x, y) / (a * y))[..., None]
    a, b, x, y = columns
    both, s = digamma_of(a + b), reach * v**4
    t = x * np.exp(-s / a)
    by_a, by_b = np.log(x) - s / a + both - digamma_of(a), np.log1p(-t) + both - digamma_of(b)
    score = _score(by_a, by_b, lambda v: digamma_of(v, 1), a, b, of_a, of_b)
    values = np.exp((b - 1) * (np.log1p(-t) - np.log(y)) - s) * score * (4 * reach * v**3)
    return power[..., 0] * (values @ weights)


def _betainc(a: Array, b: Array, x: Array) -> Array:
    found = np.full(a.shape, np.nan)
    known = (a >= 0) & (b >= 0) & (x >= 0) & (x <= 1) & ~((a == 0) & (b == 0))
    found[known & ((x == 0) | (b == 0) | (a == np.inf))] = 0
    found[known & ((x == 1) | (a == 0) | (b == np.inf))] = 1
    found[known & (a == np.inf) & (b == np.inf)] = np.nan
    plain = known & (a > 0) & (b > 0) & (x > 0) & (x < 1) & (a < np.inf) & (b < np.inf)
    a, b, x = a[plain], b[plain], x[plain]
    y = 1 - x
    power = _beta_power(a, b, x, y)
    swap = x > (a + 1) / (a + b + 2)
    a, b, x = np.where(swap, b, a), np.where(swap, a, b), np.where(swap, y, x)
    side = power * _beta_fraction(a, b, x) / a
    found[plain] = np.clip(np.where(swap, 1 - side, side), 0.0, 1.0)
    return found


def _beta_density(g: Any, a: Any, b: Any, x: Any) -> Any:
    low, high = (a == 1) & (x == 0), (b == 1) & (x == 1)  # 0 to the power of 0
    logarithm = (a - 1) * where(low, 1.0, x).log() + (b - 1) * where(high, 0.0, -x).log1p()
    return g * (logarithm - (lgamma(a) + lgamma(b) - lgamma(a + b))).exp()


def _density_by_order(g: Any, a: Any, b: Any, x: Any, of_a: int, of_b: int) -> Any:
    both = digamma(a + b)
    by_a, by_b = x.log() + both - digamma(a), (-x).log1p() + both - digamma(b)
    return _beta_density(g, a, b, x) * _score(by_a, by_b, trigamma, a, b, of_a, of_b)


def _next_order(g: Any, a: Any, b: Any, x: Any, of_a: int, of_b: int) -> Any:
    if of_a + of_b > 2:
        raise GradientError("betainc: no third derivative with respect to a and b; differentiate it twice")
    return g * betainc_by_order(a, b, x, of_a=of_a, of_b=of_b)


_DOMAIN = ((0.3, 5.0), (0.3, 5.0), (0.1, 0.9))
_POINTS = ((2.0, 3.0, 0.0), (2.0, 3.0, 1.0), (2.0, 3.0, 1.5), (-1.0, 3.0, 0.5), (0.0, 3.0, 0.5), (3.0, 0.0, 0.5),
           (500.0, 700.0, 0.4), (1e-3, 50.0, 0.01), (np.nan, 1.0, 0.5), (2.0, 1e4, 1e-3))  # fmt: skip

betainc = computed(
    "betainc",
    ("a", "b", "x"),
    flat(_betainc),
    (
        lambda g, a, b, x: g * betainc_by_order(a, b, x, of_a=1, of_b=0),
        lambda g, a, b, x: g * betainc_by_order(a, b, x, of_a=0, of_b=1),
        _beta_density,
    ),
    "Regularized incomplete beta function I_x(a, b); nan where a or b is negative or x is outside of [0, 1].",
    _DOMAIN,
    _POINTS,
)
betainc_by_order: Op = computed(
    "betainc_by_order",
    ("a", "b", "x"),
    flat(_by_order),
    (
        lambda g, a, b, x, of_a, of_b: _next_order(g, a, b, x, of_a + 1, of_b),
        lambda g, a, b, x, of_a, of_b: _next_order(g, a, b, x, of_a, of_b + 1),
        _density_by_order,
    ),
    "Derivative of betainc(a, b, x) with respect to a and b, of order 1 or 2 together.",
    _DOMAIN,
    _POINTS,
    orders=({"of_a": 1, "of_b": 0},),
    grad=False,  # that of order 2 is refused; betainc's two are checked
)

ROWS = (betainc, betainc_by_order)
