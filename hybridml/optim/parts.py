"""Complex parameters train as pairs of real numbers, as PyTorch's do: squares and roots are those of each part."""

from __future__ import annotations

from typing import Any

from .. import arrays as xp
from ..core.tensor import Tensor


def parts(x: Tensor) -> Tensor:
    """A complex tensor (...) as its real and imaginary parts (..., 2); a real one as it is."""
    return xp.stack([xp.real(x), xp.imag(x)], axis=-1) if x.dtype.kind == "c" else x


def held_as(value: Tensor, dtype: Any) -> Tensor:
    """Value to write into a tensor of `dtype`: parts (..., 2) are one complex number again."""
    if dtype.kind == "c" and value.dtype.kind != "c":
        value = value[..., 0] + value[..., 1] * 1j
    return value if value.dtype == dtype else xp.astype(value, dtype)
