"""Kernels of ours as inner loops: what NumPy has no function for with the bits of compiled code, as `exp` and products
of complex numbers. A row has the loop of a dtype once its kernel has been compiled, by the first call in Python."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..structs import WORD, words
from .copies import moved
from .tables import LOOP, MOST, ROW

KERNEL = words("*code", "inputs", "nbytes", "result_nbytes")  # of operands of one dtype
_Key = tuple[str, str, int]  # an instruction, the character of a dtype, the number of operands

_compiled: dict[_Key, tuple[int, np.dtype]] = {}
_rows: dict[_Key, list[tuple[Any, int]]] = {}  # the words of rows, and the places of their loops
_loop: list[int] = []  # the address of the loop round a kernel
_kept: list[Any] = []
_BLOCK = 64  # elements


def learn(key: _Key, address: int, result: np.dtype) -> None:
    """Notes the kernel of an instruction for the rows that want it."""
    _compiled[key] = address, result
    for row, place in _rows.get(key, ()):
        _fill(row, place, key)


def want(key: _Key, row: Any, number: int) -> None:
    """Gives a row the loop of a dtype, by its number, as soon as there is a kernel."""
    place = len(ROW.fields) + number * len(LOOP.fields)
    _rows.setdefault(key, []).append((row, place))
    if key in _compiled:
        _fill(row, place, key)


def use(address: int) -> None:
    """Takes the loop round a kernel, which stands in the module of native methods."""
    _loop[:] = [address]


def _fill(row: Any, place: int, key: _Key) -> None:
    _, dtype, inputs = key
    code, result = _compiled[key]
    kernel = (ctypes.c_int64 * len(KERNEL.fields))(code, inputs, np.dtype(dtype).itemsize, result.itemsize)
    _kept.append(kernel)
    values = (_loop[0], ctypes.addressof(kernel), id(result), result.itemsize, MOST)
    for k in range(len(values) - 1, -1, -1):  # the loop, by which it is known to be there, comes last
        row[place + k] = values[k]


def emit_loop(c: Any, args: Any, lengths: Any, steps: Any, data: Any) -> None:
    """The body of the loop: all at once where the operands have no gaps, else by blocks, copied where they have."""
    its, n, pointers = data.struct(KERNEL), lengths.load(), c.local("ptr", 3)
    room, inputs, nbytes, result = c.local("i64", 3 * _BLOCK * 2), its["inputs"], its["nbytes"], its["result_nbytes"]
    dense, done = c.variable(steps.item(inputs) == result), c.variable(0)
    with c.each(inputs) as k:
        dense.value = dense.value & (steps.item(k) == nbytes)
    with c.if_then(dense.value):
        c.through(its["code"], "void", args, 0, n)
        c.ret_void()
    with c.loop():
        count = c.least(n - done.value, _BLOCK)
        c.break_if(count == 0)
        with c.each(inputs) as k:
            step, of, block = steps.item(k), args.item(k, "ptr"), room + k * (_BLOCK * 2 * WORD)
            first = of + done.value * step
            (pointers + k * WORD).store(c.select(step == nbytes, first, block))
            with c.if_then(step != nbytes):
                with c.each(count) as j:
                    moved(c, first + j * step, block + j * nbytes, nbytes)
        step, block = steps.item(inputs), room + 2 * _BLOCK * 2 * WORD
        first = args.item(inputs, "ptr") + done.value * step
        (pointers + inputs * WORD).store(c.select(step == result, first, block))
        c.through(its["code"], "void", pointers, 0, count)
        with c.if_then(step != result):
            with c.each(count) as j:
                moved(c, block + j * result, first + j * step, result)
        done.value += count
