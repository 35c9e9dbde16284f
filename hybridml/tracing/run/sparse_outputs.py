"""Sparse gradients of a traced call: two outputs of its program, the rows and their gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

from hybridml_compiler.passes.sparse_updates import SparseSum

from ...core.autodiff.sparse import SparseGradient
from ...core.tensor import CPU, Tensor
from ..capture.tracer import Input, Tracer
from ..specialize.held_gradient import parts_of


class SparseOutput(NamedTuple):
    """The `.grad` of an input after a call: output `rows` and output `values`; `deferred`, where it is shown as a
    tensor, and `in_place` where it is the one from before the call."""

    source: Input
    rows: int
    values: int
    deferred: bool
    coalesced: bool
    in_place: bool

    def put(self, real: Tensor, rows: Tensor, values: Tensor) -> None:
        """Makes it the gradient of the tensor that the input is in a call."""
        node: Any = real._node
        made = SparseGradient(rows, values, real.shape, self.coalesced, self.deferred)
        if self.in_place:
            node.grad.become(made)
        else:
            node.grad = made


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


def updated_in_place(tracer: Tracer) -> list[tuple[Input, SparseGradient]]:
    """Sparse gradients from before the call that the program updates in place."""
    return [
        (i, grad) for i, grad, parts in tracer.sparse_grads
        if any(now is not then for now, then in zip(parts_of(grad), parts, strict=True))
    ]  # fmt: skip


def outputs_of(source: Input, grad: SparseGradient, outputs: list[Tensor], in_place: bool = False) -> SparseOutput:
    """Adds the parts of a gradient to the outputs of a program."""
    outputs += [grad._rows, grad._row_values]
    return SparseOutput(source, len(outputs) - 2, len(outputs) - 1, grad.is_deferred, grad.is_coalesced(), in_place)
