"""The native half of an entry, part three: tensors that the step writes to, and the stamps of those writes."""

from __future__ import annotations

from typing import Any

from ..eager_calls.tables import WRITE, WRITES
from ..llvm.native import KINDS, Label, NativeBuilder, Record, native
from ..structs import WORD
from .block import APART, CAPTURED, STAMPS, UPDATED
from .object_layout import WRITEABLE, layout


def updates_fit(c: NativeBuilder, block: Record, args: Any, slow: Label) -> None:
    """Tensors that are written to may be, and have memory of their own."""
    array_slot = block["array_slot"]

    def array(number: Any) -> Record:
        found: Record = (tensor(c, block, args, number) + array_slot).load("ptr").struct(layout().array)
        return found

    with c.rows(block["updated"], block["n_updated"], UPDATED) as row:
        c.unless((array(row["tensor"])["flags"] & WRITEABLE) == WRITEABLE, slow)
    with c.rows(block["apart"], block["n_apart"], APART) as row:
        first, second = array(row["first"]), array(row["second"])
        c.unless(owner(c, first) != owner(c, second), slow)


def tensor(c: NativeBuilder, block: Record, args: Any, number: Any) -> Any:
    """The argument with a number, or, of a number after those, the captured tensor."""
    n_args = block["n_args"]
    is_argument = number < n_args
    table, column = c.select(is_argument, args, block["captured"]), (number - n_args) * CAPTURED.nbytes
    return (table + c.select(is_argument, number * WORD, column)).load("ptr")


def owner(c: NativeBuilder, array: Record) -> Any:
    return c.select(array["base"] == 0, array.pointer, array["base"])


def note_writes(c: NativeBuilder, block: Record, args: Any, now: Any) -> None:
    """Gives the tensors that have been written to the stamp."""
    with c.rows(block["updated"], block["n_updated"], UPDATED) as row:
        place = tensor(c, block, args, row["tensor"]) + block["stamps"].struct(STAMPS)["version"]
        version = place.load("ptr")
        c.extern("void", "Py_IncRef", now)
        with c.if_then((version + layout().type).load("ptr") == block["list_type"]):
            c.extern("i32", "PyList_SetItem", version, 0, now)
            c.next()
        place.store(now)
        c.extern("void", "Py_DecRef", version)


@native("ptr", STAMPS)
def write_stamp(c: NativeBuilder, stamps: Record) -> None:
    """A stamp for a write by the line of the user that called this; what is not known to be the user's code asks a
    function in Python. 0 with an exception set."""
    frame, helper = user_frame(c, stamps), c.label("helper")
    c.jump_if(frame == 0, helper)
    now = c.extern("ptr", "PyIter_Next", stamps["clock"])
    with c.if_then(now != 0, likely=True):
        number = c.extern("i64", "PyLong_AsLongLong", now)
        write = (stamps["writes"] + number % WRITES * WRITE.nbytes).struct(WRITE)
        write["stamp"], write["known_user"] = number, stamps["known_number"].load()
        write["instruction"] = c.sext(c.extern("i32", "PyFrame_GetLasti", frame), KINDS["i64"])
    c.extern("void", "Py_DecRef", frame)
    c.ret(now)
    c.place(helper)
    c.ret(c.extern("ptr", "PyObject_CallNoArgs", stamps["helper"]))


@native("ptr", STAMPS)
def user_frame(c: NativeBuilder, stamps: Record) -> None:
    """A new reference to the frame that the function is called from, if its code is known to be the user's; else 0."""
    frame = c.variable(c.extern("ptr", "PyEval_GetFrame"))
    c.ret_if(frame.value == 0, 0)
    c.extern("void", "Py_IncRef", frame.value)
    for through in ("caller", "called"):
        with c.if_then(code_of(c, frame.value) == stamps[through]):
            back = c.extern("ptr", "PyFrame_GetBack", frame.value)
            c.extern("void", "Py_DecRef", frame.value)
            c.ret_if(back == 0, 0)
            frame.value = back
    with c.if_then(code_of(c, frame.value) == (stamps["known_user"] + layout().list_items).load("ptr").load("ptr")):
        c.ret(frame.value)
    c.extern("void", "Py_DecRef", frame.value)
    c.ret(0)


def code_of(c: NativeBuilder, frame: Any) -> Any:
    code = c.extern("ptr", "PyFrame_GetCode", frame)
    c.extern("void", "Py_DecRef", code)  # which the frame has as well
    return code
