"""Contents of the namespace: limits of data types (`finfo`, `iinfo`) and `__array_namespace_info__`.

Source: array API standard 2024.12, "Inspection" and "Data type functions". Limits are plain Python numbers.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError

from ..core.tensor import CPU, Device, Tensor

KINDS: dict[str, str] = {  # the standard's kinds -> NumPy's letters; "V" is bfloat16, a real floating dtype
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "fV",
    "complex floating": "c",
    "numeric": "iufVc",
}


@dataclass(frozen=True)
class FloatLimits:
    """Result of `finfo`: of a complex dtype, the limits of its components."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype

    @property
    def tiny(self) -> float:
        """NumPy's and PyTorch's name of `smallest_normal`."""
        return self.smallest_normal


@dataclass(frozen=True)
class IntegerLimits:
    """Result of `iinfo`: the limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: np.dtype


def dtype_of(value: Any) -> np.dtype:
    """The dtype that a tensor has, or that is meant."""
    return value.dtype if isinstance(value, Tensor) else dtypes.canonical(value)


def finfo(type: Any, /) -> FloatLimits:
    """Limits of a float or complex dtype (or of a tensor's): bits, eps, max, min, smallest_normal, dtype.

    Raises DTypeError for other dtypes. Of a complex dtype the limits are those of its real and imaginary parts.

    >>> import hybridml as hm
    >>> hm.finfo(hm.float32).eps
    1.1920928955078125e-07
    """
    dtype = dtype_of(type)
    if dtype.kind not in "fVc":
        raise DTypeError(f"finfo: {dtype.name} is no floating-point dtype; use iinfo for integers")
    limits: Any = importlib.import_module("ml_dtypes").finfo(dtype) if dtype.kind == "V" else np.finfo(dtype)
    eps, high, low, normal = (float(v) for v in (limits.eps, limits.max, limits.min, limits.smallest_normal))
    return FloatLimits(int(limits.bits), eps, high, low, normal, dtypes.canonical(limits.dtype))


def iinfo(type: Any, /) -> IntegerLimits:
    """Limits of an integer dtype (or of a tensor's): bits, max, min, dtype. Raises DTypeError for other dtypes.

    >>> import hybridml as hm
    >>> hm.iinfo(hm.int8).max
    127
    """
    dtype = dtype_of(type)
    if dtype.kind not in "iu":
        raise DTypeError(f"iinfo: {dtype.name} is no integer dtype; use finfo for floating-point ones")
    limits = np.iinfo(dtype)
    return IntegerLimits(int(limits.bits), int(limits.max), int(limits.min), dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is one of `kind`: a dtype, "bool", "signed integer", "unsigned integer", "integral", "real
    floating", "complex floating", "numeric", or a tuple of them. Raises ArgumentError for another word.

    >>> import hybridml as hm
    >>> hm.isdtype(hm.int8, "integral"), hm.isdtype(hm.float32, (hm.bool, "integral"))
    (True, False)
    """
    found = dtypes.canonical(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, k) for k in kind)
    if isinstance(kind, str):
        return found.kind in _letters("isdtype", kind)
    return found is dtypes.canonical(kind)


def _letters(name: str, kind: str) -> str:
    if kind not in KINDS:
        raise ArgumentError(f"{name}: kind must be a dtype or one of {', '.join(map(repr, KINDS))}, got {kind!r}")
    return KINDS[kind]


class NamespaceInfo:
    """Result of `__array_namespace_info__()`: what this array namespace can do."""

    def capabilities(self) -> dict[str, Any]:
        """Indexing by masks and results whose shape depends on data are there; the most axes NumPy's arrays have."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device on which tensors are made when none is named."""
        return CPU

    def devices(self) -> list[Device]:
        """All devices that `device=` takes."""
        return [CPU]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """Dtypes that Python numbers become, and the dtype of positions."""
        _check(device)
        real = dtypes.default_float()
        return {
            "real floating": real,
            "complex floating": np.result_type(real, np.complex64),
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """The standard's dtypes by name, all of them or those of `kind` (a word that `isdtype` takes, or a tuple)."""
        _check(device)
        kinds = [*KINDS] if kind is None else [kind] if isinstance(kind, str) else [*kind]
        letters = "".join(_letters("dtypes", k) for k in kinds)
        return {d.name: d for d in dtypes.ALL if d.kind in letters and d.name != "float16"}


def _check(device: Any) -> None:
    if device is not None:
        Device(device)


def __array_namespace_info__() -> NamespaceInfo:
    """Abilities of this namespace: `capabilities`, `default_device`, `default_dtypes`, `devices`, `dtypes`.

    >>> import hybridml as hm
    >>> hm.__array_namespace_info__().default_dtypes()["integral"].name
    'int64'
    """
    return NamespaceInfo()


__array_api_version__ = "2024.12"

__all__ = ["__array_api_version__", "__array_namespace_info__", "finfo", "iinfo", "isdtype"]
