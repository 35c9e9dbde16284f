"""Timeline: when each device would have done its units, and values would be where they are read.

A device does one thing at a time, and a link between two carries one value at a time. A value is sent once to each
device that reads it, as soon as it is there, beside what the devices compute.

List scheduling goes through the units, the longest way to the end first, and gives each to the device that would have
done it first: HEFT (Topcuoglu et al., 2002).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..graph.ir import Node
from ..once import lazy
from ..record import record
from ..sizes.dims import hint
from .performance import Performance, copy_ns
from .units import Unit, Units

Link = tuple[str, str]


@record(eq=False)
class Costs:
    """Times of units on devices and of copies between these, in nanoseconds. `devices` may compute; values may be on
    others, too, whose `speeds` are known."""

    units: Units
    devices: Sequence[str]
    speeds: Mapping[str, Performance]

    @lazy
    def unit_ns(self) -> list[dict[str, int]]:
        """The time of each unit on each device."""
        return [{d: self.speeds[d].nanoseconds(unit.work) for d in self.devices} for unit in self.units.all]

    def copy_ns(self, node: Node, source: str, target: str) -> int:
        """The time of sending a value."""
        if source == target:
            return 0
        return copy_ns(self.speeds[source], self.speeds[target], hint(node.aval.nbytes))

    def programs_ns(self, where: Sequence[str]) -> int:
        """The time in which the host starts the programs of a placement: those that partition.py makes of it."""
        level: list[int] = []
        for unit, device in zip(self.units.all, where, strict=True):
            before = [k for k in map(self.units.owner.get, unit.reads) if k is not None]
            level.append(max([level[k] + (where[k] != device) for k in before], default=0))
        return round(sum(self.speeds[device].program for _, device in set(zip(level, where, strict=True))) * 1e9)

    @lazy
    def order(self) -> list[int]:
        """Units in the order of the longest way from each to the end, by mean times: each after those that it reads."""
        pairs = [(a, b) for a in self.speeds for b in self.speeds if a != b]
        rank = [0] * len(self.units.all)
        for k in reversed(range(len(rank))):
            unit, times = self.units.all[k], self.unit_ns[k]
            after = [
                rank[reader] + sum(self.copy_ns(node, a, b) for a, b in pairs) // max(len(pairs), 1)
                for node in unit.gives
                for reader in self.units.readers.get(node, ())
            ]
            rank[k] = sum(times.values()) // len(times) + max(after, default=0)
        return sorted(range(len(rank)), key=lambda k: (-rank[k], k))


class Timeline:
    """A plan of the devices' time, made unit after unit. `fits`: whether the values had room in their memory."""

    def __init__(self, costs: Costs) -> None:
        self.costs, self.units = costs, costs.units
        self.free: Counter[str] = Counter()  # when a device has done what it was given
        self.links: Counter[Link] = Counter()  # when a link has carried what it was given
        self.there: dict[Node, dict[str, int]] = {node: {home: 0} for node, home in self.units.homes.items()}
        self.made_on = dict(self.units.homes)
        self.left = {node: len(readers) for node, readers in self.units.readers.items()}
        self.kept = {node for node, _ in self.units.outputs} | set(self.units.homes)
        self.live: Counter[str] = Counter()  # bytes in use
        self.fits = True
        for node, home in self.units.homes.items():
            self._hold(node, home)

    def end(self, unit: Unit, device: str, duration: int) -> int:
        """When a device would have done a unit."""
        links = Counter[Link]()
        ready = [self._arrival(node, device, links) for node in unit.reads]
        return max([self.free[device], *ready]) + duration

    def has_room(self, unit: Unit, device: str) -> bool:
        """Whether the operands and the results of a unit have room in the memory of a device."""
        more = [*unit.gives, *(node for node in unit.reads if device not in self.there[node])]
        return self.live[device] + sum(map(_bytes, more)) <= self.costs.speeds[device].memory

    def add(self, k: int, device: str) -> None:
        """Gives a unit to a device."""
        unit = self.units.all[k]
        ready = [self._send(node, device) for node in unit.reads]
        end = max([self.free[device], *ready]) + self.costs.unit_ns[k][device]
        self.free[device] = end
        for node in unit.gives:
            self.there[node], self.made_on[node] = {device: end}, device
            self._hold(node, device)
        for node in unit.reads:
            self.left[node] -= 1
            if not self.left[node]:
                self._release(node)

    def finish(self) -> int:
        """When all is done, and each result is on its device."""
        sent = [self._send(node, device) for node, device in self.units.outputs]
        return max([*self.free.values(), *sent], default=0)

    def _arrival(self, node: Node, device: str, links: Counter[Link]) -> int:
        """When a value would be on a device. `links`: what they are asked for beside what is decided."""
        there = self.there[node]
        if device in there:
            return there[device]
        source = self.made_on[node]
        link = source, device
        start = max(there[source], self.links[link], links[link])
        links[link] = start + self.costs.copy_ns(node, source, device)
        return links[link]

    def _send(self, node: Node, device: str) -> int:
        if device not in self.there[node]:
            end = self._arrival(node, device, Counter())
            self.there[node][device] = self.links[self.made_on[node], device] = end
            self._hold(node, device)
        return self.there[node][device]

    def _hold(self, node: Node, device: str) -> None:
        self.live[device] += _bytes(node)
        self.fits = self.fits and self.live[device] <= self.costs.speeds[device].memory

    def _release(self, node: Node) -> None:
        """Lets a value go that no unit is left to read: copies of what the caller has, all of other values."""
        for device in self.there[node]:
            if node not in self.kept or device != self.made_on[node]:
                self.live[device] -= _bytes(node)


def estimate(costs: Costs, where: Sequence[str]) -> tuple[int, bool]:
    """(the time of the program with each unit on its device, whether memory is enough for it)."""
    timeline = Timeline(costs)
    for k in costs.order:
        timeline.add(k, where[k])
    return timeline.finish() + costs.programs_ns(where), timeline.fits


def list_schedule(costs: Costs) -> list[str]:
    """The device of each unit by list scheduling."""
    timeline, where = Timeline(costs), [""] * len(costs.units.all)
    for k in costs.order:
        unit, times = costs.units.all[k], costs.unit_ns[k]
        roomy = [device for device in costs.devices if timeline.has_room(unit, device)] or costs.devices
        where[k] = min(roomy, key=lambda device: timeline.end(unit, device, times[device]))
        timeline.add(k, where[k])
    return where


def _bytes(node: Node) -> int:
    return hint(node.aval.nbytes)
