"""Sums of cotangents in the body of a gradient, in place: a slice of an array that was read takes part in a sum over
the whole array by rule, and is added to the slice alone. A loop that adds up something goes on from the sum so far.

    g + slice_update(zeros, v, w)       ->      slice_update(g, slice(g, w) + v, w)
    g + loop(zeros; total -> total + v) ->      loop(g; total -> total + v)

where g is a carry, or that after such updates: then a step touches the slice, whatever the size of the array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import family
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.graph.updates import carry_position, is_update
from hybridml_compiler.ops.control import LOOP
from hybridml_compiler.record import record


@record(eq=False)
class _Part:
    """An addition to an array: of a value to a slice of it, or of all that a loop has added to zeros."""

    value: ir.Node
    window: Mapping[str, Any] | None = None


def added_in_place(outputs: Sequence[ir.Node], carries: Iterable[ir.Node]) -> list[ir.Node]:
    """The outputs, with parts added to the carries in place."""
    found = _Sums(outputs, carries)
    final: dict[ir.Node, ir.Node] = {}
    for node in ir.topological(outputs):
        final[node] = found.of(node, tuple([final[n] for n in node.inputs]))
    return found.started([final[node] for node in outputs])


class _Sums:
    def __init__(self, outputs: Sequence[ir.Node], carries: Iterable[ir.Node]) -> None:
        self.carries = {*carries}
        self.updated = {*carries}  # and what they are after updates
        self.parts: dict[ir.Node, list[_Part]] = {}  # of values that are zero elsewhere
        self.starts: dict[Any, dict[int, ir.Node]] = {}  # run of a loop -> operands, and what they become
        self.readers = ir.users(ir.topological(outputs))
        self.outputs = {*outputs}

    def of(self, node: ir.Node, operands: tuple[ir.Node, ...]) -> ir.Node:
        new = node if operands == node.inputs else ir.with_inputs(node, operands)
        if is_update(node):
            if operands[0] in self.updated:
                self.updated.add(new)
            elif _is_zero(operands[0]):
                self.parts[new] = [_Part(operands[1], dict(node.params))]
        elif node.op is LOOP and self._is_read_once(node) and _adds_up(new):
            self.parts[new] = [_Part(new)]
        elif node.op is not None and node.op.name == "add":
            a, b = operands
            if a in self.parts and b in self.parts and self._is_read_once(node):
                self.parts[new] = [*self.parts[a], *self.parts[b]]
            for total, other in ((a, b), (b, a)):
                if total in self.updated and other in self.parts:
                    return self._sum(total, self.parts[other])
        return new

    def _is_read_once(self, node: ir.Node) -> bool:
        return len(self.readers[node]) == 1 and node not in self.outputs

    def _sum(self, total: ir.Node, parts: Sequence[_Part]) -> ir.Node:
        for part in sorted(parts, key=lambda part: part.window is not None):  # loops first
            if part.window is not None:
                old = make("slice", total, **part.window)
                total = make("slice_update", total, make("add", old, part.value), **part.window)
            elif total in self.carries and not self.starts.get(family(part.value), {}).get(carry_position(part.value)):
                self.starts.setdefault(family(part.value), {})[carry_position(part.value)] = total
                total = part.value
            else:
                total = make("add", total, part.value)
                continue
            self.updated.add(total)
        return total

    def started(self, outputs: Sequence[ir.Node]) -> list[ir.Node]:
        """The outputs, with loops that go on from sums so far."""
        if not self.starts:
            return list(outputs)
        final: dict[ir.Node, ir.Node] = {}
        for node in ir.topological(outputs):
            operands = [final[n] for n in node.inputs]
            for position, start in (self.starts.get(family(node), {}) if node.op is LOOP else {}).items():
                operands[position] = start
            final[node] = node if tuple(operands) == node.inputs else ir.with_inputs(node, tuple(operands))
        return [final[node] for node in outputs]


def _adds_up(node: ir.Node) -> bool:
    """Whether this result of a loop starts as zeros, and steps do nothing with it but to add something."""
    k, params = node.params["result"], node.params
    if k >= params["carries"] or not _is_zero(node.inputs[carry_position(node)]):
        return False
    body: ir.Graph = params["body"].graph
    readers = ir.users(body.nodes())
    total, end = body.inputs[params["consts"] + k], body.outputs[k]
    while total is not end:
        new, *slices = sorted(readers[total], key=lambda n: not (is_update(n) or n.op is LOOP or n is end))
        if is_update(new):
            old, value = slices[0] if slices else total, new.inputs[1]
            ours = len(slices) == 1 and old.params == new.params and readers[old] == [value]
            if not (ours and value.op is not None and value.op.name == "add" and value.inputs.count(old) == 1):
                return False
        elif slices or new.op is None or new.op.name != "add" or new.inputs.count(total) != 1:
            return False
        if total in body.outputs:
            return False
        total = new
    return body.outputs.count(end) == 1 and not readers[end]


def _is_zero(node: ir.Node) -> bool:
    if node.value is not None:
        return not node.value.any()
    return node.op is not None and node.op.name == "full" and node.params["value"] == 0
