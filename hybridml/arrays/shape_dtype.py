"""ShapeDtypeStruct: the type of a tensor, without one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.record import record


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
