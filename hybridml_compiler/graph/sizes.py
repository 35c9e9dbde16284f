"""A graph with symbolic sizes as the graph for some sizes."""

from __future__ import annotations

from collections.abc import Mapping

from ..sizes.values import substitute
from .ir import Graph, Node, apply, input_node


def at_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph whose symbols have these values; errors are those of the rows.

    >>> from .text import parse_graph, print_graph
    >>> double = parse_graph("graph double[n=8](%0: f32[n]) {\\n %1 = add(%0, %0) : f32[n]\\n return %1\\n}")
    >>> print(print_graph(at_sizes(double, {"n": 3})))
    graph double(%0: f32[3]) {
      %1 = add(%0, %0) : f32[3]
      return %1
    }
    """
    made: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.is_input:
            made[node] = input_node(node.aval.at(sizes), node.name, node.where)
        elif node.op is None:
            made[node] = node
        else:
            params = {name: substitute(value, sizes) for name, value in node.params.items()}
            made[node] = apply(node.op, [made[n] for n in node.inputs], params, node.where)
    inputs, outputs, checks = (tuple([made[n] for n in ns]) for ns in (graph.inputs, graph.outputs, graph.checks))
    return Graph(inputs, outputs, graph.name, checks)
