"""Values that are cheaper to compute again than to keep, now that it is known which kernels read them.

Before nodes are grouped, every reader counts as a kernel of its own; afterwards the six readers of 1 + tanh(x) in the
gradient of gelu are one kernel, which loads tanh(x) anyway. Writing the sum and reading it back would take ten times as
long as the addition. What a kernel does not load yet it can load instead: a product of two values that are in memory
costs it one more load, and saves the writing.

With one kernel that makes values and one that reads them, the best set to keep is a minimum cut. Here there are many
readers, each of which may load a value, or compute it if all below is at hand, and share the writing; that is no cut.
Values are therefore looked at one by one, operands first, with what the ones before have changed.
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
    written: set[Node] = set()  # what some other kernel reads
    for group in groups:
        for node in group.reads:
            if owner.get(node) is not group:
                written.add(node)
                if node in readers:
                    readers[node].append(group)
    loads = {group: set(group.reads) for kernels in readers.values() for group in kernels}
    far = sum(node.aval.nbytes for node in materialised) > cost.CACHE_BYTES
    kept = dict(materialised)
    again: set[Node] = set()
    for node in order:
        if not readers.get(node):
            continue
        leaves, _ = expression_of(node, kept)
        if not all(_replaces(node, leaves - loads[group], group, owner) for group in readers[node]):
            continue
        count, size = len(readers[node]), max(node.aval.size, 1)
        new: float = sum(leaf.aval.nbytes for group in readers[node] for leaf in leaves - loads[group])
        new += sum(1.5 * leaf.aval.nbytes for leaf in leaves if leaf.op is not None and leaf not in written)
        weight = inline_cost(node, lambda n: n in kept or n.is_input or n.is_constant)
        if count * weight + cost.memory_cost(new / size, far) < cost.memory_cost(
            (1.5 + count) * node.dtype.itemsize, far
        ):
            again.add(node)
            del kept[node]
            written |= leaves
            for group in readers[node]:
                loads[group] |= leaves
    return again


def _replaces(node: Node, new: Collection[Node], group: Group, owner: Mapping[Node, Group]) -> bool:
    """Can the group load what the node is computed from instead? It must read the node element for element; and large
    inputs that it does not read yet might be overwritten before it runs."""
    small = all(leaf.op is not None or leaf.aval.size * 16 <= node.aval.size for leaf in new)
    return small and all(_by_element(root, node, owner) for root in group.roots)


def _by_element(root: Node, node: Node, owner: Mapping[Node, Group]) -> bool:
    if not reduced_axes(root):
        return reads_in_place(root, node, owner)
    (operand, *_) = root.inputs
    return operand is node or operand in owner or reads_in_place(operand, node, owner)
