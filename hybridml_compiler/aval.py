"""Aval: the abstract value (shape, dtype) of an array, used wherever no data is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import dtypes
from .sizes.dims import Size, hints, is_symbolic
from .sizes.values import evaluate
from .sizes.values import parse as parse_size


@dataclass(frozen=True, slots=True)
class Aval:
    """Type of a value. `weak` marks a lifted Python scalar: it has a kind but follows the dtype of its other operands.

    A size may be a `Dim` (see sizes/dims.py), which is used as an int.
    """

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

    @property
    def symbolic(self) -> bool:
        return is_symbolic(self.shape)

    @property
    def hinted(self) -> Aval:
        """The type at the sizes at hand: for costs."""
        return Aval(hints(self.shape), self.dtype) if self.symbolic else self

    def at(self, sizes: Mapping[str, int]) -> Aval:
        """The type for these values of the symbols."""
        return Aval(tuple([evaluate(n, sizes) for n in self.shape]), self.dtype, self.weak)

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{dtypes.short(self.dtype)}[{dims}]" + ("~" if self.weak else "")


def of(array: np.ndarray) -> Aval:
    return Aval(array.shape, dtypes.canonical(array.dtype))


def parse(text: str, symbols: Mapping[str, Size] | None = None) -> Aval:
    """Inverse of `str(aval)`: `f32[4,8]`, `i64[]`, `f32[]~`, and with symbols `f32[n,2*n+1]`."""
    weak = text.endswith("~")
    name, _, rest = text.removesuffix("~").partition("[")
    dims = rest.rstrip("]")
    shape: Any = tuple(int(d) if d.isdigit() else parse_size(d, symbols or {}) for d in dims.split(",")) if dims else ()
    return Aval(shape, dtypes.from_short(name), weak)
