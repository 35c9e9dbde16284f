"""Regions: kernels that do not need each other, launched as one, so that threads fork and join once.

    update of w1      512 x 784                                slot 0           slot 1
    update of b1      512                ->      region:       w1, rows 0-255   w1, rows 256-511
    update of w2      512 x 512                                w2, rows 0-255   w2, rows 256-511
    sum over rows     1 x 512                                  b1               sum over rows

Each thread takes a slot: its share of every kernel that is worth splitting, and whole ones of the others, dealt out by
cost. What a kernel computes does not depend on where it is split. The updates of an optimizer, the sums for the
gradients of biases, and the statistics of branches side by side are regions.

A kernel waits for others until something needs it, or until the values kept alive by waiting no longer fit a
cache: the sums for a bias read a gradient that has just been written. Kernels that wait for those that wait make
regions of their own, after them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence

from ...graph.ir import Node
from ...loops.ir import Kernel, KernelSpec
from ...record import record
from .. import cost
from ..kernels.library import Capabilities
from .steps import Stage, Step, Task, dependencies, touched_by


@record
class HorizontalFusion(KernelSpec):
    """Kernels with operands of their own, one after the other. Threads share slots s to t: kernel k runs its range from
    `cuts[k][s]` to `cuts[k][t]`."""

    kernels: tuple[Kernel, ...]
    cuts: tuple[tuple[int, ...], ...]

    @property
    def specs(self) -> tuple[KernelSpec, ...]:
        return self.kernels

    @property
    def nests(self) -> tuple[Kernel, ...]:
        return self.kernels

    @property
    def slots(self) -> int:
        return len(self.cuts[0]) - 1

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The kernels, with the numbers of their operands."""
        found, first = [], 0
        for kernel in self.kernels:
            found.append(Stage(kernel, tuple(range(first, first + len(kernel.operands)))))
            first += len(kernel.operands)
        return tuple(found)

    def __str__(self) -> str:
        return f"region of {len(self.kernels)} kernels in {self.slots} slots"


def region_of(kernels: Sequence[Kernel], slots: int) -> HorizontalFusion:
    """The region of these kernels: those worth it are split over the slots, the others dealt out, the largest first."""
    loads, cuts = [0.0] * slots, dict[int, tuple[int, ...]]()
    for number, kernel in enumerate(kernels):
        if _splits(kernel, slots):
            ends = [-(-kernel.total // kernel.granule) * slot // slots * kernel.granule for slot in range(slots)]
            cuts[number] = *ends, kernel.total
            for slot, (start, end) in enumerate(zip(ends, cuts[number][1:], strict=True)):
                loads[slot] += kernel.cost * (end - start) / kernel.total
    for number in sorted(set(range(len(kernels))) - cuts.keys(), key=lambda k: (-kernels[k].cost, k)):
        slot = loads.index(min(loads))
        loads[slot] += kernels[number].cost
        cuts[number] = (0,) * (slot + 1) + (kernels[number].total,) * (slots - slot)
    return HorizontalFusion(tuple(kernels), tuple(cuts[k] for k in range(len(kernels))))


def _splits(kernel: Kernel, slots: int) -> bool:
    return kernel.total >= slots * kernel.granule and kernel.cost > cost.REGION_WHOLE_NS


def form_regions(
    tasks: Sequence[Task], steps: Sequence[Step], kept: Container[Node], target: Capabilities
) -> list[Step]:
    """The steps with kernels merged into regions, in an order that allows it. `kept` have memory whatever happens."""
    if (target.cores < 2 and target.merges is None) or any(
        node.aval.symbolic for task in tasks for node in task.operands
    ):
        return list(steps)
    return _Regions(tasks, steps, kept, target).form()


class _Regions:
    def __init__(
        self, tasks: Sequence[Task], steps: Sequence[Step], kept: Container[Node], target: Capabilities
    ) -> None:
        self.tasks, self.steps, self.target = tasks, steps, target
        self.most = cost.REGION_BYTES if target.merged_bytes is None else target.merged_bytes
        touched = touched_by(tasks)
        self.home = home = {task: number for number, step in enumerate(steps) for task in step.tasks}
        self.needs: list[set[int]] = [set() for _ in steps]
        for task, others in enumerate(dependencies(tasks, touched)):
            for other in others:
                self.needs[home[other]].add(home[task])
        self.touches: list[list[Node]] = [[] for _ in steps]  # the nodes in the arena that each step reads or writes
        self.last: dict[Node, int] = {}  # step that does so
        self.ending: list[list[Node]] = [[] for _ in steps]  # the nodes of which each step is the last
        for node, users in touched.items():
            numbers = {home[task] for task in users}
            if node not in kept and not any(node in steps[number].scratch for number in numbers):
                self.last[node] = max(numbers)
                self.ending[self.last[node]].append(node)
                for number in numbers:
                    self.touches[number].append(node)
        self.waiting: dict[int, int] = {}  # step -> how many regions before its own
        self.waited = Counter[Node]()  # how many steps that wait touch each node
        self.now = self.held = 0  # the step at hand; bytes that none from it on needs, but steps that wait

    def form(self) -> list[Step]:
        """The steps with regions formed. Done twice, so that only kernels wait which then find others."""
        self.able = {number for number, step in enumerate(self.steps) if self._may_wait(step)}
        found = [step for step in self._walk(self.able) if len(step.tasks) > 1 and not step.scratch]
        return self._walk({self.home[task] for step in found for task in step.tasks})

    def _walk(self, waits: set[int]) -> list[Step]:
        result: list[Step] = []
        for number, step in enumerate(self.steps):
            self.now = number
            if number:
                self.held += sum(node.aval.nbytes for node in self.ending[number - 1] if self.waited[node])
            if self.held > self.most:
                result += self._released(number)
            before = max((self.waiting.get(n, -1) for n in self.needs[number]), default=-1)
            if number in waits or (before >= 0 and number in self.able):
                self.waiting[number] = before + 1
                self.waited.update(self.touches[number])
            else:
                result += self._released(before)
                result.append(step)
        return [*result, *self._released(len(self.steps))]

    def _may_wait(self, step: Step) -> bool:
        spec = self.tasks[step.tasks[0]].spec
        return len(step.tasks) == 1 and isinstance(spec, Kernel) and not spec.checked and not spec.symbolic

    def _released(self, last: int) -> Iterator[Step]:
        """Regions of the kernels that wait for a place up to `last`; those alone are launched as they were."""
        for place in sorted({k for k in self.waiting.values() if k <= last}):
            numbers = [n for n, k in self.waiting.items() if k == place]
            for number in numbers:
                self._let_go(number)
            members = [task for number in numbers for task in self.steps[number].tasks]
            if self._is_worth(members):
                yield Step(members)
            else:
                yield from (self.steps[number] for number in numbers)

    def _let_go(self, number: int) -> None:
        """Takes a step out of those that wait; what it alone held is free."""
        del self.waiting[number]
        for node in self.touches[number]:
            self.waited[node] -= 1
            if not self.waited[node] and self.last[node] < self.now:
                self.held -= node.aval.nbytes

    def _is_worth(self, members: Sequence[int]) -> bool:
        """Whether forks are saved, or work is shared that is too little to be shared alone."""
        kernels = [spec for spec in (self.tasks[t].spec for t in members) if isinstance(spec, Kernel)]
        if self.target.merges is not None:
            return self.target.merges(kernels)
        if len(kernels) < 2 or sum(kernel.cost for kernel in kernels) <= cost.PARALLEL_THRESHOLD_NS:
            return False
        alone = [k for k in kernels if k.total < 2 * k.granule or k.cost <= cost.PARALLEL_THRESHOLD_NS]
        shared = sum(kernel.cost for kernel in alone) * (1 - 1 / self.target.cores)
        return shared + cost.FORK_NS * (len(kernels) - len(alone) - 1) >= cost.FORK_NS
