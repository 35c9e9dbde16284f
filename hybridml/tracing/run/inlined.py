"""A compiled program inside of `vmap` or `jvp`: its operations one by one, each of which has a rule there.

A function that ran outside may be pulled through inside, as `jacrev` does with all rows at once; its native backward
takes arrays, and not elements of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import TraceError
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.sizes import at_sizes
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.values import bindings

from ...core.batching.interpreter import Batching
from ...core.batching.rules import stacked
from ...core.context import grad_is_off
from ...core.forward.transposition import by_pullback
from ...core.interpreter import below
from ...core.tensor import Tensor, wrap
from ..capture.memory_order import inverse


def inlined(program: Any, around: Any, tensors: Sequence[Any]) -> list[Tensor]:
    """The outputs of a program for an element of a batch or for dual numbers, those of `around`, from its inputs."""
    given = [t if isinstance(t, Tensor) else wrap(np.asarray(t, np.float64)) for t in tensors]
    stored = [_permuted(t, order) for t, order in zip(given, program.orders_of_call, strict=True)]
    graph = program.graph
    sizes = bindings([node.shape for node in graph.inputs], [t.shape for t in stored])
    if sizes:
        graph = at_sizes(graph, sizes)
    if not all(map(_has_function, graph.nodes())):
        return _by_element(program, around, given) if type(around) is Batching else _by_pullback(program, around, given)
    found = _by_operation(graph, stored)
    orders = [None if order is None else inverse(order) for order in program.output_orders]
    return [_permuted(t, order) for t, order in zip(program.without_saved(found), orders, strict=True)]


def _permuted(t: Tensor, order: Sequence[int] | None) -> Tensor:
    return t if order is None else OPS["permute_dims"].fn(t, tuple(order))


def _has_function(node: ir.Node) -> bool:
    """Whether a node is an input, a constant or an operation of tensors, and no loop, branch or composite."""
    return node.op is None or node.op.fn != node.op.on_arrays


def _by_operation(graph: ir.Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
    values = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes():
        if node in values:
            continue
        if node.op is None:
            assert node.value is not None, "an input of a graph is given"
            values[node] = wrap(node.value)
            continue
        operands = [values[n] for n in node.inputs]
        params = {name: value for name, value in node.params.items() if not (node.op.results and name == "result")}
        found = node.op.fn(operands, **params) if node.op.variadic else node.op.fn(*operands, **params)
        values[node] = found[node.params["result"]] if node.op.results else found
    return [values[node] for node in graph.outputs]


def _by_pullback(program: Any, forward: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The program as it is, and its backward transposed for tangents, where it has loops or branches in its graph."""
    values, tangents = zip(*[forward.parts(t) for t in tensors], strict=True)
    if grad_is_off() or all(t is None for t in tangents):
        return [forward.wrap(t) for t in below(forward, lambda: program.apply(values))]
    outs, found = below(forward, lambda: by_pullback(lambda *given: program.apply(given), values, tangents))
    duals = [forward.wrap(o, t) for o, t in zip(outs, found, strict=True)]
    program.record(tensors, dict(enumerate(duals)))
    return duals


def _by_element(program: Any, batching: Batching, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The program once per element, where it has loops or branches in its graph."""
    elements = [batching.lift(t)._array for t in tensors]
    if not grad_is_off() and any(t._node is not None for t in tensors):
        raise TraceError(
            f"vmap: a second derivative is taken through {program.name}, a compiled program with a loop or a branch; "
            "call it inside of vmap instead, where its operations are recorded"
        )

    def run() -> list[Tensor]:
        rows = [
            program.apply([e.tensor[k] if e.is_batch else e.tensor for e in elements]) for k in range(batching.size)
        ]
        return [stacked(column) for column in zip(*rows, strict=True)]

    return [batching.wrap(t, True) for t in below(batching, run)]
