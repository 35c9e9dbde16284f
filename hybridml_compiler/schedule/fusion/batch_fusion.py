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

from collections.abc import Container, Sequence

from ...graph.ir import Node
from ...loops.ir import Kernel, KernelSpec
from ...record import record, replace
from .. import cost
from ..kernels.library import Capabilities
from ..lowering.footprint import may_overwrite, splits_evenly
from ..memory import Interval, plan_arena
from .steps import Partition, Stage, Staged, Step, Task, fills_cache, touched_by


@record
class Scratch:
    """Bytes of one element, at an offset within a slot."""

    offset: int
    nbytes: int


@record
class BatchFusion(Staged):
    """Stages in order for each of `batch` elements; slot s of `slots` runs a share of them in its part of the last
    operand. The range that threads share are the slots."""

    stages: tuple[Stage, ...]
    scratch: tuple[Scratch, ...]
    batch: int
    slots: int
    slot_bytes: int
    ahead: tuple[tuple[int, int], ...] = ()  # operands in memory, with the bytes of an element: see `_far`

    @property
    def operands(self) -> list[tuple[int, ...]]:
        return [stage.operands for stage in self.stages]

    def __str__(self) -> str:
        return (
            f"chain of {len(self.stages)} over {self.batch} elements in {self.slots} slots of {self.slot_bytes} bytes"
        )


def form_chains(tasks: Sequence[Task], kept: Container[Node], target: Capabilities) -> list[Step]:
    """Steps in execution order. `kept` have memory whatever happens: inputs, constants, outputs."""
    return _Chains(tasks, kept, target).form()


class _Chains:
    def __init__(self, tasks: Sequence[Task], kept: Container[Node], target: Capabilities) -> None:
        self.tasks, self.target = tasks, target
        self.touched = touched_by(tasks)
        self.movable = [n for n in self.touched if n not in kept]
        self.partition = Partition(tasks, self.touched)
        self._aligned: dict[tuple[int, Node, int], bool] = {}

    def form(self) -> list[Step]:
        steps = self.partition.steps
        if any(n.aval.symbolic for n in self.touched) or any(task.spec.symbolic for task in self.tasks):
            return steps
        large = [n for n in self.movable if fills_cache(n, self.target)]
        if not large:
            return steps
        for node in sorted(large, key=lambda n: -n.aval.nbytes):
            together = list({id(steps[t]): steps[t] for t in self.touched[node]}.values())
            if len(together) < 2:
                continue
            joined = self._join(sorted(t for step in together for t in step.tasks))
            if joined is None or self.partition.is_circular(joined):
                continue
            coarser = joined.batch < max(step.batch for step in together)
            if not coarser or joined.slot_bytes <= cost.CHAIN_SLOT_BYTES:  # else it would drive larger arrays out
                self.partition.join(joined)
        return self.partition.in_order()

    # ---- one chain

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
