"""The checks of a final graph that need a launch of their own: those that no other launch makes."""

from __future__ import annotations

from ..graph.checks import INDEXED, limit, operand, same_size, whole
from ..graph.ir import Graph, Node
from .fusion.group import OWN_LOOP


def settled(graph: Graph) -> Graph:
    """The graph without the checks of indices that it looks up, and checks, anyway."""
    if not graph.checks:
        return graph
    lookups = {root: lookup for root in graph.checks if (lookup := _lookup(root)) is not None}
    own = set(lookups.values())
    nodes = graph.nodes()
    roots = [*graph.outputs, *(root for root in graph.checks if root not in lookups), *map(operand, own)]
    mine = {*lookups, *own, *(n for root in lookups for n in _chain(root))}
    found = whole([n for n in nodes if n not in mine or n in graph.outputs], roots, OWN_LOOP)
    looked_up = {
        (operand(n), limit(n))
        for n in found
        if n.op is not None and n.op.kind in INDEXED and n.kind in INDEXED and n not in own and not same_size(n, 0)
    }
    looked_up |= {(operand(n), limit(n)) for n in own & found}
    kept: dict[object, Node] = {}
    for root in graph.checks:
        if root.op is None:
            continue  # it has been folded: the index exists
        if root not in lookups:
            kept.setdefault(root, root)
        elif (what := (operand(lookups[root]), limit(lookups[root]))) not in looked_up:
            kept.setdefault(what, root)
    return Graph(graph.inputs, graph.outputs, graph.name, tuple(kept.values()))


def _lookup(root: Node) -> Node | None:
    """The node `index(...)` of a check that reads nothing else."""
    return next((n for n in _chain(root) if n.op is not None and n.op.name == "index"), None)


def _chain(root: Node) -> list[Node]:
    """A check down to the indices."""
    found = [root]
    while root.op is not None and root.op.name != "index" and len(root.inputs) == 1 and root.kind in (
        "reduction", "movement", "elementwise",
    ):  # fmt: skip
        (root,) = root.inputs
        found.append(root)
    return found
