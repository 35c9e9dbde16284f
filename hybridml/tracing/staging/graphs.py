"""Graphs that are run by an interpreter which stands on a tracer: on dual numbers, or on elements of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybridml_compiler.dtypes import is_inexact
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import family
from hybridml_compiler.graph.facts import dependent
from hybridml_compiler.ops.op import Op
from hybridml_compiler.walk import postorder

from ...core.nested import Nesting
from ...core.tensor import Tensor
from ..capture.tracer import Tracer
from .kinds import Kind

# Loops and branches: (interpreter, tracer, node, operands) -> results. loops.py registers them.
control: dict[Op, Callable[[Any, Tracer, ir.Node, Sequence[Tensor]], list[Tensor]]] = {}


class NoRule(Exception):
    """A graph has an operation that only its own function can be run on batches or dual numbers."""


def run_graph(
    around: Any,
    tracer: Tracer,
    outputs: Sequence[ir.Node],
    given: Mapping[ir.Node, Tensor],
    known: Callable[[ir.Node], Tensor] | None = None,
) -> list[Tensor]:
    """The outputs as tensors of `around`, which is in force, from those that stand for inputs of the graph.

    `known`: gives the tensor of the tracer for a value that does not vary with an input. That is not computed again.
    """
    values = dict(given)
    varies = dependent(outputs, given)
    runs: dict[Any, list[Tensor]] = {}
    for node in postorder(outputs, lambda node: node.inputs if node in varies else (), set(given)):
        if node not in varies:
            values[node] = around.lift(tracer.wrap(node, node.aval.weak) if known is None else known(node))
            continue
        assert node.op is not None
        operands = [values[n] for n in node.inputs]
        if node.op in control:
            if family(node) not in runs:
                runs[family(node)] = control[node.op](around, tracer, node, operands)
            values[node] = runs[family(node)][node.params["result"]]
        elif node.op.fn == node.op.on_arrays:
            raise NoRule(node.op.name)
        elif _is_of_numbers(node):
            values[node] = _number(around, tracer, node, operands)
        else:
            values[node] = _applied(around, node, operands, runs)
    return [values[node] for node in outputs]


def _is_of_numbers(node: ir.Node) -> bool:
    """Whether all floats that an operation reads are Python's numbers, which have float64 here and nowhere else."""
    floats = [n.aval.weak for n in node.inputs if is_inexact(n.dtype)]
    return bool(floats) and all(floats)


def _number(around: Any, tracer: Tracer, node: ir.Node, operands: Sequence[Tensor]) -> Tensor:
    """The result of arithmetic of Python's numbers."""
    assert node.op is not None
    kind = Kind(around)
    if any(map(kind.moves, operands)):
        raise NoRule(f"{node.op.name} of numbers")
    beneath = [part for t in operands for part in kind.parts(t, False)]
    found: Tensor = around.wrap_constant(tracer.apply(node.op, beneath, node.params)[0])
    return found


def _applied(around: Nesting, node: ir.Node, operands: Sequence[Tensor], runs: dict[Any, list[Tensor]]) -> Tensor:
    assert node.op is not None
    if not node.op.results:
        return around.apply(node.op, operands, node.params)[0]
    if family(node) not in runs:
        runs[family(node)] = [*around.apply(node.op, operands, node.params)]
    return runs[family(node)][node.params["result"]]
