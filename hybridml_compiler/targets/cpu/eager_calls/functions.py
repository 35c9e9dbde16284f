"""Functions of tensors: rows that are called by name, `hm.add(x, y)`, and NumPy's, `np.dot(x, y)`, whose targets are
called without Python where they take the arguments as they are."""

from __future__ import annotations

from typing import Any

from ..llvm.native import NULL, Native, NativeBuilder, i32, native
from ..python_entry.object_layout import layout
from ..structs import WORD
from .elementwise import into_array, of_one, of_two, return_found
from .objects import (
    FALSE,
    NUMBERS,
    array_of,
    called,
    has_history,
    instead_given,
    is_eager,
    kind_of,
    new_reference,
    of_array,
    operand_room,
    plain_array,
)
from .products import product
from .tables import ROW
from .views import view_of


@native("ptr", "ptr", "ptr", "i64")
def called_directly(c: NativeBuilder, function: Any, items: Any, count: Any) -> None:
    """The result of what stands for a function of NumPy's, of these arguments; 0 where nothing takes them as they are,
    or with an exception set."""
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
    c.ret_if(target == 0, NULL)
    new_reference(c, target)  # which a call of its own may take out of the dict
    found = c.extern("ptr", "PyObject_Vectorcall", target, items, count, NULL)
    c.extern("void", "Py_DecRef", target)
    c.ret(found)


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
    return_found(c, called_directly(c, function, items, count))
    c.ret_if(c.extern("ptr", "PyErr_Occurred") != 0, NULL)
    c.place(slow)
    instead_given(c, row, self, args, n, n, NULL)


def out_of(c: NativeBuilder, names: Any, given: Any) -> Any:
    """The array of a call whose one keyword is `out=(array,)`; 0 where it is another."""
    found = c.variable(NULL)
    with c.if_then((names + layout().tuple_size).load() == 1):
        name = (names + layout().tuple_items).load("ptr")
        is_out = c.extern("i32", "PyUnicode_CompareWithASCIIString", name, c.symbol("hml_out")) == i32(0)
        with c.if_then(is_out & (kind_of(given) == c.symbol("hml_tuple"))):
            with c.if_then((given + layout().tuple_size).load() == 1):
                found.value = (given + layout().tuple_items).load("ptr")
    return found.value


@native("ptr", "ptr", "ptr", "i64", "ptr")
def hml_array_ufunc(c: NativeBuilder, self: Any, args: Any, n: Any, names: Any) -> None:
    """`__array_ufunc__`: the row of a function of NumPy's that is called as one, or in place of an array."""
    own, slow, out = c.symbol("hml_row_array_ufunc").struct(ROW), c.label("slow"), c.variable(NULL)
    c.unless((n >= 3) & (n <= 4), slow)
    c.unless(kind_of(args.item(1, "ptr")) == c.symbol("hml_str"), slow)
    how = c.extern("i32", "PyUnicode_CompareWithASCIIString", args.item(1, "ptr"), c.symbol("hml_call"))
    c.unless(how == i32(0), slow)
    with c.if_then(names != 0):
        out.value = out_of(c, names, args.item(n, "ptr"))
        c.unless(out.value != 0, slow)
    is_eager(c, slow)
    ufunc, given, rows = args.item(0, "ptr"), args + 2 * WORD, c.symbol("hml_ufuncs")
    with c.if_then((ufunc == c.symbol("hml_np_matmul")) & (out.value == 0)):
        return_found(c, product(c, c.symbol("hml_row_dot").struct(ROW), given.load("ptr"), given.item(1, "ptr")))
    with c.each(c.symbol("hml_n_ufuncs").load()) as k:
        row = rows.item(k, "ptr").struct(ROW)
        with c.if_then((row["ufunc"] == ufunc) & (row["arity"] == n - 2)):
            with c.if_then(out.value != 0):
                return_found(c, into_array(c, row, given, n - 2, out.value))
                c.jump(slow)
            with c.if_then(n == 3):
                return_found(c, of_one(c, row, given.load("ptr")))
            with c.if_then(n == 4):
                return_found(c, of_two(c, row, given.load("ptr"), given.item(1, "ptr")))
            c.jump(slow)
    c.unless(out.value == 0, slow)
    with c.each(n - 2) as k:
        kind, plain = kind_of(given.item(k, "ptr")), c.variable(FALSE)
        for known in ("tensor", "ndarray", *(f"{name}_class" for name in NUMBERS)):
            plain.value = plain.value | (kind == c.symbol(f"hml_{known}"))
        c.unless(plain.value, slow)
    return_found(c, called_directly(c, ufunc, given, n - 2))
    c.ret_if(c.extern("ptr", "PyErr_Occurred") != 0, NULL)
    c.place(slow)
    count = c.variable(n)
    with c.if_then(names != 0):
        count.value += c.extern("i64", "PyTuple_Size", names)
    instead_given(c, own, self, args, n, count.value, names)


def _clone(name: str) -> Native:
    def method(c: NativeBuilder, self: Any, args: Any, n: Any, names: Any) -> None:
        row, slow, given = c.symbol(f"hml_row_{name}").struct(ROW), c.label("slow"), c.label("given")
        c.unless((n == 0) & (names == 0), given)
        c.unless(~has_history(c, self), slow)
        is_eager(c, slow)
        return_found(c, of_one(c, c.symbol("hml_row_setitem").struct(ROW), self))
        c.place(slow)
        c.ret(called(c, row, self))
        c.place(given)
        more = c.variable(0)
        with c.if_then(names != 0):
            more.value = c.extern("i64", "PyTuple_Size", names)
        instead_given(c, row, self, args, n, n + more.value, names)

    return native("ptr", "ptr", "ptr", "i64", "ptr", name=f"hml_{name}")(method)


hml_clone, hml_copy = _clone("clone"), _clone("copy")  # of memory in row-major order


@native("ptr", "ptr", "ptr", "i64", "ptr")
def hml_array(c: NativeBuilder, self: Any, args: Any, n: Any, names: Any) -> None:
    """`__array__`, of the dtype and the memory that there are, of a tensor without history."""
    count = c.variable(n)
    own, slow = c.symbol("hml_row_array").struct(ROW), c.label("slow")
    with c.if_then(names != 0):
        count.value += c.extern("i64", "PyTuple_Size", names)
        c.unless((count.value == n + 1) & (count.value <= 2), slow)
        name = (names + layout().tuple_items).load("ptr")
        is_copy = c.extern("i32", "PyUnicode_CompareWithASCIIString", name, c.symbol("hml_name_copy")) == i32(0)
        c.unless(is_copy & (args.item(n, "ptr") != c.symbol("_Py_TrueStruct")), slow)
    c.unless(n <= 1, slow)
    is_eager(c, slow)
    array = plain_array(c, self)
    c.unless((array != 0) & ~has_history(c, self), slow)
    with c.if_then(n == 1):  # `array[2:5] = tensor` asks for the dtype of the array
        asked = args.load("ptr")
        c.unless((asked == c.symbol("_Py_NoneStruct")) | (asked == array_of(array)["descr"]), slow)
    place = operand_room(c)
    of_array(c, array, place)
    return_found(c, view_of(c, place, array))
    c.place(slow)
    instead_given(c, own, self, args, n, count.value, names)


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
