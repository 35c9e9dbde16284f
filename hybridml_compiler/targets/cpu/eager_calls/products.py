"""`x @ y` of small vectors and matrices: the inner loop of `numpy.matmul`, as for elementwise rows."""

from __future__ import annotations

from typing import Any

from ..llvm.native import NativeBuilder, Record, native
from ..structs import WORD
from .elementwise import loop_of
from .lifetimes import wrap
from .objects import array_of, fails, new_array, operand, operand_room
from .tables import LOOP, ROW, SMALL_PRODUCT


@native("ptr", ROW, "ptr", "ptr")
def product(c: NativeBuilder, row: Record, left: Any, right: Any) -> None:
    """The product of two tensors; 0 where this is not for native code."""
    x, y = operand_room(c), operand_room(c)
    fails(c, operand(c, left, 1, x) == 1)
    fails(c, operand(c, right, 1, y) == 1)
    fails(c, x["descr"] == y["descr"])
    for given in (x, y):
        fails(c, (given["nd"] == 1) | (given["nd"] == 2))
    loop = loop_of(c, row, x["descr"])
    fails(c, loop != 0)
    m, rows, p, columns = c.variable(1), c.variable(0), c.variable(1), c.variable(0)
    of_x, of_y = x["dims"] + (x["nd"] - 1) * WORD, x["strides"] + (x["nd"] - 1) * WORD
    n, along = of_x.load(), of_y.load()
    with c.if_then(x["nd"] == 2):
        m.value, rows.value = x["dims"].load(), x["strides"].load()
    with c.if_then(y["nd"] == 2):
        p.value, columns.value = y["dims"].item(1), y["strides"].item(1)
    fails(c, n == y["dims"].load())
    size = m.value * n * p.value
    fails(c, size <= SMALL_PRODUCT)
    dims, nd = c.local("i64", 2), c.variable(0)
    with c.if_then(x["nd"] == 2):
        dims.store(m.value)
        nd.value = 1
    with c.if_then(y["nd"] == 2):
        (dims + nd.value * WORD).store(p.value)
        nd.value += 1
    array = new_array(c, loop.struct(LOOP)["descr"], nd.value, dims)
    with c.if_then(array == 0, likely=False):
        c.extern("void", "PyErr_Clear")
        c.ret(0)
    nbytes = loop.struct(LOOP)["nbytes"]
    pointers, lengths, steps = c.local("ptr", 3), c.local("i64", 4), c.local("i64", 9)
    for k, pointer in enumerate((x["data"], y["data"], array_of(array)["data"])):
        (pointers + WORD * k).store(pointer)
    for k, length in enumerate((1, m.value, n, p.value)):
        (lengths + WORD * k).store(length)
    strides = (rows.value, along, y["strides"].load(), columns.value, p.value * nbytes, nbytes)
    for k, step in enumerate((0, 0, 0, *strides)):
        (steps + WORD * k).store(step)
    c.through(loop.struct(LOOP)["loop"], "void", pointers, lengths, steps, loop.struct(LOOP)["data"])
    c.ret(wrap(c, array))
