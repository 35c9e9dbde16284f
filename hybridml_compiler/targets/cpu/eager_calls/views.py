"""`x[key]` and `x[key] = value` for integers, slices, None and `...`: the place is worked out without NumPy.

A view is an array over the same memory, and what `aliasing.link` notes about it. What a tensor chooses is copied. An
assignment writes to the place, which needs no array.
"""

from __future__ import annotations

from typing import Any

from ..llvm.native import KINDS, NULL, NativeBuilder, Record, i32, native
from ..python_entry.object_layout import C_CONTIGUOUS, WRITEABLE, layout
from ..structs import WORD
from .copies import moved
from .elementwise import fitted, is_apart, loop_of, meets, unary
from .lifetimes import new_number, number_at, wrap
from .numbers import integer, number
from .objects import (
    SAME,
    WRITTEN,
    array_of,
    dtype_row,
    fails,
    has_history,
    kind_of,
    list_items,
    list_size,
    new_array,
    new_reference,
    no_error,
    of_array,
    operand,
    operand_room,
    plain_array,
    slot,
    writes,
)
from .tables import AXES, DTYPE, LOOP, MOST, OPERAND, ROW

VIEW, CHOSEN = 1, 2  # a place that is told by numbers, and one that tensors tell
_MANY = 63  # views of one memory: where they have become twice as many, those that are gone are looked for
_LATEST = 4  # views that are looked at for one that is gone, whose place the next one takes


def _is_none(c: NativeBuilder, value: Any) -> Any:
    return value == c.symbol("_Py_NoneStruct")


@native("i64", OPERAND, "ptr", OPERAND)
def place_of(c: NativeBuilder, x: Record, key: Any, into: Record) -> None:
    """`VIEW` or `CHOSEN` where the key is a place of the operand, which `into` then is, or 0. Its dims and strides are
    room for `AXES`."""
    alone, items, n = c.local("ptr"), c.variable(key), c.variable(1)
    alone.store(key)
    items.value = alone
    with c.if_then(kind_of(key) == c.symbol("hml_tuple")):
        items.value, n.value = key + layout().tuple_items, (key + layout().tuple_size).load()
    fails(c, n.value + x["nd"] <= AXES)
    dims, strides = into["dims"], into["strides"]
    axis, nd, data, dots = c.variable(0), c.variable(0), c.variable(x["data"]), c.variable(0)
    how, i = c.variable(VIEW), c.variable(0)
    bounds = [c.local("i64") for _ in range(3)]
    with c.each(n.value) as k:
        part = items.value.item(k, "ptr")
        kind, done = kind_of(part), c.label("done")
        is_int, is_tensor = kind == c.symbol("hml_int_class"), kind == c.symbol("hml_tensor")
        is_int = is_int | (kind == c.symbol("hml_int64_class"))
        with c.if_then(is_int):
            i.value = integer(c, part)
            with c.if_then(i.value == -1):
                no_error(c)
        with c.if_then(is_tensor):
            array = plain_array(c, part)
            fails(c, array != 0)
            its = array_of(array)
            fails(c, (its["nd"] == i32(0)) & (its["descr"] == c.symbol("hml_int64")))
            i.value, how.value = its["data"].load(), CHOSEN
        with c.if_then(is_int | is_tensor):
            fails(c, axis.value < x["nd"])  # a number has no dims to read
            size, step = x["dims"].item(axis.value), x["strides"].item(axis.value)
            place = c.select(c.icmp_signed("<", i.value, 0), i.value + size, i.value)
            fails(c, place < size)  # neither is one below zero
            data.value = data.value + place * step
            axis.value += 1
            c.jump(done)
        with c.if_then(kind == c.symbol("hml_slice")):
            fails(c, axis.value < x["nd"])  # a number has no dims to read
            size, step = x["dims"].item(axis.value), x["strides"].item(axis.value)
            for part_of in layout().slice.values():  # no other's `__index__` is called
                own = (part + part_of).load("ptr")
                fails(c, _is_none(c, own) | (kind_of(own) == c.symbol("hml_int_class")))
            failed = c.extern("i32", "PySlice_Unpack", part, *bounds)
            with c.if_then(failed != i32(0), likely=False):
                c.extern("void", "PyErr_Clear")
                c.ret(0)
            each = bounds[2].load()
            count = c.extern("i64", "PySlice_AdjustIndices", size, bounds[0], bounds[1], each)
            with c.if_then(count != 0):
                data.value = data.value + bounds[0].load() * step
            (dims + nd.value * WORD).store(count)
            (strides + nd.value * WORD).store(each * step)
            nd.value += 1
            axis.value += 1
            c.jump(done)
        with c.if_then(_is_none(c, part)):
            (dims + nd.value * WORD).store(1)
            (strides + nd.value * WORD).store(0)
            nd.value += 1
            c.jump(done)
        fails(c, (part == c.symbol("_Py_EllipsisObject")) & (dots.value == 0))
        dots.value = 1
        taken = c.variable(axis.value)
        with c.each(n.value, k + 1) as later:
            taken.value += c.zext(~_is_none(c, items.value.item(later, "ptr")), KINDS["i64"])
        fails(c, taken.value <= x["nd"])
        skipped = x["nd"] - taken.value
        with c.each(skipped) as j:
            (dims + (nd.value + j) * WORD).store(x["dims"].item(axis.value + j))
            (strides + (nd.value + j) * WORD).store(x["strides"].item(axis.value + j))
        nd.value += skipped
        axis.value += skipped
        c.place(done)
    rest = x["nd"] - axis.value
    with c.each(rest) as j:
        (dims + (nd.value + j) * WORD).store(x["dims"].item(axis.value + j))
        (strides + (nd.value + j) * WORD).store(x["strides"].item(axis.value + j))
    into["data"], into["nd"], into["descr"], into["owner"] = data.value, nd.value + rest, x["descr"], x["owner"]
    c.ret(how.value)


def _place_room(c: NativeBuilder) -> Record:
    place = operand_room(c)
    place["dims"], place["strides"] = c.local("i64", AXES), c.local("i64", AXES)
    return place


@native("ptr", OPERAND, "ptr")
def view_of(c: NativeBuilder, place: Record, array: Any) -> None:
    """An array that sees a place of another, which it keeps; 0 where there is none."""
    part = seen(c, place)
    with c.if_then(part == 0, likely=False):
        c.extern("void", "PyErr_Clear")
        c.ret(0)
    with c.if_then(c.extern("i32", "PyArray_SetBaseObject", part, new_reference(c, array)) != i32(0), likely=False):
        c.extern("void", "PyErr_Clear")
        c.extern("void", "Py_DecRef", part)
        c.ret(0)
    c.ret(part)


@native("ptr", OPERAND)
def seen(c: NativeBuilder, place: Record) -> None:
    """The array alone; 0 with an exception set."""
    data, flags = place["data"], array_of(place["owner"])["flags"] & i32(WRITEABLE)
    with c.if_then(place["nd"] == 0):
        dtype = dtype_row(c, place["descr"])
        with c.if_then(dtype != 0, likely=True):
            with c.if_then(c.word(data) % c.least(dtype.struct(DTYPE)["nbytes"], WORD) == 0, likely=True):
                c.ret(number_at(c, place["descr"], data, flags))
    c.ret(new_array(c, place["descr"], place["nd"], place["dims"], place["strides"], data, flags))


@native("ptr", OPERAND)
def copied(c: NativeBuilder, place: Record) -> None:
    """A tensor of one element or one axis as it is now; 0 where this is not for native code. More axes are in an order
    of NumPy's choice."""
    fails(c, place["nd"] <= 1)
    dtype, copy = dtype_row(c, place["descr"]), loop_of(c, c.symbol("hml_row_setitem").struct(ROW), place["descr"])
    fails(c, (dtype != 0) & ((place["nd"] == 0) | (copy != 0)))
    with c.if_then(place["nd"] == 0):
        number = new_number(c, place["descr"])
        fails(c, number != 0)
        fails(c, moved(c, place["data"], array_of(number)["data"], dtype.struct(DTYPE)["nbytes"]) != 0)
        c.ret(wrap(c, number))
    made, to = new_array(c, place["descr"], place["nd"], place["dims"]), operand_room(c)
    with c.if_then(made == 0, likely=False):
        c.extern("void", "PyErr_Clear")
        c.ret(0)
    of_array(c, made, to)
    with c.if_then(unary(c, copy.struct(LOOP), place, to) != 0):
        c.ret(wrap(c, made))
    c.extern("void", "Py_DecRef", made)
    c.ret(0)


@native("ptr", "ptr", "ptr")
def gathered(c: NativeBuilder, array: Any, index: Any) -> None:
    """The tensor of what an array of places, or of truth values, chooses from an array without gaps, by NumPy; 0 where
    this is not for native code, as an error."""
    descr = array_of(index)["descr"]
    fails(c, (descr == c.symbol("hml_int64")) | (descr == c.symbol("hml_bool_dtype")))
    fails(c, (array_of(array)["flags"] & i32(C_CONTIGUOUS)) != i32(0))
    fails(c, (array_of(array)["nd"] != i32(0)) & (dtype_row(c, array_of(array)["descr"]) != 0))
    x, i = array_of(array), array_of(index)
    size, axes, of_index = c.variable(1), c.zext(x["nd"], KINDS["i64"]), c.zext(i["nd"], KINDS["i64"])
    with c.each(of_index) as k:
        size.value *= i["dims"].item(k)
    first = c.select(descr == c.symbol("hml_int64"), 1, c.least(of_index, axes))
    with c.each(axes, first) as k:
        size.value *= x["dims"].item(k)
    fails(c, size.value <= MOST)
    c.ret(wrap(c, c.extern("ptr", "PyObject_GetItem", array, index)))


@native("ptr", "ptr", "ptr")
def chosen(c: NativeBuilder, parent: Any, key: Any) -> None:
    """`x[key]` of a tensor without history; 0 where this is not for native code, or code in Python has raised."""
    x, place, array = operand_room(c), _place_room(c), plain_array(c, parent)
    fails(c, array != 0)
    fails(c, ~has_history(c, parent))
    with c.if_then(kind_of(key) == c.symbol("hml_tensor")):
        index = plain_array(c, key)
        fails(c, index != 0)
        with c.if_then(array_of(index)["nd"] != i32(0)):
            c.ret(gathered(c, array, index))
    of_array(c, array, x)
    how = place_of(c, x, key, place)
    fails(c, how != 0)
    with c.if_then(how == CHOSEN):
        c.ret(copied(c, place))
    part = view_of(c, place, array)
    fails(c, part != 0)
    tensor = wrap(c, part)
    fails(c, tensor != 0)
    with c.if_then(link(c, parent, tensor, key) == 0, likely=False):
        c.extern("void", "Py_DecRef", tensor)
        c.ret(0)
    c.ret(tensor)


@native("i64", "ptr", "ptr")
def turned(c: NativeBuilder, reference: Any, tensor: Any) -> None:
    """Whether a weak reference whose object is gone, and that nobody else has, is now one to a new tensor: a new one in
    its place takes 35 ns."""
    its = reference + layout().weakref["object"]
    fails(c, (kind_of(reference) == c.symbol("hml_weakref_class")) & _is_none(c, its.load("ptr")))
    fails(c, array_of(reference)["references"] == i32(1))
    its.store(tensor)
    (reference + layout().weakref["hash"]).store(-1)
    slot(c, tensor, "__weakref__").store(reference)
    c.ret(1)


@native("i64", "ptr", "ptr", "ptr")
def link(c: NativeBuilder, parent: Any, tensor: Any, key: Any) -> None:
    """`aliasing.link`; 0 with an exception set. The view before, which mostly is gone, leaves its place."""
    place = slot(c, parent, "_version")
    cell = c.variable(place.load("ptr"))
    with c.if_then(kind_of(cell.value) != c.symbol("hml_list")):
        made = c.extern("ptr", "PyList_New", 1)  # which may collect garbage, whose `__del__` may link views
        fails(c, made != 0)
        cell.value = place.load("ptr")
        with c.if_then(kind_of(cell.value) == c.symbol("hml_list"), likely=False):
            c.extern("void", "Py_DecRef", made)
        with c.if_then(kind_of(cell.value) != c.symbol("hml_list")):
            c.extern("i32", "PyList_SetItem", made, 0, cell.value)
            place.store(made)
            cell.value = made
    own = slot(c, tensor, "_version")
    c.extern("void", "Py_DecRef", own.load("ptr"))
    own.store(new_reference(c, cell.value))
    slot(c, tensor, "_view").store(new_reference(c, parent))
    slot(c, tensor, "_made").store(new_reference(c, key))
    last = list_size(cell.value) - 1
    with c.each(last, last - c.least(last, _LATEST)) as k:  # an element is there until a name has the next one
        before = list_items(cell.value).item(last - k + (last - c.least(last, _LATEST)), "ptr")
        with c.if_then(turned(c, before, tensor) != 0, likely=True):
            c.ret(1)
    reference = c.extern("ptr", "PyWeakref_NewRef", tensor, NULL)
    fails(c, reference != 0)
    added = c.extern("i32", "PyList_Append", cell.value, reference)
    c.extern("void", "Py_DecRef", reference)
    fails(c, added == i32(0))
    with c.if_then((last & (last + 1)) == 0, likely=False):
        with c.if_then(last >= _MANY):
            given = c.local("ptr")
            given.store(cell.value)
            done = c.extern("ptr", "PyObject_Vectorcall", c.symbol("hml_forget"), given, 1, NULL)
            fails(c, done != 0)
            c.extern("void", "Py_DecRef", done)
    c.ret(1)


@native("i64", ROW, "ptr", "ptr", "ptr")
def _assigned(c: NativeBuilder, copying: Record, parent: Any, key: Any, value: Any) -> None:
    """`WRITTEN` or `SAME` where a value is in its place of a tensor without history, or 0."""
    x, y, place = operand_room(c), operand_room(c), _place_room(c)
    fails(c, operand(c, parent, 1, x) == 1)
    fails(c, (array_of(x["owner"])["flags"] & i32(WRITEABLE)) != i32(0))
    which = operand(c, value, 1, y)
    fails(c, which != 0)
    fails(c, place_of(c, x, key, place) != 0)
    loop = loop_of(c, copying, x["descr"])
    fails(c, loop != 0)
    with c.if_then(which == 2):
        fails(c, number(c, value, dtype_row(c, x["descr"]), y) != 0)
    with c.if_then(which == 1):
        fails(c, fitted(c, y, x["descr"]) != 0)
        with c.if_then((y["data"] == place["data"]) & (y["nd"] == place["nd"])):
            with c.if_then(is_same(c, y, place) != 0):  # after `x[key] += v`
                c.ret(SAME)
        fails(c, meets(c, place, y) == 0)
    fails(c, y["nd"] <= place["nd"])
    fails(c, is_apart(c, place) != 0)
    with c.if_then(place["nd"] == 0):
        with c.if_then(moved(c, y["data"], place["data"], loop.struct(LOOP)["nbytes"]) != 0):
            c.ret(WRITTEN)
    fails(c, unary(c, loop, y, place) != 0)
    c.ret(WRITTEN)


@native("i64", ROW, "ptr", "ptr", "ptr")
def assigned(c: NativeBuilder, copying: Record, parent: Any, key: Any, value: Any) -> None:
    """The same with its stamp, as `writes` tells it."""
    writes(c, parent, value, lambda: _assigned(c, copying, parent, key, value))


@native("i64", OPERAND, OPERAND)
def is_same(c: NativeBuilder, x: Record, y: Record) -> None:
    """Whether operands of as many axes, from the same place, are the same elements."""
    with c.each(x["nd"]) as k:
        fails(c, x["dims"].item(k) == y["dims"].item(k))
        fails(c, x["strides"].item(k) == y["strides"].item(k))
    c.ret(1)
