"""Rows that make an array from nothing but parameters, and the triangle rows.

`zeros` and `ones` are calls of `full`. Float sequences are computed in float64 and rounded once, so that
`arange(0, 1, 0.1)` has the same bits in both styles.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..compile_policy import OPERATION
from ..errors import ArgumentError, ShapeError
from ..hooks import hooks
from ..sizes.dims import Dim, hint, is_dim
from .conversion import cast, convert
from .indexing import Index, Load, Scalar
from .op import REQUIRED, Op
from .samples import cases, fails
from .shapes import count, integer, positions, shape_tuple

Number = bool | int | float | Dim


def number(name: str, what: str, value: Any) -> Number:
    """A Python number from a Python or NumPy one: parameters of the graph are hashable and print the same."""
    found = value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value
    if not isinstance(found, bool | int | float | Dim):
        raise ArgumentError(f"{name}: {what} must be a number, got {value!r}; use float() or int()")
    return found if type(found) in (bool, int, float, Dim) else int(found) if isinstance(found, int) else float(found)


def number_dtype(dtype: Any, *values: Number | complex) -> np.dtype:
    """The dtype asked for, else that of the highest kind among the numbers."""
    if dtype is not None:
        return dtypes.canonical(dtype)
    return dtypes.result_type([(dtypes.of_scalar(hint(v)), True) for v in values])


# ---------------------------------------------------------------- full


def _full_canon(shape: Any, value: Any, dtype: Any) -> dict[str, Any]:
    is_complex = isinstance(value, complex | np.complexfloating)
    fill: Any = complex(value) if is_complex else number("full", "value", value)
    wanted = number_dtype(dtype, fill)
    if is_complex and wanted.kind != "c":
        raise ArgumentError(f"full: {wanted.name} cannot hold {value}; use a complex dtype or its real part")
    if is_dim(fill):  # a size as a number
        return {"shape": shape_tuple("full", shape), "value": fill, "dtype": wanted}
    if wanted.kind in "iu" and not (math.isfinite(fill) and np.iinfo(wanted).min <= fill <= np.iinfo(wanted).max):
        raise ArgumentError(f"full: {wanted.name} cannot hold {fill}; use a float dtype or a value in its range")
    with np.errstate(over="ignore"):  # 1e300 is inf in float32
        fill = wanted.type(fill).item()
    return {"shape": shape_tuple("full", shape), "value": fill, "dtype": wanted}


def _full_eager(shape: Any, value: Any, dtype: Any) -> np.ndarray:
    if not isinstance(dtype, np.dtype):
        shape, value, dtype = _full_canon(shape, value, dtype).values()
    if math.prod(shape) >= OPERATION:
        one = np.ndarray(shape, dtype, np.array(value, dtype), strides=(0,) * len(shape))
        return hooks.materialized(one)
    found = np.empty(shape, dtype)
    found.fill(value)  # a third of the time of np.full
    return found


def _full_infer(shape: Any, value: Any, dtype: Any) -> Aval:
    p = _full_canon(shape, value, dtype)
    return Aval(p["shape"], p["dtype"])


full = Op(
    "full",
    "creation",
    inputs=(),
    params={"shape": REQUIRED, "value": REQUIRED, "dtype": None},
    canon=_full_canon,
    infer=_full_infer,
    eager=_full_eager,
    lower=lambda s, i, shape, value, dtype: s.const(value, dtype),
    samples=cases(
        ((), {"shape": (3, 4), "value": 0.0}),
        ((), {"shape": (), "value": True}),
        ((), {"shape": 3, "value": 7, "dtype": "uint8"}),
        ((), {"shape": (2, 0), "value": float("nan"), "dtype": "float64"}),
        ((), {"shape": (2,), "value": float("-inf"), "dtype": "float32"}),
        ((), {"shape": (2,), "value": 1 - 2j}),
        ((), {"shape": (2,), "value": 0.0, "dtype": "complex128"}),
        dtypes="f8",
    ),
    error_samples=lambda: (
        fails(ArgumentError, "full: float32 cannot hold 1j", shape=(2,), value=1j, dtype="float32"),
        fails(ShapeError, "full: a size cannot be negative", shape=(2, -1), value=0.0),
        fails(ArgumentError, "full: value must be a number", shape=(2,), value="0"),
        fails(ArgumentError, "full: uint8 cannot hold -1", shape=(2,), value=-1, dtype="uint8"),
        fails(ArgumentError, "full: shape must be an integer", shape=(2.5,), value=0.0),
    ),
    doc="An array of `shape` filled with the number `value`; without `dtype`, that of the number's kind.",
)

# ---------------------------------------------------------------- arange, linspace


def _arange_canon(start: Any, stop: Any, step: Any, dtype: Any) -> dict[str, Any]:
    if stop is None:
        start, stop = 0, start
    first, last, by = (number("arange", n, v) for n, v in (("start", start), ("stop", stop), ("step", step)))
    if by == 0:
        raise ArgumentError("arange: step must not be 0; use a positive or negative step")
    if not all(math.isfinite(v) for v in (first, last, by) if not is_dim(v)):
        raise ArgumentError(f"arange: needs finite numbers, got start={first}, stop={last}, step={by}")
    return {"start": first, "stop": last, "step": by, "dtype": number_dtype(dtype, first, last, by)}


def _arange_size(start: Number, stop: Number, step: Number) -> int:
    if all(isinstance(v, int | Dim) for v in (start, stop, step)):
        return count(positions(start, stop, step))
    return max(0, math.ceil((stop - start) / step))


def _arange_infer(start: Any, stop: Any, step: Any, dtype: Any) -> Aval:
    p = _arange_canon(start, stop, step, dtype)
    return Aval((_arange_size(p["start"], p["stop"], p["step"]),), p["dtype"])


def _arange_eager(start: Any, stop: Any, step: Any, dtype: Any) -> np.ndarray:
    if stop is None or not isinstance(dtype, np.dtype):
        found = _arange_canon(start, stop, step, dtype)
        start, stop, step, dtype = found["start"], found["stop"], found["step"], found["dtype"]
    whole = isinstance(start, int) and isinstance(step, int)
    if whole and isinstance(stop, int) and dtype is dtypes.int64:
        counted: np.ndarray = np.arange(int(start), stop, int(step), dtype=np.int64)
        return counted
    wide = dtypes.int64 if whole else dtypes.float64
    positions = np.arange(_arange_size(start, stop, step), dtype=wide)
    return cast(np.asarray(positions * wide.type(step) + wide.type(start)), dtype)


def _arange_lower(s: Any, i: Index, start: Number, stop: Number, step: Number, dtype: np.dtype) -> Scalar:
    wide = dtypes.int64 if isinstance(start, int | Dim) and isinstance(step, int | Dim) else dtypes.float64
    scaled = s.mul(s.cast(i[0], wide), s.const(step, wide))
    return convert(s, s.add(scaled, s.const(start, wide)), wide, dtype)


arange = Op(
    "arange",
    "creation",
    inputs=(),
    params={"start": REQUIRED, "stop": None, "step": 1, "dtype": None},
    canon=_arange_canon,
    infer=_arange_infer,
    eager=_arange_eager,
    lower=_arange_lower,
    samples=cases(
        ((), {"start": 7}),
        ((), {"start": 2, "stop": 17, "step": 3, "dtype": "float32"}),
        ((), {"start": 5, "stop": -5, "step": -2}),
        ((), {"start": 0.0, "stop": 1.0, "step": 0.1}),
        ((), {"start": 3, "stop": 3}),
        dtypes="f8",
    ),
    error_samples=lambda: (
        fails(ArgumentError, "arange: step must not be 0", start=0, stop=3, step=0),
        fails(ArgumentError, "arange: needs finite numbers", start=0.0, stop=float("inf")),
    ),
    doc="start, start + step, ... up to but without stop; `arange(n)` counts from 0. "
    "Element i is start + i * step in float64 (not NumPy's rounded step), so no error builds up.",
)


def _linspace_canon(start: Any, stop: Any, num: Any, endpoint: bool, dtype: Any) -> dict[str, Any]:
    count = integer("linspace", "num", num)
    if count < 0:
        raise ArgumentError(f"linspace: num must be 0 or more, got {count}")
    ends = {"start": float(number("linspace", "start", start)), "stop": float(number("linspace", "stop", stop))}
    wanted = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    return {**ends, "num": count, "endpoint": bool(endpoint), "dtype": wanted}


def _linspace_infer(start: Any, stop: Any, num: Any, endpoint: bool, dtype: Any) -> Aval:
    p = _linspace_canon(start, stop, num, endpoint, dtype)
    return Aval((p["num"],), p["dtype"])


def _linspace_step(start: float, stop: float, num: int, endpoint: bool) -> float:
    return (stop - start) / max(1, num - 1 if endpoint else num)


def _linspace_eager(start: Any, stop: Any, num: Any, endpoint: bool, dtype: Any) -> np.ndarray:
    p = _linspace_canon(start, stop, num, endpoint, dtype)
    first, last, n = p["start"], p["stop"], p["num"]
    out: np.ndarray = np.arange(n, dtype="f8") * _linspace_step(first, last, n, p["endpoint"]) + first
    if p["endpoint"] and n > 1:
        out[-1] = last
    return cast(out, p["dtype"])


def _linspace_lower(s: Any, i: Index, start: float, stop: float, num: int, endpoint: bool, dtype: np.dtype) -> Scalar:
    f8 = dtypes.float64
    step = s.const(_linspace_step(start, stop, num, endpoint), f8)
    value = s.add(s.mul(s.cast(i[0], f8), step), s.const(start, f8))
    if endpoint and num > 1:
        value = s.select(s.eq(i[0], num - 1), s.const(stop, f8), value)
    return convert(s, value, f8, dtype)


linspace = Op(
    "linspace",
    "creation",
    inputs=(),
    params={"start": REQUIRED, "stop": REQUIRED, "num": 50, "endpoint": True, "dtype": None},
    canon=_linspace_canon,
    infer=_linspace_infer,
    eager=_linspace_eager,
    lower=_linspace_lower,
    samples=cases(
        ((), {"start": 0.0, "stop": 1.0, "num": 17}),
        ((), {"start": 3, "stop": -1, "num": 5, "endpoint": False, "dtype": "float64"}),
        ((), {"start": 2.0, "stop": 4.0, "num": 1}),
        ((), {"start": 2.0, "stop": 4.0, "num": 0}),
        dtypes="f8",
    ),
    error_samples=lambda: (fails(ArgumentError, "linspace: num must be 0 or more", start=0.0, stop=1.0, num=-1),),
    doc="`num` evenly spaced numbers from start to stop (with `endpoint`, stop itself, exactly), computed in float64.",
)

# ---------------------------------------------------------------- eye and triangles


def _eye_canon(n: Any, m: Any, k: Any, dtype: Any) -> dict[str, Any]:
    rows = integer("eye", "n", n)
    shape = shape_tuple("eye", (rows, rows if m is None else m))
    wanted = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    return {"n": shape[0], "m": shape[1], "k": integer("eye", "k", k), "dtype": wanted}


def _eye_infer(n: Any, m: Any, k: Any, dtype: Any) -> Aval:
    p = _eye_canon(n, m, k, dtype)
    return Aval((p["n"], p["m"]), p["dtype"])


eye = Op(
    "eye",
    "creation",
    inputs=(),
    params={"n": REQUIRED, "m": None, "k": 0, "dtype": None},
    canon=_eye_canon,
    infer=_eye_infer,
    eager=lambda n, m, k, dtype: np.eye(n, m, k, dtype=dtypes.default_float() if dtype is None else dtype),
    lower=lambda s, i, n, m, k, dtype: convert(s, s.eq(s.add(i[0], k), i[1]), dtypes.bool_, dtype),
    samples=cases(
        ((), {"n": 3}),
        ((), {"n": 3, "m": 5, "k": 1, "dtype": "int64"}),
        ((), {"n": 4, "m": 2, "k": -1, "dtype": "bool"}),
        ((), {"n": 0}),
        dtypes="f8",
    ),
    error_samples=lambda: (fails(ShapeError, "eye: a size cannot be negative", n=-1),),
    doc="The n x m matrix (square without `m`) with ones on diagonal `k` and zeros elsewhere.",
)


def _triangle(name: str, kept: str, numpy_function: Any, words: str) -> Op:
    def infer(x: Aval, k: Any) -> Aval:
        if x.ndim < 2:
            raise ShapeError(f"{name}: needs at least 2 dimensions, got {x}; reshape it to a matrix")
        return Aval(x.shape, x.dtype)

    def lower(s: Any, i: Index, x: Load, k: int) -> Scalar:
        return s.select(getattr(s, kept)(i[-1], s.add(i[-2], k)), x(i), s.const(0, x.dtype))

    return Op(
        name,
        "movement",
        inputs=("x",),
        params={"k": 0},
        canon=lambda x, k: {"k": integer(name, "k", k)},
        infer=infer,
        eager=numpy_function,
        lower=lower,
        vjp=(lambda g, k: getattr(g, name)(k=k),),
        memory_order="operands",
        samples=cases(([(4, 4)], {}), ([(2, 3, 5)], {"k": 1}), ([(5, 3)], {"k": -2}), ([(0, 3)], {})),
        error_samples=lambda: (fails(ShapeError, f"{name}: needs at least 2 dimensions", (3,)),),
        method=name,
        doc=f"The matrices of the last two axes, with zeros {words} diagonal `k`.",
    )


tril = _triangle("tril", "le", np.tril, "above")
triu = _triangle("triu", "ge", np.triu, "below")

ROWS = (full, arange, linspace, eye, tril, triu)
