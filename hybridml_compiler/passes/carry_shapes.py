"""Arrays that steps update through a reshape: `h[a[i], b[i]] += 1` scatters into the flat array. A loop carries such an
array in the shape in which it is updated, so that it stays where it is (see schedule/fusion/in_place.py).

    h = reshape(scatter_set(reshape(h, (m * n,)), at, v), (m, n))        h = scatter_set(h, at, v), for a flat h

Slices that are updated beside, `h[0, 0] = 1`, are slices of the flat array where they are whole in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..graph.ir import Node, input_node
from ..graph.rewrite import make
from ..graph.updates import old_of
from ..ops.shapes import count, positions
from ..record import replace
from ..sizes.dims import Size, is_symbolic, same
from .loop_parts import Loop, Results, base_of, substitute
from .patterns import is_op


def in_shapes_of_updates(loop: Loop) -> dict[int, tuple[int, ...]]:
    """The shapes that carries have had, by number, of those that now have the shape in which they are updated."""
    for _, own, after in list(loop.carries):
        loop.substituted(_slices_in_shape(own, after))
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


def _slices_in_shape(own: Node, after: Node) -> dict[Node, Node]:
    """Updates of slices of a carry in the shape in which its other updates are; nothing where they have none, or not
    all slices have a place there."""
    updates: list[Node] = []
    node = base_of(after)
    while node is not own:
        old = old_of(node)
        if old is None:
            return {}
        updates.append(node)
        node = base_of(old)
    shapes = {node.shape for node in updates} - {own.shape}
    if len(shapes) != 1 or is_symbolic(own.shape):
        return {}
    (shape,) = shapes
    made: dict[Node, Node] = {}
    for node in reversed(updates):
        if node.shape == shape:
            continue
        window = _window(node, shape) if is_op(node, "slice_update") else None
        if window is None:
            return {}
        base, value = substitute(node.inputs, made)
        starts, sizes = window
        stops = tuple(start + n for start, n in zip(starts, sizes, strict=True))
        flat, part = make("reshape", base, shape=shape), make("reshape", value, shape=sizes)
        written = make("slice_update", flat, part, starts=starts, stops=stops, steps=(1,) * len(shape))
        made[node] = make("reshape", written, shape=node.shape)
    return made


def _window(update: Node, shape: Sequence[int]) -> tuple[tuple[Size, ...], tuple[Size, ...]] | None:
    """Starts and sizes of the slice of an update in the array of another shape; None where it is no slice of that."""
    p = update.params
    steps = p["steps"] or (1,) * len(update.shape)
    axes = [*zip(p["starts"], map(count, map(positions, p["starts"], p["stops"], steps)), update.shape, strict=True)]
    if any(step != 1 for step in steps) or update.inputs[1].shape != tuple([n for _, n, _ in axes]):
        return None
    found = [_joined(group) for group in _groups(axes, shape)]
    if len(found) != len(shape) or None in found:
        return None
    starts, sizes = zip(*[axis for axis in found if axis is not None], strict=True)
    return starts, sizes


Axis = tuple[Size, Size, int]  # where a slice begins, its size, and that of the axis


def _groups(axes: Sequence[Axis], shape: Sequence[int]) -> Iterator[Sequence[Axis]]:
    """The axes that each axis of the other shape is made of; fewer where that is not made by joining axes."""
    at = 0
    for size in shape:
        first, total = at, 1
        while at < len(axes) and (total < size or axes[at][2] == 1):
            total, at = total * axes[at][2], at + 1
        if total != size:
            return
        yield axes[first:at]


def _joined(axes: Sequence[Axis]) -> tuple[Size, Size] | None:
    """Start and size of a slice of several axes in the axis that they are together; None where it has gaps there."""
    start: Size = 0
    size: Size = 1
    for k, (begin, n, whole) in enumerate(axes):
        start = start * whole + begin
        if not same(n, 1) and any(not same(m, all_of) for _, m, all_of in axes[k + 1 :]):
            return None
        size = size * n
    return start, size
