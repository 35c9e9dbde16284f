"""Loops whose threads do not wait for each other: each takes all steps for rows of its own.

    for each step, in parallel: h @ w            in parallel: for each step: rows 0-15 of h @ w, of the cell
    for each step, in parallel: the cell    ->                for each step: rows 16-31 of h @ w, of the cell

A recurrent layer keeps the rows of a batch apart. So it is cut as a chain is (batch_fusion.py): each launch of a step
splits into as many equal parts as there are cores, and part i touches only part i of every array that its step
or the one before writes. Else threads meet at every launch of every step, and read what others have just written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...graph.ir import Node
from ...loops.ir import Kernel, KernelSpec
from ...record import replace
from .. import cost
from ..kernels.gemm import Product
from ..kernels.library import Capabilities
from .batch_fusion import is_aligned
from .epilogue import Fused
from .steps import Task, touched_by


def in_parts(
    tasks: Sequence[Task], carried: Iterable[Node], given: Iterable[Node], target: Capabilities
) -> list[Task] | None:
    """The specs of a step cut for each core, or None. `carried` comes from the step before, `given` are results."""
    parts = target.cores
    written = {node for task in tasks for node, is_written in task.roles() if is_written}
    apart = {*written, *carried, *given}
    if parts < 2 or any(n.aval.symbolic or n.aval.size % parts for n in apart):
        return None
    if not all(_splits(task.spec, parts, target) for task in tasks):
        return None
    for node, users in touched_by(tasks).items():
        if node in apart and not all(is_aligned(tasks[t], node, parts) for t in users):
            return None
    return [replace(task, spec=task.spec.in_parts(parts)) for task in tasks]


def _splits(spec: KernelSpec, parts: int, target: Capabilities) -> bool:
    """Whether the spec can be split, with the same bits and without reading much again."""
    if isinstance(spec, Kernel):
        return (
            spec.range is not None
            and not spec.checked
            and not spec.symbolic
            and not spec.total % (spec.granule * parts)
        )
    call = spec.call if isinstance(spec, Fused) else spec
    if not isinstance(call, Product) or call.symbolic or call.computed or spec.checked:
        return False
    if call.matrices % parts:
        if call.matrices > 1 or call.m % parts or call.m // parts < cost.APART_ROWS or call.b_bytes > cost.APART_BYTES:
            return False
        cut = call.in_parts(parts)
        return target.same_sums(call, cut) and (call is spec or target.takes_epilogue(cut))
    return True
