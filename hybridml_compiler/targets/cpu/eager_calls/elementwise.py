"""Elementwise rows on small operands: NumPy's own inner loops, called on the elements where they lie.

A call of NumPy's takes 0.4 us round a loop of 10 ns for 16 elements. The bits are its own, as the loop is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..llvm.native import KINDS, NULL, NativeBuilder, Record, i32, native
from ..python_entry.object_layout import ALIGNED, WRITEABLE
from ..structs import WORD
from .lifetimes import new_number, wrap
from .numbers import common, converted, default_float, number, with_number
from .objects import (
    FALSE,
    TRUE,
    WRITTEN,
    array_of,
    dtype_row,
    fails,
    kind_of,
    new_reference,
    new_result,
    of_array,
    operand,
    operand_room,
    slot,
    writes,
)
from .tables import AXES, DTYPE, INTEGER, LOOP, OPERAND, ROW, TRUTH


def _at(table: Any, k: Any) -> Any:
    return table + k * WORD


@native("i64", OPERAND)
def lies_in_rows(c: NativeBuilder, x: Record) -> None:
    """Whether an elementwise result of the operand lies in row-major order, as NumPy has it."""
    before, strides, dims, nd = c.variable(-1), x["strides"], x["dims"], x["nd"]
    with c.if_then(nd < 2):
        c.ret(1)
    with c.each(nd) as k:
        with c.if_then(dims.item(k) != 1):
            step = strides.item(k)
            fails(c, c.icmp_signed(">=", step, 0) & ((before.value == -1) | (step <= before.value)))
            before.value = step
    c.ret(1)


def _loops(c: NativeBuilder, loop: Record, inputs: Sequence[Record], target: Record) -> None:
    """The body of `unary` and `binary`."""
    count, nd = len(inputs) + 1, c.variable(0)
    for x in inputs:
        nd.value = c.greatest(nd.value, x["nd"])
    with c.if_then(target.pointer != 0):
        nd.value = c.greatest(nd.value, target["nd"])
        fails(c, nd.value == target["nd"])
    fails(c, nd.value < AXES)
    total = nd.value
    dims, lengths, steps = c.local("i64", AXES), c.local("i64", AXES), c.local("i64", AXES * count)
    axes, size = c.variable(0), c.variable(1)  # axes to be walked, innermost first
    with c.each(total) as k:  # from the last axis
        length, found = c.variable(1), [c.variable(0) for _ in range(count)]
        for x, step in zip(inputs, found[:-1], strict=True):
            with c.if_then(k < x["nd"]):
                at = x["nd"] - 1 - k
                own = x["dims"].item(at)
                with c.if_then(own != 1):
                    fails(c, (length.value == 1) | (length.value == own))
                    length.value, step.value = own, x["strides"].item(at)
        found[-1].value = size.value * loop["nbytes"]
        with c.if_then(target.pointer != 0):
            own = target["dims"].item(total - 1 - k)
            fails(c, (length.value == own) | (length.value == 1))
            length.value, found[-1].value = own, target["strides"].item(total - 1 - k)
        _at(dims, total - 1 - k).store(length.value)
        size.value *= length.value
        with c.if_then(length.value != 1):
            joins, last = c.variable(FALSE), axes.value - 1
            with c.if_then(axes.value != 0):
                joins.value = TRUE
                for j, step in enumerate(found):
                    before = steps.item(last * count + j) * lengths.item(last)
                    joins.value = joins.value & (before == step.value)
            with c.if_then(joins.value):
                _at(lengths, last).store(lengths.item(last) * length.value)
            with c.if_then(~joins.value):
                _at(lengths, axes.value).store(length.value)
                for j, step in enumerate(found):
                    _at(steps, axes.value * count + j).store(step.value)
                axes.value += 1
    fails(c, size.value <= loop["most"])
    with c.if_then(axes.value == 0):
        lengths.store(1)
        for j in range(count):
            (steps + WORD * j).store(0)
        axes.value = 1
    result, pointers = c.variable(NULL), c.local("ptr", count)
    for j, x in enumerate(inputs):
        (pointers + WORD * j).store(x["data"])
    with c.if_then(target.pointer != 0):
        (pointers + WORD * (count - 1)).store(target["data"])
        result.value = c.append("inttoptr i64 1 to ptr", KINDS["ptr"])
    with c.if_then(target.pointer == 0):
        made = new_result(c, loop["descr"], total, dims, size.value * loop["nbytes"])
        with c.if_then(made == 0, likely=False):
            c.extern("void", "PyErr_Clear")
            c.ret(0)
        (pointers + WORD * (count - 1)).store(array_of(made)["data"])
        result.value = made
    with c.if_then(size.value == 0):
        c.ret(result.value)
    with c.if_then(axes.value == 1, likely=True):
        c.through(loop["loop"], "void", pointers, lengths, steps, loop["data"])
        c.ret(result.value)
    done = c.local("i64", AXES)
    with c.each(axes.value) as k:
        _at(done, k).store(0)
    with c.loop():
        c.through(loop["loop"], "void", pointers, lengths, steps, loop["data"])
        k = c.variable(1)
        with c.loop():
            with c.if_then(k.value == axes.value):
                c.ret(result.value)
            now, length = done.item(k.value) + 1, lengths.item(k.value)
            rewinds = now == length
            _at(done, k.value).store(c.select(rewinds, 0, now))
            for j in range(count):
                step = steps.item(k.value * count + j)
                moved = c.select(rewinds, 0 - step * (length - 1), step)
                (pointers + WORD * j).store((pointers + WORD * j).load("ptr") + moved)
            c.break_if(~rewinds)
            k.value += 1
    c.ret(0)  # which is not reached


@native("ptr", LOOP, OPERAND, OPERAND)
def unary(c: NativeBuilder, loop: Record, x: Record, target: Record) -> None:
    """A new array of the results; 1 where they are written to a target; 0 where this is not for native code."""
    _loops(c, loop, (x,), target)


@native("ptr", LOOP, OPERAND, OPERAND, OPERAND)
def binary(c: NativeBuilder, loop: Record, x: Record, y: Record, target: Record) -> None:
    """The same of two operands."""
    _loops(c, loop, (x, y), target)


@native("ptr", ROW, "ptr")
def loop_of(c: NativeBuilder, row: Record, descr: Any) -> None:
    """The loop of a row for a dtype; 0 where it has none."""
    dtype = dtype_row(c, descr)
    fails(c, dtype != 0)
    place = (c.word(dtype) - c.word(c.symbol("hml_dtypes"))) // DTYPE.nbytes * LOOP.nbytes + ROW.nbytes
    loop = row.pointer + place
    fails(c, loop.load("ptr") != 0)
    c.ret(loop)


@native("i64", OPERAND, OPERAND)
def meets(c: NativeBuilder, x: Record, y: Record) -> None:
    """Whether operands have memory in common, but for elements that are the same in both; as far as bounds tell."""
    same = c.variable(FALSE)
    with c.if_then((x["data"] == y["data"]) & (x["nd"] == y["nd"])):
        same.value = TRUE
        with c.each(x["nd"]) as k:
            equal = x["dims"].item(k) == y["dims"].item(k)
            same.value = same.value & equal & (x["strides"].item(k) == y["strides"].item(k))
    with c.if_then(same.value):
        c.ret(0)
    bounds = []
    for of in (x, y):
        low, high = c.variable(c.word(of["data"])), c.variable(c.word(of["data"]))
        with c.each(of["nd"]) as k:
            reach = of["strides"].item(k) * (of["dims"].item(k) - 1)
            backward = c.icmp_signed("<", reach, 0)
            low.value += c.select(backward, reach, 0)
            high.value += c.select(backward, 0, reach)
        bounds.append((low.value, high.value + dtype_row(c, of["descr"]).struct(DTYPE)["nbytes"]))
    (low, high), (first, end) = bounds
    c.ret(c.zext((low < end) & (first < high), KINDS["i64"]))


@native("ptr", ROW, "ptr", "ptr", "i64", OPERAND, OPERAND)
def loop_of_two(
    c: NativeBuilder, row: Record, left: Any, right: Any, differentiable: Any, x: Record, y: Record
) -> None:
    """The loop of a row for two operands, which `x` and `y` then are, one of which may be a Python number; 0 where
    this is not for native code."""
    which, other = operand(c, left, differentiable, x), operand(c, right, differentiable, y)
    fails(c, (which != 0) & (other != 0) & ((which == 1) | (other == 1)))
    with c.if_then((which == other) & (x["descr"] == y["descr"])):
        loop = loop_of(c, row, x["descr"])
        with c.if_then(loop != 0, likely=True):
            c.ret(loop)
    c.ret(loop_of_several(c, row, left, right, which, other, x, y))


@native("ptr", ROW, "ptr", "ptr", "i64", "i64", OPERAND, OPERAND)
def loop_of_several(
    c: NativeBuilder, row: Record, left: Any, right: Any, which: Any, other: Any, x: Record, y: Record
) -> None:
    """The same of two dtypes, or a number: elements are brought to the dtype that they have in common."""
    found, number_beside = c.variable(NULL), c.variable(left)
    with c.if_then(which == other):
        one, two = dtype_row(c, x["descr"]), dtype_row(c, y["descr"])
        fails(c, (one != 0) & (two != 0))
        found.value = common(c, one, two)
    with c.if_then(which != other):
        beside = c.select(which == 1, x.pointer, y.pointer).struct(OPERAND)
        number_beside.value = c.select(which == 1, right, left)
        own = dtype_row(c, beside["descr"])
        fails(c, own != 0)
        found.value = with_number(c, own, number_beside.value)
    fails(c, found.value != 0)
    dtype = c.variable(found.value)
    loop = c.variable(loop_of(c, row, dtype.value.struct(DTYPE)["descr"]))
    with c.if_then(loop.value == 0):
        kind = dtype.value.struct(DTYPE)["kind"]
        fails(c, (row["floats"] != 0) & ((kind == INTEGER) | (kind == TRUTH)))
        dtype.value = default_float(c)
        fails(c, dtype.value != 0)
        loop.value = loop_of(c, row, dtype.value.struct(DTYPE)["descr"])
        fails(c, loop.value != 0)
    for value, how, its in ((left, which, x), (right, other, y)):
        with c.if_then(how == 2):
            fails(c, number(c, value, dtype.value, its) != 0)
        with c.if_then(how == 1):
            with c.if_then(its["descr"] != dtype.value.struct(DTYPE)["descr"]):
                fails(c, row["mixes"] != 0)
                fails(c, converted(c, its, dtype.value) != 0)
    c.ret(loop.value)


def of_numbers(c: NativeBuilder, loop: Any, *inputs: Record) -> Any:
    """The tensor of a loop on operands without axes; 0 where there is none."""
    found = wrap(c, new_number(c, loop.struct(LOOP)["descr"]))
    fails(c, found != 0)
    once(c, loop, *(x["data"] for x in inputs), array_of(slot(c, found, "_array").load("ptr"))["data"])
    return found


def once(c: NativeBuilder, loop: Any, *places: Any) -> None:
    """Runs a loop on operands without axes, of which the last is the result."""
    its, count = loop.struct(LOOP), len(places)
    pointers, lengths, steps = c.local("ptr", count), c.local("i64"), c.local("i64", count)
    for k, data in enumerate(places):
        _at(pointers, k).store(data)
        _at(steps, k).store(0)
    lengths.store(1)
    c.through(its["loop"], "void", pointers, lengths, steps, its["data"])


@native("ptr", LOOP, OPERAND, OPERAND)
def of_operands(c: NativeBuilder, loop: Record, x: Record, y: Record) -> None:
    """The tensor of a loop on two operands; 0 where this is not for native code."""
    fails(c, (lies_in_rows(c, x) & lies_in_rows(c, y)) != 0)
    array = binary(c, loop, x, y, NULL)
    fails(c, array != 0)
    c.ret(wrap(c, array))


@native("ptr", ROW, "ptr", "ptr")
def of_two(c: NativeBuilder, row: Record, left: Any, right: Any) -> None:
    """The tensor of a row of two operands; 0 where this is not for native code."""
    x, y = operand_room(c), operand_room(c)
    loop = loop_of_two(c, row, left, right, row["differentiable"], x, y)
    fails(c, loop != 0)
    with c.if_then((x["nd"] | y["nd"]) == 0):
        c.ret(of_numbers(c, loop, x, y))
    c.ret(of_operands(c, loop, x, y))


@native("ptr", ROW, "ptr")
def of_one(c: NativeBuilder, row: Record, value: Any) -> None:
    """The tensor of a row of one operand."""
    x = operand_room(c)
    fails(c, operand(c, value, row["differentiable"], x) == 1)
    loop = loop_of(c, row, x["descr"])
    fails(c, loop != 0)
    with c.if_then(x["nd"] == 0):
        c.ret(of_numbers(c, loop, x))
    fails(c, lies_in_rows(c, x) != 0)
    array = unary(c, loop, x, NULL)
    fails(c, array != 0)
    c.ret(wrap(c, array))


@native("i64", OPERAND)
def is_apart(c: NativeBuilder, x: Record) -> None:
    """Whether no two elements of an operand have memory in common, as `as_strided` may make them: each step leads over
    all that the smaller ones reach."""
    c.ret_if(x["nd"] == 0, 1)
    nbytes, dims, strides = dtype_row(c, x["descr"]).struct(DTYPE)["nbytes"], x["dims"], x["strides"]
    with c.each(x["nd"]) as k:
        with c.if_then(dims.item(k) > 1):
            step, reach = magnitude(c, strides.item(k)), c.variable(nbytes)
            with c.each(x["nd"]) as j:
                with c.if_then((j != k) & (dims.item(j) > 1)):
                    other = magnitude(c, strides.item(j))
                    smaller = (other < step) | ((other == step) & (j > k))
                    reach.value += c.select(smaller, other * (dims.item(j) - 1), 0)
            fails(c, step >= reach.value)
    c.ret(1)


def magnitude(c: NativeBuilder, x: Any) -> Any:
    return c.select(c.icmp_signed("<", x, 0), 0 - x, x)


@native("i64", OPERAND, "ptr")
def fitted(c: NativeBuilder, x: Record, descr: Any) -> None:
    """Whether an operand has the dtype of what it is written to, as an element may that this dtype holds."""
    with c.if_then(x["descr"] == descr, likely=True):
        c.ret(1)
    own, to = dtype_row(c, x["descr"]), dtype_row(c, descr)
    fails(c, (own != 0) & (to != 0))
    fails(c, common(c, own, to) == to)
    c.ret(converted(c, x, to))


@native("i64", ROW, "ptr", "ptr")
def _updated(c: NativeBuilder, row: Record, tensor: Any, value: Any) -> None:
    """`WRITTEN` where a row has been computed into its first operand, or 0."""
    x, y = operand_room(c), operand_room(c)
    fails(c, operand(c, tensor, 1, x) == 1)
    fails(c, (array_of(x["owner"])["flags"] & i32(WRITEABLE)) != i32(0))
    other = operand(c, value, 1, y)
    fails(c, other != 0)
    loop = loop_of(c, row, x["descr"])
    fails(c, loop != 0)
    fails(c, loop.struct(LOOP)["descr"] == x["descr"])
    fails(c, is_apart(c, x) != 0)
    with c.if_then(other == 2):
        fails(c, number(c, value, dtype_row(c, x["descr"]), y) != 0)
    with c.if_then(other == 1):
        fails(c, fitted(c, y, x["descr"]) != 0)
        fails(c, meets(c, x, y) == 0)
    with c.if_then((x["nd"] | y["nd"]) == 0):
        once(c, loop, x["data"], y["data"], x["data"])
        c.ret(WRITTEN)
    fails(c, binary(c, loop, x, y, x) != 0)
    c.ret(WRITTEN)


@native("i64", ROW, "ptr", "ptr")
def updated(c: NativeBuilder, row: Record, tensor: Any, value: Any) -> None:
    """The same with its stamp, as `writes` tells it."""
    writes(c, tensor, value, lambda: _updated(c, row, tensor, value))


def return_found(c: NativeBuilder, found: Any) -> None:
    """Returns a result that is not 0."""
    with c.if_then(found != 0, likely=True):
        c.ret(found)


@native("ptr", ROW, "ptr", "i64", "ptr")
def into_array(c: NativeBuilder, row: Record, args: Any, n: Any, array: Any) -> None:
    """The array of `out=(array,)`, with a new reference, where the result of a row of `n` operands is in it; 0 where
    this is not for native code, as that of a tensor with history."""
    fails(c, kind_of(array) == c.symbol("hml_ndarray"))
    fails(c, (array_of(array)["flags"] & i32(ALIGNED | WRITEABLE)) == i32(ALIGNED | WRITEABLE))
    out, x, y = operand_room(c), operand_room(c), operand_room(c)
    of_array(c, array, out)
    fails(c, dtype_row(c, out["descr"]) != 0)
    fails(c, is_apart(c, out) != 0)
    with c.if_then(n == 1):
        fails(c, operand(c, args.load("ptr"), 1, x) == 1)
        loop = loop_of(c, row, x["descr"])
        fails(c, loop != 0)
        fails(c, loop.struct(LOOP)["descr"] == out["descr"])
        fails(c, meets(c, x, out) == 0)
        fails(c, unary(c, loop, x, out) != 0)
        c.ret(new_reference(c, array))
    loop = loop_of_two(c, row, args.load("ptr"), args.item(1, "ptr"), 1, x, y)
    fails(c, loop != 0)
    fails(c, loop.struct(LOOP)["descr"] == out["descr"])
    fails(c, (meets(c, x, out) | meets(c, y, out)) == 0)
    fails(c, binary(c, loop, x, y, out) != 0)
    c.ret(new_reference(c, array))
