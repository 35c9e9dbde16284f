"""The slots of the tensor class, as CPython calls them for `x + y`, `x < y`, `x[key]`, `len(x)`, `bool(x)`: operands
are as they stand, so that the tensor may be the one on the right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..llvm.native import KINDS, NULL, Label, Literal, Native, NativeBuilder, Record, i32, i64, native
from ..structs import WORD
from .elementwise import loop_of_two, of_numbers, of_one, of_operands, of_two, return_found, updated
from .lifetimes import new_number, wrap
from .numbers import is_not_zero, real, whole
from .objects import (
    RAISED,
    array_of,
    called,
    dtype_row,
    fails,
    has_history,
    is_eager,
    kind_of,
    new_reference,
    operand_room,
    plain_array,
)
from .products import product
from .tables import COMPARISONS, COMPLEX, DOUBLE, DTYPE, INTEGER, ROW, SINGLE, TRUTH, slot_of
from .views import assigned, chosen

_FAILED = i32(-1)


def _row(c: NativeBuilder, name: str) -> Any:
    return c.symbol(f"hml_row_{name}").struct(ROW)


@native("i1", "ptr")
def _is_tensor(c: NativeBuilder, value: Any) -> None:
    kind = kind_of(value)
    with c.if_then(kind == c.symbol("hml_tensor")):
        c.ret(Literal(KINDS["i1"], "true"))
    c.ret(c.extern("i32", "PyType_IsSubtype", kind, c.symbol("hml_tensor")) != i32(0))


@native("ptr", ROW, ROW, "ptr", "ptr")
def _otherwise(c: NativeBuilder, row: Any, reflected: Any, left: Any, right: Any) -> None:
    """The result of the Python methods of the operands, the left one's first."""
    with c.if_then(_is_tensor(c, left)):
        found = called(c, row, left, right)
        with c.if_then((found != c.symbol("_Py_NotImplementedStruct")) | (kind_of(left) == kind_of(right))):
            c.ret(found)
        c.extern("void", "Py_DecRef", found)
    with c.if_then(_is_tensor(c, right)):
        c.ret(called(c, reflected, right, left))
    c.ret(new_reference(c, c.symbol("_Py_NotImplementedStruct")))


def _operator(name: str) -> Native:
    def slot(c: NativeBuilder, left: Any, right: Any) -> None:
        row, slow = _row(c, name), c.label("slow")
        is_eager(c, slow)
        return_found(c, product(c, row, left, right) if name == "matmul" else of_two(c, row, left, right))
        c.place(slow)
        c.ret(_otherwise(c, row, _row(c, f"r{name}"), left, right))

    return native("ptr", "ptr", "ptr", name=f"hml_slot_{name}")(slot)


def _update(name: str) -> Native:
    def slot(c: NativeBuilder, self: Any, other: Any) -> None:
        row, slow = _row(c, name), c.label("slow")
        is_eager(c, slow)
        done = updated(c, row, self, other)
        with c.if_then(done == 1, likely=True):
            c.ret(new_reference(c, self))
        with c.if_then(done == RAISED):
            c.ret(NULL)
        c.place(slow)
        c.ret(called(c, row, self, other))

    return native("ptr", "ptr", "ptr", name=f"hml_slot_{name}")(slot)


def _unary(name: str) -> Native:
    def slot(c: NativeBuilder, self: Any) -> None:
        row, slow = _row(c, name), c.label("slow")
        is_eager(c, slow)
        return_found(c, of_one(c, row, self))
        c.place(slow)
        c.ret(called(c, row, self))

    return native("ptr", "ptr", name=f"hml_slot_{name}")(slot)


_LESS, _EQUAL, _GREATER, _UNORDERED = 1, 2, 4, 8
_TRUE_OF = {"lt": _LESS, "le": _LESS | _EQUAL, "eq": _EQUAL, "ne": 15 - _EQUAL, "gt": _GREATER, "ge": _GREATER | _EQUAL}


@native("ptr", ROW, "ptr", "ptr", "i32")
def compared(c: NativeBuilder, row: Record, left: Any, right: Any, which: Any) -> None:
    """The tensor of a comparison; of two floats, or ints, without NumPy's loop, which looks at the state of the CPU."""
    x, y, true = operand_room(c), operand_room(c), c.variable(0)
    loop = loop_of_two(c, row, left, right, row["differentiable"], x, y)
    fails(c, loop != 0)
    with c.if_then((x["nd"] | y["nd"]) != 0):
        c.ret(of_operands(c, loop, x, y))
    kind = dtype_row(c, x["descr"]).struct(DTYPE)["kind"]
    is_int = x["descr"] == c.symbol("hml_int64")
    with c.if_then(~(is_int | (kind == DOUBLE) | (kind == SINGLE))):
        c.ret(of_numbers(c, loop, x, y))
    with c.if_then(is_int):
        p, q = x["data"].load(), y["data"].load()
        true.value = c.select(p == q, _EQUAL, c.select(c.icmp_signed("<", p, q), i64(_LESS), _GREATER))
    for its, real_kind in ((DOUBLE, "double"), (SINGLE, "float")):
        with c.if_then(kind == its):
            p, q = x["data"].load(real_kind), y["data"].load(real_kind).text
            true.value = i64(_UNORDERED)
            for how, bit in (("oeq", _EQUAL), ("olt", _LESS), ("ogt", _GREATER)):
                true.value = c.select(c.append(f"fcmp {how} {p}, {q}", KINDS["i1"]), i64(bit), true.value)
    wanted = c.variable(i64(_TRUE_OF[COMPARISONS[0]]))
    for k, name in enumerate(COMPARISONS[1:]):
        wanted.value = c.select(which == i32(k + 1), i64(_TRUE_OF[name]), wanted.value)
    array = new_number(c, c.symbol("hml_bool_dtype"))
    fails(c, array != 0)
    array_of(array)["data"].store(c.zext((true.value & wanted.value) != 0, KINDS["i8"]))
    c.ret(wrap(c, array))


@native("ptr", "ptr", "ptr", "i32")
def hml_slot_compare(c: NativeBuilder, self: Any, other: Any, which: Any) -> None:
    """`tp_richcompare`, of six comparisons."""
    rows, slow = c.local("ptr", len(COMPARISONS)), c.label("slow")
    for k, name in enumerate(COMPARISONS):
        (rows + WORD * k).store(_row(c, name).pointer)
    row = rows.item(c.zext(which, KINDS["i64"]), "ptr").struct(ROW)
    is_eager(c, slow)
    return_found(c, compared(c, row, self, other, which))
    c.place(slow)
    c.ret(called(c, row, self, other))


@native("ptr", "ptr", "ptr", "ptr")
def hml_slot_pow(c: NativeBuilder, left: Any, right: Any, modulo: Any) -> None:
    """`nb_power`: `x ** 2` is a product."""
    row, slow = _row(c, "pow"), c.label("slow")
    with c.if_then(modulo != c.symbol("_Py_NoneStruct")):
        with c.if_then(_is_tensor(c, left)):
            c.ret(called(c, row, left, right, modulo))
        c.ret(new_reference(c, c.symbol("_Py_NotImplementedStruct")))
    is_eager(c, slow)
    with c.if_then(right == c.symbol("hml_two")):
        return_found(c, of_one(c, row, left))
        c.jump(slow)
    return_found(c, of_two(c, _row(c, "power"), left, right))
    c.place(slow)
    c.ret(_otherwise(c, row, _row(c, "rpow"), left, right))


@native("ptr", "ptr", "ptr")
def hml_slot_getitem(c: NativeBuilder, self: Any, key: Any) -> None:
    """`mp_subscript`, by which keys are read."""
    slow = c.label("slow")
    is_eager(c, slow)
    return_found(c, chosen(c, self, key))
    c.ret_if(c.extern("ptr", "PyErr_Occurred") != 0, NULL)
    c.place(slow)
    c.ret(called(c, _row(c, "getitem"), self, key))


@native("i32", "ptr", "ptr", "ptr")
def hml_slot_setitem(c: NativeBuilder, self: Any, key: Any, value: Any) -> None:
    """`mp_ass_subscript`, which deletes where there is no value: an AttributeError."""
    row, slow = _row(c, "setitem"), c.label("slow")
    with c.if_then(value == 0, likely=False):
        c.extern("ptr", "PyObject_GetAttrString", self, c.symbol("hml_delitem"))
        c.ret(_FAILED)
    is_eager(c, slow)
    done = assigned(c, row, self, key, value)
    c.ret_if(done == 1, i32(0))
    c.ret_if(done == RAISED, _FAILED)
    c.place(slow)
    found = called(c, row, self, key, value)
    c.ret_if(found == 0, _FAILED)
    c.extern("void", "Py_DecRef", found)
    c.ret(i32(0))


def _value(c: NativeBuilder, self: Any, slow: Label) -> Any:
    """The memory of the one element of a tensor, and its dtype."""
    is_eager(c, slow)
    array = plain_array(c, self)
    c.unless(array != 0, slow)
    its = array_of(array)
    c.unless(its["nd"] == i32(0), slow)
    dtype = dtype_row(c, its["descr"])
    c.unless(dtype != 0, slow)
    return its["data"], dtype.struct(DTYPE)


@native("i64", "ptr")
def _is_no_index(c: NativeBuilder, self: Any) -> None:
    """1, with its error set, for a tensor that is no integer: `array[mask]` and `array[indices]` drop the error."""
    slow = c.label("slow")
    is_eager(c, slow)
    array = plain_array(c, self)
    c.unless(array != 0, slow)
    its = array_of(array)
    dtype = dtype_row(c, its["descr"])
    c.unless(dtype != 0, slow)
    with c.if_then(dtype.struct(DTYPE)["kind"] != INTEGER):
        c.extern("void", "PyErr_SetObject", c.symbol("hml_no_index"), array)
        c.ret(1)
    with c.if_then(its["nd"] == i32(1)):
        with c.if_then(its["dims"].load() != 1):
            c.extern("void", "PyErr_SetObject", c.symbol("hml_many_indices"), array)
            c.ret(1)
    c.place(slow)
    c.ret(0)


def _int(name: str) -> Native:
    """The slot of an int, of an integer that one of 64 bits holds, or of a float that is cut to one."""

    def slot(c: NativeBuilder, self: Any) -> None:
        slow = c.label("slow")
        if name == "index":
            with c.if_then(_is_no_index(c, self) != 0):
                c.ret(NULL)
        data, dtype = _value(c, self, slow)
        if name == "int":
            with c.if_then(dtype["kind"] == DOUBLE):
                c.ret(c.extern("ptr", "PyLong_FromDouble", data.load("double")))
        c.unless((dtype["kind"] == INTEGER) & (dtype["whole"] != 0), slow)
        c.ret(c.extern("ptr", "PyLong_FromLongLong", whole(c, data, dtype)))
        c.place(slow)
        c.ret(called(c, _row(c, name), self))

    return native("ptr", "ptr", name=f"hml_slot_{name}")(slot)


@native("ptr", "ptr")
def hml_slot_float(c: NativeBuilder, self: Any) -> None:
    """`nb_float`, of a number without history: what an array takes by it is checked (lost_histories.py)."""
    slow = c.label("slow")
    c.unless(~has_history(c, self), slow)
    data, dtype = _value(c, self, slow)
    with c.if_then(dtype["kind"] == SINGLE):
        c.ret(c.extern("ptr", "PyFloat_FromDouble", c.fpext(data.load("float"), KINDS["double"])))
    with c.if_then((dtype["kind"] == INTEGER) & (dtype["whole"] != 0)):
        c.ret(c.extern("ptr", "PyFloat_FromDouble", real(c, whole(c, data, dtype))))
    c.unless(dtype["kind"] == DOUBLE, slow)
    c.ret(c.extern("ptr", "PyFloat_FromDouble", data.load("double")))
    c.place(slow)
    c.ret(called(c, _row(c, "float"), self))


@native("i32", "ptr")
def hml_slot_bool(c: NativeBuilder, self: Any) -> None:
    """`nb_bool`, the truth of one element."""
    slow = c.label("slow")
    data, dtype = _value(c, self, slow)
    with c.if_then(dtype["kind"] == TRUTH, likely=True):
        c.ret(c.zext(data.load("i8") != 0, KINDS["i32"]))
    with c.if_then((dtype["kind"] == INTEGER) & (dtype["whole"] != 0)):
        c.ret(c.zext(whole(c, data, dtype) != 0, KINDS["i32"]))
    with c.if_then(dtype["kind"] == SINGLE):
        c.ret(c.zext(is_not_zero(c, data.load("float")), KINDS["i32"]))
    with c.if_then((dtype["kind"] == DOUBLE) | (dtype["kind"] == COMPLEX)):
        true = is_not_zero(c, data.load("double"))
        with c.if_then(dtype["kind"] == COMPLEX):
            c.ret(c.zext(true | is_not_zero(c, (data + WORD).load("double")), KINDS["i32"]))
        c.ret(c.zext(true, KINDS["i32"]))
    c.place(slow)
    found = called(c, _row(c, "bool"), self)
    c.ret_if(found == 0, _FAILED)
    c.extern("void", "Py_DecRef", found)
    c.ret(c.zext(found == c.symbol("_Py_TrueStruct"), KINDS["i32"]))


@native("i64", "ptr")
def hml_slot_len(c: NativeBuilder, self: Any) -> None:
    """`mp_length`, the size of the first axis."""
    array = plain_array(c, self)
    with c.if_then(array != 0, likely=True):
        with c.if_then(array_of(array)["nd"] != i32(0), likely=True):
            c.ret(array_of(array)["dims"].load())
    found = called(c, _row(c, "len"), self)
    c.ret_if(found == 0, -1)
    size = c.extern("i64", "PyNumber_AsSsize_t", found, NULL)
    c.extern("void", "Py_DecRef", found)
    c.ret(size)


_OTHERS = {
    "pow": hml_slot_pow, "getitem": hml_slot_getitem, "setitem": hml_slot_setitem, "bool": hml_slot_bool,
    "float": hml_slot_float, "len": hml_slot_len, "int": _int("int"), "index": _int("index"),
    "compare": hml_slot_compare,
}  # fmt: skip
_FAMILIES: dict[str, Callable[[str], Native]] = {"operator": _operator, "update": _update, "unary": _unary}


def slots(methods: Mapping[str, str]) -> list[Native]:
    """The functions of these methods, given by what each does."""
    kinds = {slot_of(name, does): does for name, does in methods.items() if does != "reflected"}
    return [_OTHERS[slot] if slot in _OTHERS else _FAMILIES[does](slot) for slot, does in kinds.items()]
