"""Operations in groups as a drawing: a box for each group, with its operations inside where there are few.

The profiler draws the kernels of a program so, `fn.graph.draw()` the source lines of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hybridml_compiler.graph.body import Body, bodies_of, family
from hybridml_compiler.graph.ir import Node
from hybridml_compiler.sizes.dims import hint

from .layers import Edge, Layout, layered

MOST_OPEN = 160  # operations; of larger programs the boxes are closed
_FAR = 6  # groups; in a drawing of closed boxes, what comes from further above is a note and no line across it all
_HEAD, _PAD = 34, 8
_BODY_TOP = 42  # as in boxes.svg.jinja
_KINDS = ("contraction", "convolution", "reduction", "scan", "elementwise", "random", "control")
Keys = Callable[[str, Any], Sequence[str]]  # ("n" | "k", node or number of a group) -> keys that tie it to others


@dataclass(frozen=True)
class Box:
    """A rectangle with its text: a kernel or another group, an operation, an operand or the result: its `role`.

    `kind` is that of the operation, which gives the colour. `note` is a second line of text, `keys` tie the box to
    others, `inside` is drawn within it.
    """

    role: str
    width: float
    height: float
    text: str
    note: str = ""
    kind: str = ""
    tip: str = ""
    keys: Sequence[str] = ()
    inside: Drawing | None = None


@dataclass(frozen=True)
class Drawing:
    """Boxes with the corners at which they are drawn, the path of the arrows between them, and the size of all."""

    boxes: list[tuple[Box, tuple[float, float]]]
    arrows: str
    width: float
    height: float


@dataclass(frozen=True)
class Group:
    """Operations that are drawn in one box; `notes` are below the title, `tip` is shown under the pointer.

    A group that `repeats` the operations of the one before shows them in its place.
    """

    title: str
    notes: Sequence[str]
    tip: str
    nodes: Sequence[Node]
    repeats: bool = False


def no_keys(role: str, what: Any) -> Sequence[str]:
    """No keys, for a drawing that stands alone."""
    return ()


def draw_groups(
    groups: Sequence[Group], results: Sequence[tuple[str, Sequence[Node]]], keys: Keys = no_keys, *,
    bodies: bool = False,
) -> Drawing:  # fmt: skip
    """Draws groups in order, their edges, and labelled results below them. `bodies`: of loops and branches, too.

    Every operand of a group is an input or a value of its own or of groups before it.
    """
    opened = sum(count(group.nodes, bodies) for group in groups) <= MOST_OPEN
    edges = _edges(groups, results)
    edges += [(k - 1, k) for k, group in enumerate(groups) if group.repeats]
    far = set() if opened else {(a, b) for a, b in edges if b - a > _FAR}
    continued = [*(group.repeats for group in groups[1:]), False]
    boxes = []
    for k, group in enumerate(groups):
        sources = [str(a) for a, b in sorted(far) if b == k]
        notes = "; ".join([*group.notes, *([f"reads {', '.join(sources)}"] if sources else [])])
        inside = None
        if opened and not continued[k] and (len(group.nodes) > 1 or (bodies and any(map(_has_bodies, group.nodes)))):
            inside = _operations(group.nodes, keys, bodies)
        boxes.append(_group(group, notes, inside, keys("k", k)))
    boxes += [Box("result", text_width(label), 24, label) for label, _ in results]
    widest = 1600 if opened else 900
    return _drawn(boxes, layered(_sizes(boxes), edges, widest=widest, unseen=far))


def count(nodes: Iterable[Node], bodies: bool) -> int:
    """The number of operations to draw; constants are part of what reads them."""
    found = 0
    for node in nodes:
        found += node.op is not None
        if bodies:
            found += sum(count(body.graph.nodes(), True) for body in bodies_of(node))
    return found


def describe(nodes: Sequence[Node]) -> str:
    """Types of results: `float32[3], float32[] and 2 more`."""
    names = ", ".join(f"{node.dtype.name}{list(map(hint, node.shape))}" for node in nodes[:4])
    return f"{names} and {len(nodes) - 4} more" if len(nodes) > 4 else names or "nothing"


def _edges(groups: Sequence[Group], results: Sequence[tuple[str, Sequence[Node]]]) -> list[Edge]:
    made: dict[Node, int] = {}
    edges: list[Edge] = []
    for k, group in enumerate(groups):
        own = set(group.nodes)
        reads = {n for node in group.nodes for n in node.inputs if n not in own}
        edges += sorted((made[n], k) for n in reads if n in made)
        made |= dict.fromkeys(group.nodes, k)
    for k, (_, nodes) in enumerate(results, len(groups)):
        edges += sorted({(made[n], k) for n in nodes if n in made})
    return edges


def _group(group: Group, notes: str, inside: Drawing | None, keys: Sequence[str]) -> Box:
    width, height, kind = max(text_width(group.title, 6.6), text_width(notes, 5.4)), float(_HEAD), ""
    if inside is not None:
        width, height = max(width, inside.width + 2 * _PAD), height + inside.height + 2 * _PAD
    else:
        kinds = [node.op.kind for node in group.nodes if node.op]
        kind = next((kind for kind in _KINDS if kind in kinds), "")
    return Box("kernel", width, height, group.title, notes, kind, group.tip, keys, inside)


def _operations(nodes: Sequence[Node], keys: Keys, bodies: bool) -> Drawing:
    """The drawing of a group's operations, with the operands that it reads."""
    own = set(nodes)
    reads = list(dict.fromkeys(n for node in nodes for n in node.inputs if n not in own))
    number = {node: k for k, node in enumerate([*reads, *nodes])}
    boxes = [*map(_operand, reads)]
    shown: set[Any] = set()  # operations with several results: the first of them shows the bodies
    for node in nodes:
        inside = None
        if bodies and _has_bodies(node) and family(node) not in shown:
            shown.add(family(node))
            inside = _bodies(node, keys)
        boxes.append(_operation(node, keys, inside))
    edges = [(number[operand], number[node]) for node in nodes for operand in node.inputs]
    return _drawn(boxes, layered(_sizes(boxes), edges, gap=(8, 16)))


def _has_bodies(node: Node) -> bool:
    return any(True for _ in bodies_of(node))


def _bodies(node: Node, keys: Keys) -> Drawing:
    """The bodies of a loop or a branch, side by side."""
    boxes = []
    for name, body in sorted(node.params.items()):
        if not isinstance(body, Body):
            continue
        nodes = [n for n in body.graph.nodes() if n.op is not None]
        inside = _operations(nodes, keys, True) if nodes else None
        boxes.append(_group(Group(name, (), "", ()), f"returns {describe(body.graph.outputs)}", inside, ()))
    return _drawn(boxes, layered(_sizes(boxes), []))


def _operand(node: Node) -> Box:
    if node.value is not None:
        label = str(node.value.reshape(())[()]) if node.value.size == 1 else f"constant {list(node.shape)}"
    else:
        label = node.name or (node.op.name if node.op else "input")
    label = shorten(label, 28)
    return Box("operand", text_width(label, 5.6), 18, label)


def _operation(node: Node, keys: Keys, inside: Drawing | None) -> Box:
    assert node.op is not None
    shape = str(node.aval)
    width, height = max(text_width(node.op.name), text_width(shape, 5.4)), 30.0
    if inside is not None:
        width, height = max(width, inside.width + 2 * _PAD), _BODY_TOP + inside.height + _PAD
    return Box("operation", width, height, node.op.name, shape, node.op.kind, node.where, keys("n", node), inside)


def _sizes(boxes: Sequence[Box]) -> list[tuple[float, float]]:
    return [(box.width, box.height) for box in boxes]


def _drawn(boxes: Sequence[Box], layout: Layout) -> Drawing:
    return Drawing(list(zip(boxes, layout.corners, strict=True)), _arrows(layout), layout.width, layout.height)


def _arrows(layout: Layout) -> str:
    """The path of curves that leave downwards and arrive from above."""
    paths = []
    for points in layout.routes.values():
        (x, y), *rest = points
        path = [f"M{x:.0f} {y:.0f}"]
        for to_x, to_y in rest:
            middle = (y + to_y) / 2
            path.append(f"C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y:.0f}")
            x, y = to_x, to_y
        paths.append("".join(path))
    return "".join(paths)


def shorten(text: str, most: int) -> str:
    """The text, cut with an ellipsis where it has more characters than that."""
    return text if len(text) < most else f"{text[: most - 1]}…"


def text_width(text: str, letter: float = 6.2) -> float:
    """Width of a box around a text, by the mean width of a letter."""
    return len(text) * letter + 16
