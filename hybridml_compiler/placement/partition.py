"""Partition: a graph over several devices as programs of one device each, which send values to each other.

    place   an operation is on the device that computes it, and what another device reads of it goes through a pair of
            nodes, `recv(send(x))`: the graph as people see it
    split   the placed graph is cut at these pairs. The programs of a device are numbered by the receptions before them

        cpu 0    %1 = exp(x)    %2 = send(%1)
        dev 1                   %3 = recv(%2)    %4 = multiply(%3, w)    %5 = send(%4)
        cpu 2                                                            %6 = recv(%5)

A program needs those of lower numbers alone, so that programs of one number may run at once on their devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..aval import CPU
from ..graph.devices import moved
from ..graph.ir import Graph, Node, apply, constant, input_node, users, with_inputs
from ..once import lazy
from ..ops.table import OPS
from ..record import record

_SEND, _RECV = OPS["send"], OPS["recv"]


def place(graph: Graph, where: Mapping[Node, str], made: dict[Node, Node] | None = None) -> Graph:
    """The graph with each operation on its device (`where`), and `send` and `recv` between those of several. `made`
    gets what each of its nodes has become."""
    made = {} if made is None else made

    def on(node: Node, device: str) -> Node:
        found = made[node]
        if found.aval.device == device:
            return found
        if found.value is not None:
            return constant(found.value, weak=found.aval.weak, device=device)
        sent = apply(_SEND, [found], {"device": device}, node.where)
        return apply(_RECV, [sent], {"device": device}, node.where)

    for node in graph.nodes():
        if node.op is None:
            made[node] = node
        elif node.kind == "transfer":
            made[node] = made[node.inputs[0]]  # who reads it asks for its place
        else:
            device = where[node]
            made[node] = moved(node, [on(operand, device) for operand in node.inputs], device)
    outputs = tuple([on(node, node.aval.device) for node in graph.outputs])
    return Graph(graph.inputs, outputs, graph.name, tuple([made[node] for node in graph.checks]))


def _is_send(node: Node) -> bool:
    return node.kind == "transfer" and node.aval.device == node.inputs[0].aval.device


def _is_recv(node: Node) -> bool:
    return node.kind == "transfer" and node.aval.device != node.inputs[0].aval.device


def _value(node: Node) -> Node:
    """The value that a node sends, or its own."""
    return node.inputs[0] if _is_send(node) else node


@record(eq=False)
class Part:
    """A program of one device, and the inputs and outputs of its graph as nodes of the placed graph."""

    device: str
    graph: Graph
    reads: Sequence[Node]
    gives: Sequence[Node]
    members: Sequence[Node]  # operations, as the placed graph has them

    @lazy
    def _results(self) -> dict[Node, int]:
        """The values that it gives, once each: one may be an output and be sent to several devices."""
        values = dict.fromkeys(map(_value, self.graph.outputs))
        return {node: k for k, node in enumerate(values)}

    @property
    def program(self) -> Graph:
        """The graph to compile, with each result once."""
        return Graph(self.graph.inputs, tuple(self._results), self.graph.name, self.graph.checks)

    @lazy
    def slots(self) -> list[int]:
        """For each output of the graph, the result of the program that it is."""
        return [self._results[_value(node)] for node in self.graph.outputs]

    @property
    def computes(self) -> bool:
        """Whether it does more than to receive and to send."""
        return any(node.op is not None and node.kind != "transfer" for node in self.graph.nodes())


def split(placed: Graph) -> list[Part]:
    """The programs of a placed graph, each after those that it receives from. Those of other devices come before the
    CPU's of the same number, as they may compute on while the CPU does."""
    nodes = placed.nodes()
    number = _numbers(nodes)
    groups: dict[tuple[int, bool, str], list[Node]] = {}
    outputs = dict.fromkeys(placed.outputs)
    for node in nodes:
        if node.op is not None or (node.is_constant and node in outputs):
            groups.setdefault((number[node], node.aval.device == CPU, node.aval.device), []).append(node)
    read = [n for node in nodes for n in node.inputs if n.op is not None and number[n] != number[node]]
    wanted, checks = outputs | dict.fromkeys(read), set(placed.checks)
    return [_part(f"{placed.name}.{k}", key[2], groups[key], wanted, checks) for k, key in enumerate(sorted(groups))]


def _numbers(nodes: Sequence[Node]) -> dict[Node, int]:
    """The number of the program of each node: the receptions before it. What an input sends has nothing to wait for,
    and what is made of nothing is made when it is first read."""
    number: dict[Node, int] = {}
    rootless: set[Node] = set()
    for node in nodes:
        if _is_send(node) and node.inputs[0].is_input:
            number[node] = -1
        else:
            number[node] = _is_recv(node) + max((number[n] for n in node.inputs), default=0)
            if not node.is_input and node.kind != "transfer" and rootless.issuperset(node.inputs):
                rootless.add(node)
    readers = users(nodes)
    for node in reversed(nodes):
        if node in rootless and node.op is not None and readers[node]:
            number[node] = min(number[reader] for reader in readers[node])
    return number


def _part(name: str, device: str, members: Sequence[Node], wanted: Iterable[Node], checks: set[Node]) -> Part:
    own, made = set(members), dict[Node, Node]()
    reads: list[Node] = []

    def operand(node: Node) -> Node:
        if node in made:
            return made[node]
        if node.is_constant:
            return node
        reads.append(node)
        made[node] = input_node(node.aval, node.name, node.where)
        return made[node]

    for node in members:
        made[node] = with_inputs(node, tuple(map(operand, node.inputs))) if node.inputs else node
    gives = [node for node in wanted if node in own]
    owed = tuple([made[node] for node in members if node in checks])
    return Part(
        device, Graph(tuple(made[n] for n in reads), tuple(made[n] for n in gives), name, owed), reads, gives, members
    )
