"""A kernel as a CPython builtin over arrays, `builtin(x, y, out)`: calling it is much faster than ctypes
([Note: Runtime])."""

from __future__ import annotations

from typing import Any

from .... import dtypes
from ..python_entry.object_layout import Layout
from . import ir
from .types import I8, I32, I64, PTR, VOID, constant

# Symbols that it imports, other than the pool's.
PYTHON_API = ("Py_IncRef", "PyEval_SaveThread", "PyEval_RestoreThread", "_Py_NoneStruct")


def emit_builtin(
    module: ir.Module, name: str, kernel: ir.Function, arity: int, layout: Layout, parallel: int, granule: int
) -> ir.Function:
    """`PyObject *name(self, args, n)`: kernel(data pointers of `arity` dense arrays, 0, size of the last one).

    From `parallel` elements on threads share the range, and other Python threads may run meanwhile. The arguments are
    not checked: the caller makes sure that they are C-contiguous ndarrays of one size.
    """
    function = ir.Function(module, ir.FunctionType(PTR, [PTR, PTR, I64]), name)
    b = function.build()
    arguments = function.args[1]
    table = b.memory(PTR, arity)
    array: Any = None
    for k in range(arity):
        array = b.load(b.gep(arguments, [_i64(k)], source_etype=PTR), typ=PTR)
        data = b.load(_field(b, array, layout.array_data), typ=PTR)
        b.store(data, b.gep(table, [_i64(k)], source_etype=PTR))
    size = _size(b, function, array, layout)
    with b.if_else(b.icmp_signed("<", size, _i64(parallel))) as (small, large):
        with small:
            b.call(kernel, [table, _i64(0), size])
        with large:
            pool = ir.GlobalVariable(module, I8, "hml_pool")
            pool.linkage = "external"
            run = ir.Function(module, ir.FunctionType(VOID, [PTR, PTR, PTR, I64, I64]), "hml_parallel")
            state = b.call(ir.Function(module, ir.FunctionType(PTR, []), "PyEval_SaveThread"), [])
            b.call(run, [pool, kernel, table, size, _i64(granule)])
            b.call(ir.Function(module, ir.FunctionType(VOID, [PTR]), "PyEval_RestoreThread"), [state])
    none = ir.GlobalVariable(module, I8, "_Py_NoneStruct")
    none.linkage = "external"
    b.call(ir.Function(module, ir.FunctionType(VOID, [PTR]), "Py_IncRef"), [none])
    b.ret(none)
    return function


def _size(b: ir.IRBuilder, function: ir.Function, array: Any, layout: Layout) -> Any:
    """Product of the array's dimensions."""
    rank = b.zext(b.load(_field(b, array, layout.array_nd), typ=I32), I64)
    dims = b.load(_field(b, array, layout.array_dims), typ=PTR)
    entry = b.block
    head, body, done = (function.append_basic_block(n) for n in ("dims", "dim", "sized"))
    b.branch(head)
    b.position_at_end(head)
    k, size = b.phi(I64), b.phi(I64)
    b.cbranch(b.icmp_signed("<", k, rank), body, done)
    b.position_at_end(body)
    product = b.mul(size, b.load(b.gep(dims, [k], source_etype=I64), typ=I64))
    following = b.add(k, _i64(1))
    b.branch(head)
    for phi, start, new in ((k, 0, following), (size, 1, product)):
        phi.add_incoming(_i64(start), entry)
        phi.add_incoming(new, body)
    b.position_at_end(done)
    return size


def _field(b: ir.IRBuilder, base: Any, offset: int) -> Any:
    return b.gep(base, [_i64(offset)], source_etype=I8)


def _i64(value: int) -> Any:
    return constant(value, dtypes.int64)
