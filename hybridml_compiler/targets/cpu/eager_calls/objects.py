"""Objects of the interpreter as native methods see them: tensors, arrays, numbers, and what must hold before a call.

A helper gives 0 where a call is none for native code: the method then goes to the Python function that it stands for,
which runs it, or raises the error in its own words. An exception of code in Python that was called, as of a signal's
handler, is passed on; no other is left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....compile_policy import KEPT
from ..llvm.native import KINDS, NULL, Label, Literal, NativeBuilder, Record, i32, native
from ..python_entry.object_layout import ALIGNED, layout
from ..structs import WORD
from .tables import DTYPE, OPERAND, WRITE, WRITES

NUMBERS = ("float", "int", "float64", "int64", "bool", "complex", "complex128")
RAISED, SAME, WRITTEN = -1, 1, 2  # of what writes: an exception, elements that are there already, others
FALSE, TRUE, NO_FLAGS = Literal(KINDS["i1"], "false"), Literal(KINDS["i1"], "true"), i32(0)


def kind_of(value: Any) -> Any:
    """The class of an object."""
    return (value + layout().type).load("ptr")


def array_of(value: Any) -> Record:
    """The fields of an array."""
    return Record(value, layout().array)


def slot(c: NativeBuilder, tensor: Any, name: str) -> Any:
    """The address of a slot of a tensor."""
    return tensor + c.symbol(f"hml_offset{name}").load()


def new_reference(c: NativeBuilder, value: Any) -> Any:
    c.extern("void", "Py_IncRef", value)
    return value


def is_eager(c: NativeBuilder, slow: Label) -> None:
    """Goes on where operations compute here and nobody watches them."""
    c.unless(c.symbol("hml_watchers").load() == 0, slow)
    held = c.local("ptr")
    c.unless(c.extern("i32", "PyContextVar_Get", c.symbol("hml_level"), c.symbol("hml_miss"), held) == i32(0), slow)
    level = held.load("ptr")
    c.extern("void", "Py_DecRef", level)
    c.unless((level == c.symbol("_Py_NoneStruct")) | (settled(c, level) != 0), slow)


@native("i64", "ptr")
def settled(c: NativeBuilder, level: Any) -> None:
    """Whether nothing was said of the level in this context, which says None from now on: CPython keeps the value of a
    variable at hand where there is one, and searches the context else."""
    fails(c, level == c.symbol("hml_miss"))
    token = c.extern("ptr", "PyContextVar_Set", c.symbol("hml_level"), c.symbol("_Py_NoneStruct"))
    no_error(c)
    c.extern("void", "Py_DecRef", token)
    c.ret(1)


def fails(c: NativeBuilder, condition: Any) -> None:
    """Returns 0 where it does not hold."""
    with c.if_then(~condition, likely=False):
        c.ret(0)


def no_error(c: NativeBuilder) -> None:
    """Returns 0 after an error of the interpreter's, which is forgotten."""
    with c.if_then(c.extern("ptr", "PyErr_Occurred") != 0, likely=False):
        c.extern("void", "PyErr_Clear")
        c.ret(0)


@native("ptr", "ptr")
def plain_array(c: NativeBuilder, tensor: Any) -> None:
    """The array of a tensor with elements here; 0 for all else."""
    fails(c, kind_of(tensor) == c.symbol("hml_tensor"))
    array = slot(c, tensor, "_array").load("ptr")
    fails(c, array != 0)
    fails(c, kind_of(array) == c.symbol("hml_ndarray"))
    fails(c, (array_of(array)["flags"] & i32(ALIGNED)) != i32(0))
    c.ret(array)


def has_history(c: NativeBuilder, tensor: Any) -> Any:
    return slot(c, tensor, "_node").load("ptr") != c.symbol("_Py_NoneStruct")


@native("i64", "ptr", "i64", OPERAND)
def operand(c: NativeBuilder, value: Any, differentiable: Any, into: Record) -> None:
    """1 for a tensor or an array, as an operand; 2 for a number of Python's, or one of NumPy's of 8 bytes, which has no
    dtype yet."""
    kind = kind_of(value)
    with c.if_then(kind == c.symbol("hml_tensor")):
        array = plain_array(c, value)
        fails(c, array != 0)
        fails(c, (differentiable == 0) | ~has_history(c, value))
        of_array(c, array, into)
        c.ret(1)
    with c.if_then(kind == c.symbol("hml_ndarray")):
        fails(c, (array_of(value)["flags"] & i32(ALIGNED)) != i32(0))
        of_array(c, value, into)
        c.ret(1)
    is_number = c.variable(FALSE)
    for known in NUMBERS:
        is_number.value = is_number.value | (kind == c.symbol(f"hml_{known}_class"))
    with c.if_then(is_number.value):
        c.ret(2)
    c.ret(0)


def of_array(c: NativeBuilder, array: Any, into: Record) -> None:
    its = array_of(array)
    into["data"], into["dims"], into["strides"] = its["data"], its["dims"], its["strides"]
    into["nd"], into["descr"], into["owner"] = c.zext(its["nd"], KINDS["i64"]), its["descr"], array


@native("ptr", "ptr")
def dtype_row(c: NativeBuilder, descr: Any) -> None:
    """The row of a dtype in the table; 0 where it has none."""
    table = c.symbol("hml_dtypes")
    with c.each(table + c.symbol("hml_n_dtypes").load() * DTYPE.nbytes, table, DTYPE.nbytes) as row:
        with c.if_then(row.load("ptr") == descr):
            c.ret(row)
    c.ret(0)


def operand_room(c: NativeBuilder) -> Record:
    """An operand on the stack, with memory behind it for a number."""
    return Record(c.local("i64", OPERAND.nbytes // WORD + 2), OPERAND)


def new_array(
    c: NativeBuilder, descr: Any, nd: Any, dims: Any, strides: Any = NULL, data: Any = NULL, flags: Any = NO_FLAGS
) -> Any:
    """A new array, or memory of another's seen as one; 0 with an exception set."""
    c.extern("void", "Py_IncRef", descr)  # which the call takes
    form = (c.symbol("hml_ndarray"), descr, c.trunc(nd, KINDS["i32"]), dims, strides, data, flags, NULL)
    return c.extern("ptr", "PyArray_NewFromDescr", *form)


@native("ptr", "ptr", "i64", "ptr", "i64")
def new_result(c: NativeBuilder, descr: Any, nd: Any, dims: Any, nbytes: Any) -> None:
    """A new array, in memory that is kept when it is freed where it is large; 0 where there is no such memory yet, or
    with an exception set."""
    with c.if_then(nbytes < KEPT, likely=True):
        c.ret(new_array(c, descr, nd, dims))
    handler = c.symbol("hml_handler").load("ptr")
    fails(c, handler != 0)
    before = c.extern("ptr", "PyDataMem_SetHandler", handler)
    fails(c, before != 0)
    made = new_array(c, descr, nd, dims)
    c.extern("void", "Py_DecRef", c.extern("ptr", "PyDataMem_SetHandler", before))
    c.extern("void", "Py_DecRef", before)
    c.ret(made)


def list_items(of: Any) -> Any:
    return (of + layout().list_items).load("ptr")


def list_size(of: Any) -> Any:
    return (of + layout().list_size).load()


def writes(c: NativeBuilder, tensor: Any, value: Any, write: Callable[[], Any]) -> None:
    """The body of what writes to a tensor: 1 where it has, 0 where this is not for native code, `RAISED`.

    The stamp comes first: it may call a function in Python, which may raise, or change the operands.
    """
    room = operand_room(c)
    fails(c, operand(c, tensor, 1, room) == 1)
    fails(c, operand(c, value, 1, room) != 0)
    now = write_stamp(c)
    with c.if_then(now == 0, likely=False):
        c.ret(RAISED)
    done = write()
    with c.if_then(done != WRITTEN, likely=False):
        c.extern("void", "Py_DecRef", now)
        c.ret(done)
    place = slot(c, tensor, "_version")
    version = place.load("ptr")
    with c.if_then(kind_of(version) == c.symbol("hml_list")):
        c.extern("i32", "PyList_SetItem", version, 0, now)
        c.ret(1)
    place.store(now)
    c.extern("void", "Py_DecRef", version)
    c.ret(1)


@native("ptr")
def write_stamp(c: NativeBuilder) -> None:
    """`source_location.write_stamp`: what is not known to be the user's code asks a function in Python. 0 with an
    exception set."""
    frame, helper = c.extern("ptr", "PyEval_GetFrame"), c.label("helper")
    c.jump_if(frame == 0, helper)
    code = c.extern("ptr", "PyFrame_GetCode", frame)
    with c.if_then(code != list_items(c.symbol("hml_known_user")).load("ptr"), likely=False):
        c.extern("void", "Py_DecRef", code)
        c.jump(helper)
    c.extern("void", "Py_DecRef", code)
    now = c.extern("ptr", "PyIter_Next", c.symbol("hml_clock"))
    fails(c, now != 0)
    number = c.extern("i64", "PyLong_AsLongLong", now)
    write = (c.symbol("hml_writes") + number % WRITES * WRITE.nbytes).struct(WRITE)
    write["stamp"], write["known_user"] = number, c.symbol("hml_known_number").load()
    write["instruction"] = c.sext(c.extern("i32", "PyFrame_GetLasti", frame), KINDS["i64"])
    c.ret(now)
    c.place(helper)
    c.ret(c.extern("ptr", "PyObject_CallNoArgs", c.symbol("hml_stamped")))


def called(c: NativeBuilder, row: Record, *given: Any) -> Any:
    """The result of the Python function of a method."""
    args = c.local("ptr", len(given))
    for k, value in enumerate(given):
        (args + WORD * k).store(value)
    return c.extern("ptr", "PyObject_Vectorcall", row["fallback"], args, len(given), NULL)


def instead_given(c: NativeBuilder, row: Record, self: Any, args: Any, n: Any, count: Any, names: Any) -> None:
    """Returns it, of `count` arguments as they were given, of which `n` are positional ones."""
    given = c.extern("ptr", "PyTuple_New", count + 1)  # and not on the stack, which may be too small
    fails(c, given != 0)
    c.extern("i32", "PyTuple_SetItem", given, 0, new_reference(c, self))
    with c.each(count) as k:
        c.extern("i32", "PyTuple_SetItem", given, k + 1, new_reference(c, args.item(k, "ptr")))
    found = c.extern("ptr", "PyObject_Vectorcall", row["fallback"], given + layout().tuple_items, n + 1, names)
    c.extern("void", "Py_DecRef", given)
    c.ret(found)
