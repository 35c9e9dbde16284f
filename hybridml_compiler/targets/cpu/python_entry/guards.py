"""The native half of an entry, part one: is this the call that the step was compiled for.

Each guard is code in place that goes on where it holds, and jumps to `slow` where not.
"""

from __future__ import annotations

from typing import Any

from ..llvm.native import NULL, Label, NativeBuilder, Record
from .block import ARG, CAPTURED, CONSTANT, CONTEXT, EPOCH, NUMBER, PLACE, TENSOR, TUPLE
from .object_layout import ALIGNED, C_CONTIGUOUS, layout
from .places import PLACE_ITEMS, PLACE_KEYS, PLACE_WORD


def contexts_hold(c: NativeBuilder, block: Record, slow: Label, failed: Label) -> None:
    """Every context variable holds what it did, or nothing."""
    held = c.local("ptr")
    with c.rows(block["contexts"], block["n_contexts"], CONTEXT) as row:
        c.unless(c.extern("i32", "PyContextVar_Get", row["variable"], NULL, held) == 0, failed)
        value = held.load("ptr")
        with c.if_then(value != 0):
            c.extern("void", "Py_DecRef", value)
            c.unless(value == row["expected"], slow)


def places_hold(c: NativeBuilder, block: Record, slow: Label) -> None:
    """All places hold the same objects. Looking into a dict may run code of its keys."""
    position, key = c.local("i64"), c.local("ptr")
    with c.rows(block["places"], block["n_places"], PLACE) as row:
        kind, owner, expected, count = row["kind"], row["owner"], row["expected"], row["key"]
        objects = row.at("expected").load("ptr")
        with c.if_then(kind == PLACE_WORD):
            c.unless(owner.load() == expected, slow)
            c.next()
        with c.if_then(kind == PLACE_ITEMS):
            items, different = owner.load("ptr"), c.variable(0)
            with c.each(count) as i:
                different.value |= items.item(i) ^ objects.item(i)
            c.unless(different.value == 0, slow)
            c.next()
        with c.if_then(kind == PLACE_KEYS):
            position.store(0)
            with c.each(count) as i:
                found = c.extern("i32", "PyDict_Next", owner, position, key, NULL)
                c.unless((found != 0) & (key.load() == objects.item(i)), slow)
            c.next()
        value = c.extern("ptr", "PyDict_GetItemWithError", owner, row.at("key").load("ptr"))
        with c.if_then(value == 0):
            with c.if_then(c.extern("ptr", "PyErr_Occurred") != 0, likely=False):
                c.extern("void", "PyErr_Clear")
                c.jump(slow)
        c.unless(value == objects, slow)


def epochs_hold(c: NativeBuilder, block: Record, slow: Label) -> None:
    """The two numbers of each pair are equal."""
    with c.rows(block["epochs"], block["n_epochs"], EPOCH) as row:
        c.unless(row["address"].load() == row["seen"].load(), slow)


def arguments_fit(c: NativeBuilder, block: Record, args: Any, slow: Label) -> None:
    """Every argument is as expected; their pointers are in place then."""
    tensor_type, array_slot, none = block["tensor_type"], block["array_slot"], block["none"]
    nones, n_nones = block["nones"], block["n_nones"]
    table = block["args"]
    with c.each(block["n_args"]) as i:
        row = (table + i * ARG.nbytes).struct(ARG)
        arg, kind = args.item(i, "ptr"), row["kind"]
        its_type = (arg + layout().type).load("ptr")
        with c.if_then(kind == TENSOR, likely=True):
            c.unless(its_type == tensor_type, slow)
            with c.each(n_nones) as k:
                c.unless((arg + nones.item(k)).load("ptr") == none, slow)
            array = (arg + array_slot).load("ptr")
            c.unless(array != 0, slow)
            fits(c, block, row, array.struct(layout().array), C_CONTIGUOUS | ALIGNED, slow)
            row["target"].store(array.struct(layout().array)["data"])
            c.next()
        with c.if_then(kind == CONSTANT):
            c.unless(arg == row["expected"], slow)
            c.next()
        with c.if_then(kind == TUPLE):
            count, items, dims = row["nd"], arg + layout().tuple_items, row["dims"]
            c.unless(its_type == block["tuple_type"], slow)
            c.unless((arg + layout().tuple_size).load() == count, slow)
            with c.each(count) as k:
                c.unless(items.item(k) == dims.item(k), slow)
            c.next()
        c.unless(its_type == block["float_type"], slow)
        with c.if_then(kind == NUMBER):
            c.unless((arg + layout().float_value).load() == row["nd"], slow)
            c.next()
        row["target"].store((arg + layout().float_value).load("double"))


def fits(c: NativeBuilder, block: Record, row: Record, array: Record, flags: int, no: Label) -> None:
    """The array has exactly the type of arrays, the descr and dims of this row, and at least these flags."""
    nd, dims, its_dims = row["nd"], row["dims"], array["dims"]
    right_kind = (array["type"] == block["array_type"]) & (array["descr"] == row["expected"])
    c.unless(right_kind & (c.sext(array["nd"], nd.type) == nd) & (array["flags"] & flags == flags), no)
    with c.each(nd) as i:
        c.unless(its_dims.item(i) == dims.item(i), no)


def captured_hold(c: NativeBuilder, block: Record, slow: Label) -> None:
    """Every captured tensor holds the very array seen when the entry was built: 2 ns each, one branch in all."""
    array_slot, different = block["array_slot"], c.variable(0)
    with c.rows(block["captured"], block["n_captured"], CAPTURED) as row:
        different.value |= row["array"] ^ (row["tensor"] + array_slot).load()
    c.unless(different.value == 0, slow)
