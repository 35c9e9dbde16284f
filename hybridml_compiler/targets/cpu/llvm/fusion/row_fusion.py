"""Two products that read one matrix row by row as an LLVM function: for each block of the sums, for a few rows at a
time, `A @ x` of these rows from memory, and then `w @ A` of them from a cache."""

from __future__ import annotations

from typing import Any

from .....schedule.fusion.epilogue import Fused
from .....schedule.fusion.row_fusion import RowFusion
from .....schedule.kernels.gemm import Product
from ...kernels.gemv import Axpys, Gemv, RowPlan, rows_of
from ...spec import CpuSpec
from .. import ir
from ..contraction.emission import AS_EMITTED
from ..contraction.loops import i64, repeat, share
from ..gemm.gemv import Dots, Updates
from ..gemm.product import own_blocking
from ..kernel import KERNEL_TYPE, emit_epilogue
from ..kind import Kind
from ..registry import kind_of
from ..types import PTR, register_type


def row_plan(dots: Product, updates: Product, cpu: CpuSpec) -> RowPlan | None:
    """The plan of both; None where they run apart."""
    of_dots, of_updates = own_blocking(dots, cpu), own_blocking(updates, cpu)
    if not isinstance(of_dots, Gemv) or not isinstance(of_updates, Axpys):
        return None
    return rows_of(dots, of_dots, of_updates, updates)


def _emit(module: ir.Module, name: str, fusion: RowFusion) -> ir.Function:
    updates = fusion.updates
    plan = row_plan(fusion.dots, updates, module.cpu)
    assert plan is not None
    first, second = fusion.stages
    epilogue = first.spec.epilogue if isinstance(first.spec, Fused) else None
    finish = None if epilogue is None else emit_epilogue(module, f"{name}_epilogue", epilogue)
    count = 3 if epilogue is None else 2 + len(epilogue.operands)
    dots = Dots(module, f"{name}_dots", fusion.dots, plan.dots, finish, (), count).emit_rows()
    adds = Updates(module, f"{name}_updates", updates, plan.updates).emit_rows()
    zeros = Updates(module, f"{name}_zeros", updates, plan.updates).emit_zeros()
    for function in (dots, adds, zeros):
        function.linkage = "internal"
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.update(AS_EMITTED)
    b = function.build()
    buffers, lo, hi = function.args
    tables = [b.memory(PTR, len(stage.operands)) for stage in fusion.stages]
    for table, stage in zip(tables, fusion.stages, strict=True):
        for place, operand in enumerate(stage.operands):
            b.set_operand(table, place, b.operand(buffers, operand))
    sums = b.operand(buffers, second.operands[2])

    def block(number: Any) -> None:
        row = b.gep(sums, [b.mul(number, i64(updates.n))], source_etype=register_type(updates.dtype))
        b.set_operand(tables[1], 2, row)
        b.call(zeros, [tables[1], i64(0), i64(1)])
        start, end = share(b, number, i64(updates.blocks), i64(updates.k))
        runs = b.udiv(b.sub(end, start), i64(plan.rows))

        def run(index: Any) -> None:  # the last one has the rows that are left as well
            at = b.add(start, b.mul(index, i64(plan.rows)))
            following = b.add(index, i64(1))
            until = b.select(b.icmp_signed("<", following, runs), b.add(at, i64(plan.rows)), end)
            b.call(dots, [tables[0], at, until])
            b.call(adds, [tables[1], at, until])

        repeat(b, i64(0), runs, 1, run)

    repeat(b, lo, hi, 1, block)
    b.ret_void()
    return function


ROW_FUSION = Kind(
    emit=_emit,
    source=lambda fusion, cpu: (
        f"{fusion} {row_plan(fusion.dots, fusion.updates, cpu)!r} {[stage.operands for stage in fusion.stages]} "
        + " ".join(kind_of(spec).source(spec, cpu) for spec in fusion.specs)
    ),
    range=lambda fusion, _: (fusion.updates.blocks, 1),
    nanoseconds=lambda fusion: sum(kind_of(spec).nanoseconds(spec) for spec in fusion.specs),
)
