"""The graph dialect: immutable, pure, hash-consed nodes over whole arrays.

    graph  = name(inputs) -> outputs
    node   = input(aval)                       an argument; every call makes a new one
           | const(array)                      a captured literal; small ones are interned by content
           | op(inputs; params) : aval         a row of the operation table applied to nodes

Equality is `is`: two nodes with the same op, inputs and parameters are one object, so common subexpressions are
eliminated by construction, and a node that nothing reaches does not exist. No node has an effect: state, random numbers
and in-place updates are inputs and outputs (see `hybridml.trace`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from .. import aval as avals
from .. import dtypes
from ..aval import Aval
from ..ops.op import Op

_INTERNED: WeakValueDictionary[Any, Node] = WeakValueDictionary()
_SMALL_CONSTANT = 64  # elements; larger constants are kept by identity, hashing megabytes would cost more than it saves


class Node:
    """A value of the graph. Make one with `input_node`, `constant` or `apply`, never directly."""

    __slots__ = ("__weakref__", "aval", "inputs", "name", "op", "params", "value", "where")

    op: Op | None  # None for inputs and constants
    inputs: tuple[Node, ...]
    params: Mapping[str, Any]
    aval: Aval
    value: np.ndarray | None  # data of a constant
    name: str  # of an input, for people
    where: str  # user's line that made the node, for people: no part of its identity

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype:
        return self.aval.dtype

    @property
    def is_input(self) -> bool:
        return self.op is None and self.value is None

    @property
    def is_constant(self) -> bool:
        return self.value is not None

    def __repr__(self) -> str:
        what = self.op.name if self.op else ("const" if self.is_constant else f"input {self.name}")
        return f"<{what}: {self.aval}>"


def _new(op: Op | None, inputs: tuple[Node, ...], params: Mapping[str, Any], aval: Aval, where: str) -> Node:
    node = Node()
    node.op, node.inputs, node.params, node.aval = op, inputs, params, aval
    node.value, node.name, node.where = None, "", where
    return node


def input_node(aval: Aval, name: str = "", where: str = "") -> Node:
    node = _new(None, (), {}, aval, where)
    node.name = name
    return node


def constant(array: np.ndarray | float | int | bool, dtype: np.dtype | None = None, *, weak: bool = False) -> Node:
    data = np.asarray(array, dtype=dtype)
    data = np.array(data, dtype=dtypes.canonical(data.dtype), order="C")
    data.flags.writeable = False
    key: Any = None
    if data.size <= _SMALL_CONSTANT:
        key = ("const", data.dtype.str, data.shape, data.tobytes(), weak)
        found = _INTERNED.get(key)
        if found is not None:
            return found
    node = _new(None, (), {}, Aval(data.shape, data.dtype, weak), "")
    node.value = data
    if key is not None:
        _INTERNED[key] = node
    return node


def apply(op: Op, inputs: Sequence[Node], params: Mapping[str, Any] | None = None, where: str = "") -> Node:
    """The node `op(inputs; params)`; shapes and dtypes are checked by the row's `infer`."""
    nodes = tuple(inputs)
    canonical = op.canonical_params([n.aval for n in nodes], params or {})
    key = _key(op, nodes, canonical)
    found = _INTERNED.get(key)
    if found is not None:
        return found
    in_avals = [n.aval for n in nodes]
    out = op.infer(in_avals, **canonical) if op.variadic else op.infer(*in_avals, **canonical)
    node = _new(op, nodes, canonical, out, where)
    _INTERNED[key] = node
    return node


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same application to other operands of the same types: `apply` without inferring again, twice as fast."""
    assert node.op is not None
    key = _key(node.op, inputs, node.params)
    found = _INTERNED.get(key)
    if found is None:
        found = _INTERNED[key] = _new(node.op, inputs, node.params, node.aval, node.where)
    return found


def _key(op: Op, inputs: tuple[Node, ...], params: Mapping[str, Any]) -> Any:
    # repr and not hash: 0.0 == -0.0 and 1 == True, but they are different constants
    return op.name, tuple(map(id, inputs)), repr(sorted(params.items())) if params else ""


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs in call order and outputs in result order. Inputs need not be used; outputs may repeat or be inputs."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    name: str = "graph"

    def nodes(self) -> list[Node]:
        """Every node that an output needs, operands first, in a deterministic order (inputs first)."""
        return topological(self.outputs, self.inputs)


def topological(roots: Iterable[Node], first: Iterable[Node] = ()) -> list[Node]:
    order: list[Node] = []
    seen: set[Node] = set()
    for node in first:
        if node not in seen:
            seen.add(node)
            order.append(node)
    for root in roots:
        stack: list[tuple[Node, Iterator[Node]]] = []
        if root not in seen:
            seen.add(root)
            stack.append((root, iter(root.inputs)))
        while stack:  # iterative: a 10,000-step loop makes a graph deeper than Python's recursion limit
            node, operands = stack[-1]
            for operand in operands:
                if operand not in seen:
                    seen.add(operand)
                    stack.append((operand, iter(operand.inputs)))
                    break
            else:
                stack.pop()
                order.append(node)
    return order


def users(nodes: Iterable[Node]) -> dict[Node, list[Node]]:
    """For each node the nodes that read it (once per operand position)."""
    table: dict[Node, list[Node]] = {}
    for node in nodes:
        table.setdefault(node, [])
        for operand in node.inputs:
            table.setdefault(operand, []).append(node)
    return table


def graph_of(inputs: Sequence[np.ndarray], names: Sequence[str] = ()) -> list[Node]:
    """Input nodes for a list of arrays."""
    return [input_node(avals.of(a), names[k] if k < len(names) else f"x{k}") for k, a in enumerate(inputs)]
