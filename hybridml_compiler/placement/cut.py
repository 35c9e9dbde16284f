"""Placement by minimum cuts: the least sum of the times of all units and copies.

For two devices this is exact (Stone, "Multiprocessor scheduling with the aid of network flow algorithms", 1977). The
source is one device and the sink the other; a unit is cut from the device that it is not on:

    A --[time of u on B]--> u --[copy of u's value from A to B]--> v --[time of v on A]--> B

A value that is read by several units is sent once: its copy leads to a vertex of its own, and from there to each of
them for nothing. For more devices pairs of them take turns with the units that they have, until none can do better.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ..graph.ir import Node
from ..schedule.fusion.min_cut import Edge, minimum_cut
from .timeline import Costs

_A, _B = 0, 1  # vertices of the two devices
_MOST_ROUNDS = 8  # of all pairs


def least_sum(costs: Costs, where: Sequence[str]) -> list[str]:
    """The device of each unit, from a first placement on."""
    found = list(where)
    pairs = list(combinations(costs.devices, 2))
    for _ in range(_MOST_ROUNDS if len(pairs) > 1 else 1):
        before = found
        for a, b in pairs:
            found = _Network(costs, found, a, b).placement()
        if found == before:
            break
    return found


class _Network:
    """The network of the units that are on two devices. Those of others stay where they are."""

    def __init__(self, costs: Costs, where: Sequence[str], a: str, b: str) -> None:
        self.costs, self.where, self.a, self.b = costs, where, a, b
        units = costs.units
        self.vertex = {k: n for n, k in enumerate((k for k, d in enumerate(where) if d in (a, b)), 2)}
        self.size = 2 + len(self.vertex)
        self.edges: list[Edge] = []
        for k, v in self.vertex.items():
            self._cut(_A, v, costs.unit_ns[k][b])
            self._cut(v, _B, costs.unit_ns[k][a])
        wanted: dict[Node, set[str]] = {}
        for node, device in units.outputs:
            wanted.setdefault(node, set()).add(device)
        for node in dict.fromkeys([*units.homes, *units.owner]):
            readers = units.readers.get(node, [])
            fixed = wanted.get(node, set()) | {where[k] for k in readers if k not in self.vertex}
            free = [self.vertex[k] for k in readers if k in self.vertex]
            if fixed or free:
                self._value(node, fixed, free)

    def placement(self) -> list[str]:
        most = 1 + sum(capacity for *_, capacity in self.edges if capacity > 0)
        edges = [(x, y, most if capacity < 0 else capacity) for x, y, capacity in self.edges]
        on_a = minimum_cut(self.size, edges, _A, _B)
        found = list(self.where)
        for k, v in self.vertex.items():
            found[k] = self.a if v in on_a else self.b
        return found

    def _cut(self, start: int, end: int, cost: int) -> None:
        if cost:
            self.edges.append((start, end, cost))

    def _bind(self, start: int, end: int) -> None:
        """Never cuts between two vertices."""
        self.edges.append((start, end, -1))

    def _value(self, node: Node, fixed: set[str], free: Sequence[int]) -> None:
        """Adds the copies of a value to the devices of its readers; `fixed` read it wherever it is computed."""
        a, b = self.a, self.b
        unit = self.costs.units.owner.get(node)
        maker = None if unit is None else self.vertex.get(unit)
        source = self.costs.units.homes[node] if unit is None else self.where[unit]
        for device in sorted(fixed):
            if maker is not None:
                self._cut(maker, _B, self.costs.copy_ns(node, a, device))
                self._cut(_A, maker, self.costs.copy_ns(node, b, device))
        if maker is not None:
            to_b, to_a = self.costs.copy_ns(node, a, b), self.costs.copy_ns(node, b, a)
            start = end = maker
        else:
            to_b, to_a = self.costs.copy_ns(node, source, b), self.costs.copy_ns(node, source, a)
            start, end = _A, _B
        if free and b not in fixed and to_b:
            self._once(start, free, to_b)
        if free and a not in fixed and to_a:
            self._once_back(end, free, to_a)

    def _once(self, start: int, readers: Sequence[int], cost: int) -> None:
        """A cost for a start on A with a reader on B."""
        if len(readers) == 1:
            self._cut(start, readers[0], cost)
            return
        self._cut(start, self.size, cost)
        for reader in readers:
            self._bind(self.size, reader)
        self.size += 1

    def _once_back(self, end: int, readers: Sequence[int], cost: int) -> None:
        """A cost for an end on B with a reader on A."""
        if len(readers) == 1:
            self._cut(readers[0], end, cost)
            return
        for reader in readers:
            self._bind(reader, self.size)
        self._cut(self.size, end, cost)
        self.size += 1
