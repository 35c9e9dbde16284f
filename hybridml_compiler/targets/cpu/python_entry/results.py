"""The native half of an entry, part two: arrays for the results, and the tensors round them.

Reference counts change through Py_IncRef and Py_DecRef only (an inlined +1 destroys the mark of an immortal object on
3.12 and later), and every result of the C-API is checked for NULL.
"""

from __future__ import annotations

from typing import Any

from ..llvm.native import KINDS, NULL, NativeBuilder, Record, i32, native
from .block import DEFAULT, HEADER, OUTPUT
from .guards import fits
from .object_layout import ALIGNED, C_CONTIGUOUS, OWNS_DATA, WRITEABLE, layout


def make_outputs(c: NativeBuilder, block: Record) -> None:
    """Arrays of all outputs into their rows and the pointer table."""
    with c.rows(block["outputs"], block["n_outputs"], OUTPUT) as row:
        array = output(c, block, row)
        with c.if_then(array == 0, likely=False):
            give_up(c, block, block["outputs"], row)
        row["target"].store(array.struct(layout().array)["data"])
        row["current"] = array


@native("ptr", HEADER, OUTPUT)
def output(c: NativeBuilder, block: Record, row: Record) -> None:
    """A new reference to an array for this output, or null with an exception set.

    An array that is lent is taken if the reference of the loan, which ends here, is one of two (a view holds its base,
    a buffer its exporter), if no weak reference knows it, and if nobody changed its shape, type or flags in place.
    """
    make, refuse = c.label("make"), c.label("refuse")
    lent = row["lent"]
    c.jump_if(lent == 0, make)
    array = lent.load("ptr")
    lent.store(NULL)
    c.jump_if(array == 0, make)
    its = array.struct(layout().array)
    fits(c, block, row, its, C_CONTIGUOUS | ALIGNED | WRITEABLE | OWNS_DATA, refuse)
    c.unless((its["references"] <= 2) & (its["weakrefs"] == 0), refuse)
    c.ret(array)
    c.place(refuse)
    c.extern("void", "Py_DecRef", array)
    c.place(make)
    handler = row["handler"]
    with c.if_then(handler != 0):
        c.ret(handled(c, block, row, handler))
    c.ret(fresh(c, block, row))


@native("ptr", HEADER, OUTPUT, "ptr")
def handled(c: NativeBuilder, block: Record, row: Record, handler: Any) -> None:
    """A fresh array of memory that NumPy gets from this handler."""
    before = c.extern("ptr", "PyDataMem_SetHandler", handler)
    with c.if_then(before == 0, likely=False):
        c.ret(0)
    array = fresh(c, block, row)
    ours = c.extern("ptr", "PyDataMem_SetHandler", before)
    c.extern("void", "Py_DecRef", before)
    c.extern("void", "Py_DecRef", ours)
    c.ret(array)


def fresh(c: NativeBuilder, block: Record, row: Record) -> Any:
    descr, nd = row["expected"], c.trunc(row["nd"], KINDS["i32"])
    c.extern("void", "Py_IncRef", descr)  # NewFromDescr steals it, also when it fails
    form = (block["array_type"], descr, nd, row["dims"], NULL, NULL, i32(0), NULL)
    return c.extern("ptr", "PyArray_NewFromDescr", *form)


def finish(c: NativeBuilder, block: Record) -> None:
    """Returns one tensor, a tuple of several, or None for none."""
    outputs, count = block["outputs"], block["n_outputs"]
    end = outputs + count * OUTPUT.nbytes
    with c.if_then(count == 1, likely=True):
        tensor = wrap(c, block, outputs)
        with c.if_then(tensor == 0, likely=False):
            give_up(c, block, outputs, end)
        block["lock"].store(0)
        c.ret(tensor)
    with c.if_then(count == 0):
        c.extern("void", "Py_IncRef", block["none"])
        block["lock"].store(0)
        c.ret(block["none"])
    several, number = c.extern("ptr", "PyTuple_New", count), c.variable(0)
    with c.if_then(several == 0, likely=False):
        give_up(c, block, outputs, end)
    with c.rows(outputs, count, OUTPUT) as row:
        tensor = wrap(c, block, row)
        with c.if_then(tensor == 0, likely=False):
            c.extern("void", "Py_DecRef", several)
            give_up(c, block, row, end)
        c.extern("i32", "PyTuple_SetItem", several, number.value, tensor)
        number.value += 1
    block["lock"].store(0)
    c.ret(several)


def give_up(c: NativeBuilder, block: Record, first: Any, end: Any) -> None:
    """Returns with the exception that is set; the arrays of these rows belong to nobody yet."""
    drop_outputs(c, first, end)
    block["lock"].store(0)
    c.ret(0)


@native("void", "ptr", "ptr")
def drop_outputs(c: NativeBuilder, first: Any, end: Any) -> None:
    """Gives back the arrays of these rows."""
    with c.each(end, first, OUTPUT.nbytes) as row:
        c.extern("void", "Py_DecRef", row.struct(OUTPUT)["current"])


@native("ptr", HEADER, OUTPUT)
def wrap(c: NativeBuilder, block: Record, row: Record) -> None:
    """A tensor round the array of an output (whose reference it takes), or null with an exception set and the array
    kept."""
    tensor = c.extern("ptr", "PyType_GenericAlloc", block["tensor_type"], 0)
    with c.if_then(tensor == 0, likely=False):
        c.ret(0)
    (tensor + block["array_slot"]).store(row["current"])
    with c.rows(block["defaults"], block["n_defaults"], DEFAULT) as default:
        value = default["value"]
        c.extern("void", "Py_IncRef", value)
        (tensor + default["offset"]).store(value)
    c.ret(tensor)
