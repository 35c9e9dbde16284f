"""Functions of tensors: rows that are called by name, `hm.add(x, y)`, and NumPy's, `np.dot(x, y)`, whose targets are
called without Python where they take the arguments as they are."""

from __future__ import annotations

from typing import Any

from ..llvm.native import NULL, NativeBuilder, native
from ..python_entry.object_layout import layout
from .elementwise import of_one, of_two, return_found
from .objects import instead_given, is_eager, kind_of, new_reference
from .products import product
from .tables import ROW


@native("ptr", "ptr", "ptr", "i64")
def hml_array_function(c: NativeBuilder, self: Any, args: Any, n: Any) -> None:
    """`__array_function__`"""
    row, slow, others = c.symbol("hml_row_array_function").struct(ROW), c.label("slow"), c.label("others")
    c.unless(n == 4, slow)
    function, types, given, named = [args.item(k, "ptr") for k in range(4)]
    for what, kind in ((types, "tuple"), (given, "tuple"), (named, "dict")):
        c.unless(kind_of(what) == c.symbol(f"hml_{kind}"), slow)
    c.unless((types + layout().tuple_size).load() == 1, slow)
    c.unless((named + layout().dict_size).load() == 0, slow)
    count, items = (given + layout().tuple_size).load(), given + layout().tuple_items
    with c.if_then((function == c.symbol("hml_np_dot")) & (count == 2)):
        is_eager(c, others)
        return_found(c, product(c, c.symbol("hml_row_dot").struct(ROW), items.load("ptr"), items.item(1, "ptr")))
        c.jump(others)
    c.place(others)
    key = c.extern("ptr", "PyTuple_New", 2)
    c.ret_if(key == 0, NULL)
    c.extern("i32", "PyTuple_SetItem", key, 0, new_reference(c, function))
    number = c.extern("ptr", "PyLong_FromLongLong", count)
    with c.if_then(number == 0, likely=False):
        c.extern("void", "Py_DecRef", key)
        c.ret(NULL)
    c.extern("i32", "PyTuple_SetItem", key, 1, number)
    target = c.extern("ptr", "PyDict_GetItemWithError", c.symbol("hml_direct"), key)
    c.extern("void", "Py_DecRef", key)
    with c.if_then(target != 0):
        new_reference(c, target)  # which a call of its own may take out of the dict
        found = c.extern("ptr", "PyObject_Vectorcall", target, items, count, NULL)
        c.extern("void", "Py_DecRef", target)
        c.ret(found)
    c.ret_if(c.extern("ptr", "PyErr_Occurred") != 0, NULL)
    c.place(slow)
    instead_given(c, row, self, args, n, n, NULL)


@native("ptr", "ptr", "ptr", "i64")
def hml_function(c: NativeBuilder, self: Any, args: Any, n: Any) -> None:
    """The tensor of a row, whose address the builtin is bound to, of operands without history; else `MISS`."""
    row, slow = (self + layout().ctypes_buffer).load("ptr").struct(ROW), c.label("slow")
    c.unless(n == row["arity"], slow)
    is_eager(c, slow)
    with c.if_then(n == 1):
        return_found(c, of_one(c, row, args.load("ptr")))
    with c.if_then(n == 2):
        return_found(c, of_two(c, row, args.load("ptr"), args.item(1, "ptr")))
    c.place(slow)
    c.ret(new_reference(c, c.symbol("hml_miss")))
