"""Positions of the true elements of a mask: blocks count theirs, and each writes from where those before it end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...llvm.native import KINDS, Native, NativeBuilder, native
from ...structs import words
from .elements import Elements
from .matrices_ir import Needs, One, pointer

BLOCK, MOST_BLOCKS = 1 << 16, 64  # elements of a block, at least; blocks
WORD = 8  # elements that are looked at together
_EACH = 0x0101010101010101
_I64 = KINDS["i64"]

MASK = words("*mask", "*out", "n", "block", "*counts")


def _part(body: Callable[..., None], name: str) -> Native:
    @native("void", MASK, "i64", "i64", name=name)
    def part(c: NativeBuilder, mask: Any, lo: Any, hi: Any) -> None:
        with c.each(hi, lo) as block:
            first = block * mask["block"]
            end = c.least(first + mask["block"], mask["n"])
            body(c, mask, mask["counts"] + block * 8, first, end, end - (end - first) % WORD)

    return part


def _elements(c: NativeBuilder, pointer: Any) -> Any:
    """The elements of a word, a byte each, from anywhere."""
    return c.load(pointer, _I64, 1)


def _count(c: NativeBuilder, mask: Any, count: Any, first: Any, end: Any, whole: Any) -> None:
    found, data = c.variable(0), mask["mask"]
    with c.each(whole, first, WORD) as i:
        found.value += _elements(c, data + i) * _EACH >> 56
    with c.each(end, whole) as i:
        found.value += c.zext((data + i).load("i8"), _I64)
    count.store(found.value)


def _write(c: NativeBuilder, mask: Any, count: Any, first: Any, end: Any, whole: Any) -> None:
    """Every element writes its position, and a true one moves on: so the last one has to be a true one."""
    data, out, at, stop = mask["mask"], mask["out"], c.variable(count.load()), count.item(1)

    def write(i: Any) -> None:
        (out + at.value * 8).store(i)
        at.value += c.zext((data + i).load("i8"), _I64)

    i = c.variable(first)
    with c.loop():
        c.break_if((at.value + WORD > stop) | (i.value == whole))
        with c.if_then(_elements(c, data + i.value) != 0):
            for k in range(WORD):
                write(i.value + k)
        i.value += WORD
    with c.loop():
        c.break_if(at.value == stop)
        write(i.value)
        i.value += 1


def _positions(e: Elements) -> One:
    counted, written = _part(_count, "counted"), _part(_write, "written")

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> Any:
        n, wanted = dims.item(1), dims.item(2)
        mask, blocks = c.local("i64", len(MASK.fields)).struct(MASK), _blocks(c, n)
        given = (pointer(operands, 0), pointer(operands, 1), n, (n + blocks - 1) // blocks, space)
        for name, value in zip(MASK.fields, given, strict=True):
            mask[name] = value

        def shared(part: Native) -> None:
            code = part.define(c.module)
            c.extern("void", "hml_parallel_chunks", c.symbol("hml_pool"), code, mask, blocks, 1, 4)

        shared(counted)
        total = c.variable(0)
        with c.each(blocks) as block:
            here = (space + block * 8).load()
            (space + block * 8).store(total.value)
            total.value += here
        (space + blocks * 8).store(total.value)
        c.ret_if(total.value != wanted, 1)
        shared(written)
        return 0

    return one


def _blocks(c: NativeBuilder, n: Any) -> Any:
    return c.greatest(c.least(n // BLOCK, MOST_BLOCKS), 1)


def _memory(c: NativeBuilder, dims: Any) -> Any:
    return ((_blocks(c, dims.item(1)) + 1) * 8,)


def granule(c: NativeBuilder, dims: Any) -> Any:
    """Masks that a thread takes at once: there is one."""
    return c.number(1, _I64)


ROWS: dict[str, Callable[[Elements], tuple[One, Needs]]] = {"true_positions": lambda e: (_positions(e), _memory)}
