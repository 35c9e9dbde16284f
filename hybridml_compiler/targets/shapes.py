"""Sizes that come with the call: the shapes of a program whose graph has symbols for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..aval import Aval
from ..sizes.dims import LEAST, Size, is_dim
from ..sizes.guards import Guard
from ..sizes.values import check_of, function_of, number_of


class Shapes:
    """Shapes of the arrays of a call: the values of the symbols, and all sizes that follow from those."""

    def __init__(
        self,
        inputs: Sequence[Aval],
        outputs: Sequence[Aval],
        arena_bytes: Size,
        guards: Sequence[Guard],
        exact: Callable[[Mapping[str, int]], Any],
        most: int = 64,
    ) -> None:
        """`exact` compiles for given sizes; so many of these programs are kept."""
        where: dict[str, tuple[int, int]] = {}
        for k, aval in enumerate(inputs):
            for axis, size in enumerate(aval.shape):
                name = str(size)
                if is_dim(size) and name.isidentifier():
                    where.setdefault(name, (k, axis))
        self.names = sorted(where, key=number_of)
        self.table = max(map(number_of, self.names), default=-1) + 1
        self.where = [where[name] for name in self.names]
        self.guards = guards
        self.hold = check_of(self.names, [*guards, *(f"{name} >= {LEAST}" for name in self.names)])
        self.inputs = function_of(self.names, [aval.shape for aval in inputs])
        self.sizes = function_of(self.names, [*(aval.shape for aval in outputs), arena_bytes])
        self._exact, self._most = exact, most
        self._programs: dict[tuple[int, ...], Any] = {}

    def values(self, arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
        return tuple([arrays[k].shape[axis] for k, axis in self.where])

    def table_of(self, values: tuple[int, ...]) -> np.ndarray:
        """The values as compiled code reads them."""
        table = np.zeros(self.table, np.int64)
        for name, value in zip(self.names, values, strict=True):
            table[number_of(name)] = value
        return table

    def exact(self, values: tuple[int, ...]) -> Any:
        """The executable for these sizes alone."""
        found = self._programs.get(values)
        if found is None:
            if len(self._programs) >= self._most:
                self._programs.pop(next(iter(self._programs)))
            found = self._programs[values] = self._exact(dict(zip(self.names, values, strict=True)))
        return found
