"""The kernels of a program as a drawing: a box for each launch, with its operations inside where there are few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hybridml_compiler.graph.ir import Node
from hybridml_compiler.sizes.dims import hint

from ..display.reports import size
from .kernels import kernel_name
from .layers import Edge, Layout, layered

MOST_OPEN = 160  # operations; of larger programs the boxes are closed
_FAR = 6  # launches; in a drawing of closed boxes, what comes from further above is a note and no line across it all
_HEAD, _PAD = 34, 8
_KINDS = ("contraction", "convolution", "reduction", "scan", "elementwise", "random", "control")
Keys = Callable[[str, Any], list[str]]  # ("n" | "k", node or number of a launch) -> keys that tie it to others


@dataclass(frozen=True)
class Box:
    """A rectangle with its text: a kernel, an operation, an operand or the result, which is its `role`.

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


def draw_program(launches: Sequence[Any], outputs: Sequence[Node], keys: Keys) -> Drawing:
    """Launches in order, what each hands to which, and what the program returns."""
    opened = sum(len(launch.nodes) for launch in launches) <= MOST_OPEN
    again = [k > 0 and bool(x.nodes) and x.nodes == launches[k - 1].nodes for k, x in enumerate(launches)]
    continued = [*again[1:], False]  # the next launch is of the same operations, and shows them
    edges = _edges(launches, outputs)
    edges += [(k - 1, k) for k, repeated in enumerate(again) if repeated]
    far = set() if opened else {(a, b) for a, b in edges if b - a > _FAR}
    boxes = []
    for k, launch in enumerate(launches):
        notes = [f"goes on with {k - 1}"] * again[k]
        sources = [str(a) for a, b in sorted(far) if b == k]
        notes += [f"reads {', '.join(sources)}"] * bool(sources)
        boxes.append(_kernel(k, launch, opened and not continued[k], notes, keys))
    names = ", ".join(f"{node.dtype.name}{list(map(hint, node.shape))}" for node in outputs[:4])
    more = f" and {len(outputs) - 4} more" if len(outputs) > 4 else ""
    label = f"returns {names}{more}" if outputs else "returns nothing"
    boxes.append(Box("result", _width(label), 24, label))
    widest = 1600 if opened else 900
    return _drawn(boxes, layered(_sizes(boxes), edges, widest=widest, unseen=far))


def _edges(launches: Sequence[Any], outputs: Iterable[Node]) -> list[Edge]:
    made: dict[Node, int] = {}
    edges: list[Edge] = []
    for k, launch in enumerate(launches):
        own = set(launch.nodes)
        reads = {n for node in launch.nodes for n in node.inputs if n not in own}
        edges += sorted((made[n], k) for n in reads if n in made)
        made |= dict.fromkeys(launch.nodes, k)
    return edges + sorted({(made[n], len(launches)) for n in outputs if n in made})


def _kernel(number: int, launch: Any, opened: bool, notes: Sequence[str], keys: Keys) -> Box:
    title = _short(f"{number}: {kernel_name(launch)}", 64)
    count = len(launch.nodes)
    facts = f"{count} operation{'s' * (count != 1)}, {size(launch.nbytes)}" if count else size(launch.nbytes)
    facts = "; ".join([facts, *notes])
    inside = _operations(launch.nodes, keys) if opened and count > 1 else None
    width, height, kind = max(_width(title, 6.6), _width(facts, 5.4)), float(_HEAD), ""
    if inside is not None:
        width, height = max(width, inside.width + 2 * _PAD), height + inside.height + 2 * _PAD
    else:
        kinds = [node.op.kind for node in launch.nodes if node.op]
        kind = next((kind for kind in _KINDS if kind in kinds), "")
    tip = "\n".join([title, *launch.where, *launch.reasons])
    return Box("kernel", width, height, title, facts, kind, tip, keys("k", number), inside)


def _operations(nodes: Sequence[Node], keys: Keys) -> Drawing:
    """What a kernel computes, from what it reads."""
    own = set(nodes)
    reads = list(dict.fromkeys(n for node in nodes for n in node.inputs if n not in own))
    number = {node: k for k, node in enumerate([*reads, *nodes])}
    boxes = [*map(_operand, reads), *(_operation(node, keys) for node in nodes)]
    edges = [(number[operand], number[node]) for node in nodes for operand in node.inputs]
    return _drawn(boxes, layered(_sizes(boxes), edges, gap=(8, 16)))


def _operand(node: Node) -> Box:
    if node.value is not None:
        label = str(node.value.item()) if node.value.size == 1 else f"constant {list(node.shape)}"
    else:
        label = node.name or (node.op.name if node.op else "input")
    label = _short(label, 28)
    return Box("operand", _width(label, 5.6), 18, label)


def _operation(node: Node, keys: Keys) -> Box:
    assert node.op is not None
    shape = str(node.aval)
    width = max(_width(node.op.name), _width(shape, 5.4))
    return Box("operation", width, 30, node.op.name, shape, node.op.kind, node.where, keys("n", node))


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


def _short(text: str, most: int) -> str:
    return text if len(text) < most else f"{text[: most - 1]}…"


def _width(text: str, letter: float = 6.2) -> float:
    return len(text) * letter + 16
