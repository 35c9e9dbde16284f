"""Body: a graph as a parameter of a node, by which control flow (ops/control.py) holds the code that it runs.

A body is closed: a value from outside is an input of its own, and an operand of the node. Equal bodies are one
object, so that nodes which hold them are hash-consed as all others are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..aval import Aval
from ..ops.composite import COMPOSITE, WHILE
from ..ops.op import Op
from ..record import record
from ..sizes.dims import steps_of
from ..weak import WeakValues
from .digest import digest
from .interpret import NO_SIZES, interpret
from .ir import PLAIN, Graph, Node

_INTERNED: WeakValues[str, Body] = WeakValues()


class Body:
    """Make one with `body_of`. Calling it interprets it."""

    __slots__ = ("__weakref__", "after_passes", "element_cost", "graph", "key", "seen", "steps")

    graph: Graph
    key: str  # the digest of the graph: equal exactly where bodies are
    after_passes: Body | None  # None where the passes have not seen it
    element_cost: float | None  # of an elementwise one, in nanoseconds; None where nobody has asked (facts.py)
    seen: int  # as that of nodes
    steps: frozenset[str] | None  # symbols of steps; None where nobody has asked

    @property
    def inputs(self) -> tuple[Aval, ...]:
        return tuple(node.aval for node in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Aval, ...]:
        return tuple(node.aval for node in self.graph.outputs)

    def __call__(self, arrays: Sequence[np.ndarray], sizes: Mapping[str, int] = NO_SIZES) -> list[np.ndarray]:
        return interpret(self.graph, arrays, sizes=sizes)

    def at(self, around: Mapping[str, int]) -> InStep:
        """The body in a step of the loops around it, which give these symbols values."""
        return InStep(self, around)

    def over(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """The outputs of an elementwise function of numbers, over arrays that are broadcast."""

        def run(op: Op, node: Node, operands: Sequence[Any], params: Mapping[str, Any]) -> Any:
            return op.run(operands, params)

        return self._evaluated(arrays, run, lambda node: node.value)

    def lower(self, s: Any, scalars: Sequence[Any]) -> list[Any]:
        """The outputs of an elementwise function of numbers, as scalars of the builder `s`."""

        def run(op: Op, node: Node, operands: Sequence[Any], params: Mapping[str, Any]) -> Any:
            loads: list[Any] = [_Number(x, n) for x, n in zip(operands, node.inputs, strict=True)]
            return op.lower(s, (), *([loads] if op.variadic else loads), **params)

        return self._evaluated(scalars, run, lambda node: s.const(node.value[()], node.dtype))

    def _evaluated(self, given: Sequence[Any], run: Callable[..., Any], constant: Callable[[Any], Any]) -> list[Any]:
        values: dict[Node, Any] = dict(zip(self.graph.inputs, given, strict=True))
        runs: dict[Any, Any] = {}  # of operations that are several nodes each
        for node in self.graph.nodes():
            if node.op is None:
                if node.value is not None:
                    values[node] = constant(node)
                continue
            operands = [values[n] for n in node.inputs]
            if not node.op.results:
                values[node] = run(node.op, node, operands, node.params)
                continue
            key = family(node)
            if key not in runs:
                runs[key] = run(node.op, node, operands, {**node.params, "result": None})
            values[node] = runs[key][node.params["result"]]
        return [values[node] for node in self.graph.outputs]

    def __repr__(self) -> str:
        return f"<body {self.key}>"


PLAIN.add(Body)


@record
class InStep:
    """A body where loops around it are at some step."""

    body: Body
    around: Mapping[str, int]

    @property
    def outputs(self) -> tuple[Aval, ...]:
        return tuple(aval.at(self.around) for aval in self.body.outputs)

    def __call__(self, arrays: Sequence[np.ndarray], sizes: Mapping[str, int] = NO_SIZES) -> list[np.ndarray]:
        return self.body(arrays, {**self.around, **sizes})


class _Number:
    """A scalar as an operand inside `lower`."""

    __slots__ = ("dtype", "shape", "value")

    def __init__(self, value: Any, node: Node) -> None:
        self.value, self.dtype, self.shape = value, node.dtype, ()

    def __call__(self, index: Any) -> Any:
        return self.value


def body_of(graph: Graph) -> Body:
    """The body of this graph, or of an equal one."""
    key = digest(graph)
    found = _INTERNED.get(key)
    if found is None:
        made = Body()
        made.graph, made.key, made.after_passes, made.element_cost, made.seen = graph, key, None, None, 0
        made.steps = None
        found = _INTERNED.add(key, made)
    return found


def bodies_of(node: Node) -> Iterator[Body]:
    """The bodies that a node holds."""
    if node.kind == "control" or node.op in (COMPOSITE, WHILE):
        yield from (value for _, value in sorted(node.params.items()) if isinstance(value, Body))


def steps_in(node: Node) -> frozenset[str]:
    """The symbols of steps of loops around a node, in its sizes and parameters or in its bodies."""
    own = {s.name for s in steps_of(*node.shape, *node.params.values())}
    for body in bodies_of(node):
        if body.steps is None:
            body.steps = frozenset().union(*map(steps_in, body.graph.nodes()))
        own |= body.steps
    return frozenset(own - {node.params.get("step")} if node.kind == "control" else own)


def family(node: Node) -> tuple[Any, ...]:
    """Equal for the nodes that are results of one run of an operation with several."""
    shared = tuple((name, value) for name, value in sorted(node.params.items()) if name != "result")
    assert node.op is not None
    return node.op.key, node.inputs, shared
