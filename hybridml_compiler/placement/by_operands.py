"""Placement: the device that computes each node of a graph with values on several devices.

A node is computed where its value is. What is *free* is not: values of the CPU that are made of nothing, or of a few
numbers (a mask, random bits, the step count of an optimizer), are computed by the device that reads them, which has the
same bits sooner than it could receive them. Where the CPU has nothing else to do, one device computes all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..aval import CPU
from ..errors import DeviceError
from ..graph.body import bodies_of, family
from ..graph.devices import devices_of
from ..graph.ir import Graph, Node

_FEW = 64  # elements of a value that is free, whatever it is made by
_FREE = ("elementwise", "movement", "creation", "random", "gather")  # kinds that have the same bits on every device


def placement(graph: Graph) -> dict[Node, str]:
    """The device of each operation of the graph; none where all is the CPU's, or sizes come with the call. DeviceError
    for a loop or a branch with several besides the CPU."""
    if all(node.aval.device == CPU for node in graph.nodes()) or any(node.aval.symbolic for node in graph.inputs):
        return {}
    nodes = [node for node in graph.nodes() if node.op is not None and node.kind != "transfer"]
    where = {node: node.aval.device for node in nodes}
    for members in _families(nodes).values():
        device = _of_family(members)
        where.update(dict.fromkeys(members, device))
    free = _free(graph, where)
    busy = any(where[node] == CPU for node in nodes if node not in free)
    devices = sorted(set(where.values()) - {CPU})
    alone = CPU if busy or not devices else devices[0]  # of what no device reads
    here = {node: {node.aval.device} for node in graph.outputs}
    readers: dict[Node, set[str]] = {}
    for node in reversed(graph.nodes()):
        read = readers.get(node, set())
        if node in free:
            others = read - {CPU}
            where[node] = alone if not read else others.pop() if len(read) == len(others) == 1 else CPU
        if node.op is not None:
            found = read | here.get(node, set()) if node.kind == "transfer" else {where[node]}
            for operand in node.inputs:
                readers.setdefault(operand, set()).update(found)
    return where


def spans_devices(graph: Graph, where: Mapping[Node, str]) -> bool:
    """Whether several devices compute the graph, or another one than has its values."""
    values = {node.aval.device for node in graph.nodes()} - {CPU}
    return len(values) > 1 or bool(where and set(where.values()) != (values or {CPU}))


def _families(nodes: Sequence[Node]) -> dict[object, list[Node]]:
    """The nodes that one run of an operation computes, and those with bodies."""
    found: dict[object, list[Node]] = {}
    for node in nodes:
        if node.kind == "control" or (node.op is not None and node.op.results):
            found.setdefault(family(node), []).append(node)
    return found


def _of_family(members: Sequence[Node]) -> str:
    """The device that computes several results: that of any which is not on the CPU."""
    bodies = [devices_of(body.graph) for body in bodies_of(members[0])]
    devices = {node.aval.device for node in members}.union(*bodies) - {CPU}
    if len(devices) > 1:
        assert members[0].op is not None
        raise DeviceError(
            f"{members[0].op.name} has values on several devices ({', '.join(sorted(devices))}): one of them and the "
            "CPU can be in one loop or branch; move the others before it or after it"
        )
    return devices.pop() if devices else CPU


def _free(graph: Graph, where: dict[Node, str]) -> set[Node]:
    """The values of the CPU that any device may compute."""
    free: set[Node] = set()
    for node in graph.nodes():
        few = node.aval.size <= _FEW
        if node.op is None:
            is_free = node.is_constant or (few and node.aval.device == CPU)
        elif node.kind == "transfer":
            is_free = node.inputs[0] in free
        else:
            is_same = few or node.kind in _FREE
            is_free = where[node] == CPU and is_same and free.issuperset(node.inputs)
        if is_free:
            free.add(node)
    return {node for node in free if node in where}
