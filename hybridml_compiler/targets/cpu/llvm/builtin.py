"""A kernel as a CPython builtin over arrays, `builtin(x, y, out)`: calling it is much faster than ctypes
([Note: Runtime])."""

from __future__ import annotations

from typing import Any

from ....schedule.cost import RANGES_A_THREAD
from ..python_entry.object_layout import Layout
from ..runtime.thread_block import BEGIN, READY
from . import ir
from .native import KINDS, NativeBuilder, native

# Symbols that it imports, other than the pool's.
PYTHON_API = ("Py_IncRef", "PyEval_SaveThread", "PyEval_RestoreThread", "_Py_NoneStruct")


def emit_builtin(
    module: ir.Module, name: str, kernel: ir.Function, arity: int, layout: Layout, parallel: int, granule: int,
    *, polls: bool = False,
) -> ir.Function:  # fmt: skip
    """`PyObject *name(self, args, n)`: kernel(data pointers of `arity` dense arrays, 0, size of the last one).

    From `parallel` elements on threads share the range, and other Python threads may run meanwhile. The arguments are
    not checked: the caller makes sure that they are C-contiguous ndarrays of one size. `polls`: the kernel may end
    early, where the caller has an error to raise (runtime/host_callback.py).
    """

    @native("ptr", "ptr", "ptr", "i64", name=name)
    def builtin(c: NativeBuilder, own: Any, args: Any, n: Any) -> None:
        table, arrays = c.local("ptr", arity), [args.item(k, "ptr").struct(layout.array) for k in range(arity)]
        for k, array in enumerate(arrays):
            (table + 8 * k).store(array["data"])
        dims, size = arrays[-1]["dims"], c.variable(1)
        with c.each(c.zext(arrays[-1]["nd"], KINDS["i64"])) as k:
            size.value *= dims.item(k)
        if polls:
            c.extern("i64", READY)
            c.extern("void", BEGIN)
        none = c.symbol("_Py_NoneStruct")
        c.extern("void", "Py_IncRef", none)
        with c.if_then(size.value < parallel):
            c.through(kernel, "void", table, 0, size.value)
            c.ret(none)
        thread = c.extern("ptr", "PyEval_SaveThread")
        job = [c.symbol("hml_pool"), kernel, table, size.value, granule, RANGES_A_THREAD]
        c.extern("void", *(["hml_parallel_stops", *job, 1] if polls else ["hml_parallel_chunks", *job]))
        c.extern("void", "PyEval_RestoreThread", thread)
        c.ret(none)

    function: ir.Function = builtin.define(module)
    function.linkage = ""
    return function
