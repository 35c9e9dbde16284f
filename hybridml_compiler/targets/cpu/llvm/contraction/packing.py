"""Packing: lines of elements to lines or columns of words, and squares turned through registers.

Operands are lines along the sum: rows of A and columns of B, pixels of an image and features of a tap. Where elements
of a line follow each other in memory, vectors of words come from one line; where those of different lines do, from as
many steps of the sum as a word has elements. What is written keeps the words of a line together, or those of a step, so
that one way of each needs no turning, and the other is turned in squares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..... import dtypes
from .....schedule.kernels.convolution import Pretranspose
from .. import ir
from ..ir import known
from ..types import I64, PTR, VOID
from .emission import declared
from .loops import i64, least, repeat
from .vectors import Vectors
from .words import WORD, Words

TURN_TYPE = ir.FunctionType(VOID, [PTR, I64, PTR, I64, I64, I64])


def parts(b: ir.IRBuilder, extent: Any, total: int, by: int, body: Callable[[Any, int | None], None]) -> None:
    """`body(k, None)` for every part of so many steps, `body(k, rest)` for the last if it is smaller: the extent is
    `total`, or a block of that, of whole parts but for the last block."""
    rest = total % by
    if known(extent) is not None:
        repeat(b, i64(0), i64(total - rest), by, lambda k: body(k, None))
        if rest:
            body(i64(total - rest), rest)
        return
    whole = b.sub(extent, b.urem(extent, i64(by)))
    repeat(b, i64(0), whole, by, lambda k: body(k, None))
    if rest:
        with b.if_then(b.icmp_signed("<", whole, extent)):
            body(whole, rest)


class Packer:
    """Lines of `total` elements, or of blocks of them, to words. Steps are in elements, and in words."""

    def __init__(self, words: Words, total: int, turn: str = "") -> None:
        self.b, self.words, self.total = words.b, words, total
        self.v = Vectors(self.b, words.stored if words.plain else dtypes.int32, words.lanes)
        self.turn = declared(self.b.module, turn, TURN_TYPE) if turn else None
        if turn and not words.plain:
            self.square = self.b.memory(self.v.scalar_type, words.lanes**2, ir.LINE)

    @property
    def count(self) -> int:
        """Words of a line."""
        return -(-self.total // self.words.group)

    def along(self, source: Any, step: int, lines: Any, extent: Any, target: Any, to: int) -> None:
        """Lines of elements that follow each other to lines of words."""
        b, v, x = self.b, self.v, self.words

        def line(i: Any) -> None:
            here, there = x.at(source, (i, step)), v.at(target, (i, to))

            def chunk(k: Any, live: int | None) -> None:
                left = x.lanes if live is None else -(-live // x.group)
                value = x.along(x.element(here, k), live)
                v.store(value, v.element(there, b.udiv(k, i64(x.group))), v.first(left))

            parts(b, extent, self.total, x.chunk, chunk)

        repeat(b, i64(0), lines, 1, line)

    def turned(
        self, source: Any, step: int, lines: Any, extent: Any, target: Any, to: int, *, roomy: bool = False
    ) -> None:
        """Lines of elements that follow each other to columns of words, at most as many as there are lanes unless the
        elements are words. If `roomy`, there may be written whole squares."""
        b, v, x = self.b, self.v, self.words
        if x.plain:
            turn_lines(v, self.turn, source, step, lines, target, to, extent)
            return

        def chunk(k: Any, live: int | None) -> None:
            def line(i: Any) -> None:
                v.store(x.along(x.at(source, (i, step), (k, 1)), live), v.at(self.square, (i, x.lanes)))

            repeat(b, i64(0), lines, 1, line)
            words = i64(x.lanes if live is None or roomy else -(-live // x.group))
            place = v.at(target, (b.udiv(k, i64(x.group)), to))
            self.turn_square(place, to, i64(x.lanes) if roomy else lines, words)

        parts(b, extent, self.total, x.chunk, chunk)

    def turn_square(self, target: Any, to: int, lines: Any, live: Any) -> None:
        self.b.call(self.turn, [self.square, i64(self.words.lanes), target, i64(to), lines, live])

    def across(self, steps: Sequence[Any], target: Any, masks: Sequence[Any]) -> None:
        """Elements of lines that follow each other, of the steps of one word: a vector of words for each mask."""
        for j, mask in enumerate(masks):
            at = i64(j * self.words.lanes)
            value = self.words.across([self.words.element(step, at) for step in steps], mask)
            self.v.store(value, self.v.element(target, at))

    def over_words(self, source: Any, step: int, extent: Any, body: Callable[[list[Any], Any], None]) -> None:
        """`body(steps, number)` for every word, with where its elements are, `step` apart."""
        b, x = self.b, self.words

        def word(k: Any, live: int | None) -> None:
            places = [x.element(source, b.mul(b.add(k, i64(i)), i64(step))) for i in range(live or x.group)]
            body(places, b.udiv(k, i64(x.group)))

        parts(b, extent, self.total, x.group, word)

    # ---- lines of a whole sum, in any order

    def pack(self, source: Any, line: int, step: int, lines: Any, target: Any, to_line: int, to_word: int) -> None:
        """At most a vector of lines, if words of a line are not together."""
        if step == 1 and self.total > 1 and to_word == 1:
            self.along(source, line, lines, i64(self.total), target, to_line)
        elif step == 1 and self.total > 1:
            self.turned(source, line, lines, i64(self.total), target, to_word)
        elif line == 1:
            self._across_lines(source, step, lines, target, to_line, to_word)
        else:
            self._scattered(source, line, step, lines, target, to_line, to_word)

    def _across_lines(self, source: Any, step: int, lines: Any, target: Any, to_line: int, to_word: int) -> None:
        b, v, x, tail = self.b, self.v, self.words, self.total % self.words.group

        def over_words(first: Any, store: Callable[[Any, Any, Any], None], low: Any, high: Any) -> None:
            """`store(value, number of the word, mask)`, of a vector of lines."""
            mask = v.mask(b.sub(lines, first), 0)

            def one(k: Any, live: int = x.group) -> None:
                places = [x.at(source, (b.add(b.mul(k, i64(x.group)), i64(i)), step), (first, 1)) for i in range(live)]
                store(x.across(places, mask), k, mask)

            whole = self.total // x.group
            repeat(b, low, least(b, high, i64(whole)), 1, one)
            if tail:
                with b.if_then(b.icmp_signed(">", high, i64(whole))):
                    one(i64(whole), tail)

        def straight(first: Any) -> None:
            def store(value: Any, k: Any, mask: Any) -> None:
                v.store(value, v.at(target, (k, to_word), (first, 1)), mask)

            over_words(first, store, i64(0), i64(self.count))

        def square(first: Any) -> None:
            def block(low: Any) -> None:
                high = least(b, b.add(low, i64(x.lanes)), i64(self.count))
                over_words(
                    first, lambda value, k, _: v.store(value, v.at(self.square, (b.sub(k, low), x.lanes))), low, high
                )
                place = v.at(target, (first, to_line), (low, 1))
                self.turn_square(place, to_line, b.sub(high, low), least(b, b.sub(lines, first), i64(x.lanes)))

            repeat(b, i64(0), i64(self.count), x.lanes, block)

        repeat(b, i64(0), lines, x.lanes, straight if to_line == 1 else square)

    def _scattered(
        self, source: Any, line: int, step: int, lines: Any, target: Any, to_line: int, to_word: int
    ) -> None:
        b, x = self.b, self.words

        def one(i: Any) -> None:
            def word(places: list[Any], k: Any) -> None:
                b.store(x.single(places), self.v.at(target, (i, to_line), (k, to_word)), align=WORD // 8)

            self.over_words(x.at(source, (i, line)), step, i64(self.total), word)

        repeat(b, i64(0), lines, 1, one)


# ---- squares


def emit_turn(module: ir.Module, name: str, turn: Pretranspose) -> ir.Function:
    """`void turn(ptr source, i64 step, ptr target, i64 to, i64 lines, i64 live)`: lines made columns.

    Element j of line i, at source[i * step + j], goes to target[j * to + i], for i below `lines`, j below `live`, and
    no more than there are lanes. It is expensive to compile ([Note: Compile time]), so it is one function, without
    masks. Parts of a square are slow: callers let the last squares overlap.
    """
    function = ir.Function(module, TURN_TYPE, name)
    function.attributes.add("nounwind")
    b = function.build()
    source, step, target, to, lines, live = function.args
    v, at, side = Vectors(b, turn.dtype, turn.lanes), range(turn.lanes), i64(turn.lanes)

    def one(i: Any) -> None:
        def element(j: Any) -> None:
            value = v.scalar(v.element(source, b.add(b.mul(step, i), j)))
            b.store(value, v.element(target, b.add(b.mul(to, j), i)))

        repeat(b, i64(0), least(b, live, side), 1, element)

    whole = b.and_(b.icmp_signed("<=", side, lines), b.icmp_signed("<=", side, live))
    with b.if_else(whole) as (square, part):
        with square:
            rows = v.transpose([v.load(v.element(source, b.mul(step, i64(i)))) for i in at])
            for j, row in enumerate(rows):
                v.store(row, v.element(target, b.mul(to, i64(j))))
        with part:
            repeat(b, i64(0), least(b, lines, side), 1, one)
    b.ret_void()
    return function


def turn_lines(
    v: Vectors,
    turn: Any,
    source: Any,
    step: int,
    lines: Any,
    target: Any,
    to: int,
    run: Any,
    *,
    lines_first: bool = True,
) -> None:
    """Element j of line i, at source[i * step + j], to target[j * to + i], for all of lines and run, in squares.

    The last squares of an extent that is known overlap those before.
    """
    b = v.b

    def within(start: Any, size: Any) -> Any:
        most = known(size)
        return start if most is None or most < v.lanes else least(b, start, i64(most - v.lanes))

    def square(i: Any, j: Any) -> None:
        here, there = v.at(source, (i, step), (j, 1)), v.at(target, (j, to), (i, 1))
        b.call(turn, [here, i64(step), there, i64(to), b.sub(lines, i), b.sub(run, j)])

    def over(size: Any, body: Callable[[Any], None]) -> None:
        repeat(b, i64(0), size, v.lanes, lambda k: body(within(k, size)))

    if lines_first:
        over(lines, lambda i: over(run, lambda j: square(i, j)))
    else:
        over(run, lambda j: over(lines, lambda i: square(i, j)))
