"""A call of NumPy as an LLVM function: the text of its graph and the operands go to `runtime.host_callback`."""

from __future__ import annotations

from ....runtime.host_callback import CALL
from ....schedule.host_call import HostCall
from . import ir
from .contraction.loops import i64
from .kernel import KERNEL_TYPE
from .kind import Kind
from .types import I8, I64, PTR, VOID, Literal


def emit_opaque(module: ir.Module, name: str, opaque: HostCall) -> ir.Function:
    """`void opaque(ptr buffers, i64 lo, i64 hi)`; the status word is behind the operands."""
    call = ir.Function(module, ir.FunctionType(VOID, [PTR, PTR, PTR]), CALL)
    data = opaque.text.encode() + b"\0"
    kind = ir.ArrayType(I8, len(data))
    text = ir.GlobalVariable(module, kind, f"{name}_text")
    text.linkage, text.global_constant = "internal", True
    spelled = "".join([f"\\{byte:02x}" for byte in data])
    text.initializer = Literal(kind, f'c"{spelled}"')
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
