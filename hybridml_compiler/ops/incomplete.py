"""The incomplete gamma and beta functions. NumPy computes them, in float64.

Method. gammainc, gammaincc: the power series below x = a (DLMF 8.7.1), the continued fraction above (DLMF 8.9.2), near
zero the series of 1 - P without cancellation, and next to x = a for a > 40, where both converge slowly, Gauss-Legendre
quadrature of the density outwards from x (as Numerical Recipes, 6.2.3; ours is in (t - a) / a). betainc: the continued
fraction (DLMF 8.17.22) on the side where it converges fast. All have in front of them a power that would lose as many
digits as its logarithm has before the point: it is computed about its maximum (`_log1pmx`), beside Stirling's series.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import GradientError
from . import polynomial
from .computed import Refused, computed
from .op import Op
from .special import digamma, lgamma, trigamma
from .zeta import hurwitz

Array = Any
TINY, EPS = 1e-300, 1e-17
LARGE = 40.0  # of a: from here on the quadrature
MOST = 100_000  # steps of a continued fraction; 10 sqrt(a) is what a takes
_HALF_LOG_TAU = 0.9189385332046727


def _rule(panels: int, points: int) -> tuple[Array, Array]:
    """Nodes and weights on (-1, 1): panels of few points each, since NumPy's weights of 96 points are good to 1e-12."""
    nodes, weights = np.polynomial.legendre.leggauss(points)
    middles = (2 * np.arange(panels) + 1) / panels - 1
    return (middles[:, None] + nodes / panels).ravel(), np.tile(weights / panels, panels)


_NODES, _WEIGHTS = _rule(6, 16)
_GAMMA_POINTS = ((0.0, 1.0), (1.0, 0.0), (2.0, np.inf), (-1.0, 2.0), (1.0, -2.0), (np.nan, 1.0), (1e-3, 1e-3),
                 (50.0, 45.0), (50.0, 60.0), (1e4, 1.01e4), (1e4, 9e3), (30.0, 200.0), (200.0, 3.0),
                 (0.5, 30.0))  # fmt: skip
# 1/12, -1/360, ...: Stirling's series
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def _log_gamma(x: Array) -> Array:
    return polynomial.evaluate("lgamma", np.ascontiguousarray(x))


def _stirling(x: Array) -> Array:
    """lgamma(x) - (x - 1/2) log x + x - log(2 pi) / 2 for x >= 10."""
    u = 1 / (x * x)
    return np.polynomial.polynomial.polyval(u, _STIRLING) / x


def _log1pmx(u: Array, ratio: Array) -> Array:
    """log(ratio) - u, where ratio is 1 + u, without cancellation: 2 atanh(r) - u with r = u / (2 + u)."""
    r = u / (2 + u)
    series = np.polynomial.polynomial.polyval(r * r, [1 / (2 * k + 3) for k in range(14)])
    return np.where(np.abs(u) < 0.4, r * (2 * r * r * series - u), np.log(ratio) - u)


def _log_gamma_1p(a: Array) -> Array:
    """lgamma(1 + a) for 0 <= a <= 1, relative to its small value at small a."""
    k = np.arange(2, 60)
    series = np.polynomial.polynomial.polyval(a, [0.0, 0.0, *((-1.0) ** k * hurwitz(k, np.full(k.shape, 2.0)) / k)])
    return a * 0.42278433509846713 - np.log1p(a) + series


def _converged(step: Callable[[Array, list[Array]], list[Array]], state: list[Array], change: int) -> list[Array]:
    """`step(k, state)` over and over on the elements whose last relative change, state[change], is not yet small."""
    done = [np.array(s) for s in state]
    active = np.arange(state[0].size)
    for k in range(1, MOST):
        state = step(k, state)
        going = state[change] > EPS
        if not np.all(going) or k == MOST - 1:
            for whole, part in zip(done, state, strict=True):
                whole[active] = part
            state, active = [s[going] for s in state], active[going]
        if not active.size:
            break
    return done


# ---------------------------------------------------------------- gamma


def _power(a: Array, x: Array) -> Array:
    """x^a e^-x / gamma(a + 1)."""
    small = (
        np.power(x, np.minimum(a, LARGE)) * np.exp(-0.5 * x) / polynomial.evaluate("gamma", np.minimum(a, LARGE) + 1)
    )
    big = np.maximum(a, LARGE)
    about = np.exp(big * _log1pmx((x - big) / big, x / big) - _stirling(big)) / np.sqrt(2 * np.pi * big)
    return np.where(a < LARGE, small * np.exp(-0.5 * x), about)


def _lower_series(a: Array, x: Array) -> Array:
    """P(a, x) for x not far above a."""

    def step(k: Array, state: list[Array]) -> list[Array]:
        a, x, term, total, _ = state
        term = term * x / (a + k)
        return [a, x, term, total + term, term / total]

    one = np.ones(a.shape)
    return _power(a, x) * _converged(step, [a, x, one, one, one], 4)[3]


def _upper_series(a: Array, x: Array) -> Array:
    """Q(a, x) for x <= 1.1 and small a."""

    def step(k: Array, state: list[Array]) -> list[Array]:
        a, x, factor, total, _ = state
        factor = factor * -x / k
        term = factor / (a + k)
        return [a, x, factor, total + term, np.abs(term / total)]

    first = -x / (a + 1)
    total = _converged(
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
    h = _converged(step, [a, b, np.full(a.shape, 1 / TINY), 1 / b, 1 / b, np.ones(a.shape)], 5)[4]
    return _power(a, x) * a * h


def _density(a: Array, x: Array, moment: Callable[[Array], Array] | None = None) -> Array:
    """The density of the gamma distribution integrated from x outwards, away from a, for a >= 40 and x about a."""
    u, root = (x - a) / a, np.sqrt(a)
    side = np.where(u < 0, -1.0, 1.0)
    reach = np.sqrt((u * root) ** 2 + 90) * np.where(u < 0, 1.0, 1 + 4.5 / root) / root
    far = np.where(u < 0, np.maximum(-reach, -0.999999), reach)
    half = (far - u) / 2
    t = u[..., None] + half[..., None] * (1 + _NODES)
    values = np.exp(a[..., None] * _log1pmx(t, 1 + t)) / (1 + t)
    if moment is not None:
        values = values * moment(a[..., None] * (1 + t))
    scale = np.sqrt(a / (2 * np.pi)) * np.exp(-_stirling(a))
    return side * scale * half * (values @ _WEIGHTS)


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
    for where, compute, upper in (
        (middle & (x > a), _density, True),
        (middle & (x <= a), _density, False),
        (tiny, _upper_series, True),
        (below, _lower_series, False),
        (above, _upper_fraction, True),
    ):
        if np.any(where):
            found = np.clip(compute(a[where], x[where]), 0.0, 1.0)
            (q if upper else p)[where], (p if upper else q)[where] = found, 1 - found
    small = tiny & (p < 0.5)  # P of a small x is no difference
    if np.any(small):
        p[small] = _lower_series(a[small], x[small])
    return p, q


def _flat(function: Callable[..., Array]) -> Callable[..., Array]:
    def shaped(*arrays: Array, **params: int) -> Array:
        return function(*(x.reshape(-1) for x in arrays), **params).reshape(arrays[0].shape)

    return shaped


def _by_order(a: Array, x: Array, order: int) -> Array:
    """dP / da or its derivative: the series differentiated term by term, or the integral of the density's."""
    found = np.where((a > 0) & ((x == 0) | (x == np.inf)), 0.0, np.nan)
    plain = (a > 0) & (x > 0) & (a < np.inf) & (x < np.inf)
    middle = plain & (a >= LARGE) & (np.abs(x - a) < 0.5 * a)
    below = plain & ~middle & (x < np.maximum(a, 1.1))
    above = plain & ~middle & ~below
    for where, compute in ((middle, _middle_by_order), (below, _series_by_order), (above, _tail_by_order)):
        if np.any(where):
            found[where] = compute(a[where], x[where], order)
    return found


def _digamma(a: Array, order: int) -> Array:
    return polynomial.evaluate(("digamma", "trigamma")[order], np.ascontiguousarray(a))


def _score(a: Array, order: int) -> Callable[[Array], Array]:
    """What the density is multiplied by where it is differentiated by a: log t - digamma(a); squared, less trigamma."""
    mean, spread = _digamma(a, 0)[..., None], _digamma(a, 1)[..., None]
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
    total, first, second = _converged(step, [a, x, one, zero, zero, one, zero, zero, one], 8)[5:8]
    slope = np.log(x) - _digamma(a + 1, 0)
    if order == 1:
        return _power(a, x) * (total * slope + first)
    return _power(a, x) * (total * (slope * slope - _digamma(a + 1, 1)) + 2 * slope * first + second)


def _tail_by_order(a: Array, x: Array, order: int) -> Array:
    """By t = x + reach v^2, which has more points next to x, where the power of t changes fast."""
    reach = np.where(a < LARGE, 45 + 12 * np.sqrt(a), 135.0)[..., None]
    v, score = (1 + _NODES) / 2, _score(a, order)
    s, a, x = reach * v * v, a[..., None], x[..., None]
    values = np.exp((a - 1) * np.log1p(s / x) - s) * score(x + s) * (reach * v)
    return -(_power(a, x) * a / x)[..., 0] * (values @ _WEIGHTS)


# ---------------------------------------------------------------- beta


def _log_beta(a: Array, b: Array) -> Array:
    """log B(a, b) of positive a and b: where the greater is large, without the difference of two large logarithms."""
    p, q = np.minimum(a, b), np.maximum(a, b)
    far = np.maximum(q, 10.0)
    difference = (far - 0.5) * np.log1p(p / far) + p * (np.log(p + far) - 1) + _stirling(p + far) - _stirling(far)
    return _log_gamma(p) - np.where(q < 10, _log_gamma(p + q) - _log_gamma(q), difference)


def _beta_power(a: Array, b: Array, x: Array, y: Array) -> Array:
    """x^a y^b / B(a, b), x + y = 1."""
    plain = np.exp(a * np.log(x) + b * np.where(x < 0.5, np.log1p(-x), np.log(y)) - _log_beta(a, b))
    p, q = np.maximum(a, 10.0), np.maximum(b, 10.0)
    total = p + q
    mean, rest = p / total, q / total
    off = np.where(x < 0.5, x - mean, rest - y)
    exponent = p * _log1pmx(off / mean, x / mean) + q * _log1pmx(-off / rest, y / rest)
    scale = np.sqrt(p * rest / (2 * np.pi)) * np.exp(_stirling(total) - _stirling(p) - _stirling(q))
    return np.where((a >= 10) & (b >= 10), scale * np.exp(exponent), plain)


def _beta_fraction(a: Array, b: Array, x: Array) -> Array:
    """What multiplies x^a (1 - x)^b / (a B(a, b)), by the modified Lentz method; x < (a + 1) / (a + b + 2)."""

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
    return _converged(step, [a, b, x, one, d, d, one], 6)[5]


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


# ---------------------------------------------------------------- rows


def _gamma_density(g: Any, a: Any, x: Any) -> Any:
    return g * ((a - 1) * x.log() - x - lgamma(a)).exp()


def _density_by_order(g: Any, a: Any, x: Any, order: int) -> Any:
    score = x.log() - digamma(a)
    return _gamma_density(g, a, x) * (score if order == 1 else score * score - trigamma(a))


def _next_order(g: Any, a: Any, x: Any, order: int) -> Any:
    if order > 1:
        raise GradientError("gammainc: no third derivative with respect to the order a; differentiate it twice")
    return g * gammainc_by_order(a, x, order=2)


def _beta_density(g: Any, a: Any, b: Any, x: Any) -> Any:
    return g * ((a - 1) * x.log() + (b - 1) * (-x).log1p() - (lgamma(a) + lgamma(b) - lgamma(a + b))).exp()


gammainc = computed(
    "gammainc",
    ("a", "x"),
    _flat(lambda a, x: _both(a, x)[0]),
    (lambda g, a, x: g * gammainc_by_order(a, x, order=1), _gamma_density),
    "Regularized lower incomplete gamma function P(a, x); nan where a < 0 or x < 0.",
    ((0.3, 5.0), (0.2, 6.0)),
    _GAMMA_POINTS,
)
gammaincc = computed(
    "gammaincc",
    ("a", "x"),
    _flat(lambda a, x: _both(a, x)[1]),
    (lambda g, a, x: -g * gammainc_by_order(a, x, order=1), lambda g, a, x: _gamma_density(-g, a, x)),
    "Regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), exact to rounding where it is small.",
    ((0.3, 5.0), (0.2, 6.0)),
    _GAMMA_POINTS,
)
gammainc_by_order: Op = computed(
    "gammainc_by_order",
    ("a", "x"),
    _flat(_by_order),
    (_next_order, _density_by_order),
    "Derivative of gammainc(a, x) with respect to a, of order 1 or 2.",
    ((0.3, 5.0), (0.2, 6.0)),
    _GAMMA_POINTS,
    orders=(1,),
    grad=False,  # that of order 2 is refused; gammainc's two are checked
)
betainc = computed(
    "betainc",
    ("a", "b", "x"),
    _flat(_betainc),
    (
        Refused("betainc: no derivative with respect to a; differentiate with respect to x"),
        Refused("betainc: no derivative with respect to b; differentiate with respect to x"),
        _beta_density,
    ),
    "Regularized incomplete beta function I_x(a, b); nan where a or b is negative or x is outside of [0, 1].",
    ((0.3, 5.0), (0.3, 5.0), (0.1, 0.9)),
    ((2.0, 3.0, 0.0), (2.0, 3.0, 1.0), (2.0, 3.0, 1.5), (-1.0, 3.0, 0.5), (0.0, 3.0, 0.5), (3.0, 0.0, 0.5),
     (500.0, 700.0, 0.4), (1e-3, 50.0, 0.01), (np.nan, 1.0, 0.5), (2.0, 1e4, 1e-3)),
)  # fmt: skip

ROWS = (gammainc, gammaincc, gammainc_by_order, betainc)
