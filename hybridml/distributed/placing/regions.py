"""Regions: the blocks of a trace that a rank computes, and what a process computes of a program that has some.

What is captured in a block is marked with its rank. The clock of the tape says in which block an operation was
recorded, so that what its backward computes, whenever that is, has the same rank.
"""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from hybridml_compiler.aval import CPU
from hybridml_compiler.errors import CompileError
from hybridml_compiler.graph.digest import digest
from hybridml_compiler.graph.ir import Graph, Node
from hybridml_compiler.ops.collectives import is_collective
from hybridml_compiler.placement.messages import Plan, is_plan, part_of
from hybridml_compiler.placement.ranks import settled
from hybridml_compiler.placement.ranks_by_cost import cheapest_ranks
from hybridml_compiler.targets.registry import performance_of

from ...core.autodiff.tape import stamp_of
from ...core.context import clock
from ...tracing.run.program import Program
from ..groups import Group
from ..transport import PROGRAM_TAG
from .homes import home_of, homes_of

AUTO: Literal["auto"] = "auto"
Rank = int | Literal["auto"]


class Regions:
    """The blocks of one trace, in a group."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._starts: list[int] = [0]  # stamps of the moments when another block was entered, or left
        self._ranks: list[Rank | None] = [None]  # of what was captured since then
        self._marks: dict[Node, Rank] = {}

    @contextmanager
    def inside(self, rank: Rank | None) -> Iterator[None]:
        """A block in which what is captured is the rank's."""
        outer = self._ranks[-1]
        self._begin(rank)
        try:
            yield
        finally:
            self._begin(outer)

    def _begin(self, rank: Rank | None) -> None:
        self._starts.append(clock())
        self._ranks.append(rank)

    def mark(self, node: Node) -> None:
        """Notes a node that was captured here; one that was there before stays where it was."""
        rank = self._ranks[-1]
        if rank is not None:
            self._marks.setdefault(node, rank)

    def pulled(self, pull: Callable[[Any, Any], Any], g: Any, node: Any) -> Any:
        """The cotangents that a node of the tape makes of one, captured in the block in which it was recorded."""
        with self.inside(self._ranks[bisect(self._starts, stamp_of(node)) - 1]):
            return pull(g, node)

    def part(self, program: Program) -> Graph:
        """The part of a program that this process computes; tensors that it leaves values in have homes from now on."""
        _check(program)
        graph, group, homes = program.whole, self.group, homes_of(self.group)
        left = {k: i if i.owner is None else i.owner for k, i in program.left.items()}
        pairs = [(i.node, graph.outputs[k]) for k, i in left.items()]
        held = {i.node: i.real for i in program.tracer.inputs if i.kind == "held"}
        for node, t in held.items():
            if (home := home_of(t)) is not None and home.group is not group:
                raise CompileError(
                    f"device_of: {program.name} is for {group!r}, and {node.name} has its value on rank {home.rank} of "
                    f"{home.group!r}; use one group for both"
                )
        before = {node: rank for node, t in held.items() if (rank := homes.home(t)) is not None}
        where, found = settled(graph, self._decided(graph, pairs), before, pairs)
        everyone = set(range(group.size))
        wanted = [
            everyone if k not in left or where[node] is None else {found[left[k].node], *homes.holders(left[k].real)}
            for k, node in enumerate(graph.outputs)
        ]
        # Elsewhere a tensor stays as it is, and a gradient that was not there is zero.
        stays = {k: graph.inputs[i] for k, i in program.donate.items()}
        instead = [stays.get(k) for k in range(len(wanted))]
        plan = Plan(graph, where, wanted, instead, group.name, group.size, PROGRAM_TAG)
        for node, ranks in plan.needs.items():
            if node in held and node not in found:
                homes.hold(held[node], ranks)
        for node, rank in found.items():
            homes.move(held[node], rank)
        told = hashlib.sha256(f"{digest(graph)} {plan}".encode()).hexdigest()[:16]
        return part_of(plan, group.rank, f"{program.name} {told}")

    def _decided(self, graph: Graph, left: Sequence[tuple[Node, Node]]) -> dict[Node, int]:
        """The rank of each node that was captured in a block."""
        fixed = {node: rank for node, rank in self._marks.items() if rank != AUTO}
        if len(fixed) == len(self._marks):
            return fixed
        return cheapest_ranks(graph, fixed, left, self.group.size, performance_of(CPU))


def _check(program: Program) -> None:
    """Raises CompileError for programs that cannot be placed: eager code would hide another error."""
    nodes = program.whole.nodes()
    if program.is_gradient:
        why = "is differentiated outside of its trace: call backward() in the traced function"
    elif program.given or not any(map(is_plan, nodes)):
        why = "asks for a value of a tensor, and is one program for all processes: use hm.where in the place of `if`"
    elif any(n.op is not None and n.op.kind == "effect" and n.op.fails and not is_collective(n) for n in nodes):
        why = "calls a queue, and each process has one of its own: give the function what comes out of it"
    elif devices := sorted({node.aval.device for node in nodes} - {CPU}):
        why = f"has values on {devices[0]!r}, and processes send each other those of the CPU: use .to('cpu')"
    else:
        return
    raise CompileError(f"device_of: {program.name} {why}")
