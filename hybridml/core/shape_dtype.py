"""ShapeDtypeStruct: the type of a tensor, without one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hybridml_compiler import dtypes


@dataclass(frozen=True)
class ShapeDtypeStruct:
    """A shape and a dtype: what is known of a tensor that nobody has computed. Source: `jax.ShapeDtypeStruct`.

    >>> import hybridml as hm
    >>> hm.ShapeDtypeStruct((2, 3), "float32").size
    6
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", dtypes.canonical(self.dtype))

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)
