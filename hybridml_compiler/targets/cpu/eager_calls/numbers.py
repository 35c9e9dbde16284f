"""Numbers of Python's and elements of tensors as those of a dtype, and the dtypes that operands have in common."""

from __future__ import annotations

from typing import Any

from ..llvm.native import KINDS, NULL, NativeBuilder, Record, native
from ..python_entry.object_layout import layout
from ..structs import WORD
from .objects import dtype_row, fails, kind_of, no_error
from .tables import COMPLEX, DOUBLE, DTYPE, INTEGER, OPERAND, OTHER, SINGLE, TRUTH

_REAL = KINDS["double"]


def is_class(c: NativeBuilder, value: Any, *names: str) -> Any:
    """Whether the class of an object is one of these."""
    kind, found = kind_of(value), None
    for name in names:
        same = kind == c.symbol(f"hml_{name}_class")
        found = same if found is None else found | same
    return found


@native("i64", "ptr")
def integer(c: NativeBuilder, value: Any) -> None:
    """The value of an int, a bool, or NumPy's int64, which lies there as that of a float does; -1, with an error, of an
    int that is larger."""
    with c.if_then(is_class(c, value, "int64")):
        c.ret((value + layout().float_value).load())
    c.ret(c.extern("i64", "PyLong_AsLongLong", value))


def real(c: NativeBuilder, whole: Any) -> Any:
    """An int of 64 bits as a float."""
    return c.append(f"sitofp {whole} to double", _REAL)


def is_not_zero(c: NativeBuilder, x: Any) -> Any:
    return c.append(f"fcmp une {x}, 0.0", KINDS["i1"])


@native("i64", "ptr", DTYPE, OPERAND)
def number(c: NativeBuilder, value: Any, dtype: Record, into: Record) -> None:
    """Whether such a number is an element of the dtype, which `into` then is."""
    memory, kind, is_int = into.pointer + OPERAND.nbytes, dtype["kind"], is_class(c, value, "int", "int64", "bool")
    into["data"], into["nd"], into["descr"] = memory, 0, dtype["descr"]
    into["owner"] = NULL
    fails(c, kind != OTHER)
    with c.if_then(kind == TRUTH):
        fails(c, is_class(c, value, "bool"))
        memory.store(integer(c, value))
        c.ret(1)
    with c.if_then(kind == INTEGER):
        fails(c, is_int)
        n = integer(c, value)
        no_error(c)
        fails(c, c.icmp_signed(">=", n, dtype["low"]) & c.icmp_signed("<=", n, dtype["high"]))
        memory.store(n)
        c.ret(1)
    (memory + WORD).store(0)
    with c.if_then(is_int):
        with c.if_then(is_class(c, value, "int")):  # which may be larger
            memory.store(c.extern("double", "PyLong_AsDouble", value))
            no_error(c)
        with c.if_then(~is_class(c, value, "int")):
            memory.store(real(c, integer(c, value)))
    with c.if_then(~is_int):
        memory.store((value + layout().float_value).load("double"))
        with c.if_then(is_class(c, value, "complex", "complex128")):
            fails(c, kind == COMPLEX)
            (memory + WORD).store((value + (layout().float_value + WORD)).load("double"))
    with c.if_then(kind == SINGLE):
        x = memory.load("double")
        # What may be no number of float32 is checked elsewhere; infinities and NaN are.
        difference = c.append(f"fsub {x}, {x.text}", _REAL)
        with c.if_then(c.append(f"fcmp oeq {difference}, 0.0", KINDS["i1"])):
            fails(c, c.append(f"fcmp olt {x}, 0x47D2CED32A16A1B1", KINDS["i1"]))  # 1e38
            fails(c, c.append(f"fcmp ogt {x}, 0xC7D2CED32A16A1B1", KINDS["i1"]))
        memory.store(c.fptrunc(x, KINDS["float"]))
    c.ret(1)


@native("i64", "ptr", DTYPE)
def whole(c: NativeBuilder, data: Any, dtype: Record) -> None:
    """The value of an element that is an int of 64 bits, or fewer."""
    signed = dtype["low"] != 0
    with c.if_then(dtype["nbytes"] == WORD):
        c.ret(data.load())
    for nbytes in (4, 2, 1):
        kind = f"i{8 * nbytes}"
        with c.if_then(dtype["nbytes"] == nbytes):
            value = data.load(kind)
            c.ret(c.select(signed, c.sext(value, KINDS["i64"]), c.zext(value, KINDS["i64"])))
    c.ret(0)  # which is not reached


@native("i64", OPERAND, DTYPE)
def converted(c: NativeBuilder, x: Record, to: Record) -> None:
    """Whether an operand has a dtype, as that of an element may become which the dtype holds."""
    with c.if_then(x["descr"] == to["descr"]):
        c.ret(1)
    fails(c, x["nd"] == 0)
    memory, own, kind = x.pointer + OPERAND.nbytes, dtype_row(c, x["descr"]).struct(DTYPE), to["kind"]
    data, value = x["data"], c.variable(c.append("fadd double 0.0, 0.0", _REAL))
    x["descr"], x["data"], x["owner"] = to["descr"], memory, NULL
    with c.if_then(own["whole"] != 0):
        n = whole(c, data, own)
        with c.if_then((kind == INTEGER) | (kind == TRUTH)):
            memory.store(n)
            c.ret(1)
        with c.if_then(kind == SINGLE):
            memory.store(c.append(f"sitofp {n} to float", KINDS["float"]))
            c.ret(1)
        value.value = real(c, n)
    with c.if_then(own["whole"] == 0):
        fails(c, (own["kind"] == SINGLE) | (own["kind"] == DOUBLE))
        with c.if_then(own["kind"] == SINGLE):
            value.value = c.fpext(data.load("float"), _REAL)
        with c.if_then(own["kind"] == DOUBLE):
            value.value = data.load("double")
    fails(c, (kind == COMPLEX) | ((kind == DOUBLE) & (own["kind"] != DOUBLE)))
    memory.store(value.value)
    (memory + WORD).store(0)
    c.ret(1)


def _listed(c: NativeBuilder, k: int) -> Any:
    """The row of a dtype by its number in the table."""
    return c.symbol("hml_dtypes") + k * DTYPE.nbytes


@native("ptr")
def default_float(c: NativeBuilder) -> None:
    """The row of the default float; 0 where there is none."""
    for bits, k in ((32, 1), (64, 0)):
        with c.if_then(c.symbol("hml_default_bits").load() == bits):
            c.ret(_listed(c, k))
    c.ret(0)


@native("ptr", DTYPE, "ptr")
def with_number(c: NativeBuilder, dtype: Record, value: Any) -> None:
    """The row of the dtype that an operand has beside a number; 0 where this is not for native code."""
    kind = dtype["kind"]
    is_real, is_complex = is_class(c, value, "float", "float64"), is_class(c, value, "complex", "complex128")
    whole_kind = (kind == INTEGER) | (kind == TRUTH)
    with c.if_then(is_complex):
        fails(c, (kind == COMPLEX) | (kind == DOUBLE) | (whole_kind & (c.symbol("hml_default_bits").load() == 64)))
        c.ret(_listed(c, 11))
    with c.if_then(is_real & whole_kind):
        c.ret(default_float(c))
    with c.if_then(~is_class(c, value, "bool") & (kind == TRUTH)):
        c.ret(_listed(c, 2))
    c.ret(dtype)


@native("ptr", DTYPE, DTYPE)
def common(c: NativeBuilder, one: Record, other: Record) -> None:
    """The row of the dtype that two have in common; 0 where there is none."""
    count, table = c.symbol("hml_n_dtypes").load(), c.symbol("hml_dtypes")
    i, j = [(c.word(dtype.pointer) - c.word(table)) // DTYPE.nbytes for dtype in (one, other)]
    k = c.symbol("hml_common").item(i * count + j)
    fails(c, k < count)
    c.ret(table + k * DTYPE.nbytes)
