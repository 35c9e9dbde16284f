"""The shape in which a loop computes its result. Reshapes keep the order of elements, so the loop may run over the
shape from before: its indices then need no division and remainder for each element ([Note: Lowering])."""

from __future__ import annotations

from collections.abc import Callable

from ...graph.ir import Node, apply
from ...ops.table import OPS
from ...sizes.dims import is_dim

Shape = tuple[int, ...]
Given = Callable[[Node], bool]  # whether it is in memory, or a constant


def in_shape_of_source(root: Node, given: Given) -> Node:
    """The same elements in the same order, in the shape in which the operand of `root`'s reshapes is computed; or
    `root`."""
    shape = _source_shape(root, given)
    if shape is None or any(map(is_dim, (*shape, *root.shape))):
        return root
    return _moved(root, root.shape, shape, given, {}) or root


def _source_shape(root: Node, given: Given) -> Shape | None:
    """Shape of the first value that is computed and then reshaped, if nothing but elementwise work comes after."""
    stack, seen = [root], set[Node]()
    while stack:
        node = stack.pop()
        if node in seen or given(node) or node.shape != root.shape:
            continue
        seen.add(node)
        if _is_reshape(node):
            source = _before(node, given)
            if not given(source):
                return source.shape
        elif node.kind == "elementwise":
            stack += reversed(node.inputs)
    return None


def _moved(node: Node, old: Shape, new: Shape, given: Given, known: dict[Node, Node | None]) -> Node | None:
    """`node`, of the shape `old` or a single element, as an operand in the shape `new`; None where it is neither."""
    if node.shape != old:
        return node if all(n == 1 for n in node.shape) and len(node.shape) <= len(new) else None
    if given(node) or _is_reshape(node):
        source = _before(node, given)
        return source if source.shape == new else apply(OPS["reshape"], [source], {"shape": new}, node.where)
    if node.kind != "elementwise" or node.op is None:
        return None
    if node not in known:
        operands = [_moved(operand, old, new, given, known) for operand in node.inputs]
        found = [operand for operand in operands if operand is not None]
        known[node] = apply(node.op, found, node.params, node.where) if len(found) == len(operands) else None
    return known[node]


def _is_reshape(node: Node) -> bool:
    return node.op is not None and node.op.element_map == "flat"


def _before(node: Node, given: Given) -> Node:
    """The value before the reshapes of a value."""
    while _is_reshape(node) and not given(node):
        node = node.inputs[0]
    return node
