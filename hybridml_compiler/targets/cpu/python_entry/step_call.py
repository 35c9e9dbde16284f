"""A step called with arrays, by those who make its results themselves: a native function reads where their data are.

NumPy's `array.ctypes.data` and a table of ctypes take 4 us for three arrays, this takes 0.3, and 5 ms to be made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler.once import once
from hybridml_compiler.targets.cpu.python_entry.spec import call_step
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.runtime.linking.builtins import builtin

if TYPE_CHECKING:
    from hybridml_compiler.targets.cpu.python_entry.object_layout import Layout

_FIRST = 16  # calls of a process that are made without it
_calls = count()
API = ("PyLong_AsVoidPtr", "PyLong_FromLongLong", "PyEval_SaveThread", "PyEval_RestoreThread")


def call_with_arrays(step: int, addresses: Sequence[int], arrays: Sequence[np.ndarray[Any, Any]]) -> int:
    """The status of `i64 step(ptr table)`, called without the GIL; its table: data of the arrays, addresses."""
    native = _native() if next(_calls) >= _FIRST else None
    if native is None:
        return call_step(step, [*(a.ctypes.data for a in arrays), *addresses])
    status: int = native(step, *addresses, 0, *arrays) if len(addresses) == 1 else native(step, *addresses, *arrays)
    return status


@once
def _native() -> Callable[..., int] | None:
    """`function(step, arena, sizes, *arrays)`, where structs of the interpreter have been measured."""
    from hybridml_compiler.targets.cpu.python_entry import object_layout  # at the first call that is not made by ctypes

    if object_layout.measured() is None:
        return None
    imports = {name: loader.address_of(getattr(ctypes.pythonapi, name)) for name in API}
    layout = object_layout.layout()
    source = jit.emitted_source(f"step call {layout}", lambda: _text(layout), "targets.cpu.python_entry.*")
    library = loader.load([jit.compile_source(source)], imports, ("hml_call_step",))
    _native_owners.append(library)
    return builtin("call_step", library.address("hml_call_step"))


_native_owners: list[loader.Library] = []


def _text(layout: Layout) -> str:
    from hybridml_compiler.targets.cpu.llvm.native import NativeBuilder, native
    from hybridml_compiler.targets.cpu.llvm.native import text as module_text
    from hybridml_compiler.targets.cpu.spec import host_spec

    @native("ptr", "ptr", "ptr", "i64")
    def hml_call_step(c: NativeBuilder, own: Any, args: Any, n: Any) -> None:
        step, arena, sizes = (c.extern("ptr", "PyLong_AsVoidPtr", args.item(k, "ptr")) for k in range(3))
        count = n - 3
        table = c.room("ptr", n)
        with c.each(count) as k:
            (table + k * 8).store(args.item(k + 3, "ptr").struct(layout.array)["data"])
        (table + count * 8).store(arena)
        (table + count * 8 + 8).store(sizes)
        thread = c.extern("ptr", "PyEval_SaveThread")
        status = c.through(step, "i64", table)
        c.extern("void", "PyEval_RestoreThread", thread)
        c.ret(c.extern("ptr", "PyLong_FromLongLong", status))

    return module_text("step_call", host_spec(), hml_call_step)
