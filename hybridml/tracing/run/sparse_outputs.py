"""Sparse gradients of a traced call: two outputs of its program, the rows and their gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core.autodiff.sparse import SparseGradient
from ...core.tensor import Tensor
from ..capture.tracer import Input


class SparseOutput(NamedTuple):
    """The new `.grad` of an input: output `rows` and output `values`; `deferred`, where it is shown as a tensor."""

    source: Input
    rows: int
    values: int
    deferred: bool

    def put(self, real: Tensor, rows: Tensor, values: Tensor) -> None:
        """Makes it the gradient of the tensor that the input is in a call."""
        node: Any = real._node
        node.grad = SparseGradient(rows, values, real.shape, deferred=self.deferred)


def outputs_of(source: Input, grad: SparseGradient, outputs: list[Tensor]) -> SparseOutput:
    """Adds the parts of a gradient to the outputs of a program."""
    outputs += [grad._rows, grad._row_values]
    return SparseOutput(source, len(outputs) - 2, len(outputs) - 1, grad.is_deferred)
