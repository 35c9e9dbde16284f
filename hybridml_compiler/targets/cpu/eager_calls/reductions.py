"""Sums and extremes of all elements of a small tensor, by NumPy's own inner loop, which adds up in pairs."""

from __future__ import annotations

from typing import Any

from ..llvm.native import NativeBuilder, Record, native
from ..python_entry.object_layout import layout
from ..structs import WORD
from .copies import moved
from .elementwise import loop_of
from .lifetimes import new_number, wrap
from .objects import array_of, fails, is_eager, new_reference, operand, operand_room
from .tables import LOOP, MOST, ROW


@native("ptr", ROW, "ptr")
def _whole(c: NativeBuilder, row: Record, value: Any) -> None:
    """The tensor of a reduction over all axes; 0 where this is not for native code, as memory with gaps, of which NumPy
    chooses the order."""
    x = operand_room(c)
    fails(c, operand(c, value, 1, x) == 1)
    loop = loop_of(c, row, x["descr"])
    fails(c, loop != 0)
    its, size, nd = loop.struct(LOOP), c.variable(1), x["nd"]
    fails(c, nd != 0)
    nbytes, last = its["nbytes"], x["strides"].item(nd - 1)
    fails(c, (last == nbytes) | ((nd == 1) & c.icmp_signed(">", last, 0)))
    with c.each(nd) as k:  # from the last axis
        at = nd - 1 - k
        with c.if_then(nd != 1):
            fails(c, x["strides"].item(at) == size.value * nbytes)
        size.value *= x["dims"].item(at)
    fails(c, (size.value != 0) & (size.value <= MOST))
    array = new_number(c, its["descr"])
    fails(c, array != 0)
    out, first, count = array_of(array)["data"], c.variable(x["data"]), c.variable(size.value)
    out.store(0)
    with c.if_then(row["arity"] == 3):  # an extreme, which has no dtype to be asked for, and nothing to begin with
        moved(c, first.value, out, nbytes)
        first.value += last
        count.value -= 1
    pointers, lengths, steps = c.local("ptr", 3), c.local("i64"), c.local("i64", 3)
    for k, (pointer, step) in enumerate(((out, 0), (first.value, last), (out, 0))):
        (pointers + WORD * k).store(pointer)
        (steps + WORD * k).store(step)
    lengths.store(count.value)
    c.through(its["loop"], "void", pointers, lengths, steps, its["data"])
    c.ret(wrap(c, array))


@native("ptr", "ptr", "ptr", "i64")
def hml_reduction(c: NativeBuilder, self: Any, args: Any, n: Any) -> None:
    """The tensor of a row, whose address the builtin is bound to, of a tensor without history, no axis, and dimensions
    that are not kept; else `MISS`."""
    row, slow = (self + layout().ctypes_buffer).load("ptr").struct(ROW), c.label("slow")
    c.unless(n == row["arity"], slow)
    c.unless(args.item(1, "ptr") == c.symbol("_Py_NoneStruct"), slow)
    c.unless(args.item(2, "ptr") == c.symbol("_Py_FalseStruct"), slow)
    with c.if_then(n == 4):
        c.unless(args.item(3, "ptr") == c.symbol("_Py_NoneStruct"), slow)
    is_eager(c, slow)
    found = _whole(c, row, args.load("ptr"))
    with c.if_then(found != 0, likely=True):
        c.ret(found)
    c.place(slow)
    c.ret(new_reference(c, c.symbol("hml_miss")))
