"""The native half of an entry, part two: arrays for the results, and the tensors round them.

Reference counts change through Py_IncRef and Py_DecRef only (an inlined +1 destroys the mark of an immortal object on
3.12 and later), and every result of the C-API is checked for NULL.
"""

from __future__ import annotations

from typing import Any

from ..llvm.native import KINDS, NULL, NativeBuilder, Record, i32, native
from .block import DEFAULT, HEADER, OUTPUT, RESULT, RESULTS
from .guards import fits
from .object_layout import ALIGNED, C_CONTIGUOUS, OWNS_DATA, WRITEABLE, layout


@native("i64", HEADER)
def make_outputs(c: NativeBuilder, block: Record) -> None:
    """Arrays of all outputs into their rows and the pointer table; 0 with an exception set. A number has its place."""
    with c.rows(block["outputs"], block["n_outputs"], OUTPUT) as row:
        with c.if_then(row["expected"] == 0):
            c.next()
        array = output(c, block, row)
        row["current"] = array
        with c.if_then(array == 0, likely=False):
            drop_outputs(c, block)
            c.ret(0)
        row["target"].store(array.struct(layout().array)["data"])
    c.ret(1)


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


@native("ptr", HEADER, "ptr")
def made_result(c: NativeBuilder, block: Record, args: Any) -> None:
    """Makes the only result of a call, or a tuple of them. 0 with an exception set."""
    results, count = block["results"], block["n_results"]
    with c.if_then(count == 0, likely=True):
        found = one_result(c, block, results.struct(RESULT), args)
        with c.if_then(found == 0, likely=False):
            drop_outputs(c, block)
        c.ret(found)
    several, number = c.extern("ptr", "PyTuple_New", count), c.variable(0)
    with c.if_then(several == 0, likely=False):
        drop_outputs(c, block)
        c.ret(0)
    with c.rows(results, count, RESULT) as row:
        found = one_result(c, block, row, args)
        with c.if_then(found == 0, likely=False):
            c.extern("void", "Py_DecRef", several)
            drop_outputs(c, block)
            c.ret(0)
        c.extern("i32", "PyTuple_SetItem", several, number.value, found)
        number.value += 1
    c.ret(several)


@native("ptr", HEADER, RESULT, "ptr")
def one_result(c: NativeBuilder, block: Record, row: Record, args: Any) -> None:
    """A new reference to a result, or null with an exception set."""
    kind, of = row["kind"], row["of"]
    is_a = {name: kind == number for number, name in enumerate(RESULTS)}
    with c.if_then(is_a["output"], likely=True):
        c.ret(wrap(c, block, of.struct(OUTPUT)))
    found = c.variable(of)
    with c.if_then(is_a["argument"]):
        found.value = args.item(row["number"], "ptr")
    with c.if_then(is_a["argument"] | is_a["object"]):
        c.extern("void", "Py_IncRef", found.value)
        c.ret(found.value)
    number = of.load("double")
    with c.if_then(is_a["int"]):
        c.ret(c.extern("ptr", "PyLong_FromDouble", number))
    with c.if_then(is_a["float"]):
        c.ret(c.extern("ptr", "PyFloat_FromDouble", number))
    c.ret(c.extern("ptr", "PyBool_FromLong", c.zext(of.load("i8"), KINDS["i64"])))


@native("void", HEADER)
def drop_outputs(c: NativeBuilder, block: Record) -> None:
    """Gives back the arrays that belong to nobody yet."""
    with c.rows(block["outputs"], block["n_outputs"], OUTPUT) as row:
        array = row["current"]
        row["current"] = NULL
        c.extern("void", "Py_DecRef", array)


@native("ptr", HEADER, OUTPUT)
def wrap(c: NativeBuilder, block: Record, row: Record) -> None:
    """A tensor round the array of an output (whose reference it takes), or null with an exception set and the array
    kept."""
    tensor = c.extern("ptr", "PyType_GenericAlloc", block["tensor_type"], 0)
    with c.if_then(tensor == 0, likely=False):
        c.ret(0)
    (tensor + block["array_slot"]).store(row["current"])
    row["current"] = NULL
    with c.rows(block["defaults"], block["n_defaults"], DEFAULT) as default:
        value = default["value"]
        c.extern("void", "Py_IncRef", value)
        (tensor + default["offset"]).store(value)
    c.ret(tensor)
