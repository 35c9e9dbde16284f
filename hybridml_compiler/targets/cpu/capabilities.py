"""Abilities of a CPU that the schedule asks for: the calls that it has kernels for, its vectors and its cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import dtypes
from ...graph.facts import stored
from ...graph.ir import Node
from ...loops.ir import Expr, Kernel
from ...loops.regions import everywhere
from ...schedule.kernels.gemm import Product
from ...schedule.kernels.library import LIBRARY, Capabilities
from ...sizes.dims import hint
from .kernels.loop_schedule import schedule, schedule_matrix
from .llvm.kind import CallKind
from .llvm.registry import kind_of
from .spec import CpuSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...aval import Aval
    from ...ops.fourier import AxisTransform
    from ...schedule.kernels.library import Call
    from ...schedule.kernels.transform_steps import Steps


def capabilities(cpu: CpuSpec) -> Capabilities:
    """The abilities of a CPU."""

    def lanes(kernel: Kernel) -> int:
        """One hardware vector of the widest element."""
        widest = max((e.dtype.itemsize for e in everywhere(kernel.expressions) if _counts(e)), default=4)
        return max(cpu.vector_bits // (8 * max(widest, 4)), 2)

    multiplies_pairs = cpu.vector_bits == 512 and "avx512bf16" in cpu.enabled  # of bfloat16

    def reads_narrow(node: Node) -> bool:
        assert node.op is not None
        if not cpu.registers or not LIBRARY[node.op.kind].reads_narrow(node):
            return False
        if any(stored(x).dtype is dtypes.float16 for x in node.inputs):
            return False
        return node.op.kind != "convolution" or node.dtype is dtypes.int32 or multiplies_pairs

    def transforms(aval: Aval, axes: Sequence[AxisTransform]) -> Steps | None:
        from ...schedule.kernels.transform_steps import steps_of  # with the first Fourier transform

        return steps_of(aval, axes, cpu.lanes, cpu.cores)

    def runs_rows(dots: Product, updates: Product) -> bool:
        from .llvm.fusion.row_fusion import row_plan  # loads what emits products

        return row_plan(dots, updates, cpu) is not None

    return Capabilities(
        lambda call: _kind(call).computes(call, cpu),
        lambda call: _kind(call).takes_epilogue(call, cpu),
        cpu.cores,
        lambda s, kernel: schedule(s, kernel, lanes(kernel)),
        lambda _, kernel: schedule_matrix(kernel, lanes(kernel)),
        lambda call: _kind(call).prepared(call, cpu),
        reads_narrow,
        lambda product: _kind(product).computes_left(product, cpu),
        lambda call: _kind(call).passing(call, cpu),
        lambda product, other: _kind(product).same_sums(product, other, cpu),
        transforms,
        sum_blocks=lambda product: _kind(product).sum_blocks(product, cpu),
        runs_rows=runs_rows,
        runs_control=True,
        updates_in_place=True,
        tiles_time=True,
        takes_sizes=True,
    )


def _kind(call: Call) -> CallKind:
    found = kind_of(call)
    assert isinstance(found, CallKind)
    return found


def _counts(expr: Expr) -> bool:
    """Data that fills lanes: arrays, and float64 arithmetic on them. Indices and scalars do not narrow a loop."""
    if expr.op == "load":
        return hint(expr.attr.size) > 1
    return expr.dtype is dtypes.float64 and (bool(expr.depends) or expr.op == "param")
