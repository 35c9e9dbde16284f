"""Data types, constants and how they combine: `result_type`, `can_cast`, the default dtype (limits: inspection.py)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.dtypes import bool_ as bool
from hybridml_compiler.dtypes import (
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.sizes.dims import Dim, hint

from ..core.aliasing import is_python_float
from ..core.context import switches
from ..core.tensor import Device, Tensor, default_device_var, place_var
from .inspection import dtype_of

e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None


def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The dtype that an operation on these tensors, dtypes and Python numbers has.

    Numbers have no width: they take that of a tensor or dtype of their kind. Raises ArgumentError for no arguments.

    >>> import hybridml as hm
    >>> hm.result_type(hm.int8, hm.uint8, 3).name, hm.result_type(hm.float64, 1j).name
    ('int16', 'complex128')
    """
    if not arrays_and_dtypes:
        raise ArgumentError("result_type: needs at least one tensor, dtype or number")
    items = []
    for x in arrays_and_dtypes:
        if isinstance(x, Tensor):
            items.append((x.dtype, is_python_float(x)))
        elif isinstance(x, int | float | complex | Dim):
            items.append((dtypes.of_scalar(hint(x)), True))
        else:
            items.append((dtypes.canonical(x), False))
    return dtypes.result_type(items)


def can_cast(from_: Any, to: Any, /) -> Any:
    """Whether one dtype (or a tensor's) can be cast to another by promotion: NumPy's safe casts.

    >>> import hybridml as hm
    >>> hm.can_cast(hm.int8, hm.int16), hm.can_cast(hm.int64, hm.float32)
    (True, False)
    """
    return np.can_cast(dtype_of(from_), dtypes.canonical(to))


def get_default_dtype() -> np.dtype:
    """dtype of float literals and of `zeros`, `ones`, ...; float32 unless changed.

    >>> import hybridml as hm
    >>> hm.get_default_dtype().name
    'float32'
    """
    return dtypes.default_float()


def set_default_dtype(dtype: Any) -> None:
    """Makes float32 or float64 the dtype of float literals.

    Programs that were traced before are compiled again. Raises DTypeError for another dtype.

    >>> import hybridml as hm
    >>> hm.set_default_dtype(hm.float32)
    """
    dtypes.set_default_float(dtype)
    switches.value += 1


def device(type: Any = "cpu") -> Device:
    """A device by name. In a `with` statement it is the default device: what is created inside is there, parameters of
    modules and random numbers too, unless `device=` or operands say otherwise.

    Raises ArgumentError where there is none of this name.

    >>> import hybridml as hm
    >>> with hm.device("reference"):
    ...     t = hm.zeros(2)
    >>> t.device, hm.zeros(2).device == hm.device("cpu")
    (device('reference'), True)
    """
    return type if isinstance(type, Device) else Device(type)


def get_default_device() -> Device:
    """The device of what is created without another word: that of the innermost `with hm.device(...)`, or what
    `set_default_device` set.

    >>> import hybridml as hm
    >>> hm.get_default_device()
    device('cpu')
    """
    return Device(default_device_var.get().place)


def set_default_device(device: Any) -> None:
    """Makes a device the default one: of this thread, and to the end of the `with hm.device(...)` around it. None: the
    CPU.

    Raises ArgumentError where there is none of this name.

    >>> import hybridml as hm
    >>> hm.set_default_device("reference")
    >>> hm.ones(2).device
    device('reference')
    >>> hm.set_default_device("cpu")
    """
    place = Device(device).place
    default_device_var.set(default_device_var.get()._replace(place=place))
    place_var.set(place)


__all__ = [
    "bool", "can_cast", "complex64", "complex128", "device", "e", "float16", "float32", "float64",
    "get_default_device", "get_default_dtype", "inf", "int8", "int16", "int32", "int64", "nan", "newaxis", "pi",
    "result_type",
    "set_default_device", "set_default_dtype", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
