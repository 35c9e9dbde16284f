"""Memory of tensors and of arrays of one number: they are made and freed by the million, one for each operation.

What is freed holds nothing: a few blocks of memory are kept for the next ones. CPython's `subtype_dealloc`, and its
allocation, take 30 ns more, as they do for classes of all kinds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..llvm.native import NULL, NativeBuilder, i32, native
from ..python_entry.object_layout import ALIGNED, C_CONTIGUOUS, F_CONTIGUOUS, WRITEABLE, layout
from ..structs import WORD
from .objects import array_of, fails, kind_of, new_reference, slot

SLOTS = ("_array", "_made", "_node", "_version", "_view")
_KEPT = 64  # blocks
_NUMBER = 16  # bytes of the largest number, and what its address is a multiple of
_HEAD = -np.ndarray.__basicsize__ % _NUMBER + np.ndarray.__basicsize__
PLAIN = C_CONTIGUOUS | F_CONTIGUOUS | ALIGNED


def _pop(c: NativeBuilder, pool: str) -> Any:
    """A block of a pool; 0 where it has none."""
    blocks = c.words(pool, _KEPT + 1)
    found, count = c.variable(NULL), blocks.load()
    with c.if_then(count != 0, likely=True):
        found.value = blocks.item(count, "ptr")
        blocks.store(count - 1)
    return found.value


@native("i64", "ptr")
def _keeps_tensor(c: NativeBuilder, block: Any) -> None:
    _push(c, "tensors", block)


@native("i64", "ptr")
def _keeps_array(c: NativeBuilder, block: Any) -> None:
    _push(c, "arrays", block)


def _push(c: NativeBuilder, pool: str, block: Any) -> None:
    """The body of what says whether a pool has taken a block."""
    blocks = c.words(pool, _KEPT + 1)
    count = blocks.load() + 1
    fails(c, count <= _KEPT)
    blocks.store(count)
    (blocks + count * WORD).store(block)
    c.ret(1)


@native("ptr", "ptr")
def wrap(c: NativeBuilder, array: Any) -> None:
    """A tensor round an array, whose reference it takes."""
    with c.if_then(array == 0, likely=False):
        c.extern("void", "PyErr_Clear")
        c.ret(0)
    tensor, made = c.variable(_pop(c, "tensors")), c.label("made")
    with c.if_then(tensor.value != 0, likely=True):
        c.extern("void", "_Py_NewReference", tensor.value)
        c.extern("void", "PyObject_GC_Track", tensor.value)
        c.jump(made)
    tensor.value = c.extern("ptr", "PyType_GenericAlloc", c.symbol("hml_tensor"), 0)
    with c.if_then(tensor.value == 0, likely=False):
        c.extern("void", "PyErr_Clear")
        c.extern("void", "Py_DecRef", array)
        c.ret(0)
    c.place(made)
    slot(c, tensor.value, "_array").store(array)
    slot(c, tensor.value, "_node").store(new_reference(c, c.symbol("_Py_NoneStruct")))
    slot(c, tensor.value, "_version").store(new_reference(c, c.symbol("hml_zero")))
    c.ret(tensor.value)


def _bare_array(c: NativeBuilder, descr: Any, flags: Any) -> Any:
    """An array without axes, and memory for a number behind it, which its flags do not tell to be its own. NumPy takes
    30 ns more, for shape, order and memory of any size."""
    array = c.variable(_pop(c, "arrays"))
    with c.if_then(array.value == 0, likely=False):
        array.value = c.extern("ptr", "PyObject_Malloc", _HEAD + _NUMBER)
        fails(c, array.value != 0)
    for k in range(object.__basicsize__, np.ndarray.__basicsize__, WORD):
        (array.value + k).store(0)
    c.extern("ptr", "PyObject_Init", array.value, c.symbol("hml_ndarray"))
    its = array_of(array.value)
    its["descr"], its["flags"], its["data"] = new_reference(c, descr), flags, array.value + _HEAD
    return array.value


@native("ptr", "ptr")
def new_number(c: NativeBuilder, descr: Any) -> None:
    """A new array of one number; 0 where there is no memory."""
    c.ret(_bare_array(c, descr, i32(PLAIN | WRITEABLE)))


@native("ptr", "ptr", "ptr", "i32")
def number_at(c: NativeBuilder, descr: Any, data: Any, flags: Any) -> None:
    """The same of memory that is another's."""
    array = _bare_array(c, descr, flags | i32(PLAIN))
    array_of(array)["data"] = data
    c.ret(array)


@native("i64", "ptr")
def _freed(c: NativeBuilder, array: Any) -> None:
    """Whether an array was one of those above, which nobody else had, and is gone."""
    its = array_of(array)
    fails(c, (kind_of(array) == c.symbol("hml_ndarray")) & (its["references"] == i32(1)))
    fails(c, (its["nd"] == i32(0)) & (its["dims"] == 0) & (its["flags"] & i32(~(PLAIN | WRITEABLE)) == i32(0)))
    for k in range(layout().array.offset("weakrefs"), np.ndarray.__basicsize__, WORD):
        fails(c, (array + k).load() == 0)
    descr, base, own = its["descr"], its["base"], its["data"] == array + _HEAD
    its["references"] = i32(0)
    c.extern("void", "Py_DecRef", descr)
    with c.if_then(base != 0):
        c.extern("void", "Py_DecRef", base)
    with c.if_then(own):  # others may be NumPy's, of another size
        with c.if_then(_keeps_array(c, array) != 0, likely=True):
            c.ret(1)
    c.extern("void", "PyObject_Free", array)
    c.ret(1)


@native("void", "ptr")
def hml_dealloc(c: NativeBuilder, self: Any) -> None:
    """`tp_dealloc`. A view of a view, and so on, is freed without calls of calls."""
    tensor = c.variable(self)
    with c.loop():
        now = tensor.value
        kind = kind_of(now)
        c.extern("void", "PyObject_GC_UnTrack", now)
        with c.if_then((kind + layout().type_finalize).load() != 0, likely=False):
            c.extern("void", "PyObject_GC_Track", now)
            with c.if_then(c.extern("i32", "PyObject_CallFinalizerFromDealloc", now) != i32(0)):
                c.ret_void()
            c.extern("void", "PyObject_GC_UnTrack", now)
        with c.if_then(slot(c, now, "__weakref__").load() != 0):
            c.extern("void", "PyObject_ClearWeakRefs", now)
        array, *others, parent = [slot(c, now, name).load("ptr") for name in SLOTS]
        for name in SLOTS:
            slot(c, now, name).store(0)
        for other in others:
            with c.if_then(other != 0):
                c.extern("void", "Py_DecRef", other)
        with c.if_then(array != 0, likely=True):
            with c.if_then(_freed(c, array) == 0):
                c.extern("void", "Py_DecRef", array)
        kept = c.variable(0)
        finalized = c.extern("i32", "PyObject_GC_IsFinalized", now) != i32(0)  # which a block would remember
        with c.if_then((kind == c.symbol("hml_tensor")) & ~finalized, likely=True):
            kept.value = _keeps_tensor(c, now)
        with c.if_then(kept.value == 0, likely=False):
            c.extern("void", "PyObject_GC_Del", now)
            c.extern("void", "Py_DecRef", kind)
        with c.if_then(parent == 0):
            c.ret_void()
        alone = (array_of(parent)["references"] == i32(1)) & (kind_of(parent) == c.symbol("hml_tensor"))
        with c.if_then(~alone, likely=True):
            c.extern("void", "Py_DecRef", parent)
            c.ret_void()
        array_of(parent)["references"] = i32(0)
        tensor.value = parent
