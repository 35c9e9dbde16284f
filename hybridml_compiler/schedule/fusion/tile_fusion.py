"""Tile fusion: matrices that lie between products are made again, a tile at a time, wherever they are read.

    p = exp(q @ k.mT - c)        queries by keys          for each tile of queries: for each tile of keys:
    s = p * (g @ v.mT - d)       queries by keys    ->        the tile of p, that of s; dq += s @ k
    dq, dk = s @ k, s.mT @ q                              for each tile of keys: for each tile of queries:
                                                              the tile of p, that of s; dk += s.mT @ q

It is for targets without a cache that holds such a matrix, and with more threads than there are matrices. The launches
are found here; whether it writes them as one is the target's answer, which has seen all of them. So the matrices need
no memory.

A matrix is written by a product, and so are those of its size that a loop nest makes of it. The launches are all that
touch one of them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from ...graph.ir import Node
from ...loops.ir import KernelSpec
from ...record import record
from ..kernels.gemm import Product
from ..kernels.library import Capabilities
from .epilogue import Fused
from .steps import Partition, Stage, Staged, Step, Task, Touched, fills_cache, touched_by


@record
class TileFusion(Staged):
    """Stages that mean what they do one after the other, on scratch arrays of so many bytes, which come after the
    operands."""

    stages: tuple[Stage, ...]
    scratch: tuple[int, ...]

    @property
    def operands(self) -> int:
        """The number of operands in memory."""
        return 1 + max(k for stage in self.stages for k in stage.operands) - len(self.scratch)

    def __str__(self) -> str:
        return f"{len(self.stages)} launches tile by tile"


def form_tiles(tasks: Sequence[Task], kept: Container[Node], target: Capabilities) -> list[Step]:
    """Steps in execution order. `kept` have memory whatever happens: inputs, constants, outputs."""
    touched = touched_by(tasks)
    partition = Partition(tasks, touched)
    if any(node.aval.symbolic for node in touched):
        return partition.steps
    large = {node for node in touched if node not in kept and fills_cache(node, target)}
    for node in sorted(large, key=lambda node: next(iter(touched[node]))):
        if not _is_product(tasks[next(iter(touched[node]))].spec):
            continue
        matrices = _matrices(node, tasks, touched, large)
        members = sorted({task for matrix in matrices for task in touched[matrix]})
        inside = [n for n in touched if n not in kept and touched[n].keys() <= set(members)]
        step = Step(members, scratch=dict.fromkeys(inside, 0), tiled=True)
        if any(partition.steps[task].tiled for task in members) or partition.is_circular(step):
            continue
        if target.runs_tiles is not None and target.runs_tiles(tiles_of(step, tasks)):
            partition.join(step)
    return partition.in_order()


def operands_of(step: Step, tasks: Sequence[Task]) -> list[Node]:
    """The arrays in memory that the tasks of a step touch."""
    return list(dict.fromkeys(n for t in step.tasks for n in tasks[t].operands if n not in step.scratch))


def tiles_of(step: Step, tasks: Sequence[Task]) -> TileFusion:
    """The spec of a step, whose operands are those of `operands_of`."""
    number = {node: k for k, node in enumerate((*operands_of(step, tasks), *step.scratch))}
    stages = (Stage(tasks[t].spec, tuple(number[n] for n in tasks[t].operands)) for t in step.tasks)
    return TileFusion(tuple(stages), tuple(int(node.aval.nbytes) for node in step.scratch))


def _is_product(spec: KernelSpec) -> bool:
    return isinstance(spec.call if isinstance(spec, Fused) else spec, Product)


def _matrices(first: Node, tasks: Sequence[Task], touched: Touched, large: Container[Node]) -> list[Node]:
    """The matrix, and those of its size that loop nests make of it and of each other."""
    found = [first]
    for matrix in found:
        for number in touched[matrix]:
            task, nest = tasks[number], tasks[number].spec.nest
            if nest is None or matrix not in task.operands[len(task.operands) - len(nest.operands) :]:
                continue
            written = [node for node, is_written in task.roles() if is_written and node in large]
            found += [node for node in written if node not in found and node.aval.size == first.aval.size]
    return found
