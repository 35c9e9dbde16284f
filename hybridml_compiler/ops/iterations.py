"""Iterations of special functions: steps until all elements have converged, quadrature, Stirling's series.

A power in front of a series or fraction would lose as many digits as its logarithm has before the point: it is computed
about its maximum, by `log1pmx`, beside Stirling's series.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..hooks import hooks
from ..once import once

Array = Any
TINY, EPS = 1e-300, 1e-17
BLOCK = 1 << 13
MOST = 100_000  # steps of a continued fraction; a takes 10 sqrt(a)
# 1/12, -1/360, ...: Stirling's series
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def log_gamma(x: Array) -> Array:
    return hooks.transcendental("lgamma", np.ascontiguousarray(x))


def stirling(x: Array) -> Array:
    """lgamma(x) - (x - 1/2) log x + x - log(2 pi) / 2 for x >= 10."""
    u = 1 / (x * x)
    return np.polynomial.polynomial.polyval(u, _STIRLING) / x


def log1pmx(u: Array, ratio: Array) -> Array:
    """log(ratio) - u, where ratio is 1 + u, without cancellation: 2 atanh(r) - u with r = u / (2 + u)."""
    r = u / (2 + u)
    series = np.polynomial.polynomial.polyval(r * r, [1 / (2 * k + 3) for k in range(14)])
    return np.where(np.abs(u) < 0.4, r * (2 * r * r * series - u), np.log(ratio) - u)


def converged(step: Callable[[Array, list[Array]], list[Array]], state: list[Array], change: int) -> list[Array]:
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


@once
def quadrature(panels: int = 6) -> tuple[Array, Array]:
    """Nodes and weights on (0, 1), 16 per panel, since NumPy's own weights of 96 points are good to 1e-12 only."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    starts, half = np.arange(panels) / panels, 0.5 / panels
    return (starts[:, None] + (1 + nodes) * half).ravel(), np.tile(weights * half, panels)


def flat(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of flat arrays as one of any shape, in blocks: each has as many steps as its own elements need, and
    quadrature makes 96 numbers of one."""

    def shaped(*arrays: Array, **params: int) -> Array:
        rows = [x.reshape(-1) for x in arrays]
        out = np.empty(rows[0].size)
        for start in range(0, out.size, BLOCK):
            part = slice(start, start + BLOCK)
            out[part] = function(*(x[part] for x in rows), **params)
        return out.reshape(arrays[0].shape)

    return shaped


def digamma_of(a: Array, order: int = 0) -> Array:
    """digamma, or its derivative."""
    return hooks.transcendental(("digamma", "trigamma")[order], np.ascontiguousarray(a))
