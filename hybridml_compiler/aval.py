"""Aval: the abstract value (shape, dtype) that stands for an array wherever no data is needed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from . import dtypes


@dataclass(frozen=True, slots=True)
class Aval:
    """Type of a value. `weak` marks a lifted Python scalar: it has a kind but follows the dtype of what it meets."""

    shape: tuple[int, ...]
    dtype: np.dtype
    weak: bool = False

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{dtypes.short(self.dtype)}[{dims}]" + ("~" if self.weak else "")


def of(array: np.ndarray) -> Aval:
    return Aval(array.shape, dtypes.canonical(array.dtype))


def parse(text: str) -> Aval:
    """Inverse of `str(aval)`: `f32[4,8]`, `i64[]`, `f32[]~`."""
    weak = text.endswith("~")
    name, _, rest = text.removesuffix("~").partition("[")
    dims = rest.rstrip("]")
    shape = tuple(int(d) for d in dims.split(",")) if dims else ()
    return Aval(shape, dtypes.from_short(name), weak)
