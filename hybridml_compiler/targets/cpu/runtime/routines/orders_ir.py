"""Order along an axis, by the digits of keys (elements.py), of a line in memory of our own.

A pass counts the digits of each block of a line, adds the counts up, and moves every element to its place; blocks are
shared over the pool. Of long keys three passes order the first bits, in which most elements differ, and insertion the
few that do not; where these are many, all bits have passes. There is one stable order, so neither threads nor the sizes
of blocks change a bit of it ([Note: Sorting]).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ...llvm.native import KINDS, Native, NativeBuilder, i32, native
from ...llvm.values import IntType, Literal, VectorType
from ...structs import words
from .elements import Elements
from .matrices_ir import Needs, One, pointer

BLOCK, MOST_BLOCKS = 1 << 15, 64  # elements of a block, at least; blocks of a line
DIGIT = 11  # bits of a digit, at most; of short lines, whose counts would take longer than their elements, 8
SHORT, SHORT_DIGIT = 1 << 12, 8
FIRST = 3  # passes over the first bits
STEPS = 64  # that insertion moves an element, at most; lines of as many elements are ordered by it alone
LARGE, MANY = 1 << 16, 64  # elements of a line whose blocks are shared, unless there are so many lines
WORK = 1 << 12  # elements of the lines that a thread takes at once, at least
_I64 = KINDS["i64"]
_COUNTS = VectorType(IntType(32), 8)  # that are added at once
_NONE = Literal(_COUNTS, "zeroinitializer")

LINE = words(
    "*x", "*out", "step", "n", "block", "*from", "*to", "turned", "least", "shift", "digits", "*counts", "*bounds"
)


class _Values:
    """The data that `sort` moves: elements as they are, so that zeros keep their signs and nans their bits."""

    def __init__(self, e: Elements) -> None:
        self.e, self.size, self.made, self.in_place = e, e.size, e.size, True

    def make(self, c: NativeBuilder, x: Any, key: Any, i: Any) -> Any:
        return (x,)

    def read(self, c: NativeBuilder, pointer: Any, i: Any) -> Any:
        return (self.e.load(c, pointer, i),)

    def key(self, c: NativeBuilder, found: Any, turned: Any) -> Any:
        return self.e.key(c, found[0], turned)

    def write(self, c: NativeBuilder, found: Any, pointer: Any, i: Any) -> None:
        self.e.store(c, found[0], pointer, i)

    finish = write


class _Places:
    """The data that `argsort` moves: an element's key and its place, in one word where both have 32 bits."""

    def __init__(self, e: Elements) -> None:
        self.e, self.wide = e, e.size == 8
        self.size, self.made, self.in_place = 16 if self.wide else 8, 8, False

    def make(self, c: NativeBuilder, x: Any, key: Any, i: Any) -> Any:
        return (key, i) if self.wide else (key << 32 | i,)

    def read(self, c: NativeBuilder, pointer: Any, i: Any) -> Any:
        at = pointer + i * self.size
        return tuple([(at + 8 * k).load() for k in range(self.size // 8)])

    def key(self, c: NativeBuilder, found: Any, turned: Any) -> Any:
        return found[0] if self.wide else found[0] >> 32

    def write(self, c: NativeBuilder, found: Any, pointer: Any, i: Any) -> None:
        for k, word in enumerate(found):
            (pointer + i * self.size + 8 * k).store(word)

    def finish(self, c: NativeBuilder, found: Any, pointer: Any, i: Any) -> None:
        (pointer + i * 8).store(found[1] if self.wide else found[0] & 0xFFFFFFFF)


def _each_block(body: Callable[..., None]) -> Native:
    """A part over the blocks of a line: the body is given the line, and a block with its first element and its end."""

    @native("void", LINE, "i64", "i64")
    @wraps(body)
    def part(c: NativeBuilder, line: Any, lo: Any, hi: Any) -> None:
        with c.each(hi, lo) as block:
            first = block * line["block"]
            body(c, line, block, first, c.least(first + line["block"], line["n"]))

    return part


def _passes(what: Any) -> tuple[Native, ...]:
    """The parts of the order, over blocks."""

    def key_in(c: NativeBuilder, line: Any) -> Callable[[Any], Any]:
        turned, least, shift = line["turned"], line["least"], line["shift"]
        return lambda found: (what.key(c, found, turned) - least) >> shift

    def counts_of(line: Any, block: Any) -> Any:
        return line["counts"] + block * ((line["digits"] + 1) * 4)

    @_each_block
    def loaded(c: NativeBuilder, line: Any, block: Any, first: Any, end: Any) -> None:
        """Makes the data that is moved; finds the least key of a block and the greatest."""
        x, step, turned, made = line["x"], line["step"], line["turned"], line["from"]
        least, most = c.variable(-1), c.variable(0)
        with c.each(end, first) as i:
            element = what.e.load(c, x, i * step)
            key = what.e.key(c, element, turned)
            least.value, most.value = c.least(least.value, key), c.greatest(most.value, key)
            what.write(c, what.make(c, element, key, i), made, i)
        bounds = line["bounds"] + block * 16
        bounds.store(least.value)
        (bounds + 8).store(most.value)

    @_each_block
    def counted(c: NativeBuilder, line: Any, block: Any, first: Any, end: Any) -> None:
        """Counts each digit of a block."""
        counts, digits, source, key = counts_of(line, block), line["digits"], line["from"], key_in(c, line)
        with c.each(digits + 1, 0, _COUNTS.count) as k:
            c.store(_NONE, counts + k * 4, 4)
        with c.each(end, first) as i:
            at = counts + (key(what.read(c, source, i)) & digits) * 4
            at.store(at.load("i32") + 1)

    @_each_block
    def moved(c: NativeBuilder, line: Any, block: Any, first: Any, end: Any) -> None:
        """Every element of a block to its place, behind which others of its digit follow."""
        counts, digits, key = counts_of(line, block), line["digits"], key_in(c, line)
        source, target = line["from"], line["to"]
        with c.each(end, first) as i:
            found = what.read(c, source, i)
            count = counts + (key(found) & digits) * 4
            at = count.load("i32")
            count.store(at + 1)
            what.write(c, found, target, c.zext(at, _I64))

    @_each_block
    def inserted(c: NativeBuilder, line: Any, block: Any, first: Any, end: Any) -> None:
        """Elements with the same first bits in order, those of them that begin in a block: its bounds tell whether one
        had too many before it. What another thread moves meanwhile keeps its first bits."""
        source, n, turned, first_bits = line["from"], line["n"], line["turned"], key_in(c, line)

        def at(i: Any) -> Any:
            return first_bits(what.read(c, source, i))

        def ends(border: Any, last: Any) -> Any:
            i = c.variable(border)
            with c.loop():
                c.break_if((i.value == 0) | (i.value >= last))
                c.break_if(at(i.value) != at(i.value - 1))
                i.value += 1
            return i.value

        start = ends(first, end)
        stop = c.variable(start)
        with c.if_then(start < end):
            stop.value = ends(end, n)
        long = c.variable(0)
        i = c.variable(start)
        with c.loop():
            c.break_if((i.value >= stop.value) | (long.value != 0))
            found = what.read(c, source, i.value)
            key, j = what.key(c, found, turned), c.variable(i.value)
            with c.loop():
                c.break_if(j.value == start)
                before = what.read(c, source, j.value - 1)
                c.break_if(what.key(c, before, turned) <= key)
                what.write(c, before, source, j.value)
                j.value -= 1
            with c.if_then(j.value != i.value):
                what.write(c, found, source, j.value)
                long.value = c.select(i.value - j.value > STEPS, 1, long.value)
            i.value += 1
        (line["bounds"] + block * 16).store(long.value)

    @_each_block
    def stored(c: NativeBuilder, line: Any, block: Any, first: Any, end: Any) -> None:
        source, out, step = line["from"], line["out"], line["step"]
        with c.each(end, first) as i:
            what.finish(c, what.read(c, source, i), out, i * step)

    return loaded, counted, moved, inserted, stored


@native("void", LINE, "i64")
def added(c: NativeBuilder, line: Any, blocks: Any) -> None:
    """Counts as the places where the first element with a digit goes: behind those of lesser digits, and those of the
    blocks before."""
    digits, counts = line["digits"] + 1, line["counts"]
    total = counts + blocks * digits * 4

    def each(row: Any, body: Callable[[Any, Any], None]) -> None:
        with c.each(digits * 4, 0, _COUNTS.nbytes) as k:
            body(row + k, total + k)

    def up_to(row: Any, of_all: Any) -> None:
        here, before = c.load(row, _COUNTS, 4), c.load(of_all, _COUNTS, 4)
        c.store(c.add(here, before), of_all, 4)
        c.store(before, row, 4)

    each(total, lambda row, of_all: c.store(_NONE, of_all, 4))
    with c.each(blocks) as block:
        each(counts + block * digits * 4, up_to)
    lesser = c.variable(i32(0))
    with c.each(digits) as k:
        here = (total + k * 4).load("i32")
        (total + k * 4).store(lesser.value)
        lesser.value += here
    with c.each(blocks) as block:
        each(
            counts + block * digits * 4,
            lambda row, of_all: c.store(c.add(c.load(row, _COUNTS, 4), c.load(of_all, _COUNTS, 4)), row, 4),
        )


def _ordered(what: Any) -> One:
    loaded, counted, moved, inserted, stored = _passes(what)

    def one(c: NativeBuilder, operands: Any, dims: Any, index: Any, space: Any, work: Any) -> Any:
        n, inner, descending = (dims.item(field) for field in (1, 2, 3))
        start = index // inner * (n * inner) + index % inner
        x, out = pointer(operands, 0) + start * what.e.size, pointer(operands, 1) + start * what.made
        line, blocks = c.local("i64", len(LINE.fields)).struct(LINE), _blocks(c, n)
        bounds = space + _buffers(c, what, n, inner)
        fields = {
            "x": x, "out": out, "step": inner, "n": n, "block": (n + blocks - 1) // blocks, "from": space,
            "to": c.select(_in_place(what, inner), out, space + n * what.size),
            "turned": c.select(descending != 0, c.number(-1 if what.e.bits == 64 else (1 << what.e.bits) - 1, _I64), 0),
            "bounds": bounds, "counts": bounds + blocks * 16,
        }  # fmt: skip
        for name, value in fields.items():
            line[name] = value

        def shared(part: Native) -> None:
            with c.if_then(blocks == 1):
                part(c, line, 0, 1)
            with c.if_then(blocks != 1):
                pool, code = c.symbol("hml_pool"), part.define(c.module)
                c.extern("void", "hml_parallel_chunks", pool, code, line, blocks, 1, 4)

        shared(loaded)
        least, most = c.variable(-1), c.variable(0)
        with c.each(blocks) as block:
            here = bounds + block * 16
            least.value, most.value = c.least(least.value, here.load()), c.greatest(most.value, here.item(1))
        line["least"] = least.value
        zeros: Any = c.intrinsic("ctlz", _I64, [most.value - least.value, Literal(KINDS["i1"], "false")], [_I64])
        bits, digit = 64 - zeros, _digit(c, n)
        all_passes = (bits + digit - 1) // digit
        some = c.select(n <= STEPS, c.number(0, _I64), c.least(all_passes, FIRST))
        passes, low = c.variable(some), c.variable(bits - c.least(bits, some * digit))
        with c.loop():
            width = c.greatest((bits - low.value + passes.value - 1) // c.greatest(passes.value, 1), 3)
            digits: Any = c.shl(c.number(1, _I64), width)
            line["digits"] = digits - 1  # at least 7, for a vector of counts
            with c.each(passes.value) as k:
                line["shift"] = low.value + k * width
                shared(counted)
                added(c, line, blocks)
                shared(moved)
                target = line["to"]
                line["to"], line["from"] = line["from"], target
            c.break_if(low.value == 0)
            line["shift"] = low.value
            shared(inserted)
            long = c.variable(0)
            with c.each(blocks) as block:
                long.value = long.value | (bounds + block * 16).load()
            c.break_if(long.value == 0)
            passes.value, low.value = all_passes, 0
        with c.if_then(line["from"] != out):
            shared(stored)
        return 0

    return one


def _blocks(c: NativeBuilder, n: Any) -> Any:
    return c.greatest(c.least(n // BLOCK, MOST_BLOCKS), 1)


def _digit(c: NativeBuilder, n: Any) -> Any:
    return c.select(n < SHORT, c.number(SHORT_DIGIT, _I64), DIGIT)


def _buffers(c: NativeBuilder, what: Any, n: Any, inner: Any) -> Any:
    """Bytes of what is moved, twice, in whole words; the result is one of both where it has the same form."""
    size = n * what.size
    return (c.select(_in_place(what, inner), size, size * 2) + 7) & -8


def _in_place(what: Any, inner: Any) -> Any:
    return inner == 1 if what.in_place else Literal(KINDS["i1"], "false")


def _memory(what: Any) -> Needs:
    def needs(c: NativeBuilder, dims: Any) -> Any:
        n, inner, blocks = dims.item(1), dims.item(2), _blocks(c, dims.item(1))
        counts = c.shl(c.number(4, _I64), _digit(c, n))
        return (_buffers(c, what, n, inner) + blocks * 16 + (blocks + 1) * counts,)

    return needs


def granule(c: NativeBuilder, dims: Any) -> Any:
    """Lines that a thread takes at once: all of a few long ones, whose blocks are shared."""
    lines, n = dims.load(), dims.item(1)
    return c.select((n >= LARGE) & (lines < MANY), lines, c.greatest(c.udiv(c.number(WORK, _I64), n), 1))


def _row(what: Any) -> tuple[One, Needs]:
    return _ordered(what), _memory(what)


ROWS: dict[str, Callable[[Elements], tuple[One, Needs]]] = {
    "sort": lambda e: _row(_Values(e)),
    "argsort": lambda e: _row(_Places(e)),
}
