"""Sparse gradients of a traced call: two outputs of its program, the rows and their gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

from hybridml_compiler.passes.sparse_updates import SparseSum

from ...core.autodiff.sparse import SparseGradient
from ...core.tensor import CPU, Tensor
from ..capture.tracer import Input, Tracer


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


def rows_of(tracer: Tracer, source: Input, grad: Any) -> SparseGradient | None:
    """The rows of a gradient that is zero in most others: a sparse one, or one that is sums of few rows in the graph.

    A tensor as large as a table is made for that when somebody asks for `.grad`, and not in every step.
    """
    if grad is None or type(grad) is SparseGradient:
        return grad
    return few_rows(tracer, grad, deferred=True) if source.order is None else None


def few_rows(tracer: Tracer, grad: Tensor, deferred: bool = False) -> SparseGradient | None:
    """The rows of a traced gradient that is sums of few; None for others."""
    found = SparseSum.of(grad._array) if grad._array.aval.device == CPU.type else None
    if found is None:
        return None
    return SparseGradient(tracer.wrap(found.indices), tracer.wrap(found.values), grad.shape, deferred=deferred)


def outputs_of(source: Input, grad: SparseGradient, outputs: list[Tensor]) -> SparseOutput:
    """Adds the parts of a gradient to the outputs of a program."""
    outputs += [grad._rows, grad._row_values]
    return SparseOutput(source, len(outputs) - 2, len(outputs) - 1, grad.is_deferred)
