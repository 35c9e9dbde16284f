"""The native half of `entry`: LLVM IR of ONE function that serves every entry, driven by a block of data.

`hml_entry` is a CPython builtin (METH_FASTCALL | METH_KEYWORDS). Its `self` is a ctypes structure, the block, which
has the checks and the address of the step: an entry costs no compilation, and the one compiled function is cached.

Rules kept here: reference counts change through Py_IncRef and Py_DecRef only (an inlined +1 destroys the mark of an
immortal object on 3.12 and later); every result of the C-API is checked for NULL; the lock word is held from the first
output to the finished result, because allocating may run any Python code, this entry included.
"""

from __future__ import annotations

from hybridml_compiler.targets.cpu.python_entry.block import HEADER, WORD, field, word
from hybridml_compiler.targets.cpu.python_entry.guards import fits, guards
from hybridml_compiler.targets.cpu.python_entry.object_layout import Layout
from hybridml_compiler.targets.cpu.python_entry.places import places
from hybridml_compiler.targets.cpu.python_entry.results import results

API = (
    "Py_IncRef",
    "Py_DecRef",
    "PyType_GenericAlloc",
    "PyObject_Vectorcall",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyContextVar_Get",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyLong_FromLongLong",
    "PyDict_GetItemWithError",
    "PyDict_Next",
    "PyErr_Clear",
    "PyErr_Occurred",
)

DECLARATIONS = """
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare void @PyErr_Clear()
declare ptr @PyErr_Occurred()
declare ptr @PyDataMem_SetHandler(ptr)
declare ptr @PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
"""


def _entry(layout: Layout) -> str:
    lock = f"getelementptr i8, ptr %block, i64 {WORD * HEADER.index('lock')}"
    return f"""
; on_status(status, *args)
define internal ptr @report(ptr %block, i64 %status, ptr %args, i64 %n) {{
entry:
{word("on_status", "ptr")}
  %count = add i64 %n, 1
  %all = alloca ptr, i64 %count
  %number = call ptr @PyLong_FromLongLong(i64 %status)
  %failed = icmp eq ptr %number, null
  br i1 %failed, label %error, label %first
error:
  ret ptr null
first:
  store ptr %number, ptr %all
  br label %loop
loop:
  %i = phi i64 [0, %first], [%i.next, %next]
  %end = icmp eq i64 %i, %n
  br i1 %end, label %go, label %next
next:
  %arg.p = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.p
  %i.next = add i64 %i, 1
  %place = getelementptr ptr, ptr %all, i64 %i.next
  store ptr %arg, ptr %place
  br label %loop
go:
  %result = call ptr @PyObject_Vectorcall(ptr %on_status, ptr %all, i64 %count, ptr null)
  call void @Py_DecRef(ptr %number)
  ret ptr %result
}}

define internal i64 @run_step(ptr %block) alwaysinline {{
{word("step", "ptr")}
{word("pointers", "ptr")}
{word("release_gil")}
  %keep = icmp eq i64 %release_gil, 0
  br i1 %keep, label %held, label %released
held:
  %status.1 = call i64 %step(ptr %pointers)
  ret i64 %status.1
released:
  %thread = call ptr @PyEval_SaveThread()
  %status.2 = call i64 %step(ptr %pointers)
  call void @PyEval_RestoreThread(ptr %thread)
  ret i64 %status.2
}}

define ptr @hml_entry(ptr %self, ptr %args, i64 %n, ptr %names) {{
entry:
{field("block", "%self", layout.ctypes_buffer)}
{word("n_args")}
  %count = icmp eq i64 %n, %n_args
  %positional = icmp eq ptr %names, null
  %shape = and i1 %count, %positional
  br i1 %shape, label %contexts, label %slow
contexts:                              ; before the lock is looked at: only this guard and the next may run other code
  %hold = call i32 @contexts_hold(ptr %block)
  switch i32 %hold, label %error [
    i32 1, label %places
    i32 0, label %slow
  ]
places:
  %places.hold = call i1 @places_hold(ptr %block)
  br i1 %places.hold, label %free, label %slow
free:
  %lock = {lock}
  %held = load i64, ptr %lock
  %open = icmp eq i64 %held, 0
  br i1 %open, label %epochs, label %slow
epochs:
  %epochs.hold = call i1 @epochs_hold(ptr %block)
  br i1 %epochs.hold, label %arguments, label %slow
arguments:
  %fit = call i1 @arguments_fit(ptr %block, ptr %args)
  br i1 %fit, label %captured, label %slow
captured:
  %captured.hold = call i1 @captured_hold(ptr %block)
  br i1 %captured.hold, label %outputs, label %slow
outputs:
  store i64 1, ptr %lock
{word("n_outputs")}
  %made = call i64 @make_outputs(ptr %block)
  %complete = icmp eq i64 %made, %n_outputs
  br i1 %complete, label %step, label %incomplete
incomplete:
  call void @drop_outputs(ptr %block, i64 0, i64 %made)
  store i64 0, ptr %lock
  ret ptr null
step:
  %status = call i64 @run_step(ptr %block)
  %well = icmp eq i64 %status, 0
  br i1 %well, label %finish, label %complain
finish:
  %result = call ptr @result(ptr %block)
  store i64 0, ptr %lock
  ret ptr %result
complain:
  call void @drop_outputs(ptr %block, i64 0, i64 %n_outputs)
  store i64 0, ptr %lock
  %answer = call ptr @report(ptr %block, i64 %status, ptr %args, i64 %n)
  ret ptr %answer
slow:
{word("fallback", "ptr")}
  %other = call ptr @PyObject_Vectorcall(ptr %fallback, ptr %args, i64 %n, ptr %names)
  ret ptr %other
error:
  ret ptr null
}}
"""


def text(layout: Layout) -> str:
    """The whole module, for an interpreter with this layout."""
    return DECLARATIONS + fits(layout) + guards(layout) + places() + results(layout) + _entry(layout)
