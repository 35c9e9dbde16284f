"""The data types of the framework and how they combine: array API promotion, Python scalars weak as in PyTorch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import DTypeError

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"i{n}") for n in (1, 2, 4, 8))
uint8, uint16, uint32, uint64 = (np.dtype(f"u{n}") for n in (1, 2, 4, 8))
float16, float32, float64 = (np.dtype(f"f{n}") for n in (2, 4, 8))
complex64, complex128 = np.dtype("c8"), np.dtype("c16")

_SHORT = {
    bool_: "bool",
    **{np.dtype(f"i{n}"): f"i{8 * n}" for n in (1, 2, 4, 8)},
    **{np.dtype(f"u{n}"): f"u{8 * n}" for n in (1, 2, 4, 8)},
    float16: "f16",
    float32: "f32",
    float64: "f64",
    complex64: "c64",
    complex128: "c128",
}
_BY_SHORT = {name: dtype for dtype, name in _SHORT.items()}
ALL: tuple[np.dtype, ...] = tuple(d for d in _SHORT if d is not float16)  # that rows compute in
_CANONICAL: dict[Any, np.dtype] = {d: d for d in _SHORT}

# bfloat16 and float16 are ways to store: 8 bits of precision in the range of float32, and 11 up to 65504. Rows compute
# in float32 and round their results (the front end puts the casts around them, see `hybridml.core.dispatch`), products
# read bfloat16 in place, and float16 where the target can (`Capabilities.halves`). The type of bfloat16 comes from
# ml_dtypes, which is imported when it is first named. NumPy's kind of such a type is "V".
_BFLOAT16 = "bfloat16"


def __getattr__(name: str) -> np.dtype:
    if name != _BFLOAT16:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[_BFLOAT16] = _load_bfloat16()
    return found


def _load_bfloat16() -> np.dtype:
    try:
        import ml_dtypes
    except ImportError:
        raise DTypeError("bfloat16 needs the package ml_dtypes; pip install ml_dtypes") from None
    dtype: np.dtype = np.dtype(ml_dtypes.bfloat16)
    _SHORT[dtype], _BY_SHORT["bf16"], _CANONICAL[dtype] = "bf16", dtype, dtype
    return dtype


# Kinds in promotion order: a value of a higher kind decides the dtype (int64 + float32 -> float32, as PyTorch and JAX;
# NumPy's float64 there would silently double the cost of a float32 program).
_KIND_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}
INEXACT = "fVc"  # kinds of dtypes that have gradients

_default_float = float32
default_bits = ctypes.c_int64(32)  # of the default float, for native code to compare


def widens(source: np.dtype, target: np.dtype) -> bool:
    """Whether a cast is one that products of narrow operands make themselves (see the CPU's low_precision.py): those of
    float16 do on some targets alone."""
    if target is float32:
        return is_narrow(source)
    return target is int32 and source.kind in "iu" and source.itemsize == 1


def default_float() -> np.dtype:
    return _default_float


def set_default_float(dtype: Any) -> None:
    """dtype of float literals and of `zeros`, `ones`, ... when none is asked for. float32 or float64."""
    global _default_float
    new = canonical(dtype)
    if new.kind != "f" or is_narrow(new):
        raise DTypeError(f"set_default_dtype: needs float32 or float64, got {new.name}")
    _default_float = new
    default_bits.value = 8 * new.itemsize


def canonical(dtype: Any) -> np.dtype:
    """The one dtype object for `dtype`, so that `is` compares dtypes (unpickled arrays carry copies)."""
    found = _CANONICAL.get(dtype) if isinstance(dtype, np.dtype) else None
    if found is not None:
        return found
    try:
        wanted = _load_bfloat16() if _names_bfloat16(dtype) else np.dtype(dtype)
    except TypeError:
        shape = " (a shape is one argument, as in zeros((2, 3)))" if isinstance(dtype, int) else ""
        raise DTypeError(f"{dtype!r} is not a data type{shape}; use one of {_names()}") from None
    native = wanted.newbyteorder("=")
    if native not in _CANONICAL:
        raise DTypeError(f"dtype {wanted} is not supported; use one of {_names()}")
    return _CANONICAL[native]


def _names() -> str:
    return ", ".join((*(d.name for d in ALL), float16.name, _BFLOAT16))


def _names_bfloat16(dtype: Any) -> bool:
    return _BFLOAT16 in (dtype, getattr(dtype, "name", None), getattr(dtype, "__name__", None))


def short(dtype: np.dtype) -> str:
    return _SHORT[dtype]


def is_known(dtype: Any) -> bool:
    return dtype in _SHORT


def from_short(name: str) -> np.dtype:
    """The dtype of a short name; KeyError if it is none.

    >>> from_short("i32").name
    'int32'
    """
    return _load_bfloat16() if name == "bf16" else _BY_SHORT[name]


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind in "fV"


def is_narrow(dtype: np.dtype) -> bool:
    """A float that rows do not compute in."""
    return dtype.kind == "V" or dtype is float16


def is_inexact(dtype: np.dtype) -> bool:
    return dtype.kind in INEXACT


def complex_of(dtype: np.dtype) -> np.dtype:
    """The complex dtype with parts of this one."""
    return complex128 if dtype is float64 or dtype is complex128 else complex64


def real_of(dtype: np.dtype) -> np.dtype:
    """Dtype of the parts of a complex number; for a real one the dtype itself."""
    return dtype if dtype.kind != "c" else float64 if dtype is complex128 else float32


def is_integer(dtype: np.dtype) -> bool:
    return dtype.kind in "iu"


def of_scalar(value: bool | int | float | complex) -> np.dtype:
    """dtype of a Python scalar on its own: bool, int64, the default float, or the complex dtype with such parts."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, complex):
        return complex_of(_default_float)
    return int64 if isinstance(value, int) else _default_float


def result_type(items: Sequence[tuple[np.dtype, bool]], what: str = "result_type") -> np.dtype:
    """Common dtype of `(dtype, weak)` pairs: the highest kind decides; weak scalars only bring their kind. Complex is
    as wide as the widest float beside it.

    >>> result_type([(int64, False), (float32, False)]).name
    'float32'
    >>> result_type([(int32, False), (float64, True)]).name
    'float32'
    """
    strong = [d for d, weak in items if not weak]
    rank = max(_KIND_RANK[d.kind] for d, _ in items)
    deciding = [d for d in strong if _KIND_RANK[d.kind] == rank or (rank == 3 and is_float(d))]
    if rank == 3 and deciding:
        return complex_of(_common([real_of(d) for d in deciding]))
    if deciding:
        common = _common(deciding)
        if _KIND_RANK[common.kind] != rank:  # int64 with uint64: NumPy answers float64
            names = " and ".join(sorted({d.name for d in deciding}))
            raise DTypeError(f"{what}: {names} have no common integer type; cast one of them with astype")
        return canonical(common)
    return (bool_, int64, _default_float, complex_of(_default_float))[rank]


def _common(wanted: Sequence[np.dtype]) -> np.dtype:
    if len({d for d in wanted if is_narrow(d)}) > 1:  # bfloat16 and float16: neither holds the other
        wanted = [*wanted, float32]
    return np.result_type(*[d for d in wanted if not is_narrow(d)] or wanted)
