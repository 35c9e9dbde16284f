"""Arrays that steps update through a reshape: `h[a[i], b[i]] += 1` scatters into the flat array. A loop carries such an
array in the shape in which it is updated, so that it stays where it is (see schedule/fusion/in_place.py).

    h = reshape(scatter_set(reshape(h, (m * n,)), at, v), (m, n))        h = scatter_set(h, at, v), for a flat h
"""

from __future__ import annotations

from ..graph.ir import Node, input_node
from ..graph.rewrite import make
from ..graph.updates import old_of
from ..record import replace
from .loop_parts import Loop, Results, base_of


def in_shapes_of_updates(loop: Loop) -> dict[int, tuple[int, ...]]:
    """The shapes that carries have had, by number, of those that now have the shape in which they are updated."""
    before: dict[int, tuple[int, ...]] = {}
    stand: dict[Node, Node] = {}
    for k, (start, own, after) in enumerate(loop.carries):
        shape = _shape_of_updates(own, after)
        if shape is not None:
            other = input_node(replace(own.aval, shape=shape), own.name, own.where)
            loop.carries[k] = make("reshape", start, shape=shape), other, base_of(after)
            stand[own], before[k] = make("reshape", other, shape=own.shape), own.shape
    if stand:
        loop.substituted(stand)
    return before


def with_shapes(results: Results, shapes: dict[int, tuple[int, ...]]) -> Results:
    """The results of a loop in the shapes of its carries before."""
    return {k: make("reshape", node, shape=shapes[k]) if k in shapes else node for k, node in results.items()}


def _shape_of_updates(own: Node, after: Node) -> tuple[int, ...] | None:
    """The one shape, another one than its own, in which a carry is updated in a step; None where there is none."""
    node = base_of(after)
    shape = node.shape
    if shape == own.shape or node is own:
        return None
    while node is not own:
        old = old_of(node) if node.shape == shape else None
        if old is None:
            return None
        node = base_of(old)
    return shape
