"""Packing the operands of a convolution of narrow ones: channels as words, in the order that the direct kernel reads.

Both are lines of channels, for every pixel of an image or every feature of a tap. Where channels follow each other in
memory, vectors of words come from one line; where pixels or features do, from as many lines as a word has elements.
The image keeps the words of a pixel together, the weights those of a channel, so that one way of each needs no
turning, and the other is turned in squares. Operands in any other order are packed element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..... import dtypes
from .....schedule.kernels.convolution import Convolution
from ...kernels.conv_tiling import Tiling, panel_size, word_rows
from ...kernels.low_precision import shifted
from .. import ir
from ..gemm.tile import Vectors, i64, least, loop, repeat
from ..kernel import KERNEL_TYPE
from ..types import I1, I32, PTR, Literal, constant
from ..vectors.packed_operands import SIGNS, WORD, Words, multiply_add
from .pack import declared_turn


class _Lines:
    """Lines of `channels` channels to lines of words."""

    def __init__(self, b: ir.IRBuilder, words: Words, channels: int, turn: str) -> None:
        self.b, self.words, self.channels = b, words, channels
        self.count = -(-channels // words.group)  # of words
        self.turn = declared_turn(b.module, turn)
        self.square = b.memory(I32, words.lanes**2, ir.LINE)
        self.v = Vectors(b, dtypes.int32, words.lanes)

    def pack(self, source: Any, line: int, channel: int, lines: Any, target: Any, to_line: int, to_word: int) -> None:
        """Steps are in elements, and in words. At most a vector of lines, if words of a line are not together."""
        if channel == 1 and self.channels > 1:
            self._along(source, line, lines, target, to_line, to_word)
        elif line == 1:
            self._across(source, channel, lines, target, to_line, to_word)
        else:
            self._scattered(source, line, channel, lines, target, to_line, to_word)

    def _along(self, source: Any, line: int, lines: Any, target: Any, to_line: int, to_word: int) -> None:
        b, x, tail = self.b, self.words, self.channels % self.words.chunk

        def over_lines(k: Any, live: int | None) -> None:
            word = b.udiv(k, i64(x.group))

            def one(i: Any) -> None:
                value = x.along(x.element(source, b.add(b.mul(i, i64(line)), k)), live)
                if to_word == 1:
                    left = None if live is None else -(-live // x.group)
                    place = self.v.element(target, b.add(b.mul(i, i64(to_line)), word))
                    self.v.store(value, place, self._first(left))
                else:
                    self.v.store(value, self.v.element(self.square, b.mul(i, i64(x.lanes))))

            repeat(b, i64(0), lines, 1, one)
            if to_word != 1:
                words = i64(x.lanes if live is None else -(-live // x.group))
                self._turned(self.v.element(target, b.mul(word, i64(to_word))), to_word, lines, words)

        repeat(b, i64(0), i64(self.channels - tail), x.chunk, lambda k: over_lines(k, None))
        if tail:
            over_lines(i64(self.channels - tail), tail)

    def _across(self, source: Any, channel: int, lines: Any, target: Any, to_line: int, to_word: int) -> None:
        b, x, tail = self.b, self.words, self.channels % self.words.group

        def over_words(first: Any, store: Callable[[Any, Any, Any], None], low: Any, high: Any) -> None:
            """`store(value, number of the word, mask)`, of a vector of lines."""
            mask = self.v.mask(b.sub(lines, first), 0)

            def one(k: Any, live: int = x.group) -> None:
                at = [b.add(b.mul(b.add(b.mul(k, i64(x.group)), i64(i)), i64(channel)), first) for i in range(live)]
                store(x.across([x.element(source, place) for place in at], mask), k, mask)

            whole = self.channels // x.group
            repeat(b, low, least(b, high, i64(whole)), 1, one)
            if tail:
                with b.if_then(b.icmp_signed(">", high, i64(whole))):
                    one(i64(whole), tail)

        def straight(first: Any) -> None:
            def store(value: Any, k: Any, mask: Any) -> None:
                self.v.store(value, self.v.element(target, b.add(b.mul(k, i64(to_word)), first)), mask)

            over_words(first, store, i64(0), i64(self.count))

        def square(first: Any) -> None:
            def block(low: Any) -> None:
                high = least(b, b.add(low, i64(x.lanes)), i64(self.count))

                def store(value: Any, k: Any, _: Any) -> None:
                    self.v.store(value, self.v.element(self.square, b.mul(b.sub(k, low), i64(x.lanes))))

                over_words(first, store, low, high)
                place = self.v.element(target, b.add(b.mul(first, i64(to_line)), low))
                self._turned(place, to_line, b.sub(high, low), least(b, b.sub(lines, first), i64(x.lanes)))

            repeat(b, i64(0), i64(self.count), x.lanes, block)

        repeat(b, i64(0), lines, x.lanes, straight if to_line == 1 else square)

    def _turned(self, target: Any, step: int, lines: Any, live: Any) -> None:
        self.b.call(self.turn, [self.square, i64(self.words.lanes), target, i64(step), lines, live])

    def _scattered(
        self, source: Any, line: int, channel: int, lines: Any, target: Any, to_line: int, to_word: int
    ) -> None:
        b, x, tail = self.b, self.words, self.channels % self.words.group

        def one(i: Any) -> None:
            def word(k: Any, live: int = x.group) -> None:
                first = b.mul(b.mul(k, i64(x.group)), i64(channel))
                at = x.element(source, b.add(b.mul(i, i64(line)), first))
                value = x.single([x.element(at, i64(e * channel)) for e in range(live)])
                place = b.add(b.mul(i, i64(to_line)), b.mul(k, i64(to_word)))
                b.store(value, self.v.element(target, place), align=WORD // 8)

            repeat(b, i64(0), i64(self.channels // x.group), 1, word)
            if tail:
                word(i64(self.channels // x.group), tail)

        repeat(b, i64(0), lines, 1, one)

    def _first(self, count: int | None) -> Any:
        lanes = self.words.lanes
        if count is None or count == lanes:
            return None
        return ir.Constant(ir.VectorType(I1, lanes), [int(k < count) for k in range(lanes)])


def _started(module: ir.Module, name: str) -> tuple[ir.Function, ir.IRBuilder, Any, Any]:
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.add("nounwind")
    b = function.build()
    source, target = (b.load(b.gep(function.args[0], [i64(k)], source_etype=PTR), typ=PTR) for k in range(2))
    return function, b, source, target


def emit_pixels(module: ir.Module, name: str, c: Convolution, tiling: Tiling, turn: str) -> ir.Function:
    """`void pixels(ptr buffers, i64 lo, i64 hi)` over rows of images: to [image][row][pixel][group][word]."""
    assert c.stored is not None
    function, b, source, target = _started(module, name)
    words = Words(b, c.stored[0], tiling.how, tiling.lanes)
    lines = _Lines(b, words, c.channels, turn)
    (height, width), (to_image, to_row, to_pixel, to_group, to_channel) = c.size, c.a.strides
    source = words.element(source, i64(c.a.offset))

    def row(index: Any) -> None:
        image, y = b.udiv(index, i64(height)), b.urem(index, i64(height))
        from_row = words.element(source, b.add(b.mul(image, i64(to_image)), b.mul(y, i64(to_row))))
        to = lines.v.element(target, b.mul(index, i64(width * c.groups * lines.count)))

        def group(g: Any) -> None:
            here, there = words.element(from_row, b.mul(g, i64(to_group))), b.mul(g, i64(lines.count))
            place = lines.v.element(to, there)
            lines.pack(here, to_pixel, to_channel, i64(width), place, c.groups * lines.count, 1)

        repeat(b, i64(0), i64(c.groups), 1, group)

    repeat(b, function.args[1], function.args[2], 1, row)
    b.ret_void()
    return function


def emit_word_panels(module: ir.Module, name: str, c: Convolution, tiling: Tiling, turn: str) -> ir.Function:
    """`void weights(ptr buffers, i64 lo, i64 hi)` over rows of taps: to [group][panel][row of taps][tap, word][column].

    If the image is read as x + 128, each row of taps begins with -128 times the sums of its columns.
    """
    assert c.stored is not None
    function, b, source, target = _started(module, name)
    words = Words(b, c.stored[1], tiling.how, tiling.lanes)
    lines, v = _Lines(b, words, c.channels, turn), Vectors(b, c.dtype, tiling.lanes)
    (kh, kw), (to_row, to_tap, to_group, to_channel, to_feature) = c.kernel, c.w.strides
    start, columns = int(shifted(c, tiling.how)), tiling.columns
    source = words.element(source, i64(c.w.offset))

    def unit(index: Any) -> None:
        group, ky = b.udiv(index, i64(kh)), b.urem(index, i64(kh))
        from_row = words.element(source, b.add(b.mul(group, i64(to_group)), b.mul(ky, i64(to_row))))
        panels = v.element(target, b.mul(group, i64(tiling.panels * panel_size(c, tiling))))
        panels = v.element(panels, b.mul(ky, i64(word_rows(c, tiling) * columns)))

        def vector(feature: Any) -> None:
            panel = b.mul(b.udiv(feature, i64(columns)), i64(panel_size(c, tiling)))
            top = v.element(panels, b.add(panel, b.urem(feature, i64(columns))))
            left = least(b, b.sub(i64(c.features), feature), i64(tiling.lanes))

            def tap(kx: Any) -> None:
                here = words.element(from_row, b.add(b.mul(feature, i64(to_feature)), b.mul(kx, i64(to_tap))))
                row = b.add(b.mul(kx, i64(lines.count)), i64(start))
                lines.pack(here, to_feature, to_channel, left, v.element(top, b.mul(row, i64(columns))), 1, columns)

            repeat(b, i64(0), i64(kw), 1, tap)
            if start:
                v.store(b.neg(_sums(top)), top)

        repeat(b, i64(0), i64(c.features), tiling.lanes, vector)

    def _sums(top: Any) -> Any:
        shift = Literal(words.type, SIGNS)

        def add(row: Any, sums: list[Any]) -> list[Any]:
            return [multiply_add(b, tiling.how, shift, v.load(v.element(top, b.mul(row, i64(columns)))), sums[0])]

        return loop(b, i64(1), i64(word_rows(c, tiling)), 1, [v.zero], add)[0]

    repeat(b, function.args[1], function.args[2], 1, unit)
    b.ret_void()
    return function


class Pixel:
    """Reads a word of a pixel, into all lanes."""

    def __init__(self, v: Vectors, c: Convolution, tiling: Tiling) -> None:
        self.v, self.shifted = v, c.stored is not None and shifted(c, tiling.how)

    def __call__(self, place: Any) -> Any:
        value = self.v.splat(self.v.scalar(place))
        return self.v.b.xor(value, constant(-2139062144, dtypes.int32, self.v.lanes)) if self.shifted else value
