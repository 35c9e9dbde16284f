"""The native half of `entry`: ONE function that serves every entry, driven by a block of data.

`hml_entry` is a CPython builtin (METH_FASTCALL | METH_KEYWORDS). Its `self` is a ctypes structure, the block, which
has the checks and the address of the step: an entry costs no compilation, and the one compiled function is cached.
The lock word is held from the first output to the finished result, because allocating may run any Python code, this
entry included. Entries that share an arena share the word.
"""

from __future__ import annotations

from typing import Any

from ..llvm.native import NULL, NativeBuilder, Record, native
from ..llvm.native import text as module_text
from ..spec import host_spec
from .block import HEADER, STAMPS
from .guards import arguments_fit, captured_hold, contexts_hold, epochs_hold, places_hold
from .object_layout import layout
from .results import drop_outputs, made_result, make_outputs
from .updates import note_writes, updates_fit, write_stamp


@native("ptr", "ptr", "ptr", "i64", "ptr")
def hml_entry(c: NativeBuilder, self: Any, args: Any, n: Any, names: Any) -> None:
    """The result of the step, or of `fallback` where this is no call for it."""
    block = (self + layout().ctypes_buffer).load("ptr").struct(HEADER)
    stamp = c.local("ptr")  # of the writes of this call; null without any
    stamp.store(NULL)
    slow, failed, unmade = c.label("slow"), c.label("failed"), c.label("unmade")
    c.unless((n == block["n_args"]) & (names == 0), slow)
    contexts_hold(c, block, slow, failed)  # before the lock is looked at: only this guard and the next may run code
    places_hold(c, block, slow)
    with c.if_then(block["n_updated"] != 0):  # as early as those: it may run code, too
        now = write_stamp(c, block["stamps"].struct(STAMPS))
        c.unless(now != 0, failed)
        stamp.store(now)
    lock = block["lock"]
    c.unless(lock.load() == 0, slow)
    epochs_hold(c, block, slow)
    arguments_fit(c, block, args, slow)
    captured_hold(c, block, slow)
    updates_fit(c, block, args, slow)
    lock.store(1)
    c.unless(make_outputs(c, block) != 0, unmade)
    status = run_step(c, block)
    with c.if_then(status != 0, likely=False):
        drop_outputs(c, block)
        lock.store(0)
        c.extern("void", "Py_DecRef", stamp.load("ptr"))
        c.ret(report(c, block, status, args, n))
    note_writes(c, block, args, stamp.load("ptr"))
    result = made_result(c, block, args)
    lock.store(0)
    c.extern("void", "Py_DecRef", stamp.load("ptr"))
    c.ret(result)
    c.place(unmade)
    lock.store(0)
    c.extern("void", "Py_DecRef", stamp.load("ptr"))
    c.ret(0)
    c.place(slow)
    c.extern("void", "Py_DecRef", stamp.load("ptr"))
    c.ret(c.extern("ptr", "PyObject_Vectorcall", block["fallback"], args, n, names))
    c.place(failed)
    c.ret(0)


@native("i64", HEADER)
def run_step(c: NativeBuilder, block: Record) -> None:
    """The step's status; without the GIL where it takes long."""
    step, pointers = block["step"], block["pointers"]
    with c.if_then(step == 0):
        c.ret(0)
    with c.if_then(block["release_gil"] == 0):
        c.ret(c.through(step, "i64", pointers))
    thread = c.extern("ptr", "PyEval_SaveThread")
    status = c.through(step, "i64", pointers)
    c.extern("void", "PyEval_RestoreThread", thread)
    c.ret(status)


@native("ptr", HEADER, "i64", "ptr", "i64")
def report(c: NativeBuilder, block: Record, status: Any, args: Any, n: Any) -> None:
    """on_status(status, *args)"""
    number = c.extern("ptr", "PyLong_FromLongLong", status)
    with c.if_then(number == 0, likely=False):
        c.ret(0)
    given = c.room("ptr", n + 1)
    given.store(number)
    with c.each(n) as i:
        (given + (i + 1) * 8).store(args.item(i, "ptr"))
    result = c.extern("ptr", "PyObject_Vectorcall", block["on_status"], given, n + 1, NULL)
    c.extern("void", "Py_DecRef", number)
    c.ret(result)


def text() -> str:
    """LLVM IR of the module, for this interpreter."""
    return module_text("entry", host_spec(), hml_entry)
