"""Cutting a graph: the part that is left to compute when some of its values are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybridml_compiler.graph import ir


def cut(
    outputs: Sequence[ir.Node], known: Mapping[ir.Node, Any], name: str, first: Sequence[ir.Node] = ()
) -> tuple[ir.Graph, list[ir.Node]]:
    """The graph that computes `outputs` from what is known, and what each of its inputs is: `first` (inputs, whether
    they are needed or not), then known nodes, then other inputs.
    """
    order = ir.topological(outputs, known)
    new: dict[ir.Node, ir.Node] = {n: n for n in first}
    used = {n for node in order[len(known) :] for n in node.inputs} | set(outputs)
    given: list[ir.Node] = []
    others: list[ir.Node] = []
    for k, node in enumerate(order):
        if k < len(known) or node.is_input:
            if node in used and node not in new:
                (others if node.is_input else given).append(node)
                new[node] = node if node.is_input else ir.input_node(node.aval, node.name, node.where)
        else:
            operands = tuple([new[n] for n in node.inputs])
            new[node] = node if operands == node.inputs else ir.with_inputs(node, operands)
    reads = [*first, *given, *others]
    return ir.Graph(tuple([new[n] for n in reads]), tuple([new[n] for n in outputs]), name), reads
