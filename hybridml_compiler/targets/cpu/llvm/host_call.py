"""A call of NumPy as an LLVM function: the text of its graph and the operands go to `runtime.host_callback`.

Where we have a routine for it (runtime/routines/) that is called first, and NumPy only where it refuses a matrix: to
raise the error, or to compute what it still can.
"""

from __future__ import annotations

from typing import Any

from ....runtime.host_callback import CALL
from ....schedule.host_call import HostCall, Routine
from ..runtime.routines import symbols as routines
from ..spec import CpuSpec
from . import ir
from .contraction.loops import i64
from .kernel import KERNEL_TYPE
from .kind import Kind
from .types import I64, PTR, VOID, Literal


def emit_opaque(module: ir.Module, name: str, opaque: HostCall) -> ir.Function:
    """`void opaque(ptr buffers, i64 lo, i64 hi)`; the status word is behind the operands."""
    call = ir.Function(module, ir.FunctionType(VOID, [PTR, PTR, PTR]), CALL)
    text = module.constant(f"{name}_text", ir.spelled(opaque.text.encode() + b"\0"))
    function = ir.Function(module, KERNEL_TYPE, name)
    b = function.build()
    buffers = b.plain(function.args[0], opaque.operands + opaque.results)
    done = b.memory(I64)
    routine = own_routine(opaque, module.cpu)
    if routine is not None:
        refused, over = _call(b, module, name, routine, buffers), b.append_basic_block("over")
        again = b.append_basic_block("again")
        b.cbranch(b.icmp_unsigned("==", refused, i64(0)), over, again).set_weights([99, 1])
        b.position_at_end(over)
        b.ret_void()
        b.position_at_end(again)
    b.store(i64(0), done)
    b.call(call, [text, buffers, done])
    status = b.gep(function.args[0], [i64(opaque.operands + opaque.results)], source_etype=PTR)
    with b.if_then(b.icmp_unsigned("==", b.load(done, typ=I64), i64(0)), likely=False):
        b.store(i64(1), b.load(status, typ=PTR))
    b.ret_void()
    return function


def own_routine(opaque: HostCall, cpu: CpuSpec) -> Routine | None:
    """The routine that is called, if there is one for this CPU."""
    found = opaque.routine
    return found if found is not None and cpu.blas is None and routines.has(found.name) else None


def _call(b: ir.IRBuilder, module: ir.Module, name: str, routine: Routine, buffers: Any) -> Any:
    table = b.memory(PTR, len(routine.places))
    for k, place in enumerate(routine.places):
        pointer = Literal(PTR, "null") if place < 0 else b.given(buffers, place)
        b.give(table, k, pointer)
    kind = ir.ArrayType(I64, len(routine.sizes))
    sizes = module.constant(f"{name}_sizes", Literal(kind, f"[{', '.join(f'i64 {n}' for n in routine.sizes)}]"))
    run = ir.Function(module, ir.FunctionType(I64, [PTR, PTR]), routines.symbol(routine.name, routine.dtype))
    return b.call(run, [table, sizes])


def _source(opaque: HostCall, cpu: CpuSpec) -> str:
    return f"{opaque.text}\n{own_routine(opaque, cpu)}"


HOST_CALL = Kind(emit=emit_opaque, source=_source)
