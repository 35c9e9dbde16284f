"""Placement by cost: the device for each unit with which the whole program is estimated to take the least time.

Where arguments and results are is given, as eager code has them. Several placements are made, and the estimates of a
timeline choose among them: all on one device, where the operands are, the least sum of times (cut.py), and a list
schedule (timeline.py). The first has no copies within, the third finds a way that pays only as a whole, the last lets
devices compute side by side. Of equal ones the first is taken, so that a choice is the same in every process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ..aval import CPU
from ..graph.ir import Graph, Node
from ..once import lazy
from ..record import record
from .by_operands import placement
from .cut import least_sum
from .performance import Performance
from .timeline import Costs, estimate, list_schedule
from .units import units_of

OPERANDS = "where the operands are"


@record(eq=False)
class Candidate:
    """A placement of units, what it is called, and its estimate."""

    name: str
    devices: Sequence[str]  # of each unit
    ns: int
    fits: bool  # in the memory of the devices


@record(eq=False)
class Share:
    """The cost of operations that one device computes: nanoseconds for them, and for the whole program with them, on
    each device that they could be on."""

    operations: int
    device: str
    alone: Mapping[str, int]
    whole: Mapping[str, int]

    def __str__(self) -> str:
        others = [
            f"on {device} {duration(ns)}, and the whole program {duration(self.whole[device])}"
            for device, ns in self.alone.items()
            if device != self.device
        ]
        count = f"{self.operations} operation{'s' * (self.operations != 1)}"
        here = f"{count}, estimated {duration(self.alone[self.device])}"
        return "; ".join([here, *others])


@record(eq=False)
class Choice:
    """The placement that was chosen, and the others."""

    costs: Costs
    chosen: Candidate
    others: Sequence[Candidate]

    @lazy
    def whole(self) -> Share | None:
        """The cost of all operations, where one device computes them."""
        return self.share(self.where) if len(set(self.chosen.devices)) == 1 else None

    @lazy
    def where(self) -> dict[Node, str]:
        """The device of each operation."""
        units = self.costs.units.all
        return {n: device for unit, device in zip(units, self.chosen.devices, strict=True) for n in unit.nodes}

    def share(self, nodes: Collection[Node]) -> Share | None:
        """The cost of the units of these nodes, which one device computes; None where they are none."""
        owner = self.costs.units.owner
        members = sorted({owner[node] for node in nodes if node in owner})
        if not members:
            return None
        alone = {d: sum(self.costs.unit_ns[k][d] for k in members) for d in self.costs.devices}
        whole = {}
        for device in self.costs.devices:
            elsewhere = list(self.chosen.devices)
            for k in members:
                elsewhere[k] = device
            whole[device] = estimate(self.costs, elsewhere)[0]
        count = sum(len(self.costs.units.all[k].nodes) for k in members)
        return Share(count, self.chosen.devices[members[0]], alone, whole)

    def lines(self) -> Iterator[str]:
        """The estimate of the choice, and of each other one."""
        yield f"{self.chosen.name}: estimated {duration(self.chosen.ns)}"
        for other in self.others:
            yield f"{other.name}: {duration(other.ns)}{'' if other.fits else ', without room in memory'}"


def cheapest(graph: Graph, devices: Sequence[str], speeds: Mapping[str, Performance]) -> Choice:
    """The placement of least cost on some devices. `speeds` are theirs, and those of all devices that have values."""
    eager = placement(graph) or {node: CPU for node in graph.nodes()}
    costs = Costs(units_of(graph, eager), devices, speeds)
    count = len(costs.units.all)
    found = [(f"all on {device}", [device] * count) for device in devices]
    here = [eager[unit.nodes[0]] for unit in costs.units.all]
    if set(here) <= set(devices):
        found.append((OPERANDS, here))
    if len(devices) > 1:
        starts = [placement for _, placement in found]
        best = min(starts, key=lambda where: estimate(costs, where)[0])
        found.append(("least sum of times", least_sum(costs, best)))
        found.append(("list schedule", list_schedule(costs)))
    candidates: dict[tuple[str, ...], Candidate] = {}
    for name, where in found:
        if tuple(where) not in candidates:
            candidates[tuple(where)] = Candidate(name, where, *estimate(costs, where))
    chosen = min(candidates.values(), key=lambda candidate: (not candidate.fits, candidate.ns))
    return Choice(costs, chosen, [other for other in candidates.values() if other is not chosen])


def duration(ns: float) -> str:
    """`1.5 ms`: a time for people.

    >>> duration(1500), duration(2_345_678)
    ('1.5 us', '2.35 ms')
    """
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.0f} ns"
