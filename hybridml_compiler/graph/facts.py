"""Facts of a node that capture and the schedule decide by: whether it moves, widens, reduces or may fail, its cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from .. import dtypes
from ..ops.elementwise import after, astype
from ..sizes.dims import at_most
from .body import Body, bodies_of
from .ir import Node, topological

EXPENSIVE = 0.1  # ns per element: from a division upwards
STEPS = 16  # that a loop of an element is taken to have
CALLED = frozenset(("numpy_unary", "numpy_binary", "python_math", "python_power", "python_complex"))  # one by one


def element_cost(node: Node) -> float:
    """Nanoseconds of computing one element of a node from its operands; a constant or a position is there."""
    if node.op is None or not node.inputs:
        return 0.0
    body = function_of(node)
    if body is None:
        return node.op.cost
    if body.element_cost is None:
        body.element_cost = sum(map(element_cost, body.graph.nodes()))
    return body.element_cost * (STEPS if node.op.results else 1)


def function_of(node: Node) -> Body | None:
    """The function of an element that a node is, or of a step of it where it is a loop; None for an operation."""
    if node.op is None or node.kind != "elementwise":
        return None
    if node.op.body is not None:
        found: Body = node.op.body([n.aval for n in node.inputs], node.params)
        return found
    given = node.params.get("body")
    return given if isinstance(given, Body) else None


def may_stop(node: Node) -> bool:
    """Whether a program may be stopped in the middle of a node, which might not end."""
    if node.kind == "control":
        return True
    body = function_of(node)
    return body is not None and (bool(node.op and node.op.results) or any(map(may_stop, body.graph.nodes())))


def is_expensive(node: Node) -> bool:
    """Whether a node is worth keeping rather than computing again for every element of a larger result."""
    return element_cost(node) >= EXPENSIVE


def _is_checked(node: Node) -> bool:
    """Whether the indices that a node looks up were checked before."""
    if node.op is None or "indices" not in node.op.inputs or "axis" not in node.params:
        return False
    indices = node.inputs[node.op.inputs.index("indices")]
    of_index = indices.op is not None and indices.op.name == "index" and indices is not node.inputs[0]
    return of_index and bool(indices.params["size"] == node.inputs[0].shape[node.params["axis"]])


def may_fail(node: Node) -> bool:
    """Whether the node may raise: for an index, by itself or in a body, or because NumPy does."""
    if node.kind != "control":
        return node.kind in ("gather", "scatter", "opaque") and not _is_checked(node)
    return any(any(map(may_fail, body.graph.nodes())) for body in bodies_of(node))


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes that a reduction combines; empty for any other node, for one that slides (fold_windows), and for one
    that combines nothing: its result has the form of its operand."""
    if node.kind != "reduction" or "axis" not in node.params:
        return ()
    axis, shape = node.params["axis"], node.inputs[0].shape
    axes = tuple(range(len(shape))) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return () if at_most(math.prod(shape[k] for k in axes), 1) else axes


def is_cast(node: Node) -> bool:
    """Whether a node gives its operand in another dtype."""
    return node.op is astype


def widens(node: Node, *, halves: bool = True) -> bool:
    """A cast that a product of narrow operands computes itself (see low_precision.py); of float16 if `halves`."""
    if not is_cast(node) or not dtypes.widens(node.inputs[0].dtype, node.dtype):
        return False
    return halves or node.inputs[0].dtype is not dtypes.float16


def moved(node: Node, *, casts: bool = False, halves: bool = True) -> Node | None:
    """The operand whose elements a node moves, or has as they are, or widens if `casts`; None if it does something
    else."""
    moves = (node.kind == "movement" and len(node.inputs) == 1) or node.op is after
    return node.inputs[0] if moves or (casts and widens(node, halves=halves)) else None


def stored(node: Node) -> Node:
    """The node whose elements a node moves and widens, by any number of steps."""
    while (below := moved(node, casts=True)) is not None:
        node = below
    return node


def dependent(outputs: Sequence[Node], on: Iterable[Node]) -> set[Node]:
    """The nodes of a graph that vary with one of `on`."""
    found = set(on)
    for node in topological(outputs):
        if any(n in found for n in node.inputs):
            found.add(node)
    return found
