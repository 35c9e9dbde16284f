"""Scalars: the numbers of an update, computed once in float64 and cast once for each dtype of parameter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .. import arrays as xp
from ..core.tensor import Tensor


class Scalars:
    """``Scalars(lr=t, ...).of(dtype).lr``; a vector (one number per parameter) is cast as a whole."""

    def __init__(self, **numbers: Tensor) -> None:
        self._numbers = numbers
        self._vectors = [name for name, number in numbers.items() if number.shape]
        self._cast: dict[Any, SimpleNamespace] = {}

    def of(self, dtype: Any) -> SimpleNamespace:
        found = self._cast.get(dtype)
        if found is None:
            found = SimpleNamespace(**{name: xp.astype(number, dtype) for name, number in self._numbers.items()})
            self._cast[dtype] = found
        return found

    def at(self, dtype: Any, place: int | slice) -> SimpleNamespace:
        """The numbers of one parameter: of every vector the entry, or with a slice the part, at `place`."""
        found = self.of(dtype)
        if not self._vectors:
            return found
        return SimpleNamespace(**{**vars(found), **{name: getattr(found, name)[place] for name in self._vectors}})
