"""ShapeDtypeStruct: the type of a tensor, without one."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.record import record

_NO_RESERVE = 0x4000  # MAP_NORESERVE, which Python has no name for


@record
class ShapeDtypeStruct:
    """A shape and a dtype: what is known of a tensor that nobody has computed. Source: `jax.ShapeDtypeStruct`.

    >>> import hybridml as hm
    >>> hm.ShapeDtypeStruct((2, 3), "float32").size
    6
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "dtype", dtypes.canonical(dtype))

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name})"

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)


def untouched(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array whose pages are nowhere until they are touched: it may be larger than the memory of the machine."""
    nbytes = math.prod(shape) * dtype.itemsize
    if sys.platform != "linux" or not nbytes:
        return np.empty(shape, dtype)
    pages = mmap.mmap(-1, nbytes, flags=_NO_RESERVE | mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype).reshape(shape)
