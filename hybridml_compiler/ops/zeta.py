"""The Hurwitz zeta function and the derivatives of digamma that are made of it. NumPy computes them, in float64.

Method: the first terms one by one and the Euler-Maclaurin formula for the rest (DLMF 25.11.5), which converges so fast
that there is nothing to iterate; left of zero the reflection formulas (DLMF 5.15.6, 25.4.1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..hooks import hooks
from .computed import Refused, computed
from .op import Op

TERMS = 10
# Bernoulli numbers over factorials: B_2k / (2k)!
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
              -3617 / 10670622842880000, 43867 / 5109094217170944000, -174611 / 802857662698291200000)  # fmt: skip


def _power(s: Any, q: np.ndarray, k: int) -> Any:
    """(q + k) ** -s; the exponent would magnify the rounding error of the sum, which is made good."""
    base = q + k
    lost = (q - (base - (base - q))) + (k - (base - q))
    return base**-s * (1 - s * np.where(np.isfinite(lost), lost, 0.0) / base)


def hurwitz(s: Any, q: np.ndarray) -> Any:
    """zeta(s, q) for q > 0 and s > 1 (s > -10 with a loss that grows as s falls). Small terms are added up first."""
    far, power = q + TERMS, _power(s, q, TERMS)
    rising, total = s * power / far, np.zeros(np.shape(power))
    for k, coefficient in enumerate(_BERNOULLI):
        total = total + coefficient * rising
        rising = rising * ((s + (2 * k + 1)) / far) * ((s + (2 * k + 2)) / far)
    total = total + power * (0.5 + far / (s - 1))
    for k in reversed(range(TERMS)):
        total = total + _power(s, q, k)
    return total


def _sin_pi(x: np.ndarray) -> Any:
    n = np.rint(x)
    return np.where(n % 2 == 0, 1.0, -1.0) * np.sin(np.pi * (x - n))


def _zeta(s: np.ndarray, q: np.ndarray) -> np.ndarray:
    found = np.where(q > 0, hurwitz(s, np.where(q > 0, q, 1.0)), np.where(np.floor(q) == q, np.inf, np.nan))
    found = np.where(s > 1, found, np.where(s == 1, np.inf, np.nan))
    found = np.where((s == np.inf) & (q >= 1), np.where(q == 1, 1.0, 0.0), found)
    riemann = (q == 1) & (s < 1) & (s > -np.inf)
    if np.any(riemann):
        found = np.where(riemann, _left_of_one(np.where(riemann, s, 0.0)), found)
    return np.where(np.isnan(s) | np.isnan(q), np.nan, found)


def _left_of_one(s: np.ndarray) -> np.ndarray:
    """The Riemann zeta function for s < 1, by reflection for s < 0."""
    far = np.where(s < 0, 1 - s, 2.0)
    gamma = hooks.transcendental("gamma", np.ascontiguousarray(far))
    reflected = 2 * (2 * np.pi) ** (s - 1) * _sin_pi(s / 2) * gamma * hurwitz(far, np.ones(far.shape))
    near = hurwitz(np.where(s < 0, 0.0, s), np.ones(s.shape))
    return np.where(s < 0, np.where(np.rint(s / 2) * 2 == s, 0.0, reflected), near)


zeta: Op = computed(
    "zeta",
    ("x", "q"),
    _zeta,
    (
        Refused("zeta: no derivative with respect to the exponent x; differentiate with respect to q"),
        lambda g, x, q: -g * x * zeta(x + 1, q),
    ),
    "Hurwitz zeta function, the sum of (q + k) ** -x; inf at x = 1. x < 1 for q = 1 alone, Riemann's function.",
    ((1.5, 6.0), (0.3, 5.0)),
    ((1.0, 2.0), (0.5, 1.0), (-1.0, 1.0), (-2.0, 1.0), (2.0, 0.0), (2.0, -1.5), (40.0, 1.0), (0.0, 1.0), (2.0, 1e9)),
)


def _cotangent_derivative(n: int) -> np.polynomial.Polynomial:
    """The n-th derivative of pi cot(pi x) as a polynomial in cot(pi x): the derivative of c is -pi (1 + c^2)."""
    found = np.polynomial.Polynomial([0.0, math.pi])
    for _ in range(n):
        found = found.deriv() * np.polynomial.Polynomial([-math.pi, 0.0, -math.pi])
    return found


def _polygamma(x: np.ndarray, order: int) -> np.ndarray:
    n, left = order, x < 0
    right = np.where(left, 1 - x, x)
    y = (-1.0) ** (n + 1) * float(math.factorial(n)) * hurwitz(n + 1, right)
    y = np.where(right == np.inf, 0.0, y)
    if not np.any(left):
        return y
    fraction = np.pi * (x - np.rint(x))
    reflected = (-1.0) ** n * y - _cotangent_derivative(n)(np.cos(fraction) / np.sin(fraction))
    at_pole = np.inf if n % 2 else np.nan
    return np.where(left, np.where(np.rint(x) == x, at_pole, reflected), y)


digamma_by_order: Op = computed(
    "digamma_by_order",
    ("x",),
    _polygamma,
    (lambda g, x, order: g * digamma_by_order(x, order=order + 1),),
    "Derivative of digamma of an order from 1 on; at -1, -2, ... nan where the order is even, else inf.",
    ((0.4, 5.0),),
    tuple((x,) for x in (-1.5, -0.25, -3.75, 0.0, -0.0, -1.0, 1e-30, 1e30, np.inf, -np.inf, np.nan)),
    orders=({"order": 1}, {"order": 2}, {"order": 5}),
)

ROWS = (zeta, digamma_by_order)
