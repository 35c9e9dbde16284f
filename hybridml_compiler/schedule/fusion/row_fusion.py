"""Row fusion: a product of a matrix and a column, and one of a row and that matrix, which is read once for both.

    d = A @ x        every row of A           for a few rows of A at a time, while they are in a cache:
    y = w @ A        every row of A    ->         d = A @ x of these rows, and the epilogue of it
                                                  y += w of these rows @ these rows

`w` may be made of `d`, row by row: `A.T @ (A @ x - b)` is one reading of `A`. A matrix that comes from memory takes as
long to read as all that is computed from it. The sums over rows are cut into blocks (see `Product.blocks`), which
threads share, and have the bits of launches of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...loops.ir import KernelSpec
from ...record import record, replace
from ...walk import reachable
from ..kernels.gemm import Product
from ..kernels.library import Capabilities
from .epilogue import Fused
from .steps import Partition, Stage, Staged, Step, Task, touched_by
from .tile_fusion import operands_of


@record
class RowFusion(Staged):
    """Stages that mean what they do one after the other: `A @ x`, maybe with an epilogue, and `w @ A` in blocks."""

    stages: tuple[Stage, Stage]

    @property
    def dots(self) -> Product:
        found = call_of(self.stages[0].spec)
        assert found is not None
        return found

    @property
    def updates(self) -> Product:
        found = self.stages[1].spec
        assert isinstance(found, Product)
        return found

    def __str__(self) -> str:
        return f"{self.stages[0].spec} and {self.updates} row by row"


def form_rows(tasks: Sequence[Task], steps: Sequence[Step], target: Capabilities) -> list[Step]:
    """The steps with such products in pairs, in an order that allows it."""
    updates = [k for k, task in enumerate(tasks) if isinstance(task.spec, Product) and task.spec.blocks > 1]
    pairs = [(dots, k) for k in updates for dots in range(len(tasks)) if _reads_alike(tasks[dots], tasks[k])]
    if not pairs:
        return list(steps)
    partition = Partition(tasks, touched_by(tasks))
    for step in steps:
        if len(step.tasks) > 1:
            partition.join(step)
    for pair in pairs:
        step = Step([*pair], by_rows=True)
        alone = all(len(partition.steps[task].tasks) == 1 for task in pair)
        if alone and _in_order(partition, *pair):
            made = rows_of(step, tasks)
            if target.runs_rows(made.dots, made.updates):
                partition.join(step)
    return partition.in_order()


def may_share_rows(spec: KernelSpec, target: Capabilities) -> bool:
    """Whether a pair may be made of a spec: a product of a row, or of a column, and a matrix from memory."""
    call = call_of(spec)
    if call is None or call.m != 1 or call.matrices != 1 or call.symbolic:
        return False
    turned = replace(call, b=replace(call.b, row=call.b.column, column=call.b.row), n=call.k, k=call.n)
    return call.blocks > 1 or target.sum_blocks(turned) > 1


def _in_order(partition: Partition, dots: int, updates: int) -> bool:
    """Whether the first may run right before the second."""
    return dots not in reachable([updates], partition.after.__getitem__) and not partition.is_circular(
        Step([dots, updates])
    )


def call_of(spec: KernelSpec) -> Product | None:
    """The product that a spec computes, alone or with an epilogue."""
    call = spec.call if isinstance(spec, Fused) and spec.prologue is None else spec
    return call if isinstance(call, Product) else None


def _reads_alike(task: Task, other: Task) -> bool:
    """Whether the first is a product of a matrix and a column, and the second one of a row and the same matrix; which
    may read of what the first one writes its row alone, element by element."""
    dots, updates = call_of(task.spec), call_of(other.spec)
    assert updates is not None
    if (
        dots is None
        or dots.blocks > 1
        or dots.symbolic
        or task.spec.checked
        or task.operands[1] is not other.operands[1]
    ):
        return False
    a, b = dots.b, updates.b
    if (dots.m, dots.n, dots.k, dots.matrices, dots.dtype) != (1, updates.k, updates.n, 1, updates.dtype):
        return False
    if (a.row, a.column, a.offset, dots.stored) != (b.column, b.row, b.offset, updates.stored):
        return False
    row, matrix, _ = other.operands
    written = [node for node, is_written in task.roles() if is_written]
    in_order = updates.a.offset == 0 and updates.a.column == 1 and row.aval.size == updates.k
    return matrix not in written and (row not in written or in_order)


def rows_of(step: Step, tasks: Sequence[Task]) -> RowFusion:
    """The spec of a step, whose operands are those of its tasks, each once."""
    number = {node: k for k, node in enumerate(operands_of(step, tasks))}
    first, second = (Stage(tasks[t].spec, tuple(number[n] for n in tasks[t].operands)) for t in step.tasks)
    return RowFusion((first, second))
