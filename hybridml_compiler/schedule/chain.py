"""Chains: launches over one batch run element by element, so that what only they use never leaves the cache.

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
from dataclasses import dataclass, field, replace

import numpy as np

from ..graph.ir import Node
from ..loops.ir import Kernel
from . import cost
from .contract import Matrix, Product
from .control import Control
from .convolve import Pixels, Turn, Weights
from .epilogue import Fused
from .group import Group
from .library import Call, Target
from .memory import Interval, plan_arena
from .opaque import Opaque
from .reach import may_overwrite, splits_evenly
from .winograd import Backward, Forward

Work = Kernel | Call | Weights | Pixels | Turn | Forward | Backward | Fused | Control | Opaque


@dataclass(frozen=True)
class Stage:
    """A work of a chain; `operands` are numbers of the chain's own operands, and after those of its scratch."""

    work: Work
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Scratch:
    """Bytes of one element, at an offset within a slot."""

    offset: int
    nbytes: int


@dataclass(frozen=True)
class Chain:
    """Stages in order for each of `batch` elements; slot s of `slots` runs a share of them in its part of the last
    operand. The range that threads share are the slots."""

    stages: tuple[Stage, ...]
    scratch: tuple[Scratch, ...]
    batch: int
    slots: int
    slot_bytes: int
    ahead: tuple[tuple[int, int], ...] = ()  # operands that lie in memory, with the bytes of an element: see `_far`

    @property
    def operands(self) -> list[tuple[int, ...]]:
        return [stage.operands for stage in self.stages]

    def __str__(self) -> str:
        return (
            f"chain of {len(self.stages)} over {self.batch} elements in {self.slots} slots of {self.slot_bytes} bytes"
        )


@dataclass(eq=False)
class Task:
    """A work before it is launched: what it is given, and the group that it computes."""

    work: Work
    operands: tuple[Node, ...]
    group: Group

    def roles(self) -> Iterable[tuple[Node, bool]]:
        """Each operand, and whether it is written."""
        return zip(self.operands, written_by(self.work, len(self.operands)), strict=True)


@dataclass(eq=False)
class Step:
    """Tasks launched as one: a single one, or the stages of a chain."""

    tasks: list[int]
    batch: int = 1
    scratch: dict[Node, int] = field(default_factory=dict)  # array of the chain's own -> offset in a slot
    slot_bytes: int = 0


def fills_cache(node: Node, target: Target) -> bool:
    """Is an array worth a chain?"""
    return not node.aval.symbolic and node.aval.nbytes >= cost.CHAIN_BYTES * target.cores


def form_chains(tasks: Sequence[Task], kept: Container[Node], target: Target) -> list[Step]:
    """Steps in execution order. `kept` have memory whatever happens: inputs, constants, outputs."""
    return _Chains(tasks, kept, target).form()


class _Chains:
    def __init__(self, tasks: Sequence[Task], kept: Container[Node], target: Target) -> None:
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
        return self._in_order()

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
        counts = set.intersection(*(_batch_counts(self.tasks[t].work, self.target) for t in members))
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
        """Is there a way out of the chain and back into it?"""
        inside = set(joined.tasks)
        stack = [t for member in joined.tasks for t in self.after[member] if t not in inside]
        seen = set(stack)
        while stack:
            for task in self.steps[stack.pop()].tasks:
                for following in self.after[task]:
                    if following in inside:
                        return True
                    if following not in seen:
                        seen.add(following)
                        stack.append(following)
        return False

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
    checks = [number for number, task in enumerate(tasks) if is_checked(task.work)]
    for number, own in enumerate(tasks):  # state is overwritten once every index has been checked
        if any(node.is_input and written for node, written in own.roles()):
            for check in checks:
                if check < number:
                    after[check].add(number)
    return after


# ---- what splits into elements


def kernel_of(work: Work | Chain) -> Kernel | None:
    """The loop nest that it ends with, alone or after a library call."""
    kernel = work.epilogue if isinstance(work, Fused) else work
    return kernel if isinstance(kernel, Kernel) else None


def nests_of(work: Work | Chain) -> list[Kernel]:
    """All loop nests that it runs."""
    return [work] if isinstance(work, Kernel) else [*work.kernels.values()] if isinstance(work, Fused) else []


def with_nests(work: Work, nests: Sequence[Kernel]) -> Work:
    """The same work with other loop nests."""
    if isinstance(work, Fused):
        new = dict(zip(work.kernels, nests, strict=True))
        return replace(work, epilogue=new.get("epilogue"), prologue=new.get("prologue"))
    return nests[0] if isinstance(work, Kernel) else work


def written_by(work: Work, operands: int) -> list[bool]:
    """Which operands it writes: those of its loop nest that are not only read, and what a call writes, which is the
    first one of its epilogue, or the last one."""
    kernel = kernel_of(work)
    if isinstance(work, Control):
        return [False] * (operands - len(work.wanted) - 1) + [True] * (len(work.wanted) + 1)
    if isinstance(work, Opaque):
        return [False] * work.operands + [True] * work.results
    written = [True] if kernel is None else [buffer.role != "in" for buffer in kernel.operands]
    written[0] |= isinstance(work, Fused)
    return [False] * (operands - len(written)) + written


def is_checked(work: Work) -> bool:
    """May it fail, at an index or in NumPy? Then it takes the status word, as its last operand or behind those of a
    prologue."""
    if isinstance(work, Opaque):
        return True
    if isinstance(work, Control):
        return any(plan.checked for plan in work.plans)
    return any(kernel.checked for kernel in nests_of(work))


def _batch_counts(work: Work, target: Target) -> set[int]:
    """Numbers of equal parts that a work can be run in."""
    if isinstance(work, Control | Opaque):
        return set()
    call = work.call if isinstance(work, Fused) else work
    if is_checked(work) or (isinstance(call, Product) and call.computed):
        return {1}
    if isinstance(call, Product):
        cut = {call.matrices * d for d in _divisors(call.m) if call.m // d >= cost.CHAIN_ROWS}
        if call is not work:
            cut = {n for n in cut if target.takes_epilogue(cut_rows(call, n))}
        return cut | _divisors(call.matrices)
    if isinstance(call, Kernel) and call.range is not None and not call.total % call.granule:
        return _divisors(call.total // call.granule)
    return {1}


def _divisors(n: int) -> set[int]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return {*small, *(n // d for d in small)}


def in_elements(work: Work, batch: int) -> Work:
    """The work with a range that `batch` divides: rows of a product are cut into more matrices where they must be."""
    if isinstance(work, Fused) and isinstance(work.call, Product):
        return replace(work, call=cut_rows(work.call, batch))
    return cut_rows(work, batch) if isinstance(work, Product) else work


def _as_stage(work: Work, batch: int) -> Work:
    return replace(work, chained=True) if isinstance(work, Kernel) else in_elements(work, batch)


def cut_rows(product: Product, batch: int) -> Product:
    if product.matrices % batch == 0:
        return product
    parts = batch // product.matrices
    rows = product.m // parts
    a = replace(product.a, batch=(*product.a.batch, rows * product.a.row))
    b = replace(product.b, batch=(*product.b.batch, 0))
    return replace(product, batch=(*product.batch, parts), m=rows, a=a, b=b)


def is_aligned(task: Task, node: Node, batch: int) -> bool:
    """Does part i of the work touch part i of the array only?"""
    kernel, work = kernel_of(task.work), in_elements(task.work, batch)
    call = work.call if isinstance(work, Fused) else work
    found = True
    if isinstance(call, Product):  # its result is matrix after matrix
        sides = ((call.a, (call.m, call.k)), (call.b, (call.k, call.n)))
        for operand, (side, shape) in zip(task.operands, sides, strict=False):
            found &= operand is not node or _matrices_aligned(call, side, shape, node.aval.size, batch)
    if kernel is not None:
        buffers = zip(task.operands[len(task.operands) - len(kernel.operands) :], kernel.operands, strict=True)
        found &= all(splits_evenly(kernel, buffer, batch) for operand, buffer in buffers if operand is node)
    return found


def _matrices_aligned(product: Product, matrix: Matrix, shape: tuple[int, int], size: int, batch: int) -> bool:
    first = np.full(1, matrix.offset)
    for n, step in zip(product.batch, matrix.batch, strict=True):
        first = (first[:, None] + np.arange(n) * step).reshape(-1)
    last = first + (shape[0] - 1) * matrix.row + (shape[1] - 1) * matrix.column
    start = np.arange(product.matrices) // (product.matrices // batch) * (size // batch)
    return bool((first >= start).all() and (last < start + size // batch).all())


# ---- memory


def heirs(tasks: Sequence[Task], nodes: Sequence[Node], intervals: Sequence[Interval]) -> dict[int, int]:
    """Interval -> the one whose place it takes: that of an array which the kernel that makes it is the last to read."""
    number = {node: k for k, node in enumerate(nodes)}
    found: dict[int, int] = {}
    for step, task in enumerate(tasks):
        if not isinstance(task.work, Kernel):
            continue
        buffers = {number[n]: b for n, b in zip(task.operands, task.work.operands, strict=True) if n in number}
        old = [k for k in buffers if intervals[k].end == step > intervals[k].start]
        new = [k for k in buffers if intervals[k].start == step]
        for k in new:
            taken = next((x for x in old if may_overwrite(task.work, buffers[x], buffers[k])), None)
            if taken is not None:
                old.remove(taken)
                found[k] = taken
    return found


# ---- the work


def chain_of(step: Step, tasks: Sequence[Task], operands: Sequence[Node], slots: int) -> Chain:
    """The chain whose operands are these nodes, and then the slots."""
    number = {node: k for k, node in enumerate((*operands, *step.scratch))}
    stages = tuple(Stage(_as_stage(task.work, step.batch), tuple(number[n] for n in task.operands)) for task in tasks)
    scratch = tuple(Scratch(offset, node.aval.nbytes // step.batch) for node, offset in step.scratch.items())
    return Chain(stages, scratch, step.batch, slots, step.slot_bytes, _far(step, operands))


def _far(step: Step, operands: Sequence[Node]) -> tuple[tuple[int, int], ...]:
    """Operands, by number, that are not in a cache already, and in which an element is likely to have its own part."""
    sizes = [(k, node.aval.nbytes) for k, node in enumerate(operands)]
    return tuple((k, n // step.batch) for k, n in sizes if n >= cost.CHAIN_BYTES and not n % step.batch)
