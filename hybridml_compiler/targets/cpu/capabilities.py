"""Abilities of a CPU that the schedule asks for: the calls that it has kernels for, its vectors and its cores."""

from __future__ import annotations

from ... import dtypes
from ...graph.ir import Node
from ...loops.ir import Expr, Kernel
from ...schedule.kernels.gemm import Product
from ...schedule.kernels.library import LIBRARY, Call, Capabilities, Prepared
from .kernels.loop_schedule import schedule, schedule_matrix
from .llvm.convolution.kernel import has_convolution, passing_convolution, prepared_operands, reads_pairs
from .llvm.gemm.product import computes_left, own_blocking, passing_product, same_sums
from .llvm.registry import kind_of
from .runtime import blas
from .spec import CpuSpec


def capabilities(cpu: CpuSpec) -> Capabilities:
    """The abilities of a CPU."""

    def has_blas() -> bool:
        return blas.gemm_symbols() is not None if cpu.blas is None else cpu.blas

    def has_library(call: Call) -> bool:
        if isinstance(call, Product):
            return own_blocking(call, cpu) is not None or (call.dtype.kind == "f" and has_blas())
        return has_convolution(call, cpu)

    def takes_epilogue(call: Call) -> bool:
        return kind_of(call).takes_epilogue(call, cpu)

    def lanes(kernel: Kernel) -> int:
        """One hardware vector of the widest element."""
        widest = max((e.dtype.itemsize for e in kernel.expressions if _counts(e)), default=4)
        return max(cpu.vector_bits // (8 * max(widest, 4)), 2)

    def prepared(call: Call) -> tuple[Prepared | None, Prepared | None]:
        return (None, None) if isinstance(call, Product) else prepared_operands(call, cpu)

    def reads_narrow(node: Node) -> bool:
        assert node.op is not None
        if not cpu.registers or not LIBRARY[node.op.kind].reads_narrow(node):
            return False
        return node.op.kind != "convolution" or node.dtype is dtypes.int32 or reads_pairs(cpu)

    def passing(call: Call) -> Call | None:
        return passing_product(call, cpu) if isinstance(call, Product) else passing_convolution(call, cpu)

    return Capabilities(
        has_library,
        takes_epilogue,
        cpu.cores,
        lambda s, kernel: schedule(s, kernel, lanes(kernel)),
        lambda _, kernel: schedule_matrix(kernel, lanes(kernel)),
        prepared,
        reads_narrow,
        lambda product: computes_left(product, cpu),
        passing,
        lambda product, other: same_sums(product, other, cpu),
    )


def _counts(expr: Expr) -> bool:
    """Data that fills lanes: arrays, and float64 arithmetic on them. Indices and scalars do not narrow a loop."""
    if expr.op == "load":
        return bool(expr.attr.size > 1)
    return expr.dtype is dtypes.float64 and bool(expr.depends)
