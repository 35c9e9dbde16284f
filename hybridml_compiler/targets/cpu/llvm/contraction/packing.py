"""Packing: lines of elements to lines or columns of words, and squares turned through registers.

Operands are lines along the sum: rows of A and columns of B, pixels of an image and features of a tap. Where elements
of a line follow each other in memory, vectors of words come from one line; where those of different lines do, from as
many steps of the sum as a word has elements. What is written keeps the words of a line together, or those of a step, so
that one way of each needs no turning, and the other is turned in squares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..... import dtypes
from ...kernels.low_precision import Format
from .. import ir
from ..ir import known
from ..kind import Kind
from ..types import I64, PTR, VOID, Literal
from .emission import Range
from .loops import ceiling, i64, least, loop, repeat
from .vectors import Vectors
from .words import SIGNS, WORD, Words, multiply_add

if TYPE_CHECKING:
    from .....schedule.kernels.convolution import Pretranspose

TURN_TYPE = ir.FunctionType(VOID, [PTR, I64, PTR, I64, I64, I64])


def parts(b: ir.IRBuilder, extent: Any, total: int, by: int, body: Callable[[Any, int | None], None]) -> None:
    """`body(k, None)` for every part of so many steps, `body(k, rest)` for the last if it is smaller. An extent that is
    not known is a block of `total`, of whole parts but for the last block."""
    size = known(extent)
    rest = (total if size is None else size) % by
    whole = b.sub(extent, b.urem(extent, i64(by))) if size is None else i64(size - rest)
    repeat(b, i64(0), whole, by, lambda k: body(k, None))
    if rest:
        with b.if_then(b.icmp_signed("<", whole, extent)):
            body(whole, rest)


class Packer:
    """Lines of `total` elements, or of blocks of them, to words. Steps are in elements, and in words.

    `symbols` has the name of the function that turns squares, where one is needed.
    """

    def __init__(self, words: Words, total: int, symbols: Sequence[str] = ()) -> None:
        self.b, self.words, self.total = words.b, words, total
        self.v = Vectors(self.b, words.stored if words.plain else dtypes.int32, words.lanes)
        self.turn: Any = self.b.module.function(symbols[0], TURN_TYPE) if symbols else None
        if symbols and not words.plain:
            self.square = self.b.memory(self.v.scalar_type, words.lanes**2, ir.LINE)

    @property
    def count(self) -> int:
        """The number of words of a line."""
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
        """Lines of elements that follow each other, at most as many as there are lanes, to columns of words, of which
        all lanes may be written. If `roomy`, so may a whole square at the end."""
        b, v, x = self.b, self.v, self.words
        if x.plain:
            turn_lines(v, self.turn, source, step, lines, target, to, extent)
            return

        def chunk(k: Any, live: int | None) -> None:
            def line(i: Any) -> None:
                v.store(x.along(x.at(source, (i, step), (k, 1)), live), v.at(self.square, (i, x.lanes)))

            repeat(b, i64(0), lines, 1, line)
            words = i64(x.lanes if live is None or roomy else -(-live // x.group))
            self._turn_square(v.at(target, (b.udiv(k, i64(x.group)), to)), to, i64(x.lanes), words)

        parts(b, extent, self.total, x.chunk, chunk)

    def _turn_square(self, target: Any, to: int, lines: Any, live: Any) -> None:
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

    def squares(self, source: Any, step: int, lines: Any, target: Any, to: int) -> None:
        """Elements of lines that follow each other to lines of words, over all of the sum."""
        b, v, x = self.b, self.v, self.words

        def square(first: Any, k: Any) -> None:
            left, extent = b.sub(lines, first), least(b, i64(x.chunk), b.sub(i64(self.total), k))
            mask = v.mask(left, 0)

            def word(steps: list[Any], number: Any) -> None:
                v.store(x.across(steps, mask), v.at(self.square, (number, x.lanes)))

            self.over_words(x.at(source, (k, step), (first, 1)), step, extent, word)
            place = v.at(target, (first, to), (b.udiv(k, i64(x.group)), 1))
            self._turn_square(place, to, ceiling(b, extent, x.group), left)

        def over(size: Any, by: int, body: Callable[[Any], None]) -> None:
            repeat(b, i64(0), size, by, body)

        over(lines, x.lanes, lambda first: over(i64(self.total), x.chunk, lambda k: square(first, k)))

    def scattered(
        self, source: Any, between: int, step: int, lines: Any, extent: Any, target: Any, to_line: int, to_word: int
    ) -> None:
        """Elements of lines in any order."""

        def line(i: Any) -> None:
            def word(steps: list[Any], k: Any) -> None:
                place = self.v.at(target, (i, to_line), (k, to_word))
                self.b.store(self.words.single(steps), place, align=WORD // 8)

            self.over_words(self.words.at(source, (i, between)), step, extent, word)

        repeat(self.b, i64(0), lines, 1, line)


class PanelPacker(Packer):
    """Lines as columns, of which some are a panel: [panel][word][column].

    `n`: of all panels; columns beyond them are never stored by a tile. `size`: elements from a panel to the next.
    """

    def __init__(self, words: Words, total: int, symbols: Sequence[str], n: int, columns: int, size: int) -> None:
        super().__init__(words, total, symbols)
        self.n, self.columns, self.size = n, columns, size

    def pack(
        self, source: Any, step: int, between: int, panels: Range, extent: Any, target: Any, *, roomy: bool = False
    ) -> None:
        """Packs panels, the first of them to `target`; `source` is the first column of all, `between` from one to the
        next, and `step` from an element of a column."""
        b, v, x = self.b, self.v, self.words
        if between == 1:
            whole, rest = least(b, panels[1], i64(self.n // self.columns)), self.n % self.columns
            vectors = self.columns // x.lanes
            some = v.masks(b.sub(i64(self.n), b.mul(whole, i64(self.columns))), vectors) if rest else []

            def word(steps: list[Any], number: Any) -> None:  # to all panels: each has few bytes of a line
                def panel(j: Any, masks: list[Any]) -> None:
                    here = [x.at(place, (j, self.columns)) for place in steps]
                    self.across(here, self._row(target, j, panels, number), masks)

                repeat(b, panels[0], whole, 1, lambda j: panel(j, [None] * vectors))
                if rest:
                    repeat(b, whole, panels[1], 1, lambda j: panel(j, some))

            self.over_words(source, step, extent, word)
            return

        def panel(j: Any) -> None:
            def group(first: Any) -> None:
                column = b.add(b.mul(j, i64(self.columns)), first)
                lines = least(b, i64(x.lanes), b.sub(i64(self.n), column))
                here, there = x.at(source, (column, between)), v.element(self._row(target, j, panels, i64(0)), first)
                if step == 1:
                    self.turned(here, between, lines, extent, there, self.columns, roomy=roomy)
                else:
                    self.scattered(here, between, step, lines, extent, there, 1, self.columns)

            repeat(b, i64(0), i64(self.columns), x.lanes, group)

        repeat(b, *panels, 1, panel)

    def _row(self, target: Any, j: Any, panels: Range, word: Any) -> Any:
        return self.v.at(target, (self.b.sub(j, panels[0]), self.size), (word, self.columns))

    def start(self, how: Format, panels: Range, words: Any, target: Any) -> None:
        """Stores the initial sums of columns, if the other operand is shifted, in a row before those of the words:
        minus the excess that the shift adds."""
        b, v, none = self.b, self.v, [None] * (self.columns // self.words.lanes)
        shift = Literal(self.words.type, SIGNS)

        def panel(j: Any) -> None:
            def add(k: Any, sums: list[Any]) -> list[Any]:
                across = v.row(self._row(target, j, panels, k), none)
                return [multiply_add(b, how, shift, x, total) for x, total in zip(across, sums, strict=True)]

            for k, total in enumerate(loop(b, i64(0), words, 1, [v.zero] * len(none), add)):
                place = self._row(target, j, panels, i64(-1))
                v.store(b.neg(total), v.element(place, i64(k * v.lanes)))

        repeat(b, *panels, 1, panel)


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


PRETRANSPOSE = Kind(emit=emit_turn, source=lambda spec, _: repr(spec))
