"""Accuracy and special values of the elementary transcendental functions, through the NumPy builder.

The bound is 2 ulp in float32 and 4 ulp in float64. float32 is swept over all bit patterns with a stride (a shorter one
with --slow), against float64; float64 is compared with 80-bit functions where the platform has them, and with mpmath.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from hybridml_compiler.dtypes import float32, float64, int32
from hybridml_compiler.errors import DTypeError
from hybridml_compiler.loops.scalar import NumpyBuilder
from hybridml_compiler.loops.transcendental import ELEMENTARY, TABLE

S = NumpyBuilder()
INF, NAN = math.inf, math.nan
BOUND = {float32: 2.0, float64: 4.0}
# Primes: 40 thousand of the 2^32 float32, and a quarter of a million.
STRIDES = [104729, pytest.param(16381, marks=pytest.mark.slow)]
POINTS = [2000, pytest.param(8000, marks=pytest.mark.slow)]
BINARY = ("pow", "atan2", "hypot")
UNARY = [name for name in ELEMENTARY if name not in BINARY]


def _stable_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))


# Good in any NumPy float: rounding of the reference is far below an ulp of the narrower format.
NUMPY: dict[str, Callable[..., np.ndarray]] = {
    **{n: getattr(np, n) for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan")},
    **{n: getattr(np, n) for n in ("sinh", "cosh", "tanh", "hypot")},
    **{f"a{n}": getattr(np, f"arc{n}") for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")},
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": _stable_sigmoid,
}
MPMATH: dict[str, Callable[..., Any]] = {
    **{n: getattr(mpmath, n) for n in UNARY if hasattr(mpmath, n) and n not in ("sigmoid", "exp2")},
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x, 2),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "pow": lambda x, y: mpmath.power(x, y),
    "hypot": mpmath.hypot,
    "atan2": mpmath.atan2,
}
HAS_80_BITS = np.finfo(np.longdouble).nmant >= 63
F32_REFERENCE = {**NUMPY, "erf": np.vectorize(math.erf, otypes="d"), "erfc": np.vectorize(math.erfc, otypes="d")}


def run(name: str, *operands: np.ndarray) -> np.ndarray:
    return np.asarray(TABLE[name](S, *operands))


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of `got`'s dtype at the exact value; inf for a wrong nan, inf or zero."""
    info, wide = np.finfo(got.dtype), exact.dtype.type
    with np.errstate(all="ignore"):
        want = exact.astype(got.dtype)
        exponent = np.frexp(np.where(np.isfinite(want) & (want != 0), want, 1))[1].astype(np.int64) - 1
        exponent = np.where(want == 0, info.minexp, np.maximum(exponent, info.minexp))
        distance = (np.abs(got.astype(wide) - exact) / np.ldexp(wide(1), exponent - info.nmant)).astype(np.float64)
        same = ((got == want) & (np.signbit(got) == np.signbit(want))) | (np.isnan(got) & np.isnan(want))
        plain = np.isfinite(got) & np.isfinite(want)
        # next to overflow, inf and the largest number are neighbours
        edge = np.isinf(want) & (np.abs(got) == info.max) | np.isinf(got) & (np.abs(want) == info.max)
        zeros = (got == 0) & (want == 0)
    return np.where(plain & ~zeros, distance, np.where(same | edge, 0.0, INF))


def assert_within(name: str, operands: tuple[np.ndarray, ...], exact: np.ndarray) -> None:
    got = run(name, *operands)
    dtype = operands[0].dtype
    assert got.dtype == dtype
    distance = ulps(got, exact)
    worst = int(np.argmax(distance))
    where = ", ".join(repr(x[worst]) for x in operands)
    message = f"{name}({where}) = {got[worst]!r}, exact {exact[worst]!r}: {distance[worst]:.3f} ulp"
    assert distance[worst] <= BOUND[dtype], message


# where functions change formula, overflow or underflow
_TURNS = (0.26, 0.5, 0.707106781, 1.0, 1.125, 1.41421356, 3.9, 9.02, 10.2, 18.0, 27.3, 88.722839, 103.97, 104.0, 127.0,
          128.0, 149.0, 150.0, 709.7827, 745.1332, 1024.0, 2.0**17, 2.0**24, 2.0**25, 2.0**53, 2.0**54)  # fmt: skip


def edges(dtype: np.dtype) -> np.ndarray:
    """Zeros, ends of the format, multiples of pi/2 and `_TURNS`, with both neighbours of each."""
    info = np.finfo(dtype)
    ends = [0.0, INF, NAN, info.max, info.tiny, info.smallest_subnormal]
    x = np.array([*ends, *_TURNS, *(k * math.pi / 2 for k in range(1, 60))], np.float64).astype(dtype)
    with np.errstate(all="ignore"):
        x = np.concatenate([x, np.nextafter(x, dtype.type(0)), np.nextafter(x, dtype.type(INF))])
    return np.concatenate([x, -x])


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("name", UNARY)
def test_float32_sweep(name: str, stride: int) -> None:
    x = np.arange(0, 2**32, stride, dtype=np.int64).astype(np.uint32).view(np.float32)
    x = np.concatenate([x, edges(float32)])
    with np.errstate(all="ignore"):
        x = x.astype(np.float64).astype(np.float32)  # quiet the signalling nans
        exact = F32_REFERENCE[name](x.astype(np.float64))
    assert_within(name, (x,), exact)


def float64_points(n: int) -> np.ndarray:
    rng = np.random.default_rng(7)
    parts = [
        rng.integers(0, 2**63, n, dtype=np.int64).view(np.float64),
        rng.normal(size=n) * np.exp(4 * rng.normal(size=n)),
        1 + rng.normal(size=n // 2) * 10.0 ** rng.uniform(-14, -1, n // 2),
        rng.uniform(-1, 1, n // 2),
        rng.uniform(-750, 750, n // 2),
        rng.uniform(-30, 30, n // 2),
        rng.integers(1, 10**6, n // 4) * (math.pi / 2),
        rng.uniform(2.0**23, 2.0**28, n // 4),
        10.0 ** rng.uniform(20, 308, n // 4),
        [6381956970095103 * 2.0**797],  # the float64 nearest to a multiple of pi/2
    ]
    x = np.concatenate([*parts, edges(float64)])
    return np.concatenate([x, -x])


def in_mpmath(name: str, x: np.ndarray) -> np.ndarray:
    """MPMATH[name] over an array as a sum of two doubles in the widest NumPy float."""
    out = np.empty(x.shape, np.longdouble)
    with mpmath.workprec(160):
        for k, v in enumerate(x.tolist()):
            exact = MPMATH[name](mpmath.mpf(v))
            high = float(exact)
            low = float(exact - high) if math.isfinite(high) and high else 0.0
            out[k] = np.longdouble(high) + np.longdouble(low)
    return out


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("name", [n for n in UNARY if n in NUMPY] if HAS_80_BITS else [])
def test_float64_against_80_bits(name: str, points: int) -> None:
    x = float64_points(points)
    with np.errstate(all="ignore"):
        exact = NUMPY[name](x.astype(np.longdouble))
    assert_within(name, (x,), exact)


# where the function is finite, not constant, and cheap for mpmath
DOMAIN = {
    **dict.fromkeys(UNARY, (-700.0, 700.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-1.0, 1.0)),
    **dict.fromkeys(("log", "log2", "log10", "rsqrt"), (1e-300, 1e300)),
    **{"acosh": (1.0, 1e9), "log1p": (-1.0, 1e9), "erf": (-6.0, 6.0), "erfc": (-6.0, 26.5), "exp2": (-1070.0, 1020.0)},
    **dict.fromkeys(("sin", "cos", "tan"), (-1e300, 1e300)),
}


@pytest.mark.parametrize("name", UNARY)
def test_float64_against_mpmath(name: str) -> None:
    low, high = DOMAIN[name]
    x = np.concatenate([np.random.default_rng(1).uniform(low, high, 300), float64_points(100)])
    x = x[(x > low) & (x < high) & (x != 0)]
    assert_within(name, (x,), in_mpmath(name, x))


@np.errstate(all="ignore")
def pairs(dtype: np.dtype, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Random bits, powers over the whole range of results, bases near one, small integer exponents, special values."""
    rng = np.random.default_rng(11)
    integer = np.dtype(f"i{dtype.itemsize}")
    low, high = np.iinfo(integer).min, np.iinfo(integer).max
    base = np.exp(rng.normal(size=n) * np.exp(2 * rng.normal(size=n)))
    near_one = 1 + rng.normal(size=n) * 10.0 ** rng.uniform(-6 if dtype == float32 else -14, -1, n)
    top = {float32: 100.0, float64: 760.0}[dtype]
    xs = [rng.integers(low, high, n, dtype=integer).view(dtype), base, near_one, 4 * rng.normal(size=n)]
    ys = [rng.integers(low, high, n, dtype=integer).view(dtype)]
    ys += [rng.uniform(-top, top, n) / np.log(np.abs(b.astype(dtype))) for b in (base, near_one)]
    ys.append(rng.integers(-20, 20, n))
    values = [0, 1, 2, 3, 0.5, 1.5, 1 / 3, 7, 1e30, INF, NAN, 2.0**24 - 1, 2.0**53 - 1, np.finfo(dtype).tiny]
    special = np.array([*values, *(-v for v in values)])
    grid = np.meshgrid(special, special)
    x, y = (np.concatenate([*parts, g.ravel()]) for parts, g in zip((xs, ys), grid, strict=True))
    return x.astype(dtype), y.astype(dtype)


@pytest.mark.parametrize("dtype", [float32, float64] if HAS_80_BITS else [float32], ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary_functions(name: str, dtype: np.dtype) -> None:
    x, y = pairs(dtype, 20_000)
    wide = np.float64 if dtype == float32 else np.longdouble
    with np.errstate(all="ignore"):
        exact = NUMPY[name](x.astype(wide), y.astype(wide))
    assert_within(name, (x, y), exact)


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_against_mpmath(name: str) -> None:
    rng = np.random.default_rng(5)
    x, y = np.exp(3 * rng.normal(size=400)), 20 * rng.normal(size=400)
    with mpmath.workprec(160):
        exact = [MPMATH[name](mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        wide = [np.longdouble(float(e)) + np.longdouble(float(e - float(e))) for e in exact]
    assert_within(name, (x, y), np.array(wide))


SPECIAL = [
    ("exp", -INF, 0.0), ("exp", INF, INF), ("exp", -0.0, 1.0), ("exp2", 10.0, 1024.0), ("exp2", -INF, 0.0),
    ("expm1", -0.0, -0.0), ("expm1", -INF, -1.0), ("expm1", INF, INF),
    ("log", 0.0, -INF), ("log", -0.0, -INF), ("log", -1.0, NAN), ("log", 1.0, 0.0), ("log", INF, INF),
    ("log", -INF, NAN),
    ("log2", 8.0, 3.0), ("log2", 2.0**-100, -100.0), ("log10", 0.0, -INF), ("log1p", -1.0, -INF), ("log1p", -2.0, NAN),
    ("log1p", -0.0, -0.0), ("log1p", INF, INF),
    ("sin", -0.0, -0.0), ("sin", INF, NAN), ("cos", -0.0, 1.0), ("cos", -INF, NAN), ("tan", -0.0, -0.0),
    ("tan", INF, NAN),
    ("asin", 1.5, NAN), ("asin", -0.0, -0.0), ("acos", 1.0, 0.0), ("acos", -1.5, NAN), ("atan", -0.0, -0.0),
    ("sinh", -0.0, -0.0), ("sinh", -INF, -INF), ("cosh", -INF, INF), ("cosh", 0.0, 1.0),
    ("tanh", -0.0, -0.0), ("tanh", INF, 1.0), ("tanh", -INF, -1.0), ("tanh", 30.0, 1.0),
    ("asinh", -0.0, -0.0), ("asinh", -INF, -INF), ("acosh", 1.0, 0.0), ("acosh", 0.5, NAN), ("acosh", -5.0, NAN),
    ("acosh", INF, INF), ("atanh", 1.0, INF), ("atanh", -1.0, -INF), ("atanh", 1.5, NAN), ("atanh", -0.0, -0.0),
    ("erf", -0.0, -0.0), ("erf", INF, 1.0), ("erf", -INF, -1.0), ("erf", 7.0, 1.0), ("erfc", INF, 0.0),
    ("erfc", -INF, 2.0),
    ("rsqrt", 4.0, 0.5), ("rsqrt", 0.0, INF), ("rsqrt", -1.0, NAN), ("rsqrt", INF, 0.0),
    ("sigmoid", 0.0, 0.5), ("sigmoid", -INF, 0.0), ("sigmoid", INF, 1.0), ("sigmoid", 50.0, 1.0),
    *((name, NAN, NAN) for name in UNARY),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_special_values(dtype: np.dtype) -> None:
    xs: dict[str, list[float]] = {name: [x for n, x, _ in SPECIAL if n == name] for name, *_ in SPECIAL}
    found = {name: iter(run(name, np.array(x, dtype)).tolist()) for name, x in xs.items()}
    for name, x, want in SPECIAL:
        got = next(found[name])
        same = math.isnan(got) if math.isnan(want) else got == want and math.copysign(1, got) == math.copysign(1, want)
        assert same, f"{name}({x}) = {got}, want {want}"


POW_SPECIAL = [
    (1.0, NAN, 1.0), (NAN, 0.0, 1.0), (NAN, -0.0, 1.0), (-1.0, INF, 1.0), (-1.0, NAN, NAN), (0.0, -1.0, INF),
    (-0.0, -1.0, -INF), (-0.0, -2.0, INF), (-0.0, 3.0, -0.0), (-0.0, 2.5, 0.0), (0.5, INF, 0.0), (0.5, -INF, INF),
    (2.0, -INF, 0.0), (-INF, 3.0, -INF), (-INF, 0.5, INF), (-INF, -3.0, -0.0), (INF, -0.5, 0.0), (-8.0, 1 / 3, NAN),
    (-2.0, 3.0, -8.0), (3.0, 4.0, 81.0), (NAN, 1.0, NAN), (2.0, NAN, NAN),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_special_values_of_pow(dtype: np.dtype) -> None:
    x, y, want = (np.array(column, dtype) for column in zip(*POW_SPECIAL, strict=True))
    got = run("pow", x, y)
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_saturation_is_exact_and_ranges_are_kept(dtype: np.dtype) -> None:
    x = np.concatenate([np.linspace(-60, 60, 5001), np.linspace(3, 6.5, 2001), np.linspace(8, 20, 2001)]).astype(dtype)
    for name in ("tanh", "erf", "sin", "cos"):
        assert np.all(np.abs(run(name, x)) <= 1), name
    assert np.all(run("tanh", x[x > 20]) == 1) and np.all(run("erf", x[x > 6]) == 1)
    s = run("sigmoid", x)
    assert np.all((s >= 0) & (s <= 1)) and np.all(s[x > 40] == 1)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_waves_stay_within_one(dtype: np.dtype) -> None:
    """Next to a crest, where a polynomial that rounds up is beyond it."""
    step = np.arange(-3000, 3000)
    for crest in (1e-5, *(k * math.pi / 2 for k in range(1, 40))):
        x = (np.array(crest, dtype).view(f"i{dtype.itemsize}") + step).astype(f"i{dtype.itemsize}").view(dtype)
        for name in ("sin", "cos"):
            assert np.all(np.abs(run(name, x)) <= 1), f"{name} near {crest}"


# Instructions of the scalar ISA without constants, the rare side of `rarely` not counted: the cost of a fused kernel.
BUDGET = {"exp": 18, "log": 32, "tanh": 25, "sigmoid": 26, "erf": 27, "sin": 25, "cos": 25, "rsqrt": 2, "pow": 80}


class Watching(NumpyBuilder):
    """Refuses results that underflow."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return self._watched(found) if name in ("ldexp", "div") else found

    def _watched(self, found: Any) -> Any:
        def call(*args: Any) -> Any:
            result = found(*args)
            normal = (abs(result) >= np.finfo(result.dtype).tiny) | (args[0] == 0)
            assert normal.all(), "the processor takes ten times as long for it"
            return result

        return call


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["exp", "exp2", "sigmoid"])
def test_what_a_mask_leaves_out_is_not_computed(name: str, dtype: str) -> None:
    assert (TABLE[name](Watching(), np.array([-np.inf, -1e30, -2e3], dtype)) == 0).all()
    with pytest.raises(AssertionError, match="ten times"):
        TABLE[name](Watching(), np.array([{"f4": -103.0, "f8": -743.0}[dtype] * (1.4 if name == "exp2" else 1)], dtype))


class Counting(NumpyBuilder):
    """Counts the instructions that a function asks for."""

    def __init__(self) -> None:
        self.count = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("count", "dtype", "const") or name.startswith("_"):
            return found
        self.count += 1
        return (lambda condition, slow, fast: fast) if name == "rarely" else found


@pytest.mark.parametrize("name", BUDGET)
def test_instruction_budget_in_float32(name: str) -> None:
    s, x = Counting(), np.ones(1, np.float32)
    TABLE[name](s, *[x] * (2 if name in BINARY else 1))
    assert s.count <= BUDGET[name], f"{name} takes {s.count} instructions"


def test_other_dtypes_are_refused_by_name() -> None:
    for name in TABLE:
        with pytest.raises(DTypeError, match=f"{name} takes float32 or float64, got int32"):
            run(name, np.ones(1, int32))
