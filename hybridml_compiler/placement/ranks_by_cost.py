"""Ranks by cost: the process for each operation with which the whole program is estimated to take the least time.

A list schedule on the timeline of timeline.py, as for devices, beside one rank that computes all. What every process
has costs no message; operations that read a tensor which the program updates, and the update, are on one rank, so that
the tensor stays where it is from call to call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..graph.ir import Graph, Node
from ..record import replace
from .performance import Performance
from .timeline import Costs, Timeline, estimate
from .units import Units, units_of

MESSAGE_SECONDS = 20e-6  # a message however small: two calls back into Python, and MPI's 4 us
BYTES_PER_SECOND = 3e9  # between two processes of a machine, by MPI


def cheapest_ranks(
    graph: Graph,
    fixed: Mapping[Node, int],
    left: Iterable[tuple[Node, Node]],
    size: int,
    process: Performance,
) -> dict[Node, int]:
    """A rank for each operation. `fixed`: those that are decided. `left`: inputs, and the values that the program
    leaves in them. `process`: the speed of one process."""
    # A message leaves one process and comes to another one: half of its time is each one's.
    speed = replace(process, latency=MESSAGE_SECONDS / 2, link=2 * BYTES_PER_SECOND)
    ranks = {str(rank): rank for rank in range(size)}
    found = units_of(graph, {node: str(fixed.get(node, "")) for node in graph.nodes()})
    bound = _bound(found, left)
    decided = [next((str(fixed[n]) for n in unit.nodes if n in fixed), None) for unit in found.all]
    units = Units([replace(unit, reads=_computed(unit.reads)) for unit in found.all], {}, ())
    costs = Costs(units, list(ranks), dict.fromkeys(ranks, speed))
    one = [rank or "0" for rank in decided]
    chosen = min((one, _list_schedule(costs, decided, bound)), key=lambda where: estimate(costs, where)[0])
    return {node: ranks[rank] for unit, rank in zip(units.all, chosen, strict=True) for node in unit.nodes}


def _computed(nodes: Sequence[Node]) -> list[Node]:
    return [node for node in nodes if not node.is_input]


def _bound(units: Units, left: Iterable[tuple[Node, Node]]) -> list[int]:
    """For each unit the number of those that it is on one rank with."""
    group = list(range(len(units.all)))

    def head(k: int) -> int:
        while group[k] != k:
            k = group[k]
        return k

    for tensor, value in left:
        members = [*units.readers.get(tensor, ()), *(units.owner[value],) * (value in units.owner)]
        for k in members[1:]:
            group[head(k)] = head(members[0])
    return [head(k) for k in group]


def _list_schedule(costs: Costs, decided: Sequence[str | None], bound: Sequence[int]) -> list[str]:
    """The rank of each unit: of the first one of those that are bound, that on which it ends first."""
    timeline, where = Timeline(costs), [""] * len(bound)
    of_group = {bound[k]: rank for k, rank in enumerate(decided) if rank is not None}
    for k in costs.order:
        unit, times = costs.units.all[k], costs.unit_ns[k]
        there = decided[k] or of_group.get(bound[k])
        among = costs.devices if there is None else [there]
        where[k] = min(among, key=lambda rank: timeline.end(unit, rank, times[rank]))
        of_group.setdefault(bound[k], where[k])
        timeline.add(k, where[k])
    return where
