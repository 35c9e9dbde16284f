"""Worst errors of float rows, in units of the last place (ulp) of the exact result: measured here against mpmath and
longer floats, kept in docs/accuracy.json, published on the page of operations.

    python -m tests.support.accuracy            measures all rows and writes the file (half a minute)
    python -m tests.ops.accuracy exp sum    measures these and prints the result

Points are drawn by a fixed seed, and a test that takes fewer takes the first of them: what it finds is no more than
what is published. Where terms cancel an error is counted in ulp of the largest term (`scale`): that of a sum is the sum
of what is added up without signs.
"""

from __future__ import annotations

import json
import math
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

import hybridml as hm
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS

FILE = Path(__file__).parents[2] / "docs" / "accuracy.json"
NARROW_POINTS, WIDE_POINTS = 20_000, 400
Interval = tuple[float, float] | str
WIDE, POSITIVE = "wide", "positive"  # magnitudes from 1e-30 to 1e30, of both signs or of one


@dataclass(frozen=True)
class Reference:
    """`exact` over mpmath numbers; `families`: intervals of the operands (one for all of them, or one each)."""

    exact: Callable[..., Any]
    families: Sequence[Any] = ((-3.0, 3.0), WIDE)
    scale: Callable[..., Any] | None = None
    bits: int = 140


def _share(family: Any, count: int) -> list[Interval]:
    one = isinstance(family, str) or not isinstance(family[0], tuple | str)
    return [family] * count if one else list(family)


_EDGES = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 3.0, 1e-30, -1e-30, 1e30, -1e30)


def _drawn(rng: np.random.Generator, interval: Interval, n: int, turn: int) -> np.ndarray:
    """Edges in the interval, from the `turn`-th on so that operands differ, and random points."""
    named = {WIDE: (-1e31, 1e31), POSITIVE: (0.0, 1e31)}
    low, high = named[interval] if isinstance(interval, str) else interval
    edges = np.roll([x for x in (low, high, *_EDGES) if low <= x <= high and abs(x) < 1e31], turn)
    return np.concatenate([edges, _random(rng, interval, n)])[:n]


def _random(rng: np.random.Generator, interval: Interval, n: int) -> np.ndarray:
    if isinstance(interval, str):
        signs = rng.spawn(1)[0]  # apart, so that fewer points are the first of more
        found = 10 ** rng.uniform(-30, 30, n)
        return found if interval == POSITIVE else found * signs.choice([-1.0, 1.0], n)
    return rng.uniform(*interval, n)


def points(op: Op, dtype: str, n: int) -> list[np.ndarray]:
    """Operands of `n` points of each family."""
    reference, count = ELEMENTWISE[op.name], len(op.inputs)
    columns: list[list[np.ndarray]] = [[] for _ in range(count)]
    for k, family in enumerate(reference.families):
        for j, interval in enumerate(_share(family, count)):
            rng = np.random.default_rng((zlib.crc32(op.name.encode()), k, j))
            columns[j].append(_drawn(rng, interval, n, 3 * j))
    return [np.concatenate(parts).astype(dtype) for parts in columns]


def _spacing(size: np.ndarray, dtype: Any) -> np.ndarray:
    """The ulp of `dtype` at these sizes."""
    info = np.finfo(dtype)
    exponent = np.frexp(np.where(size > 0, size, 1.0))[1].astype(np.int64) - 1
    exponent = np.where(size > 0, np.maximum(exponent, info.minexp), info.minexp)
    return np.ldexp(np.ones((), np.longdouble), exponent - info.nmant)


def distance(got: np.ndarray, exact: np.ndarray, scale: np.ndarray | float = 0.0) -> np.ndarray:
    """|got - exact| in ulp of `got`'s dtype at the exact result, or at `scale` where it is larger; inf for a wrong nan
    or infinity."""
    exact = np.asarray(exact, np.longdouble)
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(exact), scale)
        off = np.abs(got.astype(np.longdouble) - exact) / _spacing(np.where(np.isfinite(size), size, 1.0), got.dtype)
        beyond = np.abs(exact) >= np.longdouble(info.max) * (1 + info.eps / 4)
        same = np.isnan(got) & np.isnan(exact) | np.isinf(got) & beyond & (np.signbit(got) == np.signbit(exact))
        edge = beyond & (np.abs(got) == info.max)
    return np.where(same | edge, 0.0, np.where(np.isfinite(got) & ~beyond & ~np.isnan(exact), off, math.inf))


def _run(op: Op, *operands: Any, **params: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(op.on_arrays(*operands, **params))


def _params(op: Op) -> dict[str, Any]:
    return {"order": 2} if "order" in op.params else {"of_a": 1, "of_b": 1} if "of_a" in op.params else {}


def float32_error(op: Op, n: int = NARROW_POINTS) -> float:
    """The row in float64 is exact beside float32."""
    operands = points(op, "f4", n if op.kind == "elementwise" else n // 10)
    wide = [x.astype("f8") for x in operands]
    scale = ELEMENTWISE[op.name].scale
    with np.errstate(all="ignore"):
        size = 0.0 if scale is None else np.abs(np.asarray(scale(*wide), np.float64))
    return float(distance(_run(op, *operands, **_params(op)), _run(op, *wide, **_params(op)), size).max())


def float64_error(op: Op, n: int = WIDE_POINTS) -> float:
    """Against mpmath."""
    reference, operands = ELEMENTWISE[op.name], points(op, "f8", n)
    got = _run(op, *operands, **_params(op))
    exact = np.empty(got.shape, np.longdouble)
    with mpmath.workprec(reference.bits):
        for k, values in enumerate(zip(*(x.tolist() for x in operands), strict=True)):
            try:
                value = mpmath.mpmathify(reference.exact(*map(mpmath.mpf, values)))
            except (ValueError, ZeroDivisionError):
                value = None  # a pole: what rows give there is tested by its value
            if value is None or not isinstance(value, mpmath.mpf) or mpmath.isnan(value):
                exact[k] = got[k]
                continue
            high = float(value) if abs(value) < 1e320 else math.copysign(math.inf, value)
            low = float(value - high) if math.isfinite(high) else 0.0
            exact[k] = np.longdouble(high) + np.longdouble(low)
    with np.errstate(all="ignore"):
        size = 0.0 if reference.scale is None else np.abs(np.asarray(reference.scale(*operands), np.float64))
    return float(distance(got, exact, size).max())


# ---------------------------------------------------------------- elementwise

_m = mpmath


def _by_newton(function: Callable[[Any], Any], slope: Callable[[Any], Any], start: Callable[[float], float]) -> Any:
    def value(y: Any) -> Any:
        x = _m.mpf(start(float(y)))
        for _ in range(4):
            x -= (function(x) - y) / slope(x)
        return x

    return value


def _normal(x: Any) -> Any:
    return _m.erfc(-x / _m.sqrt(2)) / 2


def _bell(x: Any) -> Any:
    return 2 * _m.exp(-x * x) / _m.sqrt(_m.pi)


def _start(name: str) -> Callable[[float], float]:
    return lambda y: float(OPS[name].on_arrays(np.array(y)))


def _gradient_of_order(a: Any, x: Any) -> Any:
    with _m.workprec(500):
        h = _m.mpf(10) ** -40
        low, middle, high = (_m.gammainc(a + k * h, 0, x, regularized=True) for k in (-1, 0, 1))
        return (low - 2 * middle + high) / h**2


def _gradient_of_both(a: Any, b: Any, x: Any) -> Any:
    with _m.workprec(400):
        h = _m.mpf(10) ** -25
        signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
        return sum(i * j * _m.betainc(a + i * h, b + j * h, 0, x, regularized=True) for i, j in signs) / (4 * h**2)


def _waves(x: np.ndarray) -> np.ndarray:
    """Of a Bessel function beyond its first zeros: the amplitude of the wave."""
    return np.where(np.abs(x) < 5, 0.0, np.sqrt(2 / (np.pi * np.maximum(np.abs(x), 1))))


def _second_waves(x: np.ndarray) -> np.ndarray:
    """The size of a Bessel function of the second kind between its zeros: the amplitude of the wave."""
    return np.sqrt(2 / (np.pi * np.maximum(x, 1)))


def _larger(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(x), np.abs(y))


ONE, ANGLES, GAMMA = ((-1.0, 1.0),), ((-4.0, 4.0), (-1e4, 1e4), WIDE), ((0.0, 3.0), (3.0, 30.0), (30.0, 170.0))
LOGARITHM = ((0.5, 2.0), POSITIVE)
PAIR = ((-3.0, 3.0), WIDE, ((-3.0, 3.0), WIDE))
ELEMENTWISE: dict[str, Reference] = {
    "add": Reference(lambda x, y: x + y, PAIR),
    "subtract": Reference(lambda x, y: x - y, PAIR),
    "multiply": Reference(lambda x, y: x * y, PAIR),
    "divide": Reference(lambda x, y: x / y, PAIR),
    "remainder": Reference(lambda x, y: x - _m.floor(x / y) * y, ((-30.0, 30.0), ((-1e6, 1e6), (-1.0, 1.0))), bits=400),
    "square": Reference(lambda x: x * x),
    "reciprocal": Reference(lambda x: 1 / x),
    "sqrt": Reference(_m.sqrt, ((0.0, 3.0), POSITIVE)),
    "rsqrt": Reference(lambda x: 1 / _m.sqrt(x), ((0.0, 3.0), POSITIVE)),
    "cbrt": Reference(lambda x: _m.sign(x) * _m.cbrt(abs(x))),
    "hypot": Reference(_m.hypot, PAIR),
    "pow": Reference(_m.power, (((0.1, 9.0), (-30.0, 30.0)), ((0.999, 1.001), (-1e4, 1e4)))),
    "exp": Reference(_m.exp, ((-3.0, 3.0), (-700.0, 700.0))),
    "exp2": Reference(lambda x: _m.mpf(2) ** x, ((-3.0, 3.0), (-1000.0, 1000.0))),
    "expm1": Reference(_m.expm1, ((-3.0, 3.0), (-1e-3, 1e-3), (-700.0, 700.0))),
    "log": Reference(_m.log, LOGARITHM),
    "log2": Reference(lambda x: _m.log(x, 2), LOGARITHM),
    "log10": Reference(_m.log10, LOGARITHM),
    "log1p": Reference(_m.log1p, ((-0.9, 3.0), (-1e-3, 1e-3), POSITIVE)),
    "sigmoid": Reference(lambda x: 1 / (1 + _m.exp(-x)), ((-9.0, 9.0), (-700.0, 700.0))),
    "sin": Reference(_m.sin, ANGLES, bits=400),
    "cos": Reference(_m.cos, ANGLES, bits=400),
    "tan": Reference(_m.tan, ANGLES, bits=400),
    "asin": Reference(_m.asin, ONE),
    "acos": Reference(_m.acos, ONE),
    "atan": Reference(_m.atan),
    "atan2": Reference(_m.atan2, PAIR),
    "sinh": Reference(_m.sinh, ((-3.0, 3.0), (-700.0, 700.0))),
    "cosh": Reference(_m.cosh, ((-3.0, 3.0), (-700.0, 700.0))),
    "tanh": Reference(_m.tanh, ((-3.0, 3.0), (-1e-3, 1e-3), (-30.0, 30.0))),
    "asinh": Reference(_m.asinh),
    "acosh": Reference(_m.acosh, ((1.0, 3.0), (1.0, 1e9))),
    "atanh": Reference(_m.atanh, ONE),
    "erf": Reference(_m.erf, ((-6.0, 6.0), (-1e-3, 1e-3))),
    "erfc": Reference(_m.erfc, ((-6.0, 10.0), (5.0, 26.0))),
    "erfcx": Reference(lambda x: _m.exp(x * x) * _m.erfc(x), ((-26.0, 2.0), (0.0, 60.0)), bits=200),
    "erfinv": Reference(_by_newton(_m.erf, _bell, _start("erfinv")), ONE, bits=200),
    "erfcinv": Reference(
        _by_newton(_m.erfc, lambda x: -_bell(x), _start("erfcinv")), ((0.0, 2.0), (0.0, 1e-6)), bits=200
    ),
    "ndtr": Reference(_normal, ((-5.0, 5.0), (-37.0, -5.0)), bits=200),
    "log_ndtr": Reference(
        lambda x: _m.log(_normal(x)) if x < 0 else _m.log1p(-_normal(-x)), ((-5.0, 8.0), (-37.0, -5.0))
    ),
    "ndtri": Reference(
        _by_newton(_normal, lambda x: _m.exp(-x * x / 2) / _m.sqrt(2 * _m.pi), _start("ndtri")),
        ((0.0, 1.0), (0.0, 1e-6)),
        bits=200,
    ),
    "gamma": Reference(_m.gamma, (*GAMMA, (-8.0, 0.0))),
    "lgamma": Reference(lambda x: _m.re(_m.loggamma(x)), (*GAMMA, (-8.0, 0.0)), lambda x: np.where(x < 0, 1.0, 0.0)),
    "digamma": Reference(_m.digamma, (*GAMMA, (-8.0, 0.0)), lambda x: np.where(x < 0, 3.0, 0.0)),
    "trigamma": Reference(lambda x: _m.psi(1, x), (*GAMMA, (-8.0, 0.0))),
    "digamma_by_order": Reference(lambda x: _m.psi(2, x), GAMMA),
    "zeta": Reference(_m.zeta, (((1.1, 6.0), (0.1, 9.0)), ((2.0, 20.0), (1.0, 50.0))), bits=400),
    "gammainc": Reference(
        lambda a, x: _m.gammainc(a, 0, x, regularized=True), (((0.1, 9.0), (0.0, 15.0)), ((40.0, 90.0), (30.0, 99.0)))
    ),
    "gammaincc": Reference(
        lambda a, x: _m.gammainc(a, x, _m.inf, regularized=True),
        (((0.1, 9.0), (0.0, 15.0)), ((40.0, 90.0), (30.0, 99.0))),
    ),
    "gammainc_by_order": Reference(_gradient_of_order, (((0.5, 9.0), (0.1, 15.0)),), lambda a, x: np.ones(a.shape)),
    "betainc": Reference(
        lambda a, b, x: _m.betainc(a, b, 0, x, regularized=True),
        (((0.1, 9.0), (0.1, 9.0), (0.01, 0.99)), ((10.0, 60.0), (10.0, 60.0), (0.3, 0.7))),
    ),
    "betainc_by_order": Reference(
        _gradient_of_both, (((0.5, 9.0), (0.5, 9.0), (0.01, 0.99)),), lambda a, b, x: np.ones(a.shape)
    ),
    "i0": Reference(lambda x: _m.besseli(0, x), ((-9.0, 9.0), (9.0, 700.0))),
    "i0e": Reference(lambda x: _m.besseli(0, x) * _m.exp(-abs(x)), ((-9.0, 9.0), (9.0, 700.0))),
    "i1": Reference(lambda x: _m.besseli(1, x), ((-9.0, 9.0), (9.0, 700.0))),
    "i1e": Reference(lambda x: _m.besseli(1, x) * _m.exp(-abs(x)), ((-9.0, 9.0), (9.0, 700.0))),
    "j0": Reference(_m.j0, ((-9.0, 9.0), (9.0, 100.0)), _waves),
    "j1": Reference(_m.j1, ((-9.0, 9.0), (9.0, 100.0)), _waves),
    "y0": Reference(lambda x: _m.bessely(0, x), ((1e-3, 9.0), (9.0, 100.0)), _second_waves),
    "y1": Reference(lambda x: _m.bessely(1, x), ((1e-3, 9.0), (9.0, 100.0)), _second_waves),
    "exp1": Reference(_m.e1, ((0.0, 3.0), (3.0, 700.0))),
    "expi": Reference(_m.ei, ((-3.0, 3.0), (3.0, 700.0), (-700.0, -3.0))),
    "logaddexp": Reference(
        lambda x, y: _m.log(_m.exp(x) + _m.exp(y)), ((-9.0, 9.0), ((-9.0, 9.0), (20.0, 60.0))), _larger
    ),
    "logaddexp2": Reference(
        lambda x, y: _m.log(_m.mpf(2) ** x + _m.mpf(2) ** y, 2), ((-9.0, 9.0), ((-9.0, 9.0), (20.0, 60.0))), _larger
    ),
}  # fmt: skip

# ---------------------------------------------------------------- sums of many terms


@dataclass(frozen=True)
class Many:
    """A row whose result is made of many terms: its operands, the result of long floats, and the size of the terms."""

    operands: Callable[[np.random.Generator], Sequence[np.ndarray]]
    exact: Callable[..., np.ndarray]
    scale: Callable[..., np.ndarray] | None = None
    params: dict[str, Any] | None = None


def _vectors(*shapes: tuple[int, ...], low: float = -1.0, high: float = 1.0) -> Any:
    return lambda rng: [rng.uniform(low, high, shape) for shape in shapes]


def _conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[:2], (1, 2))
    return np.einsum("nijgckl,klgcf->nijgf", windows, w)


def _dft(x: np.ndarray) -> np.ndarray:
    k = np.arange(x.shape[-1])
    turns = np.longdouble("6.28318530717958647692528") * (k[:, None] * k % k.size).astype(np.longdouble) / k.size
    return np.einsum("kj,...j->...k", np.exp(np.clongdouble(-1j) * turns), x)


def _added(base: np.ndarray, index: np.ndarray, updates: np.ndarray) -> np.ndarray:
    found = base.copy()
    np.add.at(found, index, updates)
    return found


def _in_slots(rng: np.random.Generator) -> Sequence[np.ndarray]:
    return rng.uniform(-1, 1, 16), rng.integers(0, 16, 1000), rng.uniform(-1, 1, 1000)


MANY: dict[str, Many] = {
    "sum": Many(_vectors((8, 1000)), lambda x: x.sum(1), lambda x: np.abs(x).sum(1), {"axis": 1}),
    "mean": Many(_vectors((8, 1000)), lambda x: x.mean(1), lambda x: np.abs(x).mean(1), {"axis": 1}),
    "prod": Many(_vectors((8, 1000), low=0.9, high=1.1), lambda x: x.prod(1), None, {"axis": 1}),
    "var": Many(_vectors((8, 1000)), lambda x: ((x - x.mean(1, keepdims=True)) ** 2).mean(1), None, {"axis": 1}),
    "cumulative_sum": Many(_vectors((8, 1000)), lambda x: x.cumsum(1), lambda x: np.abs(x).cumsum(1), {"axis": 1}),
    "cumulative_prod": Many(_vectors((8, 1000), low=0.9, high=1.1), lambda x: x.cumprod(1), None, {"axis": 1}),
    "matmul": Many(_vectors((64, 1000), (1000, 48)), lambda x, y: x @ y, lambda x, y: np.abs(x) @ np.abs(y)),
    "convolution": Many(
        _vectors((2, 12, 12, 1, 16), (3, 3, 1, 16, 8)), _conv, lambda x, w: _conv(np.abs(x), np.abs(w))
    ),
    "scatter_add": Many(
        _in_slots, _added, lambda base, index, updates: _added(np.abs(base), index, np.abs(updates)), {"axis": 0}
    ),
    "fft_c2c": Many(
        lambda rng: [rng.uniform(-1, 1, (4, 240)) + 1j * rng.uniform(-1, 1, (4, 240))],
        _dft,
        lambda x: np.full(x.shape, np.sqrt((np.abs(_dft(x)) ** 2).mean())),
        {"axes": (1,)},
    ),
    "arange": Many(
        lambda rng: [],
        lambda: np.arange(1000, dtype=np.longdouble) * np.longdouble(0.1) - 7,
        lambda: np.arange(1000) * 0.1 + 7,
    ),
    "linspace": Many(
        lambda rng: [],
        lambda: np.arange(1000, dtype=np.longdouble) / 999 * 22 - 7,
        lambda: np.arange(1000) / 999 * 22 + 7,
    ),
}
_CREATED = {
    "arange": {"start": -7.0, "stop": 93.0, "step": 0.1},
    "linspace": {"start": -7.0, "stop": 15.0, "num": 1000},
}


def many_error(op: Op, dtype: str) -> float:
    """In both styles."""
    case = MANY[op.name]
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    narrow = {"f4": {"f": "f4", "c": "c8"}, "f8": {}}[dtype]
    operands = [a.astype(narrow.get(a.dtype.kind, a.dtype)) for a in case.operands(rng)]
    long = [a.astype({"f": np.longdouble, "c": np.clongdouble}.get(a.dtype.kind, a.dtype)) for a in operands]
    exact = case.exact(*long)
    scale = 0.0 if case.scale is None else case.scale(*long)
    params = dict(case.params or {}) | _CREATED.get(op.name, {})
    if op.name in _CREATED:
        params["dtype"] = np.dtype(dtype)

    def program(*xs: hm.Tensor) -> hm.Tensor:
        return op.fn(*xs, **params)

    tensors = [hm.asarray(a) for a in operands]
    worst = 0.0
    for got in (np.asarray(program(*tensors)), np.asarray(hm.trace(program)(*tensors))):
        assert got.dtype.itemsize == np.dtype(dtype).itemsize * (2 if got.dtype.kind == "c" else 1)
        parts = [(got.real, exact.real), (got.imag, exact.imag)] if got.dtype.kind == "c" else [(got, exact)]
        worst = max(worst, *(float(distance(np.ascontiguousarray(g), e, scale).max()) for g, e in parts))
    return worst


# ---------------------------------------------------------------- rows that do not round

EXACT = frozenset({
    "positive", "negative", "abs", "relu", "sign", "floor", "ceil", "trunc", "round", "maximum", "minimum", "clip",
    "where", "after", "copysign", "real", "imag", "conj", "nextafter", "max", "min", "max_pool", "cumulative_max",
    "cumulative_min", "sort", "scatter_set", "scatter_min", "scatter_max", "frexp", "full", "eye",
})  # fmt: skip
HALF = frozenset({"astype", "ldexp"})


def is_exact(op: Op) -> bool:
    return op.name in EXACT or op.kind in ("movement", "gather", "transfer")


# Rows of floats without a figure, and why.
WITHOUT = {
    **dict.fromkeys(("solve", "solve_triangular", "cholesky", "lu", "ldl", "qr", "svd", "svdvals", "eigh", "eigvalsh",
                     "eig", "eigvals", "inv", "pinv", "cofactor", "det", "slogdet", "matrix_exp"),
                    "its error is that of the matrix: its condition number times LAPACK's backward error"),
    **dict.fromkeys(("fft_r2c", "fft_c2r"), "as fft_c2c"),
    **dict.fromkeys(("scatter_along_axis_add", "fold_windows", "unpool"), "as scatter_add"),
    "scatter_mul": "as prod",
    **dict.fromkeys(("python_power", "python_math", "python_complex"), "that of the C library, by definition"),
    **dict.fromkeys(("numpy_unary", "numpy_binary", "numpy_function"), "NumPy's, by definition"),
    **dict.fromkeys(("all_reduce", "all_reduce_wait", "reduce_scatter"), "that of adding up, in MPI's order"),
    **dict.fromkeys(("broadcast_from", "all_gather", "all_to_all"), "none: values are moved"),
    "floor_divide": "an integer: one off where the quotient rounds to it",
}  # fmt: skip


def _operands(op: Op, sample: Any) -> list[np.ndarray]:
    return list(sample.args[0] if op.variadic else sample.args)


def gives_floats(op: Op) -> bool:
    """Does it, where it is given floats?"""
    for sample in op.samples(np.random.default_rng(0)):
        if any(a.dtype.kind == "f" for a in _operands(op, sample)):
            found = (
                _run(op, *sample.args, **sample.params)
                if not op.results
                else op.on_arrays(*sample.args, **sample.params)[0]
            )
            return bool(found.dtype.kind == "f")
    return False


def sampled_error(op: Op) -> float:
    """Of float32, at the row's own samples: what a row has that nobody has written a reference for."""
    worst = 0.0
    for sample in op.samples(np.random.default_rng(0)):
        arrays = [a.astype("f4") if a.dtype.kind == "f" else a for a in _operands(op, sample)]
        if "dtype" in sample.params or not any(a.dtype.kind == "f" for a in arrays):
            continue
        wide = [a.astype("f8") if a.dtype.kind == "f" else a for a in arrays]
        given: list[Any] = [[arrays], [wide]] if op.variadic else [arrays, wide]
        narrow, exact = (_run(op, *operands, **sample.params) for operands in given)
        worst = max(worst, float(distance(narrow, exact).max(initial=0.0)))
    return max(0.5, worst)


def measured(op: Op) -> dict[str, float | bool]:
    if is_exact(op):
        return {"float32": 0.0, "float64": 0.0}
    if op.name in HALF:
        return {"float32": 0.5, "float64": 0.5}
    if op.name in MANY:
        found = {"float32": many_error(op, "f4"), "float64": many_error(op, "f8")}
        return {**found, "terms": MANY[op.name].scale is not None}
    if op.name not in ELEMENTWISE:
        return {"float32": sampled_error(op)}
    found = {"float32": max(0.5, float32_error(op)), "float64": max(0.5, float64_error(op))}
    return {**found, "terms": ELEMENTWISE[op.name].scale is not None}


def rows() -> Iterable[Op]:
    """Those that give floats and have a figure."""
    known = {*HALF, *MANY, *ELEMENTWISE}
    return [
        op
        for op in OPS.values()
        if is_exact(op) or op.name in known or (op.name not in WITHOUT and op.inputs and gives_floats(op))
    ]


def rounded_up(found: dict[str, Any]) -> dict[str, Any]:
    return {
        name: math.ceil(value * 100 - 1e-3) / 100 if isinstance(value, float) else value
        for name, value in found.items()
        if value is not False
    }


def main(names: Sequence[str]) -> None:
    chosen = [OPS[name] for name in names] or list(rows())
    found = {op.name: rounded_up(measured(op)) for op in chosen}
    text = "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)) + "\n}\n"
    if names:
        sys.stdout.write(text)
    else:
        FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
