"""Arguments that layers over windows share: numbers per axis, inputs with and without a batch, windows that fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Literal

from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError

from .. import arrays as xp
from ..core.tensor import Tensor

Pair = int | Sequence[int]  # a number for each spatial axis, or one for all
Padding = Pair | Literal["same", "valid"]
LAYOUTS = {1: "(n, c, l) or (c, l)", 2: "(n, c, h, w) or (c, h, w)", 3: "(n, c, d, h, w) or (c, d, h, w)"}
_SEVERAL = {1: "one of them in a tuple", 2: "a pair of integers", 3: "three of them"}


def numbers(what: str, name: str, value: Pair, n: int) -> tuple[int, ...]:
    """Tuple of `n` integers; one number is repeated, also as the only one of a tuple."""
    try:
        found = tuple(map(index, value)) if isinstance(value, Iterable) else (index(value),)
    except TypeError:
        found = ()
    if len(found) == 1:
        return found * n
    if len(found) != n:
        raise ArgumentError(f"{what}: {name} must be an integer or {_SEVERAL[n]}, got {value!r}")
    return found


def positive(what: str, name: str, value: Pair, n: int) -> tuple[int, ...]:
    """Tuple as of `numbers`, of integers that are 1 or more (ArgumentError otherwise)."""
    found = numbers(what, name, value, n)
    if min(found) < 1:
        raise ArgumentError(f"{what}: {name} must be 1 or more at every axis, got {value!r}")
    return found


def batched(what: str, input: Tensor, dims: int) -> tuple[Tensor, bool]:
    """Pair of the input with a batch axis, and whether it had none."""
    if input.ndim == dims + 2:
        return input, False
    if input.ndim == dims + 1:
        return input[None], True
    raise ShapeError(f"{what}: input must be {LAYOUTS[dims]}, got shape {input.shape}")


def fits(what: str, x: Tensor, size: Sequence[int], around: Sequence[tuple[int, int]], dilation: Sequence[int]) -> None:
    """Raises a ShapeError if not one window fits into the padded input."""
    padded = tuple(n + low + high for n, (low, high) in zip(x.shape[2:], around, strict=True))
    if any(n < d * (k - 1) + 1 for n, k, d in zip(padded, size, dilation, strict=True)):
        raise ShapeError(
            f"{what}: the window {tuple(size)} with dilation {tuple(dilation)} is larger than the padded input "
            f"{padded}; pad more or take a smaller window"
        )


def padded(x: Tensor, around: Sequence[tuple[int, int]], value: float = 0) -> Tensor:
    """x with `around` elements of `value` at its spatial axes."""
    if all(low == high == 0 for low, high in around):
        return x
    return xp.pad(x, ((0, 0), (0, 0), *around), constant_values=value)


def real_numbers(what: str, *tensors: Tensor | None) -> None:
    """Raises a DTypeError where an argument is complex: the formula would give a complex number that means nothing."""
    for t in tensors:
        if t is not None and t.dtype.kind == "c":
            raise DTypeError(f"{what}: takes real numbers, got {t.dtype.name}; give its parts, or its abs")
