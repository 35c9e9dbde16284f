"""Copies of elements as an inner loop, `positive` of any dtype: NumPy's takes twice the time, and has none of bool."""

from __future__ import annotations

from typing import Any

from ..llvm.native import NativeBuilder, native
from ..structs import WORD

_KINDS = ((8, "i64"), (4, "i32"), (2, "i16"), (1, "i8"))  # words that elements of so many bytes are moved in


@native("i64", "ptr", "ptr", "i64")
def moved(c: NativeBuilder, data: Any, to: Any, nbytes: Any) -> None:
    """Whether an element of so many bytes has been copied."""
    for size, kind in _KINDS:
        with c.if_then(nbytes == size):
            to.store(data.load(kind))
            c.ret(1)
    with c.if_then(nbytes == 2 * WORD):
        first, second = data.load(), (data + WORD).load()
        to.store(first)
        (to + WORD).store(second)
        c.ret(1)
    c.ret(0)


@native("void", "ptr", "ptr", "ptr", "ptr")
def hml_copy_loop(c: NativeBuilder, args: Any, lengths: Any, steps: Any, data: Any) -> None:
    """The loop, whose data are the bytes of an element."""
    nbytes, n, step, to_step = c.word(data), lengths.load(), steps.load(), steps.item(1)
    of, to = c.variable(args.load("ptr")), c.variable(args.item(1, "ptr"))
    with c.if_then((step == nbytes) & (to_step == nbytes)):
        c.extern("ptr", "memcpy", to.value, of.value, n * nbytes)
        c.ret_void()
    for size, kind in _KINDS:
        with c.if_then(nbytes == size):
            with c.each(n):
                to.value.store(of.value.load(kind))
                of.value, to.value = of.value + step, to.value + to_step
            c.ret_void()
    with c.each(n):
        moved(c, of.value, to.value, nbytes)
        of.value, to.value = of.value + step, to.value + to_step
