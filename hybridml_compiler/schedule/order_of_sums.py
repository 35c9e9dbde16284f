"""The order in which the reductions of a plan add up, which decides their bits.

A kernel adds up in the loops that it has, and those depend on what it computes by the way: loops over rows and columns
are one where all that is read lies in their order, and two where a row of it is read more than once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..graph.facts import reduced_axes
from ..graph.ir import Node
from ..loops.ir import LoopKind, Reduce, extent, statements
from ..sizes.dims import Size
from .launch import Plan

Loops = frozenset[tuple[tuple[Size, ...], LoopKind]]


def orders(plan: Plan) -> dict[Node, Loops]:
    """The loops of each reduction; of those of one launch over as many elements, the loops of all of them."""
    found: dict[Node, Loops] = {}
    for launch in plan.launches:
        reductions = {node: axes for node in launch.nodes if (axes := reduced_axes(node))}
        if not reductions:
            continue
        reduces = [x for nest in launch.spec.nests for x in statements(nest.body) if isinstance(x, Reduce)]
        loops = [(tuple(map(extent, x.vars)), x.kind) for x in reduces if x.op in ("add", "mul")]
        for node, axes in reductions.items():
            count = math.prod(node.inputs[0].shape[k] for k in axes)
            found[node] = frozenset(x for x in loops if math.prod(x[0]) == count)
    return found


def add_up_alike(plan: Plan, other: Plan, copies: Mapping[Node, Node]) -> bool:
    """Whether the reductions of another plan, of which some are copies of those of this one, have the same order."""
    before = orders(plan)
    return all(before.get(copies.get(node, node), loops) == loops for node, loops in orders(other).items())
