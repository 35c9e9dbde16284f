"""A micro-kernel as it is emitted: sums that stay in vector registers while loops go over what is added up.

Its rows are broadcast from the left operand, its columns are vectors of the right one (Goto and van de Geijn, "Anatomy
of high-performance matrix multiplication", 2008). Every element is one chain of fused multiply-adds in the order of the
loops: neither the shape of a tile, nor its place, nor the width of a vector can change a bit of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...kernels.low_precision import FLOATS, Format
from .. import ir
from .emission import internal
from .loops import i64, loop
from .vectors import Vectors
from .words import multiply_add

Sums = list[Any]  # of a row its vectors, then those of the next row


class Axis(NamedTuple):
    """A loop of a sum: its ends, and elements from a step to the next in the left operand and in the right one."""

    low: Any
    high: Any
    left: int
    right: int


class MicroKernel:
    """An internal function; `vectors` of `lanes` are the columns of a tile, of words in a format."""

    def __init__(
        self,
        module: ir.Module,
        name: str,
        arguments: Sequence[Any],
        dtype: np.dtype,
        lanes: int,
        vectors: int = 1,
        how: Format = FLOATS,
    ) -> None:
        self.function = internal(module, name, arguments)
        self.args = self.function.args
        self.b = self.function.build()
        self.v = Vectors(self.b, dtype, lanes)
        self.vectors, self.how = vectors, how

    def zeros(self, rows: int) -> Sums:
        return [self.v.zero] * (rows * self.vectors)

    def over(
        self, axes: Sequence[Axis], left: Any, right: Any, sums: Sums, body: Callable[[Any, Any, Sums], Sums]
    ) -> Sums:
        """`body(left, right, sums)` in loops over the axes, the first one outermost."""
        if not axes:
            return body(left, right, sums)
        axis = axes[0]

        def step(k: Any, sums: Sums) -> Sums:
            here, there = self.v.at(left, (k, axis.left)), self.v.at(right, (k, axis.right))
            return self.over(axes[1:], here, there, sums, body)

        return loop(self.b, axis.low, axis.high, 1, sums, step)

    def outer(self, down: Iterable[Any], across: Sequence[Any], sums: Sums) -> Sums:
        """The sums with the products of a number of each row, in all lanes, and of a row of vectors added to them."""
        updated: Sums = []
        for value in down:
            updated += [multiply_add(self.b, self.how, value, x, sums[len(updated) + j]) for j, x in enumerate(across)]
        return updated

    def across(self, right: Any, masks: Sequence[Any] | None = None) -> list[Any]:
        return self.v.row(right, masks or [None] * self.vectors)

    def down(self, left: Any) -> Any:
        """A number in all lanes."""
        return self.v.splat(self.v.scalar(left))

    def where(self, condition: Any, sums: Sums, body: Callable[[Sums], Sums]) -> Sums:
        """`body(sums)` where the condition holds."""
        before = self.b.block
        with self.b.if_then(condition):
            computed = body(sums)
            after = self.b.block
        return [self.v.merge((x, before), (y, after)) for x, y in zip(sums, computed, strict=True)]

    def put(self, out: Any, rows: Sequence[int], masks: Sequence[Any], sums: Sums, unless: Any = None) -> None:
        """Stores each row there in the result, added to what is there but `unless` this holds."""
        places = [self.v.element(out, i64(row + j * self.v.lanes)) for row in rows for j in range(self.vectors)]
        masks = [*masks] * len(rows)
        if unless is not None:
            sums = self.v.add_to(places, masks, sums, unless=unless)
        for value, place, mask in zip(sums, places, masks, strict=True):
            self.v.store(value, place, mask)

    def store(self, out: Any, rows: Sequence[int], masks: Sequence[Any], sums: Sums, unless: Any = None) -> ir.Function:
        """Ends the function with a store of all sums."""
        self.put(out, rows, masks, sums, unless)
        self.b.ret_void()
        return self.function
