"""Cutting a graph: the part that is left to compute when some of its values are known."""

from __future__ import annotations

from collections.abc import Container, Sequence

from hybridml_compiler.graph import ir
from hybridml_compiler.walk import postorder


def between(outputs: Sequence[ir.Node], known: Container[ir.Node]) -> list[ir.Node]:
    """The nodes that `outputs` are computed from, operands first, down to inputs and known nodes, whose operands are
    left out: a step costs the same wherever in a long program it is.
    """
    return postorder(outputs, lambda node: () if node in known else node.inputs)


def cut(
    outputs: Sequence[ir.Node],
    known: Container[ir.Node],
    name: str,
    first: Sequence[ir.Node] = (),
    checks: Sequence[ir.Node] = (),
) -> tuple[ir.Graph, list[ir.Node]]:
    """The graph that computes `outputs` and `checks` from what is known, and what each of its inputs is: `first`
    (inputs, whether they are needed or not), then known nodes, then other inputs.
    """
    new: dict[ir.Node, ir.Node] = {n: n for n in first}
    given: list[ir.Node] = []
    others: list[ir.Node] = []
    for node in between([*outputs, *checks], known):
        if node in new:
            continue
        if node.is_input or node in known:
            (others if node.is_input else given).append(node)
            new[node] = node if node.is_input else ir.input_node(node.aval, node.name, node.where)
        else:
            operands = tuple([new[n] for n in node.inputs])
            new[node] = node if operands == node.inputs else ir.with_inputs(node, operands)
    reads = [*first, *given, *others]
    inputs, made, checked = (tuple([new[n] for n in nodes]) for nodes in (reads, outputs, checks))
    return ir.Graph(inputs, made, name, checked), reads
