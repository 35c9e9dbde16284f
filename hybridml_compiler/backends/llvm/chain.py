"""A chain as an LLVM function: for each slot, for each of its elements, a call of each stage for that element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...schedule.chain import Chain
from . import ir
from .gemm_tile import AS_EMITTED, i64, repeat
from .kernel import KERNEL_TYPE
from .types import I8, PTR


def emit_chain(
    module: ir.Module, name: str, chain: Chain, symbols: Sequence[str], iterations: Sequence[int]
) -> ir.Function:
    """`void chain(ptr buffers, i64 lo, i64 hi)` over slots; a stage's function runs `iterations` for one element."""
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.update(AS_EMITTED)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    buffers, lo, hi = function.args
    outside = 1 + max(k for stage in chain.stages for k in stage.operands) - len(chain.scratch)
    given = [b.load(_entry(b, buffers, k), typ=PTR) for k in range(outside + 1)]
    tables = [b.alloca(PTR, size=len(stage.operands)) for stage in chain.stages]
    for table, stage in zip(tables, chain.stages, strict=True):
        for place, operand in enumerate(stage.operands):
            if operand < outside:
                b.store(given[operand], _entry(b, table, place))
    functions = [module.globals.get(s) or ir.Function(module, KERNEL_TYPE, s) for s in symbols]

    def slot(number: Any) -> None:
        memory = b.gep(given[outside], [b.mul(number, i64(chain.slot_bytes))], source_etype=I8)
        first = b.udiv(b.mul(number, i64(chain.batch)), i64(chain.slots))
        end = b.udiv(b.mul(b.add(number, i64(1)), i64(chain.batch)), i64(chain.slots))
        repeat(b, first, end, 1, lambda element: run(memory, element))

    def run(memory: Any, element: Any) -> None:
        # Where element 0 of each array of the chain's own would be, if this element is to lie in the slot.
        starts = []
        for scratch in chain.scratch:
            before = b.sub(i64(scratch.offset), b.mul(element, i64(scratch.nbytes)))
            starts.append(b.gep(memory, [before], source_etype=I8))
        for stage, table, called, count in zip(chain.stages, tables, functions, iterations, strict=True):
            for place, operand in enumerate(stage.operands):
                if operand >= outside:
                    b.store(starts[operand - outside], _entry(b, table, place))
            start = b.mul(element, i64(count))
            b.call(called, [table, start, b.add(start, i64(count))])

    repeat(b, lo, hi, 1, slot)
    b.ret_void()
    return function


def _entry(b: ir.IRBuilder, table: Any, number: int) -> Any:
    return b.gep(table, [i64(number)], source_etype=PTR)
