"""Devices of a graph: the one that it is for, and the graph without them, as the passes and the schedule see it."""

from __future__ import annotations

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


def without_devices(graph: Graph) -> Graph:
    """The graph with all values on the CPU and without transfers; itself where there are none."""
    if not _has_devices(graph):
        return graph
    made: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.is_input:
            made[node] = input_node(node.aval.on(CPU), node.name, node.where)
        elif node.op is None:
            assert node.value is not None
            made[node] = constant(node.value, weak=node.aval.weak)
        elif node.op.kind == "transfer":
            made[node] = made[node.inputs[0]]
        else:
            params = {name: _param(value) for name, value in node.params.items()}
            made[node] = apply(node.op, [made[n] for n in node.inputs], params, node.where)
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


def _param(value: object) -> object:
    return body_of(without_devices(value.graph)) if isinstance(value, Body) else value
