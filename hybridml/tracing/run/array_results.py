"""Arrays that a call returns, in the memory that it has made for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybridml_compiler.record import record
from hybridml_compiler.sizes.values import bindings, substitute

from ...core import aliasing
from ...core.tensor import Tensor
from ..capture.program_arrays import ProgramScalar

Steps = tuple[tuple[Any, dict[str, Any]], ...]  # rows that make a view, outermost last, with their parameters


@record
class Placed:
    """Place of an array that is returned, in the memory that a call has made for it; or that it is a scalar."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int  # in bytes
    is_scalar: bool
    dtype: np.dtype  # of a part of complex numbers it is not that of the memory

    @staticmethod
    def of(value: Any) -> Placed:
        array, owner = value._array, value._memory.owner
        start = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        return Placed(array.shape, array.strides, start, type(value) is ProgramScalar, array.dtype)

    def of_memory(self, block: np.ndarray) -> Any:
        """The array, or scalar, in a block of C order."""
        if self.is_scalar:
            return block.reshape(-1)[0]
        if (self.shape, self.strides, self.dtype) == (block.shape, block.strides, block.dtype):
            return block
        return np.ndarray(self.shape, self.dtype, block, self.start, self.strides)


@record
class PlacedView:
    """Place of an array of a size that comes with the call: the operations that make the view, of memory of this
    shape."""

    shape: tuple[Any, ...]
    steps: Steps

    def of_memory(self, block: np.ndarray) -> np.ndarray:
        """The array in a block of C order."""
        sizes = bindings([self.shape], [block.shape]) if self.steps else {}
        for op, params in self.steps:
            block = op.eager(block, **{name: substitute(value, sizes) for name, value in params.items()})
        return block


def placed(value: Any) -> tuple[Tensor, Placed | PlacedView]:
    """The memory of a stand-in as a tensor, and the place of what it stands for."""
    memory = value._memory
    if not value.is_of_step:
        return memory.whole(), Placed.of(value)
    base, steps = steps_of_view(memory.tensor)
    memory.check_returned(base, steps)
    return base, PlacedView(base.shape, steps)


def steps_of_view(t: Tensor) -> tuple[Tensor, Steps]:
    """The tensor that `t` is in the end a view of, and the operations that make the view."""
    steps: list[tuple[Any, dict[str, Any]]] = []
    while (view := aliasing.origin_of(t)) is not None:
        t, op, params = view
        steps.append((op, params))
    return t, tuple(reversed(steps))
