"""The kernels of a program as an SVG: a box for each launch, with its operations inside where there are few."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hybridml_compiler.graph.ir import Node
from hybridml_compiler.sizes.dims import hint

from ..reports import size
from .kernels import kernel_name
from .layers import Edge, Layout, layered

MOST_OPEN = 160  # operations; of larger programs the boxes are closed
_FAR = 6  # launches; in a drawing of closed boxes, what comes from further above is a note and no line across it all
_HEAD, _PAD = 34, 8
_COLOURS = {
    "contraction": "#bee3f8", "convolution": "#bee3f8", "reduction": "#feebc8", "scan": "#feebc8",
    "elementwise": "#c6f6d5", "random": "#e9d8fd", "control": "#fed7d7",
}  # fmt: skip
_PLAIN = "#edf2f7"
Keys = Callable[[str, Any], str]  # ("n" | "k", node or number of a launch) -> attribute that ties it to others


@dataclass(frozen=True)
class Drawing:
    """Markup, and the size that it needs."""

    body: str
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
    boxes.append(_box(label, _width(label), 24, "#ffffff", 12))
    widest = 1600 if opened else 900
    layout = layered([(box.width, box.height) for box in boxes], edges, widest=widest, unseen=far)
    return Drawing(_arrows(layout) + _placed(boxes, layout), layout.width, layout.height)


def _edges(launches: Sequence[Any], outputs: Iterable[Node]) -> list[Edge]:
    made: dict[Node, int] = {}
    edges: list[Edge] = []
    for k, launch in enumerate(launches):
        own = set(launch.nodes)
        reads = {n for node in launch.nodes for n in node.inputs if n not in own}
        edges += sorted((made[n], k) for n in reads if n in made)
        made |= dict.fromkeys(launch.nodes, k)
    return edges + sorted({(made[n], len(launches)) for n in outputs if n in made})


def _kernel(number: int, launch: Any, opened: bool, notes: Sequence[str], keys: Keys) -> Drawing:
    title = f"{number}: {kernel_name(launch)}"
    title = title if len(title) < 64 else title[:63] + "…"
    count = len(launch.nodes)
    facts = f"{count} operation{'s' * (count != 1)}, {size(launch.nbytes)}" if count else size(launch.nbytes)
    facts = "; ".join([facts, *notes])
    inside = _operations(launch.nodes, keys) if opened and count > 1 else Drawing("", 0, 0)
    width = max(_width(title, 6.6), _width(facts, 5.4), inside.width + 2 * _PAD)
    height = _HEAD + (inside.height + 2 * _PAD if inside.body else 0)
    tip = html.escape("\n".join([title, *launch.where, *launch.reasons]))
    kinds = [n.op.kind for n in launch.nodes if n.op]
    colour = next((_COLOURS[kind] for kind in _COLOURS if kind in kinds), _PLAIN)
    body = (
        f"<g class='e kernel' {keys('k', number)}><title>{tip}</title>"
        f"<rect width='{width:.0f}' height='{height:.0f}' rx='6' fill='{colour if not inside.body else '#f7fafc'}' "
        f"stroke='#4a5568'/><text x='8' y='15' font-weight='600'>{html.escape(title)}</text>"
        f"<text x='8' y='28' fill='#718096' font-size='10'>{html.escape(facts)}</text></g>"
    )
    if inside.body:
        left = (width - inside.width) / 2
        body += f"<g transform='translate({left:.0f},{_HEAD + _PAD})'>{inside.body}</g>"
    return Drawing(body, width, height)


def _operations(nodes: Sequence[Node], keys: Keys) -> Drawing:
    """What a kernel computes, from what it reads."""
    own = set(nodes)
    reads = list(dict.fromkeys(n for node in nodes for n in node.inputs if n not in own))
    everything = [*reads, *nodes]
    number = {node: k for k, node in enumerate(everything)}
    boxes = [_operand(node) for node in reads]
    boxes += [_operation(node, keys) for node in nodes]
    edges = [(number[operand], number[node]) for node in nodes for operand in node.inputs]
    layout = layered([(box.width, box.height) for box in boxes], edges, gap=(8, 16))
    return Drawing(_arrows(layout) + _placed(boxes, layout), layout.width, layout.height)


def _operand(node: Node) -> Drawing:
    if node.value is not None:
        label = str(node.value.item()) if node.value.size == 1 else f"constant {list(node.shape)}"
    else:
        label = node.name or (node.op.name if node.op else "input")
    label = label if len(label) < 28 else label[:27] + "…"
    return _box(label, _width(label, 5.6), 18, "#ffffff", 10, "stroke-dasharray='3 2'")


def _operation(node: Node, keys: Keys) -> Drawing:
    assert node.op is not None
    shape = str(node.aval)
    width = max(_width(node.op.name), _width(shape, 5.4))
    colour = _COLOURS.get(node.op.kind, _PLAIN)
    body = (
        f"<g class='e' {keys('n', node)}><title>{html.escape(node.where)}</title>"
        f"<rect width='{width:.0f}' height='30' rx='4' fill='{colour}' stroke='#a0aec0'/>"
        f"<text x='{width / 2:.0f}' y='13' text-anchor='middle'>{html.escape(node.op.name)}</text>"
        f"<text x='{width / 2:.0f}' y='25' text-anchor='middle' fill='#718096' font-size='9'>{html.escape(shape)}"
        "</text></g>"
    )
    return Drawing(body, width, 30)


def _box(label: str, width: float, height: float, colour: str, font: int, more: str = "") -> Drawing:
    body = (
        f"<rect width='{width:.0f}' height='{height:.0f}' rx='9' fill='{colour}' stroke='#a0aec0' {more}/>"
        f"<text x='{width / 2:.0f}' y='{height / 2 + font / 3:.0f}' text-anchor='middle' font-size='{font}'>"
        f"{html.escape(label)}</text>"
    )
    return Drawing(body, width, height)


def _placed(boxes: Sequence[Drawing], layout: Layout) -> str:
    return "".join(
        f"<g transform='translate({x:.0f},{y:.0f})'>{box.body}</g>"
        for box, (x, y) in zip(boxes, layout.corners, strict=True)
    )


def _arrows(layout: Layout) -> str:
    """Curves that leave downwards and arrive from above."""
    paths = []
    for points in layout.routes.values():
        (x, y), *rest = points
        path = [f"M{x:.0f} {y:.0f}"]
        for to_x, to_y in rest:
            middle = (y + to_y) / 2
            path.append(f"C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y:.0f}")
            x, y = to_x, to_y
        paths.append("".join(path))
    return f"<path class='edge' d='{''.join(paths)}'/>" if paths else ""


def _width(text: str, letter: float = 6.2) -> float:
    return len(text) * letter + 16
