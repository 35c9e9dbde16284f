"""The incomplete gamma function. NumPy computes it, in float64.

Method: the power series below x = a (DLMF 8.7.1), the continued fraction above (DLMF 8.9.2), near zero the series of
1 - P without cancellation, and next to x = a for a > 40, where both converge slowly, Gauss-Legendre quadrature of the
density outwards from x (as Numerical Recipes, 6.2.3; ours is in (t - a) / a). Derivatives with respect to a are those
of the series, or the same integrals with the density's derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import GradientError
from ..hooks import hooks
from .computed import computed
from .elementwise import where
from .iterations import TINY, Array, converged, digamma_of, flat, log1pmx, quadrature, stirling
from .op import Op
from .special import digamma, lgamma, trigamma
from .zeta import hurwitz

LARGE = 40.0  # of a: from here on the quadrature
_POINTS = ((0.0, 1.0), (1.0, 0.0), (2.0, np.inf), (-1.0, 2.0), (1.0, -2.0), (np.nan, 1.0), (1e-3, 1e-3),
                 (50.0, 45.0), (50.0, 60.0), (1e4, 1.01e4), (1e4, 9e3), (30.0, 200.0), (200.0, 3.0),
                 (0.5, 30.0))  # fmt: skip


def _log_gamma_1p(a: Array) -> Array:
    """lgamma(1 + a) for 0 <= a <= 1, relative to its small value at small a."""
    k = np.arange(2, 60)
    series = np.polynomial.polynomial.polyval(a, [0.0, 0.0, *((-1.0) ** k * hurwitz(k, np.full(k.shape, 2.0)) / k)])
    return a * 0.42278433509846713 - np.log1p(a) + series


def _power(a: Array, x: Array) -> Array:
    """x^a e^-x / gamma(a + 1)."""
    small = (
        np.power(x, np.minimum(a, LARGE)) * np.exp(-0.5 * x) / hooks.transcendental("gamma", np.minimum(a, LARGE) + 1)
    )
    big = np.maximum(a, LARGE)
    about = np.exp(big * log1pmx((x - big) / big, x / big) - stirling(big)) / np.sqrt(2 * np.pi * big)
    return np.where(a < LARGE, small * np.exp(-0.5 * x), about)


def _lower_series(a: Array, x: Array) -> Array:
    """P(a, x) for x not far above a."""

    def step(k: Array, state: list[Array]) -> list[Array]:
        a, x, term, total, _ = state
        term = term * x / (a + k)
        return [a, x, term, total + term, term / total]

    one = np.ones(a.shape)
    return _power(a, x) * converged(step, [a, x, one, one, one], 4)[3]


def _upper_series(a: Array, x: Array) -> Array:
    """Q(a, x) for x <= 1.1 and small a."""

    def step(k: Array, state: list[Array]) -> list[Array]:
        a, x, factor, total, _ = state
        factor = factor * -x / k
        term = factor / (a + k)
        return [a, x, factor, total + term, np.abs(term / total)]

    first = -x / (a + 1)
    total = converged(
        lambda k, state: step(k + 1, state), [a, x, -x, np.where(first == 0, -TINY, first), np.ones(a.shape)], 4
    )[3]
    exponent = a * np.log(x) - _log_gamma_1p(a)
    return -np.expm1(exponent) - np.exp(exponent) * a * total


def _upper_fraction(a: Array, x: Array) -> Array:
    """Q(a, x) for x above a and 1, by the modified Lentz method."""

    def step(k: Array, state: list[Array]) -> list[Array]:
        a, b, c, d, h, _ = state
        an, b = -k * (k - a), b + 2
        d, c = an * d + b, b + an / c
        d, c = 1 / np.where(np.abs(d) < TINY, TINY, d), np.where(np.abs(c) < TINY, TINY, c)
        return [a, b, c, d, h * (c * d), np.where(np.abs(c * d - 1) < 3e-16, 0.0, 1.0)]

    b = x + 1 - a
    b = np.where(np.abs(b) < TINY, TINY, b)
    h = converged(step, [a, b, np.full(a.shape, 1 / TINY), 1 / b, 1 / b, np.ones(a.shape)], 5)[4]
    return _power(a, x) * a * h


def _density(a: Array, x: Array, moment: Callable[[Array], Array] | None = None) -> Array:
    """The density of the gamma distribution integrated from x outwards, away from a, for a >= 40 and x about a."""
    u, root = (x - a) / a, np.sqrt(a)
    side = np.where(u < 0, -1.0, 1.0)
    reach = np.sqrt((u * root) ** 2 + 90) * np.where(u < 0, 1.0, 1 + 4.5 / root) / root
    far = np.where(u < 0, np.maximum(-reach, -0.999999), reach)
    nodes, weights = quadrature(3)
    t = u[..., None] + (far - u)[..., None] * nodes
    values = np.exp(a[..., None] * log1pmx(t, 1 + t)) / (1 + t)
    if moment is not None:
        values = values * moment(a[..., None] * (1 + t))
    scale = np.sqrt(a / (2 * np.pi)) * np.exp(-stirling(a))
    return side * scale * (far - u) * (values @ weights)


def _both(a: Array, x: Array) -> tuple[Array, Array]:
    """(P, Q) of flat arrays, each relative to its own size."""
    p, q = np.full(a.shape, np.nan), np.full(a.shape, np.nan)
    plain = (a > 0) & (x > 0) & (a < np.inf) & (x < np.inf)
    p[(a > 0) & (x == 0) | (a == np.inf) & (x >= 0) & (x < np.inf)] = 0
    p[(a == 0) & (x > 0) | (a > 0) & (a < np.inf) & (x == np.inf)] = 1
    q = np.where(np.isnan(p), q, 1 - p)
    middle = plain & (a >= LARGE) & (np.abs(x - a) < 0.5 * a)
    rest = plain & ~middle
    tiny = rest & (x <= 1.1) & (np.where(x <= 0.5, -0.4 / np.log(np.minimum(x, 0.5)), x * 1.1) >= a)
    below = rest & ~tiny & (x < np.maximum(a, 1.1))
    above = rest & ~tiny & ~below
    for region, compute, upper in (
        (middle & (x > a), _density, True),
        (middle & (x <= a), _density, False),
        (tiny, _upper_series, True),
        (below, _lower_series, False),
        (above, _upper_fraction, True),
    ):
        if np.any(region):
            found = np.clip(compute(a[region], x[region]), 0.0, 1.0)
            (q if upper else p)[region], (p if upper else q)[region] = found, 1 - found
    small = tiny & (p < 0.5)  # P of a small x is no difference
    if np.any(small):
        p[small] = _lower_series(a[small], x[small])
    return p, q


def _by_order(a: Array, x: Array, order: int) -> Array:
    """dP / da or its derivative: the series differentiated term by term, or the integral of the density's."""
    found = np.where((a > 0) & ((x == 0) | (x == np.inf)), 0.0, np.nan)
    plain = (a > 0) & (x > 0) & (a < np.inf) & (x < np.inf)
    middle = plain & (a >= LARGE) & (np.abs(x - a) < 0.5 * a)
    below = plain & ~middle & (x < np.maximum(a, 1.1))
    above = plain & ~middle & ~below
    for region, compute in ((middle, _middle_by_order), (below, _series_by_order), (above, _tail_by_order)):
        if np.any(region):
            found[region] = compute(a[region], x[region], order)
    return found


def _score(a: Array, order: int) -> Callable[[Array], Array]:
    """Derivative of the density by a over the density: log t - digamma(a); squared, less trigamma."""
    mean, spread = digamma_of(a)[..., None], digamma_of(a, 1)[..., None]
    return lambda t: np.log(t) - mean if order == 1 else (np.log(t) - mean) ** 2 - spread


def _middle_by_order(a: Array, x: Array, order: int) -> Array:
    return np.where(x < a, 1.0, -1.0) * _density(a, x, _score(a, order))


def _series_by_order(a: Array, x: Array, order: int) -> Array:
    def step(k: Array, state: list[Array]) -> list[Array]:
        a, x, term, first, second, total, firsts, seconds, _ = state
        term = term * x / (a + k)
        first = (first * x - term) / (a + k)
        second = (second * x - 2 * first) / (a + k)
        seconds = seconds + second
        return [a, x, term, first, second, total + term, firsts + first, seconds, np.abs(second / seconds)]

    one, zero = np.ones(a.shape), np.zeros(a.shape)
    total, first, second = converged(step, [a, x, one, zero, zero, one, zero, zero, one], 8)[5:8]
    slope = np.log(x) - digamma_of(a + 1)
    if order == 1:
        return _power(a, x) * (total * slope + first)
    return _power(a, x) * (total * (slope * slope - digamma_of(a + 1, 1)) + 2 * slope * first + second)


def _tail_by_order(a: Array, x: Array, order: int) -> Array:
    """Integral over t = x + reach v^2, which has more points next to x, where the power of t changes fast."""
    reach = np.where(a < LARGE, 45 + 12 * np.sqrt(a), 135.0)[..., None]
    (v, weights), score = quadrature(), _score(a, order)
    s, a, x = reach * v * v, a[..., None], x[..., None]
    values = np.exp((a - 1) * np.log1p(s / x) - s) * score(x + s) * (2 * reach * v)
    return -(_power(a, x) * a / x)[..., 0] * (values @ weights)


def _gamma_density(g: Any, a: Any, x: Any) -> Any:
    flat = (a == 1) & (x == 0)  # 0 to the power of 0
    return g * ((a - 1) * where(flat, 1.0, x).log() - x - lgamma(a)).exp()


def _density_by_order(g: Any, a: Any, x: Any, order: int) -> Any:
    score = x.log() - digamma(a)
    return _gamma_density(g, a, x) * (score if order == 1 else score * score - trigamma(a))


def _next_order(g: Any, a: Any, x: Any, order: int) -> Any:
    if order > 1:
        raise GradientError("gammainc: no third derivative with respect to the order a; differentiate it twice")
    return g * gammainc_by_order(a, x, order=2)


gammainc = computed(
    "gammainc",
    ("a", "x"),
    flat(lambda a, x: _both(a, x)[0]),
    (lambda g, a, x: g * gammainc_by_order(a, x, order=1), _gamma_density),
    "Regularized lower incomplete gamma function P(a, x); nan where a < 0 or x < 0.",
    ((0.3, 5.0), (0.2, 6.0)),
    _POINTS,
)
gammaincc = computed(
    "gammaincc",
    ("a", "x"),
    flat(lambda a, x: _both(a, x)[1]),
    (lambda g, a, x: -g * gammainc_by_order(a, x, order=1), lambda g, a, x: _gamma_density(-g, a, x)),
    "Regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), exact to rounding where it is small.",
    ((0.3, 5.0), (0.2, 6.0)),
    _POINTS,
)
gammainc_by_order: Op = computed(
    "gammainc_by_order",
    ("a", "x"),
    flat(_by_order),
    (_next_order, _density_by_order),
    "Derivative of gammainc(a, x) with respect to a, of order 1 or 2.",
    ((0.3, 5.0), (0.2, 6.0)),
    _POINTS,
    orders=({"order": 1},),
    grad=False,  # that of order 2 is refused; gammainc's two are checked
)

ROWS = (gammainc, gammaincc, gammainc_by_order)
