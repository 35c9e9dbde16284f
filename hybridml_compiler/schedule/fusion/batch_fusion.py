"""Chains: launches over one batch run element by element, so that values which only they use never leave the cache.

   scores = q @ k.mT        64 matrices                  for each element i of 64, in parallel:
   weights = softmax        rows of 64 matrices     ->       scores[i], weights[i], out[i], one after the other
   out = weights @ v        64 matrices

An array that nothing outside of the chain touches needs memory for one element for each slot, a part of the elements
that one thread runs in order. A stage still sees an array of all elements: the pointer it is given is that of the slot
minus the elements before, so that its code is the code of a launch of its own.

An array is scratch if everything that touches it can join one chain: each stage splits into the same number of
elements, element i of each touches element i of all that they share and one of them writes, and no launch in between
depends on one of them and is needed by another.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Sequence
from dataclasses import field

from ...graph.ir import Node
from ...loops.ir import Kernel, KernelSpec
from ...record import record, replace
from ...walk import reachable
from .. import cost
from ..kernels.library import Capabilities
from ..lowering.footprint import may_overwrite, splits_evenly
from ..memory import Interval, plan_arena
from .group import Group


@record
class Stage:
    """A spec of a chain; `operands` are numbers of the chain's own operands, and after those of its scratch."""

    spec: KernelSpec
    operands: tuple[int, ...]


@record
class Scratch:
    """Bytes of one element, at an offset within a slot."""

    offset: int
    nbytes: int


@record
class BatchFusion(KernelSpec):
    """Stages in order for each of `batch` elements; slot s of `slots` runs a share of them in its part of the last
    operand. The range that threads share are the slots."""

    stages: tuple[Stage, ...]
    scratch: tuple[Scratch, ...]
    batch: int
    slots: int
    slot_bytes: int
    ahead: tuple[tuple[int, int], ...] = ()  # operands in memory, with the bytes of an element: see `_far`

    @property
    def specs(self) -> tuple[KernelSpec, ...]:
        return tuple(stage.spec for stage in self.stages)

    @property
    def nests(self) -> tuple[Kernel, ...]:
        return tuple(nest for spec in self.specs for nest in spec.nests)

    @property
    def operands(self) -> list[tuple[int, ...]]:
        return [stage.operands for stage in self.stages]

    def __str__(self) -> str:
        return (
            f"chain of {len(self.stages)} over {self.batch} elements in {self.slots} slots of {self.slot_bytes} bytes"
        )


@record(frozen=False, eq=False)
class Task:
    """A spec before it is launched: its operands, and the group that it computes."""

    spec: KernelSpec
    operands: tuple[Node, ...]
    group: Group

    def roles(self) -> Iterable[tuple[Node, bool]]:
        """Each operand, and whether it is written."""
        return zip(self.operands, self.spec.written(len(self.operands)), strict=True)


@record(frozen=False, eq=False)
class Step:
    """Tasks launched as one: a single one, or the stages of a chain."""

    tasks: list[int]
    batch: int = 1
    scratch: dict[Node, int] = field(default_factory=dict)  # array of the chain's own -> offset in a slot
    slot_bytes: int = 0


def fills_cache(node: Node, target: Capabilities) -> bool:
    """Whether an array is large enough to be worth a chain."""
    return not node.aval.symbolic and node.aval.nbytes >= cost.CHAIN_BYTES * target.cores


def form_chains(tasks: Sequence[Task], kept: Container[Node], target: Capabilities) -> list[Step]:
    """Steps in execution order. `kept` have memory whatever happens: inputs, constants, outputs."""
    return _Chains(tasks, kept, target).form()


class _Chains:
    def __init__(self, tasks: Sequence[Task], kept: Container[Node], target: Capabilities) -> None:
        self.tasks, self.target = tasks, target
        self.touched = touched_by(tasks)
        self.movable = [n for n in self.touched if n not in kept]
        self.steps = [Step([number]) for number in range(len(tasks))]  # of each task
        self._aligned: dict[tuple[int, Node, int], bool] = {}

    def form(self) -> list[Step]:
        if any(n.aval.symbolic for n in self.touched):
            return self.steps
        large = [n for n in self.movable if fills_cache(n, self.target)]
        if not large:
            return self.steps
        self.after = dependencies(self.tasks, self.touched)
        for node in sorted(large, key=lambda n: -n.aval.nbytes):
            together = list({id(self.steps[t]): self.steps[t] for t in self.touched[node]}.values())
            if len(together) < 2:
                continue
            joined = self._join(sorted(t for step in together for t in step.tasks))
            if joined is None or self._circular(joined):
                continue
            coarser = joined.batch < max(step.batch for step in together)
            if not coarser or joined.slot_bytes <= cost.CHAIN_SLOT_BYTES:  # else it would drive larger arrays out
                for task in joined.tasks:
                    self.steps[task] = joined
        for step in {id(step): step for step in self.steps}.values():
            run = self._run_by_target(step)
            for task in step.tasks:
                self.steps[task] = run if run is not None and task in run.tasks else Step([task])
        return self._in_order()

    # ---- one chain

    def _run_by_target(self, step: Step) -> Step | None:
        """The longest run of a step's tasks that the target runs as a chain."""
        for count in range(len(step.tasks), 1, -1):
            for start in range(len(step.tasks) - count + 1):
                members = step.tasks[start : start + count]
                if self.target.runs_chain([self.tasks[t].spec for t in members]):
                    joined = step if count == len(step.tasks) else self._join(members)
                    if joined is not None and not self._circular(joined):
                        return joined
        return None

    def _join(self, members: list[int]) -> Step | None:
        """The chain of these tasks with the largest elements whose scratch fits; None if there is none."""
        inside = set(members)
        local = [n for n in self.movable if inside.issuperset(self.touched[n])]
        shared = []
        for node in {n: None for t in members for n in self.tasks[t].operands}:
            users = [t for t in self.touched[node] if t in inside]
            if len(users) > 1 and any(self.touched[node][t] for t in users):
                shared += [(t, node) for t in users]
        best, slots = None, self.target.cores
        counts = set.intersection(*(self.tasks[t].spec.part_counts(self.target.takes_epilogue) for t in members))
        for batch in sorted(counts):
            if -(-batch // slots) * slots > cost.CHAIN_BALANCE * batch:
                continue
            if not all(self._splits(t, node, batch) for t, node in shared):
                continue
            offsets, size = self._slot(members, local, batch)
            if size <= cost.CHAIN_SLOT_LIMIT:
                best = Step(members, batch, dict(zip(local, offsets, strict=True)), size)
            if size <= cost.CHAIN_SLOT_BYTES:
                break
        return best

    def _slot(self, members: list[int], local: list[Node], batch: int) -> tuple[list[int], int]:
        lives = [[k for k, t in enumerate(members) if t in self.touched[n]] for n in local]
        intervals = [Interval(n.aval.nbytes // batch, min(x), max(x)) for n, x in zip(local, lives, strict=True)]
        return plan_arena(intervals, heirs([self.tasks[t] for t in members], local, intervals))

    def _splits(self, task: int, node: Node, batch: int) -> bool:
        key = (task, node, batch)
        if key not in self._aligned:
            self._aligned[key] = node.aval.size % batch == 0 and is_aligned(self.tasks[task], node, batch)
        return self._aligned[key]

    # ---- order

    def _circular(self, joined: Step) -> bool:
        """Whether a path leads out of the chain and back into it."""
        inside = set(joined.tasks)
        outside = [t for member in joined.tasks for t in self.after[member] if t not in inside]

        def following(task: int) -> list[int]:
            return [after for own in self.steps[task].tasks for after in self.after[own]]

        return any(task in inside for task in reachable(outside, following))

    def _in_order(self) -> list[Step]:
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


# ---- dependencies

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


# ---- splitting into elements


def is_aligned(task: Task, node: Node, batch: int) -> bool:
    """Whether part i of the launch touches part i of the array only."""
    spec, nest = task.spec.in_parts(batch), task.spec.nest
    numbers = [k for k, operand in enumerate(task.operands) if operand is node]
    found = all(spec.reads_apart(k, node.aval.size, batch) for k in numbers)
    if nest is not None:
        first = len(task.operands) - len(nest.operands)
        found &= all(splits_evenly(nest, nest.operands[k - first], batch) for k in numbers if k >= first)
    return found


# ---- memory


def heirs(tasks: Sequence[Task], nodes: Sequence[Node], intervals: Sequence[Interval]) -> dict[int, int]:
    """Interval -> the one whose memory it may take over: an array that the kernel of the new one is the last to
    read."""
    number = {node: k for k, node in enumerate(nodes)}
    found: dict[int, int] = {}
    for step, task in enumerate(tasks):
        if not isinstance(task.spec, Kernel):
            continue
        buffers = {number[n]: b for n, b in zip(task.operands, task.spec.operands, strict=True) if n in number}
        old = [k for k in buffers if intervals[k].end == step > intervals[k].start]
        new = [k for k in buffers if intervals[k].start == step]
        for k in new:
            taken = next((x for x in old if may_overwrite(task.spec, buffers[x], buffers[k])), None)
            if taken is not None:
                old.remove(taken)
                found[k] = taken
    return found


# ---- the spec


def chain_of(step: Step, tasks: Sequence[Task], operands: Sequence[Node], slots: int) -> BatchFusion:
    """The chain whose operands are these nodes, and then the slots."""
    number = {node: k for k, node in enumerate((*operands, *step.scratch))}
    stages = tuple(
        Stage(_chained(task.spec.in_parts(step.batch)), tuple(number[n] for n in task.operands)) for task in tasks
    )
    scratch = tuple(Scratch(offset, node.aval.nbytes // step.batch) for node, offset in step.scratch.items())
    return BatchFusion(stages, scratch, step.batch, slots, step.slot_bytes, _far(step, operands))


def _chained(spec: KernelSpec) -> KernelSpec:
    return replace(spec, chained=True) if isinstance(spec, Kernel) else spec


def _far(step: Step, operands: Sequence[Node]) -> tuple[tuple[int, int], ...]:
    """Operands, by number, that are not in a cache already, and in which an element is likely to have its own part."""
    sizes = [(k, node.aval.nbytes) for k, node in enumerate(operands)]
    return tuple((k, n // step.batch) for k, n in sizes if n >= cost.CHAIN_BYTES and not n % step.batch)
