"""Sums of cotangents in the body of a gradient, in place: a slice of an array that was read takes part in a sum over
the whole array by rule, and is added to the slice alone.

    g + slice_update(zeros, v, w)       ->      slice_update(g, slice(g, w) + v, w)

where g is a carry, or that after such updates: then a step touches the slice, whatever the size of the array.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hybridml_compiler.graph import ir
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.graph.updates import is_update

Part = tuple[ir.Node, dict[str, object]]  # what is added, and to which slice


def added_in_place(outputs: Sequence[ir.Node], carries: Iterable[ir.Node]) -> list[ir.Node]:
    """The outputs, with parts added to the carries slice by slice."""
    final: dict[ir.Node, ir.Node] = {}
    updated = set(carries)
    parts: dict[ir.Node, list[Part]] = {}  # of values that are zero elsewhere
    for node in ir.topological(outputs):
        operands = tuple([final[n] for n in node.inputs])
        new = node if operands == node.inputs else ir.with_inputs(node, operands)
        if is_update(node):
            base, value = operands
            if base in updated:
                updated.add(new)
            elif _is_zero(base):
                parts[new] = [(value, dict(node.params))]
        elif node.op is not None and node.op.name == "add":
            a, b = operands
            if a in parts and b in parts:
                parts[new] = [*parts[a], *parts[b]]
            elif (a in updated and b in parts) or (b in updated and a in parts):
                new, found = (a, parts[b]) if a in updated else (b, parts[a])
                for value, window in found:
                    new = make("slice_update", new, make("add", make("slice", new, **window), value), **window)
                    updated.add(new)
        final[node] = new
    return [final[node] for node in outputs]


def _is_zero(node: ir.Node) -> bool:
    if node.value is not None:
        return not node.value.any()
    return node.op is not None and node.op.name == "full" and node.params["value"] == 0
