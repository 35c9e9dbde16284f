"""Rows on complex numbers. Transcendental ones but the exponential are NumPy's functions, with the cuts and special
cases of C99.

NumPy's own `expm1` gives nan in seven of the special cases that the array API standard lists, so it is written here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..hooks import hooks


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x * y with the bits of compiled code."""
    return hooks.transcendental("mul", x, y)


def modulus(z: np.ndarray) -> np.ndarray:
    """|z| with the bits of compiled code."""
    return hooks.transcendental("abs", z)


def direction(z: np.ndarray) -> np.ndarray:
    """z / |z| with the bits of compiled code."""
    return hooks.transcendental("sign", z)


def reciprocal(s: Any, x: Any) -> Any:
    """1 / x of a scalar builder; of a complex number Smith's formula with the bits of NumPy, which divides twice."""
    if s.dtype(x).kind != "c":
        return s.div(s.const(1, s.dtype(x)), x)
    parts = s.real(x), s.imag(x)
    real_is_greater = s.ge(*map(s.abs, parts))
    greater, less = s.select(real_is_greater, *parts), s.select(real_is_greater, *reversed(parts))
    one, ratio = s.const(1, s.dtype(less)), s.div(less, greater)
    size = s.add(greater, s.mul(less, ratio))
    return s.pair(
        s.div(s.select(real_is_greater, one, ratio), size), s.neg(s.div(s.select(real_is_greater, ratio, one), size))
    )


COMPILED = frozenset(("exp",))  # by their parts, with the bits of compiled code
_NUMPY_NAMES = {f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}


def expm1(z: np.ndarray) -> np.ndarray:
    """e ** z - 1, exact near 0, by NumPy's formula (expm1(x) cos y - 2 sin(y / 2)^2) + i exp(x) sin y."""
    x, y = z.real, z.imag
    out = np.empty_like(z)
    half = np.sin(y / 2)
    # A real number stays real. At x = -inf an angle that is no number says nothing, at x = inf that z is far away.
    flat, endless = y == 0, np.isinf(x) & ~np.isfinite(y)
    out.real = np.where(flat | endless, np.expm1(x) + 0.0, np.expm1(x) * np.cos(y) - 2 * half * half)
    out.imag = np.where(flat, y, np.where(endless, np.where(x < 0, 0.0, np.nan), np.exp(x) * np.sin(y)))
    return out


def sigmoid(z: np.ndarray) -> np.ndarray:
    """1 / (1 + e ** -z), by e ** z / (1 + e ** z) where that does not overflow."""
    small = np.exp(np.where(z.real < 0, z, -z))
    return np.asarray(np.where(z.real < 0, small, 1) / (1 + small))


def logaddexp(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log(e ** x + e ** y), with the exponential of the greater real part taken out."""
    first = x.real >= y.real
    high, low = np.where(first, x, y), np.where(first, y, x)
    return np.asarray(np.where(np.isneginf(low.real), high, high + np.log1p(np.exp(low - high))))


_OWN: dict[str, Callable[..., np.ndarray]] = {"expm1": expm1, "logaddexp": logaddexp, "sigmoid": sigmoid}


def evaluate(name: str, *arrays: np.ndarray) -> np.ndarray:
    """The row `name` on complex arrays."""
    if name in COMPILED:
        return hooks.transcendental(name, *arrays)
    function = _OWN.get(name)
    with np.errstate(all="ignore"):
        return np.asarray((getattr(np, _NUMPY_NAMES.get(name, name)) if function is None else function)(*arrays))
