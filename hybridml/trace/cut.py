"""Cutting a graph: the part that is left to compute when some of its values are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybridml_compiler.graph import ir


def cut(outputs: Sequence[ir.Node], known: Mapping[ir.Node, Any], name: str) -> tuple[ir.Graph, list[ir.Node]]:
    """The graph that computes `outputs` from what is known, and what it reads: known nodes, and inputs."""
    order = ir.topological(outputs, known)
    new: dict[ir.Node, ir.Node] = {}
    used = {n for node in order[len(known) :] for n in node.inputs} | set(outputs)
    reads: list[ir.Node] = []
    for k, node in enumerate(order):
        if k < len(known) or node.is_input:
            if node in used:
                reads.append(node)
                new[node] = node if node.is_input else ir.input_node(node.aval, node.name, node.where)
        else:
            operands = tuple([new[n] for n in node.inputs])
            new[node] = node if operands == node.inputs else ir.with_inputs(node, operands)
    return ir.Graph(tuple([new[n] for n in reads]), tuple([new[n] for n in outputs]), name), reads
