"""The arithmetic of PTX on NumPy arrays: rounded as IEEE 754 says, with integers that wrap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....loops.scalar import fma32, fma64

COMPARE: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


def compare(how: str, x: np.ndarray, y: np.ndarray) -> Any:
    """A comparison; of floats, one that ends in `u` holds where one of them is nan, too."""
    if x.dtype.kind != "f":
        return COMPARE[how](x, y)
    nan = np.isnan(x) | np.isnan(y)
    if how in ("nan", "num"):
        return nan if how == "nan" else ~nan
    if len(how) == 3:
        return COMPARE[how[:2]](x, y) | nan
    return COMPARE[how](x, y) & ~nan


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray, towards_zero: bool = False) -> Any:
    """x * y + z, rounded once."""
    nearest = fma32(x, y, z) if x.dtype == np.float32 else fma64(x, y, z)
    if not towards_zero:
        return nearest
    # The exact error of the nearest float32, to within a rounding that keeps its sign: the product is exact in float64.
    error = (x.astype(np.float64) * y - nearest) + z
    away = np.isfinite(nearest) & (nearest != 0) & ((error < 0) == (nearest > 0)) & (error != 0)
    return np.where(away, np.nextafter(nearest, np.float32(0)), nearest)


def truncated_division(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(quotient, remainder) as C has them; by zero all bits of the quotient are set, as on the hardware."""
    zero = y == 0
    safe = np.where(zero, x.dtype.type(1), y)
    quotient, rest = np.floor_divide(x, safe), np.mod(x, safe)
    if x.dtype.kind == "i":
        towards_zero = (rest != 0) & ((x < 0) != (safe < 0))
        quotient = quotient + towards_zero.astype(x.dtype)
        rest = x - quotient * safe
    ones = np.array(-1, np.int64).astype(x.dtype)
    return np.where(zero, ones, quotient), np.where(zero, x, rest)


def high_product(x: np.ndarray, y: np.ndarray) -> Any:
    """The upper half of the product of twice as many bits."""
    bits = 8 * x.dtype.itemsize
    if bits < 64:
        wide = np.dtype(f"{x.dtype.kind}{x.dtype.itemsize * 2}")
        return ((x.astype(wide) * y.astype(wide)) >> wide.type(bits)).astype(x.dtype)
    a, b = x.astype(np.uint64), y.astype(np.uint64)
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    (a1, a0), (b1, b0) = (a >> half, a & mask), (b >> half, b & mask)
    middle = a1 * b0 + ((a0 * b0) >> half)
    low = (middle & mask) + a0 * b1
    high = a1 * b1 + (middle >> half) + (low >> half)
    if x.dtype.kind == "i":  # an operand below zero stands for 2^64 more than it is
        high = high - np.where(x < 0, b, np.uint64(0)) - np.where(y < 0, a, np.uint64(0))
    return high.astype(x.dtype)


def shifted(name: str, x: np.ndarray, amount: np.ndarray) -> Any:
    """x << amount or x >> amount; beyond the width only copies of the sign are left, or zeros."""
    bits = 8 * x.dtype.itemsize
    if (amount < bits).all():
        return (np.left_shift if name == "shl" else np.right_shift)(x, amount.astype(x.dtype))
    inside = np.minimum(amount, bits - 1).astype(x.dtype)
    if name == "shl":
        return np.where(amount >= bits, x.dtype.type(0), x << inside)
    beyond = x >> x.dtype.type(bits - 1) if x.dtype.kind == "i" else x.dtype.type(0)
    return np.where(amount >= bits, beyond, x >> inside)


def narrowed(x: np.ndarray, to: str) -> Any:
    """The bits of the nearest float16 or bfloat16, of two the even one; those of a nan are all set but the sign."""
    if to.startswith("f16"):
        with np.errstate(over="ignore"):
            found = x.astype(np.float16).view(np.uint16)
    else:
        bits = np.asarray(x).view(np.uint32)
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        found = ((bits.astype(np.uint64) + 0x7FFF + odd) >> np.uint64(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), found)


ROUND: dict[str, Callable[..., Any]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def convert(x: np.ndarray, dtype: np.dtype, how: tuple[str, ...]) -> Any:
    """A number as another type: floats are rounded to whole numbers as asked, and held to the integers' range; nan is 0
    in 32 bits, and where either has 64 bits the integer of the highest bit alone."""
    rounding = next((part for part in how if part in ROUND), None)
    if x.dtype.kind == "f" and rounding is not None:
        x = ROUND[rounding](x)
    if x.dtype.kind == "f" and dtype.kind in "iu":
        info, wide = np.iinfo(dtype), np.nan_to_num(x.astype(np.float64), nan=0.0)
        above, below = wide >= float(info.max), wide <= float(info.min)
        found = np.where(above | below, 0.0, wide).astype(dtype)
        found = np.where(above, dtype.type(info.max), np.where(below, dtype.type(info.min), found))
        of_nan = 1 << 8 * dtype.itemsize - 1 if 8 in (x.dtype.itemsize, dtype.itemsize) else 0
        return np.where(np.isnan(x), np.array(of_nan, f"u{dtype.itemsize}").astype(dtype), found)
    return x.astype(dtype)
