"""Data types in CUDA C: as a value, as an element in memory, and the literals of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import dtypes

_NAMES = {
    dtypes.bool_: "bool",
    dtypes.int8: "signed char",
    dtypes.int16: "short",
    dtypes.int32: "int",
    dtypes.int64: "long long",
    dtypes.uint8: "unsigned char",
    dtypes.uint16: "unsigned short",
    dtypes.uint32: "unsigned int",
    dtypes.uint64: "unsigned long long",
    dtypes.float32: "float",
    dtypes.float64: "double",
    dtypes.complex64: "float2",
    dtypes.complex128: "double2",
}
BYTES = {name: dtype.itemsize for dtype, name in _NAMES.items()}  # of the types of C
_INTEGER_SUFFIX = {dtypes.int64: "LL", dtypes.uint32: "u", dtypes.uint64: "ULL"}


def c_type(dtype: np.dtype) -> str:
    """The type of a value; float16 and bfloat16 are their bits, which are only loaded, chosen and stored."""
    return _NAMES[dtypes.uint16 if dtypes.is_narrow(dtype) else dtype]


def c_unsigned(dtype: np.dtype) -> str:
    """The type that an integer type's arithmetic wraps in, for overflow of signed C is undefined. Narrow ones are
    computed in 32 bits."""
    return c_type(dtypes.uint64 if dtype.itemsize == 8 else dtypes.uint32)


def literal(value: Any, dtype: np.dtype) -> str:
    """C text of a number, which has the value's own bits."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtypes.is_narrow(dtype):
        return str(int(np.asarray(value).astype(dtype).view(np.uint16)))
    if dtype.kind == "c":
        parts = (literal(part, dtypes.real_of(dtype)) for part in (np.real(value), np.imag(value)))
        return f"make_{c_type(dtype)}({', '.join(parts)})"
    if dtype.kind == "f":
        return _float_literal(np.asarray(value).astype(dtype)[()])
    value, suffix = int(value), _INTEGER_SUFFIX.get(dtype, "")
    least = int(np.iinfo(dtype).min)
    if value == least and dtype in (dtypes.int32, dtypes.int64):  # C has no literals of negative numbers
        return f"(-{-(value + 1)}{suffix} - 1)"
    return f"{value}{suffix}"


def _float_literal(number: Any) -> str:
    single = number.dtype == np.float32
    if not np.isfinite(number):  # no header, no INFINITY
        bits = int(number.view(np.uint32 if single else np.uint64))
        return f"__uint_as_float(0x{bits:08x}u)" if single else f"__longlong_as_double(0x{bits:016x}LL)"
    text = str(number)  # the shortest digits that give the number back
    if not any(mark in text for mark in ".e"):
        text += ".0"
    return f"{text}f" if single else text
