"""A region as an LLVM function: a call of each of its kernels, for the part of it that the slots given have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....schedule.fusion.horizontal_fusion import HorizontalFusion
from .. import ir
from ..contraction.emission import AS_EMITTED
from ..contraction.loops import i64
from ..kernel import KERNEL_TYPE
from ..kind import Kind
from ..types import I64, PTR, Literal


def emit_region(module: ir.Module, name: str, region: HorizontalFusion, symbols: Sequence[str]) -> ir.Function:
    """`void region(ptr buffers, i64 lo, i64 hi)` over slots; kernels find their operands one after the other."""
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.update(AS_EMITTED)
    b = function.build()
    buffers, lo, hi = function.args
    values = [f"i64 {end}" for ends in region.cuts for end in ends]  # kernel after kernel
    cuts = module.constant(f"{name}.cuts", Literal(ir.ArrayType(I64, len(values)), f"[{', '.join(values)}]"), 64)
    for number, (stage, symbol) in enumerate(zip(region.stages, symbols, strict=True)):
        start, end = (_load(b, cuts, b.add(slot, i64(number * (region.slots + 1)))) for slot in (lo, hi))
        called = module.function(symbol, KERNEL_TYPE)
        with b.if_then(b.icmp_signed("<", start, end)):
            operands = b.gep(buffers, [i64(stage.operands[0])], source_etype=PTR)
            b.call(called, [operands, start, end])
    b.ret_void()
    return function


def _load(b: ir.IRBuilder, table: Any, index: Any) -> Any:
    return b.load(b.gep(table, [index], source_etype=I64), typ=I64)


HORIZONTAL_FUSION = Kind(
    emit=emit_region,
    source=lambda region, _, parts: f"{region} {parts} {region.cuts} {[len(k.operands) for k in region.kernels]}",
    range=lambda region, _: (region.slots, 1),
    nanoseconds=lambda region: sum(kernel.cost for kernel in region.kernels),
    parts=lambda region, _: region.kernels,
)
