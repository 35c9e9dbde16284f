"""Accuracy and special values of the special functions, through the NumPy builder: float64 against mpmath, float32
against float64, by way of which it is computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from hybridml_compiler.dtypes import float32, float64
from hybridml_compiler.loops.scalar import NumpyBuilder
from hybridml_compiler.loops.transcendental import SPECIAL

S = NumpyBuilder()
INF, NAN = math.inf, math.nan
BINARY = ("logaddexp", "logaddexp2")
UNARY = [name for name in SPECIAL if name not in BINARY]


def _inverse(function: Callable[[Any], Any], slope: Callable[[Any], Any], sign: int) -> Callable[[Any, float], Any]:
    """Newton's method from the value that is tested."""

    def value(y: Any, start: float) -> Any:
        x = mpmath.mpf(start)
        for _ in range(3):
            x = x - sign * (function(x) - y) / slope(x)
        return x

    return value


def _bell(x: Any) -> Any:
    return 2 * mpmath.exp(-x * x) / mpmath.sqrt(mpmath.pi)


def _normal(x: Any) -> Any:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


INVERSES = {
    "erfinv": _inverse(mpmath.erf, _bell, 1),
    "erfcinv": _inverse(mpmath.erfc, _bell, -1),
    "ndtri": _inverse(_normal, lambda x: mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi), 1),
}
MPMATH: dict[str, Callable[..., Any]] = {
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "gamma": mpmath.gamma,
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
    "digamma": mpmath.digamma,
    "trigamma": lambda x: mpmath.psi(1, x),
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "ndtr": _normal,
    "log_ndtr": lambda x: mpmath.log(_normal(x)) if x < 0 else mpmath.log1p(-_normal(-x)),
    "i0": lambda x: mpmath.besseli(0, x),
    "i1": lambda x: mpmath.besseli(1, x),
    "i0e": lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)),
    "i1e": lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
    "j0": mpmath.j0,
    "j1": mpmath.j1,
    "y0": lambda x: mpmath.bessely(0, x),
    "y1": lambda x: mpmath.bessely(1, x),
    "exp1": mpmath.e1,
    "expi": mpmath.ei,
    "logaddexp": lambda x, y: mpmath.log(mpmath.exp(x) + mpmath.exp(y)),
    "logaddexp2": lambda x, y: mpmath.log(mpmath.mpf(2) ** x + mpmath.mpf(2) ** y, 2),
}
# Intervals and the bound there, in ulp of float64. Where the function crosses zero the error is absolute: not here.
CASES: dict[str, list[tuple[float, float, float]]] = {
    "cbrt": [(-10, 10, 0.7), (-1e300, 1e300, 0.7), (0, 1e-310, 0.7)],
    "gamma": [(0, 1, 3), (1, 9, 3.5), (9, 171.6, 2), (-7.9, -0.01, 4), (-170, -8, 4)],
    "lgamma": [(1e-300, 1, 4), (1, 3, 6), (3, 20, 4), (20, 1e300, 3), (-0.9, -0.01, 5)],
    "digamma": [(1e-10, 1, 4), (1, 3, 4), (3, 20, 4), (20, 1e300, 3), (-0.4, -0.01, 6)],
    "trigamma": [(1e-10, 1, 4), (1, 20, 4), (20, 1e150, 3), (-8, -0.01, 6)],
    "erfcx": [(-26, 0, 3), (0, 30, 3), (30, 200, 3)],
    "ndtr": [(-37, 0, 5), (0, 9, 3)],
    "log_ndtr": [(-37, -1, 3), (-1, 8, 4)],
    "erfinv": [(0, 1, 6), (-1, -0.8, 6), (1e-20, 1e-10, 4)],
    "erfcinv": [(0, 2, 5), (1e-30, 1e-3, 5)],
    "ndtri": [(0, 1, 5), (1e-40, 1e-3, 5)],
    "i0": [(-8, 8, 4), (8, 100, 4), (100, 713, 4)],
    "i1": [(-8, 8, 4), (8, 100, 4), (100, 713, 4)],
    "i0e": [(-8, 8, 4), (8, 100, 4), (100, 900, 4)],
    "i1e": [(-8, 8, 4), (8, 100, 4), (100, 900, 4)],
    "j0": [(0, 5, 6), (8.8, 9.5, 5)],
    "j1": [(0, 6.5, 6), (8, 9, 6)],
    "y0": [(1e-300, 1e-3, 4), (1.5, 3, 8)],
    "y1": [(1e-300, 1, 4), (3, 4.5, 8)],
    "exp1": [(0, 1, 5), (1, 20, 5), (20, 700, 5)],
    "expi": [(0, 1, 4), (1, 40, 4), (40, 700, 4), (-700, -1e-9, 5)],
    "logaddexp": [(0, 10, 3)],
    "logaddexp2": [(0, 10, 4)],
}


def run(name: str, *operands: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(SPECIAL[name](S, *operands))


def exact(name: str, x: tuple[float, ...], got: float) -> Any:
    return INVERSES[name](mpmath.mpf(x[0]), got) if name in INVERSES else MPMATH[name](*map(mpmath.mpf, x))


@pytest.mark.parametrize("name", SPECIAL)
def test_float64_against_mpmath(name: str) -> None:
    for low, high, bound in CASES[name]:
        rng = np.random.default_rng(3)
        columns = [rng.uniform(low, high, 40) for _ in range(1 + (name in BINARY))]
        got = run(name, *columns)
        with mpmath.workprec(260):
            for value, *x in zip(got.tolist(), *(c.tolist() for c in columns), strict=True):
                want = exact(name, tuple(x), value)
                error = float(abs(value - want) / np.spacing(abs(float(want))))
                assert error <= bound, f"{name}{tuple(x)} = {value}, want {float(want)}: {error:.2f} ulp"


@pytest.mark.parametrize("name", SPECIAL)
def test_float32_is_float64_rounded(name: str) -> None:
    rng = np.random.default_rng(4)
    bits = rng.integers(-(2**31), 2**31, 2000).astype(np.int32).view(np.float32)
    with np.errstate(all="ignore"):
        bits = bits + np.float32(0)  # quiet nans
    x = np.concatenate([bits, rng.uniform(-30, 30, 2000).astype("f4"), rng.uniform(0, 2, 1000).astype("f4")])
    operands = (x, x[::-1].copy()) if name in BINARY else (x,)
    got, wide = run(name, *operands), run(name, *(o.astype("f8") for o in operands))
    if name in BINARY:
        np.testing.assert_allclose(got, wide, rtol=4e-7, atol=2e-7)
    else:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, wide.astype("f4"))


SPECIAL_VALUES = [
    ("cbrt", -0.0, -0.0), ("cbrt", INF, INF), ("cbrt", -8.0, -2.0), ("cbrt", 27.0, 3.0),
    ("gamma", 0.0, INF), ("gamma", -0.0, -INF), ("gamma", -1.0, NAN), ("gamma", 5.0, 24.0), ("gamma", INF, INF),
    ("gamma", -INF, NAN), ("gamma", 172.0, INF), ("gamma", 1.0, 1.0),
    ("lgamma", 0.0, INF), ("lgamma", 1.0, 0.0), ("lgamma", 2.0, 0.0), ("lgamma", -3.0, INF), ("lgamma", INF, INF),
    ("lgamma", -INF, INF), ("lgamma", 1e-30, -math.log(1e-30)),
    ("digamma", 0.0, -INF), ("digamma", -0.0, INF), ("digamma", -1.0, NAN), ("digamma", INF, INF),
    ("trigamma", 0.0, INF), ("trigamma", -2.0, INF), ("trigamma", INF, 0.0),
    ("erfcx", 0.0, 1.0), ("erfcx", INF, 0.0), ("erfcx", -INF, INF), ("erfcx", -27.0, INF),
    ("ndtr", 0.0, 0.5), ("ndtr", INF, 1.0), ("ndtr", -INF, 0.0), ("ndtr", -40.0, 0.0),
    ("log_ndtr", -INF, -INF), ("log_ndtr", INF, 0.0),
    ("erfinv", 0.0, 0.0), ("erfinv", -0.0, -0.0), ("erfinv", 1.0, INF), ("erfinv", -1.0, -INF), ("erfinv", 1.5, NAN),
    ("erfcinv", 0.0, INF), ("erfcinv", 1.0, 0.0), ("erfcinv", 2.0, -INF), ("erfcinv", -1.0, NAN),
    ("ndtri", 0.0, -INF), ("ndtri", 0.5, 0.0), ("ndtri", 1.0, INF), ("ndtri", 2.0, NAN),
    ("i0", 0.0, 1.0), ("i0", -INF, INF), ("i0e", INF, 0.0), ("i1", -0.0, -0.0), ("i1", -INF, -INF), ("i1e", INF, 0.0),
    ("j0", 0.0, 1.0), ("j0", INF, 0.0), ("j1", -0.0, -0.0), ("j1", INF, 0.0),
    ("y0", 0.0, -INF), ("y0", INF, 0.0), ("y0", -1.0, NAN), ("y1", 0.0, -INF), ("y1", INF, 0.0), ("y1", -0.5, NAN),
    ("exp1", 0.0, INF), ("exp1", -1.0, NAN), ("exp1", INF, 0.0), ("exp1", 800.0, 0.0),
    ("expi", 0.0, -INF), ("expi", INF, INF), ("expi", -INF, -0.0),
    *((name, NAN, NAN) for name in UNARY),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_special_values(dtype: np.dtype) -> None:
    xs: dict[str, list[float]] = {name: [x for n, x, _ in SPECIAL_VALUES if n == name] for name, *_ in SPECIAL_VALUES}
    found = {name: iter(run(name, np.array(x, dtype))) for name, x in xs.items()}
    for name, x, want in SPECIAL_VALUES:
        got, want = next(found[name]), dtype.type(want)
        same = np.isnan(got) if np.isnan(want) else got == want or abs(got - want) <= np.spacing(abs(want))
        assert same, f"{name}({x}) = {got}, want {want}"
        if want == 0 and (name, x) not in (("lgamma", 1.0), ("lgamma", 2.0), ("log_ndtr", INF)):
            assert np.signbit(got) == np.signbit(want), f"{name}({x}) = {got}"


def test_sums_of_powers_at_infinity() -> None:
    x, y = (np.array(column) for column in ([INF, INF, -INF, -INF, NAN, 1.0], [INF, -INF, -INF, 2.0, 1.0, NAN]))
    for name in BINARY:
        np.testing.assert_array_equal(run(name, x, y), [INF, INF, -INF, 2.0, NAN, NAN])


def test_bessel_functions_of_waves_are_absolute() -> None:
    x = np.random.default_rng(5).uniform(0.5, 100, 100)
    for name in ("j0", "j1", "y0", "y1"):
        want = np.array([float(MPMATH[name](mpmath.mpf(v))) for v in x.tolist()])
        np.testing.assert_allclose(run(name, x), want, rtol=0, atol=6e-16)
