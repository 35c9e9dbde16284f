"""Devices of a graph: the one that it is for, and the graph on one device, as the passes and the schedule see it."""

from __future__ import annotations

from collections.abc import Sequence

from ..aval import CPU
from ..errors import DeviceError
from .body import Body, bodies_of, body_of
from .ir import Graph, Node, apply, constant, input_node


def device_of(graph: Graph) -> str:
    """The device that computes a graph: the CPU, unless it has values of another one; of several, DeviceError."""
    devices = {node.aval.device for node in graph.nodes()} - {CPU}
    if len(devices) > 1:
        raise DeviceError(f"{graph.name} has values on several devices ({', '.join(sorted(devices))})")
    return devices.pop() if devices else CPU


def devices_of(graph: Graph) -> set[str]:
    """The devices that values of a graph are on, those in bodies too, but for the CPU."""
    found = {node.aval.device for node in graph.nodes()} - {CPU}
    return found.union(*(devices_of(body.graph) for node in graph.nodes() for body in bodies_of(node)))


def without_devices(graph: Graph) -> Graph:
    """The graph with all values on the CPU and without transfers; itself where there are none."""
    return on_one_device(graph, CPU) if _has_devices(graph) else graph


def on_one_device(graph: Graph, device: str) -> Graph:
    """The graph with all values on a device and without transfers."""
    made: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.is_input:
            made[node] = input_node(node.aval.on(device), node.name, node.where)
        elif node.op is None:
            assert node.value is not None
            made[node] = constant(node.value, weak=node.aval.weak, device=device)
        elif node.op.kind == "transfer":
            made[node] = made[node.inputs[0]]
        else:
            made[node] = moved(node, [made[n] for n in node.inputs], device)
    inputs, outputs, checks = (tuple([made[n] for n in ns]) for ns in (graph.inputs, graph.outputs, graph.checks))
    return Graph(inputs, outputs, graph.name, checks)


def _has_devices(graph: Graph) -> bool:
    """Whether it has a value that is not on the CPU, or a transfer, in a body or outside."""
    return any(
        node.aval.device != CPU
        or node.kind == "transfer"
        or (node.kind == "control" and any(_has_devices(body.graph) for body in bodies_of(node)))
        for node in graph.nodes()
    )


def moved(node: Node, operands: Sequence[Node], device: str) -> Node:
    """The operation of a node on operands of a device, computed there with all of its bodies."""
    assert node.op is not None
    params = {name: _param(value, device) for name, value in node.params.items()}
    return apply(node.op, operands, params, node.where, device)


def _param(value: object, device: str) -> object:
    return body_of(on_one_device(value.graph, device)) if isinstance(value, Body) else value
