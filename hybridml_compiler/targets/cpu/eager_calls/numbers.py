"""Tensors of one number as results: those that nobody has any more are taken again, with their arrays.

Making and freeing the two objects is half of the time of `x[i] * y[j]`. The last few of each dtype are kept here; one
whose only reference is this one is as good as new, if nothing has been done to it that stays.
"""

from __future__ import annotations

from typing import Any

from ..llvm.native import KINDS, NULL, Literal, NativeBuilder, i32, native
from ..python_entry.object_layout import ALIGNED, OWNS_DATA, WRITEABLE, layout
from ..structs import WORD
from .objects import array_of, dtype_row, fails, kind_of, new_array, new_reference, slot, wrap
from .tables import DTYPE, KEPT

_PLAIN = ALIGNED | OWNS_DATA | WRITEABLE


@native("ptr", "ptr")
def number_tensor(c: NativeBuilder, descr: Any) -> None:
    """A tensor of one number of a dtype, not yet written; 0 where there is none."""
    row = dtype_row(c, descr)
    fails(c, row != 0)
    place = (c.word(row) - c.word(c.symbol("hml_dtypes"))) // DTYPE.nbytes * (WORD * (KEPT + 1))
    kept = c.symbol("hml_numbers") + place
    with c.each(KEPT) as k:
        found = kept.item(k, "ptr")
        with c.if_then(found != 0):
            with c.if_then(is_free(c, found) != 0):
                version = slot(c, found, "_version")
                before = version.load("ptr")
                with c.if_then(before != c.symbol("hml_zero")):
                    version.store(new_reference(c, c.symbol("hml_zero")))
                    c.extern("void", "Py_DecRef", before)
                c.ret(new_reference(c, found))
    made = wrap(c, new_array(c, descr, Literal(KINDS["i64"], "0"), NULL))
    fails(c, made != 0)
    turn = kept + KEPT * WORD
    at = kept + turn.load() % KEPT * WORD
    turn.store(turn.load() + 1)
    before = at.load("ptr")
    at.store(new_reference(c, made))
    with c.if_then(before != 0):
        c.extern("void", "Py_DecRef", before)
    c.ret(made)


@native("i64", "ptr")
def is_free(c: NativeBuilder, tensor: Any) -> None:
    """Whether nothing but the table has the tensor, and nothing but the tensor its array."""
    counted = layout().array
    fails(c, tensor.struct(counted)["references"] == i32(1))
    fails(c, slot(c, tensor, "_node").load("ptr") == c.symbol("_Py_NoneStruct"))
    fails(c, slot(c, tensor, "_view").load("ptr") == 0)
    fails(c, slot(c, tensor, "__weakref__").load("ptr") == 0)
    array = slot(c, tensor, "_array").load("ptr")
    fails(c, (array != 0) & (kind_of(array) == c.symbol("hml_ndarray")))
    its = array_of(array)
    fails(c, (its["references"] == i32(1)) & (its["nd"] == i32(0)) & (its["weakrefs"] == 0))
    c.ret(c.zext((its["flags"] & i32(_PLAIN)) == i32(_PLAIN), KINDS["i64"]))
