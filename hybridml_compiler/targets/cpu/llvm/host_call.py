"""A call of NumPy as an LLVM function: the text of its graph and the operands go to `runtime.host_callback`."""

from __future__ import annotations

from ....runtime.host_callback import CALL
from ....schedule.host_call import HostCall
from . import ir
from .contraction.loops import i64
from .kernel import KERNEL_TYPE
from .kind import Kind
from .types import I64, PTR, VOID


def emit_opaque(module: ir.Module, name: str, opaque: HostCall) -> ir.Function:
    """`void opaque(ptr buffers, i64 lo, i64 hi)`; the status word is behind the operands."""
    call = ir.Function(module, ir.FunctionType(VOID, [PTR, PTR, PTR]), CALL)
    text = module.constant(f"{name}_text", ir.spelled(opaque.text.encode() + b"\0"))
    function = ir.Function(module, KERNEL_TYPE, name)
    b = function.build()
    done = b.memory(I64)
    b.store(i64(0), done)
    b.call(call, [text, b.plain(function.args[0], opaque.operands + opaque.results), done])
    status = b.gep(function.args[0], [i64(opaque.operands + opaque.results)], source_etype=PTR)
    with b.if_then(b.icmp_unsigned("==", b.load(done, typ=I64), i64(0)), likely=False):
        b.store(i64(1), b.load(status, typ=PTR))
    b.ret_void()
    return function


HOST_CALL = Kind(emit=emit_opaque, source=lambda opaque, _: opaque.text)
