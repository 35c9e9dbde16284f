"""Body: a graph as a parameter of a node, by which control flow (ops/control.py) holds the code that it runs.

A body is closed: a value from outside is an input of its own, and an operand of the node. Equal bodies are one
object, so that nodes which hold them are hash-consed as all others are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..aval import Aval
from ..weak import WeakValues
from .digest import digest
from .interpret import interpret
from .ir import Graph, Node

_INTERNED: WeakValues[str, Body] = WeakValues()


class Body:
    """Make one with `body_of`. Calling it interprets it."""

    __slots__ = ("__weakref__", "after_passes", "graph", "key")

    graph: Graph
    key: str  # the digest of the graph: equal exactly where bodies are
    after_passes: Body | None  # None where the passes have not seen it

    @property
    def inputs(self) -> tuple[Aval, ...]:
        return tuple(node.aval for node in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Aval, ...]:
        return tuple(node.aval for node in self.graph.outputs)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return interpret(self.graph, arrays)

    def __repr__(self) -> str:
        return f"<body {self.key}>"


def body_of(graph: Graph) -> Body:
    """The body of this graph, or of an equal one."""
    key = digest(graph)
    found = _INTERNED.get(key)
    if found is None:
        made = Body()
        made.graph, made.key, made.after_passes = graph, key, None
        found = _INTERNED.add(key, made)
    return found


def bodies_of(node: Node) -> Iterator[Body]:
    """The bodies that a node holds."""
    if node.kind == "control":
        yield from (value for _, value in sorted(node.params.items()) if isinstance(value, Body))


def family(node: Node) -> tuple[Any, ...]:
    """Equal for the nodes that are results of one run of an operation with several."""
    shared = tuple((name, value) for name, value in sorted(node.params.items()) if name != "result")
    assert node.op is not None
    return node.op.name, node.inputs, shared
