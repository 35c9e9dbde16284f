"""Vocabulary of the rules: tests of a node (`splat`, `is_value`), and replacements for it (`like`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..aval import Aval
from ..dtypes import canonical
from ..graph.ir import Node, constant, input_node
from ..graph.rewrite import make
from ..sizes.dims import is_dim

LONG = 2000  # nodes of a graph whose loops are rolled: planning and compiling them takes a second
_SMALL = 64  # elements of a constant that is searched for being one value


def is_op(node: Node, *names: str) -> bool:
    return node.op is not None and node.op.name in names


def op_name(node: Node) -> str:
    """Name of the row that a node applies; for an input or a constant there is none."""
    return "" if node.op is None else node.op.name


def splat(node: Node) -> Any:
    """The NumPy scalar that every element of a constant (or `full`) is, bit for bit; None for any other node."""
    value = node.value
    if value is None:
        if node.op is None or node.op.name != "full" or is_dim(node.params["value"]):
            return None
        return node.dtype.type(node.params["value"])
    if not 0 < value.size <= _SMALL:
        return None
    first = value.flat[0]
    return first if value.size == 1 or value.tobytes() == first.tobytes() * value.size else None


def is_value(node: Node, number: float) -> bool:
    """True for a constant that is `number` everywhere; -0.0 is not 0.0 there (an integer 0 is both)."""
    found = splat(node)
    if found is None or found != number:
        return False
    return number != 0 or node.dtype.kind != "f" or bool(np.signbit(found) == np.signbit(number))


def both_ways(node: Node) -> Iterator[tuple[Node, Node]]:
    """The two operands of a commutative operation, in either order."""
    left, right = node.inputs
    yield left, right
    yield right, left


def like(value: Node, node: Node) -> Node:
    """`value` stretched to the shape of `node`, whose place it takes."""
    return value if value.shape == node.shape else make("broadcast_to", value, shape=node.shape)


def filled(number: Any, node: Node) -> Node:
    """`number` everywhere, in the shape and dtype of `node`."""
    value = np.asarray(number, node.dtype)
    return make("full", shape=node.shape, value=value.item(), dtype=node.dtype) if node.shape else constant(value)


def sample(dtype: str = "f4", *shape: int) -> Node:
    """An input for the sample of a rule; 3 x 4 when no shape is given."""
    return input_node(Aval(shape or (3, 4), canonical(dtype)), "x")


def scalar(number: Any, dtype: str = "f4") -> Node:
    return constant(np.asarray(number, np.dtype(dtype)))
