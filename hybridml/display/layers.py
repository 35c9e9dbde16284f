"""Layered layout of a graph's nodes: layers from the top down, every edge leading downwards.

As K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of hierarchical system structures" (IEEE Trans.
Systems, Man, and Cybernetics 11, 1981): a layer for each node, points for edges to pass the layers between, an order in
each layer by the mean of the neighbours' positions, and then the places, as near to the neighbours as order allows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8
_THIN = 6.0  # width of an edge that passes a layer
Edge = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Upper left corners of the boxes, the points that each edge goes through, and the size of the whole."""

    corners: list[tuple[float, float]]
    routes: dict[Edge, list[tuple[float, float]]]
    width: float
    height: float


def layered(
    sizes: Sequence[tuple[float, float]], edges: Sequence[Edge], *, gap: tuple[float, float] = (14, 26),
    widest: float = 1600, unseen: Collection[Edge] = (),
) -> Layout:  # fmt: skip
    """Boxes of (width, height), numbered so that every edge leads to a higher number. A layer that would be wider than
    `widest` goes on in the next. Edges that are `unseen` lead downwards like all, but have no route.

    >>> found = layered([(10, 10), (10, 10)], [(0, 1)])
    >>> found.corners[0][1] < found.corners[1][1]
    True
    """
    edges = list(dict.fromkeys(edges))
    layer = _layers(sizes, edges, gap[0], widest)
    widths = [width for width, _ in sizes]
    links: list[Edge] = []
    paths: dict[Edge, list[int]] = {}
    for a, b in edges:
        if (a, b) in unseen:
            continue
        path = [a]
        for between in range(layer[a] + 1, layer[b]):
            layer.append(between)
            widths.append(_THIN)
            path.append(len(layer) - 1)
        path.append(b)
        paths[a, b] = path
        links += pairwise(path)
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node, at in enumerate(layer):
        rows[at].append(node)
    above: list[list[int]] = [[] for _ in layer]
    below: list[list[int]] = [[] for _ in layer]
    for a, b in links:
        above[b].append(a)
        below[a].append(b)
    x = _places(rows, widths, above, below, gap[0])
    left = min((x[n] - widths[n] / 2 for n in range(len(x))), default=0.0)
    tops: list[float] = []
    heights: list[float] = []
    y = 0.0
    for row in rows:
        tops.append(y)
        heights.append(max((sizes[n][1] for n in row if n < len(sizes)), default=0.0))
        y += heights[-1] + gap[1]
    corners = [(x[n] - widths[n] / 2 - left, tops[layer[n]]) for n in range(len(sizes))]
    routes = {}
    for (a, b), path in paths.items():
        first = (x[a] - left, corners[a][1] + sizes[a][1])
        inner = [
            (x[n] - left, edge) for n in path[1:-1] for edge in (tops[layer[n]], tops[layer[n]] + heights[layer[n]])
        ]
        routes[a, b] = [first, *inner, (x[b] - left, corners[b][1])]
    width = max((x[n] + widths[n] / 2 - left for n in range(len(x))), default=0.0)
    return Layout(corners, routes, width, max(y - gap[1], 0.0))


def _layers(sizes: Sequence[tuple[float, float]], edges: Sequence[Edge], gap: float, widest: float) -> list[int]:
    """The layer of each node: the first with room below its operands; for one without operands, just above its user."""
    before: list[list[int]] = [[] for _ in sizes]
    after: list[list[int]] = [[] for _ in sizes]
    for a, b in edges:
        before[b].append(a)
        after[a].append(b)
    layer = [0] * len(sizes)
    used: dict[int, float] = {}
    for node, (width, _) in enumerate(sizes):
        at = max((layer[n] + 1 for n in before[node]), default=0)
        while used.get(at, 0.0) and used[at] + width > widest:
            at += 1
        layer[node] = at
        used[at] = used.get(at, 0.0) + width + gap
    for node in reversed(range(len(sizes))):
        if not before[node] and after[node]:
            layer[node] = max(min(layer[n] for n in after[node]) - 1, 0)
    return layer


def _places(
    rows: list[list[int]], widths: Sequence[float], above: list[list[int]], below: list[list[int]], gap: float
) -> list[float]:
    """The middle of every node; sweeps down and up by turns, the last of them without a change of the order."""
    x = [0.0] * len(widths)
    for row in rows:
        _settle(row, [float(k) for k in range(len(row))], widths, gap, x)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for row in rows if down else reversed(rows):
            wish = {n: sum(x[m] for m in near[n]) / len(near[n]) if near[n] else x[n] for n in row}
            if sweep < _SWEEPS - 2:
                row.sort(key=wish.__getitem__)
            _settle(row, [wish[n] for n in row], widths, gap, x)
    return x


def _settle(row: Sequence[int], wishes: Sequence[float], widths: Sequence[float], gap: float, x: list[float]) -> None:
    """Places in this order without overlap, the squares of the distances to the wishes as small as can be: neighbours
    that would overlap form a block, whose place is the mean of its members' wishes."""
    offset, offsets = 0.0, []
    for k, node in enumerate(row):
        offset += (widths[row[k - 1]] + widths[node]) / 2 + gap if k else 0.0
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []  # sum of wishes less offsets, count
    for wish, shift in zip(wishes, offsets, strict=True):
        total, count = wish - shift, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            more, others = blocks.pop()
            total, count = total + more, count + others
        blocks.append((total, count))
    starts = [total / count for total, count in blocks for _ in range(count)]
    for node, start, shift in zip(row, starts, offsets, strict=True):
        x[node] = start + shift
