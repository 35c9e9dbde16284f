"""Data types in LLVM: as a value in a register, as an element in memory, alone or in lanes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import dtypes
from . import ir
from .ir import Literal as Literal

I1, I8, I32, I64 = (ir.IntType(n) for n in (1, 8, 32, 64))
PTR = ir.PointerType()
VOID = ir.VoidType()

_REGISTER = {
    dtypes.bool_: I1,
    dtypes.float32: ir.FloatType(),
    dtypes.float64: ir.DoubleType(),
    **{d: ir.IntType(8 * d.itemsize) for d in dtypes.ALL if d.kind in "iu"},
}


def register_type(dtype: np.dtype, lanes: int = 1) -> Any:
    """Type of a value: booleans are one bit, a complex number is its two parts, side by side as in memory."""
    return _lanes(_element(dtype), dtype, lanes)


def memory_type(dtype: np.dtype, lanes: int = 1) -> Any:
    """Type of an element in an array: booleans are one byte, as in NumPy."""
    return _lanes(I8 if dtype.kind == "b" else _element(dtype), dtype, lanes)


def alignment(dtype: np.dtype) -> int:
    """Bytes that the address of an array's element is a multiple of."""
    return dtypes.real_of(dtype).itemsize


def _lanes(element: Any, dtype: np.dtype, lanes: int) -> Any:
    if dtype.kind == "c":
        lanes *= 2
    return element if lanes == 1 else ir.VectorType(element, lanes)


def _element(dtype: np.dtype) -> Any:
    """Type of a number, or of a part of one. bfloat16 and float16 are their bits: they are only loaded, chosen and
    stored."""
    return _REGISTER[dtypes.uint16 if dtypes.is_narrow(dtype) else dtypes.real_of(dtype)]


def literal(value: Any, dtype: np.dtype) -> str:
    """LLVM text of a number; floats by their bits, which no decimal rounding can change."""
    if dtype.kind == "f" and dtype is not dtypes.float16:
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(np.asarray(value, dtype))))[0]:016X}"
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtypes.is_narrow(dtype):
        return str(int(np.asarray(value, dtype).view(np.uint16)))
    return str(int(value))


def literals(values: Sequence[Any], dtype: np.dtype) -> list[str]:
    """LLVM text of each number, as `literal` has it; of all at once, which for floats takes two fifths of the time."""
    if dtype in (dtypes.float32, dtypes.float64):
        bits = np.asarray(values, dtype).astype(np.float64).view(np.uint64)
        return [f"0x{number:016X}" for number in bits.tolist()]
    return [literal(value, dtype) for value in values]


def constant(value: Any, dtype: np.dtype, lanes: int = 1) -> Any:
    if dtype.kind == "c":
        element = _element(dtype)
        parts = [f"{element} {literal(part, dtypes.real_of(dtype))}" for part in (np.real(value), np.imag(value))]
        return Literal(register_type(dtype, lanes), f"<{', '.join(parts * lanes)}>")
    text = literal(value, dtype)
    if lanes == 1:
        return Literal(register_type(dtype), text)
    element = register_type(dtype)
    return Literal(register_type(dtype, lanes), f"splat ({element} {text})")
