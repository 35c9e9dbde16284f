"""Steps: tasks that are launched as one, what each of them needs, and an order in which they may run."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import field

from ...graph.ir import Node
from ...loops.ir import Kernel, KernelSpec
from ...once import lazy
from ...record import record
from ...walk import reachable
from .. import cost
from ..kernels.library import Capabilities
from .group import Group


@record(frozen=False, eq=False)
class Task:
    """A spec before it is launched: its operands, and the group that it computes."""

    spec: KernelSpec
    operands: tuple[Node, ...]
    group: Group

    def roles(self) -> Iterable[tuple[Node, bool]]:
        """Each operand, and whether it is written."""
        return zip(self.operands, self.spec.written(len(self.operands)), strict=True)


@record
class Stage:
    """A spec of a fusion; `operands` are numbers of the fusion's own operands, and after those of its scratch."""

    spec: KernelSpec
    operands: tuple[int, ...]


class Staged(KernelSpec):
    """A launch of stages, which mean what they do one after the other."""

    stages: tuple[Stage, ...]

    @property
    def specs(self) -> tuple[KernelSpec, ...]:
        return tuple(stage.spec for stage in self.stages)

    @property
    def nests(self) -> tuple[Kernel, ...]:
        return tuple(nest for spec in self.specs for nest in spec.nests)


@record(frozen=False, eq=False)
class Step:
    """Tasks launched as one: a single one, or the stages of a chain, of a tile fusion or of a row fusion."""

    tasks: list[int]
    batch: int = 1
    scratch: dict[Node, int] = field(default_factory=dict)  # array of the step's own -> offset in a slot
    slot_bytes: int = 0
    tiled: bool = False  # whether nothing but tiles of its scratch are ever in memory
    by_rows: bool = False  # whether its two products read their matrix together


def fills_cache(node: Node, target: Capabilities) -> bool:
    """Whether an array is large enough to be worth a chain."""
    return not node.aval.symbolic and node.aval.nbytes >= cost.CHAIN_BYTES * target.cores


Touched = dict[Node, dict[int, bool]]  # array -> tasks that use it in order, and whether they write it


def touched_by(tasks: Sequence[Task]) -> Touched:
    touched: Touched = {}
    for number, task in enumerate(tasks):
        for node, written in task.roles():
            users = touched.setdefault(node, {})
            users[number] = written or users.get(number, False)
    return touched


def dependencies(tasks: Sequence[Task], touched: Touched) -> list[set[int]]:
    """Task -> later tasks that must run after it."""
    after: list[set[int]] = [set() for _ in tasks]
    for users in touched.values():
        writer: int | None = None
        readers: list[int] = []
        for task, written in users.items():
            for before in (*readers, *([] if writer is None else [writer])) if written else [writer]:
                if before is not None:
                    after[before].add(task)
            if written:
                writer, readers = task, []
            else:
                readers.append(task)
    checks = [number for number, task in enumerate(tasks) if task.spec.checked]
    for number, own in enumerate(tasks):  # state is overwritten once every index has been checked
        if any(node.is_input and written for node, written in own.roles()):
            for check in checks:
                if check < number:
                    after[check].add(number)
    return after


class Partition:
    """The step of each task, which is a step of its own until it joins others."""

    def __init__(self, tasks: Sequence[Task], touched: Touched) -> None:
        self.tasks, self.touched = tasks, touched
        self.steps = [Step([number]) for number in range(len(tasks))]

    @lazy
    def after(self) -> list[set[int]]:
        """Task -> later tasks that must run after it."""
        return dependencies(self.tasks, self.touched)

    def join(self, joined: Step) -> None:
        """Makes one step of its tasks."""
        for task in joined.tasks:
            self.steps[task] = joined

    def is_circular(self, joined: Step) -> bool:
        """Whether a path leads out of a step and back into it."""
        inside = set(joined.tasks)
        outside = [t for member in joined.tasks for t in self.after[member] if t not in inside]

        def following(task: int) -> list[int]:
            return [after for own in self.steps[task].tasks for after in self.after[own]]

        return any(task in inside for task in reachable(outside, following))

    def in_order(self) -> list[Step]:
        """The steps in an order in which each comes after those that it needs."""
        steps = list({id(step): step for step in self.steps}.values())
        after = {id(s): {id(self.steps[f]): self.steps[f] for t in s.tasks for f in self.after[t]} for s in steps}
        waiting = dict.fromkeys(after, 0)
        for step in steps:
            after[id(step)].pop(id(step), None)
            for key in after[id(step)]:
                waiting[key] += 1
        ready = [(step.tasks[-1], step) for step in steps if not waiting[id(step)]]
        heapq.heapify(ready)
        ordered: list[Step] = []
        while ready:
            _, step = heapq.heappop(ready)
            ordered.append(step)
            for key, following in after[id(step)].items():
                waiting[key] -= 1
                if not waiting[key]:
                    heapq.heappush(ready, (following.tasks[-1], following))
        return ordered
