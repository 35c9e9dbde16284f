"""Values that are cheaper to compute again than to keep, now that it is known which kernels read them.

Before nodes are grouped, every reader counts as a kernel of its own; afterwards the six readers of 1 + tanh(x) in the
gradient of gelu are one kernel, which loads tanh(x) anyway. Writing the sum and reading it back would take ten times as
long as the addition. (A first step towards a minimum cut: a value goes where all that it is computed from is at hand.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..graph.ir import Node
from . import cost
from .group import Group, expression_of, reads_in_place, reduced_axes
from .lower import inline_cost


def computed_again(
    order: Sequence[Node],
    candidates: Collection[Node],
    materialised: Mapping[Node, str],
    groups: Sequence[Group],
    owner: Mapping[Node, Group],
) -> set[Node]:
    """The candidates that no longer need memory."""
    readers: dict[Node, list[Group]] = {node: [] for node in candidates}
    for group in groups:
        for node in group.reads:
            if node in readers and owner[node] is not group:
                readers[node].append(group)
    far = sum(node.aval.nbytes for node in materialised) > cost.CACHE_BYTES
    kept = dict(materialised)
    again: set[Node] = set()
    for node in order:
        if not readers.get(node):
            continue
        leaves, _ = expression_of(node, kept)
        if all(_at_hand(node, leaves, group, owner) for group in readers[node]):
            count, nbytes = len(readers[node]), node.dtype.itemsize
            weight = inline_cost(node, lambda n: n in kept or n.is_input or n.is_constant)
            if count * weight < cost.memory_cost((1.5 + count) * nbytes, far):
                again.add(node)
                del kept[node]
    return again


def _at_hand(node: Node, leaves: Collection[Node], group: Group, owner: Mapping[Node, Group]) -> bool:
    """Does the group read the node element for element, and also what it is computed from (or is that small)?"""
    large = [leaf for leaf in leaves if leaf.aval.size * 16 > node.aval.size]
    return all(leaf in group.reads for leaf in large) and all(_by_element(root, node, owner) for root in group.roots)


def _by_element(root: Node, node: Node, owner: Mapping[Node, Group]) -> bool:
    if not reduced_axes(root):
        return reads_in_place(root, node, owner)
    (operand, *_) = root.inputs
    return operand is node or operand in owner or reads_in_place(operand, node, owner)
