"""The drawing of a graph: operations in boxes, in execution order downwards, those of one source line in a larger box.

A line of a loop, or one whose gradient is computed later, runs at several places: it has a box for each, since boxes
that lead to each other in a circle have no order.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from hybridml_compiler.aval import CPU
from hybridml_compiler.errors import ArgumentError, line_name
from hybridml_compiler.graph import ir

from ..core.source_location import split_line
from ..display.drawing import MOST_OPEN, Group, count, draw_groups, shorten
from ..display.reports import render

if TYPE_CHECKING:
    import networkx

_MOST_BOXES = 120
_MOST_NAMES = 3
_NOWHERE: Mapping[ir.Node, str] = MappingProxyType({})


@dataclass(frozen=True)
class GraphDrawing:
    """A drawing that `fn.graph.draw()` returns. Shown in notebooks; `save` writes it, `svg` is its text."""

    title: str
    svg: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the drawing as an SVG file, which a browser shows. Raises ArgumentError for another kind of file."""
        if Path(path).suffix.lower() != ".svg":
            raise ArgumentError(
                f"graph: draws SVG, got a path that ends in {Path(path).suffix!r}; call it {Path(path).stem}.svg"
            )
        Path(path).write_text(self.svg, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<drawing of {self.title}; show it in a notebook, or save(path) it>"

    def _repr_svg_(self) -> str:
        return self.svg


def draw(
    graph: ir.Graph,
    title: str,
    ends: Sequence[tuple[str, Sequence[ir.Node]]],
    where: Mapping[ir.Node, str] = _NOWHERE,
) -> GraphDrawing:
    """The drawing of a graph, with its results (`ends`, labelled) below. `where`: devices of operations that are
    computed elsewhere than on that of their value."""
    nodes = [node for node in graph.nodes() if node.op is not None]
    devices = {node: where.get(node, node.aval.device) for node in nodes}
    lines = by_line(nodes, devices)
    shown = lines[:_MOST_BOXES]
    notes = []
    if len(shown) < len(lines):
        rest = len(lines) - len(shown)
        notes.append(f"The first {len(shown)} boxes; {rest} more are not drawn. to_networkx() has every node.")
    if sum(count(nodes, True) for nodes in shown) > MOST_OPEN:
        notes.append(f"More than {MOST_OPEN} operations: each box stands for all operations of its line.")
    placed = devices if set(devices.values()) != {CPU} else {}
    groups = [_group(nodes, placed.get(nodes[0], "")) for nodes in shown]
    drawing = draw_groups(groups, ends if len(shown) == len(lines) else (), bodies=True)
    return GraphDrawing(title, render("graph.svg.jinja", title=title, drawing=drawing, notes=notes))


def by_line(nodes: Sequence[ir.Node], devices: Mapping[ir.Node, str] = _NOWHERE) -> list[list[ir.Node]]:
    """Nodes in groups of one source line and one device, each below all that it reads.

    A node joins the last group of its line, unless that leads to an operand of the node by way of another group.
    """
    import networkx

    groups: list[list[ir.Node]] = []
    order = networkx.DiGraph()
    last: dict[tuple[str, str], int] = {}
    group_of: dict[ir.Node, int] = {}
    for node in nodes:
        operands = {group_of[n] for n in node.inputs if n in group_of}
        place = node.where, devices.get(node, "")
        at = last.get(place)
        if at is None or any(_leads(order, at, k) for k in operands if k != at):
            at = last[place] = len(groups)
            groups.append([])
            order.add_node(at)
        groups[at].append(node)
        group_of[node] = at
        order.add_edges_from((k, at) for k in operands if k != at)
    return [groups[k] for k in networkx.lexicographical_topological_sort(order)]


def _leads(order: networkx.DiGraph, start: int, end: int) -> bool:
    import networkx

    found: bool = networkx.has_path(order, start, end)
    return found


def _group(nodes: Sequence[ir.Node], device: str) -> Group:
    file, number, text = split_line(nodes[0].where)
    names = list(dict.fromkeys(node.op.name for node in nodes if node.op is not None))
    listed = ", ".join(names[:_MOST_NAMES]) + (" ..." if len(names) > _MOST_NAMES else "")
    fact = f"{line_name(file, number)}, {listed}" if number else listed
    fact += f" on {device}" if device else ""
    tip = "\n".join(filter(None, [nodes[0].where, ", ".join(names)]))
    return Group(shorten(text or file or listed, 64), [shorten(fact, 76)], tip, nodes)


def some_names(names: Collection[str]) -> str:
    """The first names, and how many more there are."""
    listed = ", ".join(list(names)[:_MOST_NAMES])
    return f"{listed} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else listed
