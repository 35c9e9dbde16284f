"""Minimum cuts, by Dinic's algorithm (1970): shortest paths first, all paths of one length in one phase.

Networks here have tens of vertices, and networkx takes longer to import than a small step to compile
([Note: Design changes]); the tests compare with it.
"""

from __future__ import annotations

from collections.abc import Iterable

Edge = tuple[int, int, int]  # from, to, capacity


def minimum_cut(size: int, edges: Iterable[Edge], source: int, sink: int) -> set[int]:
    """The vertices on the side of the source, of the minimum cut that is nearest to the sink.

    Vertices are 0 to `size` - 1. Capacities are whole numbers, and the cut is finite.

    >>> minimum_cut(3, [(0, 1, 5), (1, 2, 4)], 0, 2)
    {0, 1}
    >>> minimum_cut(3, [(0, 1, 3), (1, 2, 4)], 0, 2)
    {0}
    """
    network = _Network(size, edges)
    while True:
        distance = network.distances_to(sink)
        if distance[source] < 0:
            return {v for v in range(size) if distance[v] < 0}
        network.push(source, sink, distance)


class _Network:
    """A flow network. Arc 2k is edge k, arc 2k + 1 its reverse; `room` is how much may still flow along an arc."""

    def __init__(self, size: int, edges: Iterable[Edge]) -> None:
        self.arcs: list[list[int]] = [[] for _ in range(size)]
        self.end: list[int] = []
        self.room: list[int] = []
        for start, end, capacity in edges:
            self.arcs[start].append(len(self.end))
            self.arcs[end].append(len(self.end) + 1)
            self.end += (end, start)
            self.room += (capacity, 0)

    def distances_to(self, sink: int) -> list[int]:
        """Distance of each vertex to the sink, along arcs with capacity left; -1 where there is no path."""
        distance = [-1] * len(self.arcs)
        distance[sink] = 0
        reached = [sink]
        for vertex in reached:
            for arc in self.arcs[vertex]:
                before = self.end[arc]
                if distance[before] < 0 and self.room[arc ^ 1]:
                    distance[before] = distance[vertex] + 1
                    reached.append(before)
        return distance

    def push(self, source: int, sink: int, distance: list[int]) -> None:
        """Pushes as much flow as shortest paths take."""
        left = [iter(arcs) for arcs in self.arcs]
        path: list[int] = []
        vertex = source
        while True:
            if vertex == sink:
                amount = min(self.room[arc] for arc in path)
                for arc in path:
                    self.room[arc] -= amount
                    self.room[arc ^ 1] += amount
                full = next(k for k, arc in enumerate(path) if not self.room[arc])
                vertex = self.end[path[full] ^ 1]
                del path[full:]
            for arc in left[vertex]:
                if self.room[arc] and distance[self.end[arc]] == distance[vertex] - 1:
                    path.append(arc)
                    vertex = self.end[arc]
                    break
            else:
                if not path:
                    return
                vertex = self.end[path.pop() ^ 1]
