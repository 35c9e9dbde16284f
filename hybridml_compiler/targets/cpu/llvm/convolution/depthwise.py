"""A depthwise convolution, or one of small groups: `void convolution(ptr buffers, i64 lo, i64 hi)` over rows of pixels.

Features are the vector, those of several groups. For some pixels of a row and one vector, a row of taps is loaded into
registers and each pixel that they meet once; every group spreads one of the pixel's channels over its features. Taps
beside the image are left out, by ranges of rows and by micro-kernels for the borders. Every element is one chain of
fused multiply-adds over (ky, kx, c).

Where the image has channels first, a unit turns the rows that it reads, in squares through registers, into memory of
its own ([Note: Convolutions] has times).
"""

from __future__ import annotations

from typing import Any

from .....schedule.kernels.convolution import Convolution
from ...kernels.conv_depthwise import DepthwiseTiling, Run, turned_row
from .. import ir
from ..gemm.kernel import call_epilogue
from ..gemm.tile import Vectors, greatest, i64, least, loop, repeat
from ..kernel import KERNEL_TYPE
from ..types import I64, PTR, VOID

_KEPT_WEIGHTS = 24  # of a row of taps, in registers; more are loaded where they are used


def emit_depthwise(
    module: ir.Module,
    name: str,
    convolution: Convolution,
    tiling: DepthwiseTiling,
    epilogue: ir.Function | None = None,
) -> ir.Function:
    """The epilogue runs over a row of pixels, when it is in L1 or L2."""
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.add("nounwind")
    _Depthwise(function, convolution, tiling, epilogue).emit()
    return function


class _Depthwise:
    """The emission of one function: the micro-kernels by the taps that their pixels meet, and the place of the
    weights."""

    def __init__(
        self, function: ir.Function, convolution: Convolution, tiling: DepthwiseTiling, epilogue: ir.Function | None
    ) -> None:
        self.convolution, self.tiling, self.epilogue = convolution, tiling, epilogue
        self.function = function
        self.table, self.lo, self.hi = function.args
        self.b = function.build()
        self.v = Vectors(self.b, convolution.dtype, tiling.lanes)
        c = convolution
        self.features = c.groups * c.features
        to_y, to_x, to_group, to_channel, to_feature = c.w.strides
        self.packs = to_group != c.features or (c.features > 1 and to_feature != 1)  # else they are read where they are
        self.weight_steps = to_y, to_x, to_channel
        if self.packs:
            tap = c.channels * self.features
            self.weight_steps = c.kernel[1] * tap, tap, self.features
            self.packed = self._memory(c.kernel[0] * self.weight_steps[0])
        self.x_row, self.x_pixel = c.a.strides[1:3]
        if tiling.turned:
            self.x_row = turned_row(c, tiling.lanes)
            self.x_pixel = self.x_row // c.size[1]
            self.turned = self._memory(tiling.turned * self.x_row + tiling.lanes * self.x_pixel)
            self.turn = self._emit_turn(f"{function.name}_turn")
        patterns = {run.pixels: run for run in tiling.runs}
        self.tiles = {p: self._emit_tile(f"{function.name}_{k}", run) for k, (p, run) in enumerate(patterns.items())}

    def _memory(self, size: int) -> Any:
        return self.b.memory(self.v.scalar_type, size, ir.LINE)

    def _emit_turn(self, name: str) -> ir.Function:
        """`void turn(ptr row, ptr to)`: [channel][pixel] to [pixel][channel], and up to `lanes` pixels more."""
        c, lanes = self.convolution, self.tiling.lanes
        function = self._helper(name, [PTR, PTR])
        b = function.build()
        source, target = function.args
        v = Vectors(b, c.dtype, lanes)
        ahead = self.tiling.lines * c.stride[0] * c.a.strides[1]  # the rows that the next unit turns

        def channels(first: Any) -> None:
            places = [least(b, b.add(first, i64(i)), i64(c.groups - 1)) for i in range(lanes)]
            rows = [v.element(source, b.mul(place, i64(c.a.strides[3]))) for place in places]

            def pixels(at: Any) -> None:
                mask = v.mask(b.sub(i64(c.size[1]), at), 0) if c.size[1] % lanes else None
                here = [v.element(row, at) for row in rows]
                for place in here:
                    v.prefetch(v.element(place, i64(ahead)), level=2)
                to = v.element(target, b.add(b.mul(at, i64(self.x_pixel)), first))
                for i, value in enumerate(v.transpose([v.load(place, mask) for place in here])):
                    v.store(value, v.element(to, i64(i * self.x_pixel)))

            repeat(b, i64(0), i64(c.size[1]), lanes, pixels)

        repeat(b, i64(0), i64(c.groups), lanes, channels)
        b.ret_void()
        return function

    def _helper(self, name: str, arguments: list[Any]) -> ir.Function:
        function = ir.Function(self.function.module, ir.FunctionType(VOID, arguments), name)
        function.linkage = "internal"
        for attribute in ("nounwind", "noinline"):
            function.attributes.add(attribute)
        return function

    def _emit_tile(self, name: str, run: Run) -> ir.Function:
        """`void tile(ptr x, ptr weights, ptr y, i64 first, i64 last)`, all channels of some pixels."""
        c, lanes = self.convolution, self.tiling.lanes
        function = self._helper(name, [PTR, PTR, PTR, I64, I64])
        b = function.build()
        x, weights, y, first, last = function.args
        v = Vectors(b, c.dtype, lanes)
        height, width = self.x_row, self.x_pixel
        columns = run.columns(c.stride[1], c.dilation[1])
        taps = sorted({tap for met in columns.values() for _, tap in met})
        # A vector of features belongs to some groups, whose channels may be fewer.
        share = lanes // c.features * c.channels

        def channels(k: Any) -> None:
            at, x_at = b.mul(k, i64(lanes)), v.element(x, b.mul(k, i64(share)))
            w_at, y_at = v.element(weights, at), v.element(y, at)
            mask = v.mask(b.sub(i64(self.features), at), 0) if self.features % lanes else None
            inputs = mask
            if share < lanes:
                left = b.sub(i64(c.groups * c.channels), b.mul(k, i64(share)))
                inputs = v.mask(least(b, left, i64(share)), 0)

            # The addresses that the next row of pixels reads first and writes, into L2 ([Note: Prefetching]).
            below = (c.kernel[0] - 1) * c.dilation[0] + 1
            for line in range(below, below + c.stride[0]) if not self.tiling.turned else ():
                for column in columns:
                    v.prefetch(v.element(x_at, i64(line * height + column * width)), level=2)
            for i in range(run.width):
                v.prefetch(v.element(y_at, i64((c.out_size[1] + i) * self.features)), level=2)

            def row(k: Any, sums: list[Any]) -> list[Any]:
                x_row = v.element(x_at, b.mul(k, i64(c.dilation[0] * height)))
                w_row = v.element(w_at, b.mul(k, i64(self.weight_steps[0])))

                def weight(tap: int, i: int) -> Any:
                    return v.load(v.element(w_row, i64(tap * self.weight_steps[1] + i * self.weight_steps[2])), mask)

                few = len(taps) * c.channels <= _KEPT_WEIGHTS
                kept = {(tap, i): weight(tap, i) for tap in taps for i in range(c.channels)} if few else {}
                sums = list(sums)
                for column, met in columns.items():
                    value = v.load(v.element(x_row, i64(column * width)), inputs)
                    for i in range(c.channels):
                        spread = v.shuffle(value, [lane // c.features * c.channels + i for lane in range(lanes)])
                        for pixel, tap in met:
                            sums[pixel] = v.fma(spread, kept.get((tap, i)) or weight(tap, i), sums[pixel])
                return sums

            before = b.block
            with b.if_then(b.icmp_signed("<", first, last)):
                computed = loop(b, first, last, 1, [v.zero] * run.width, row)
                after = b.block
            sums = [v.merge((v.zero, before), (value, after)) for value in computed]
            for i, value in enumerate(sums):
                v.store(value, v.element(y_at, i64(i * self.features)), mask)

        repeat(b, i64(0), i64(-(-self.features // lanes)), 1, channels)
        b.ret_void()
        return function

    def emit(self) -> None:
        b, c, v = self.b, self.convolution, self.v
        x, weights, self.y = (b.load(b.gep(self.table, [i64(k)], source_etype=PTR), typ=PTR) for k in range(3))
        self.x, self.weights = v.element(x, i64(c.a.offset)), v.element(weights, i64(c.w.offset))
        if self.packs:
            self._pack()
            self.weights = self.packed
        repeat(b, self.lo, self.hi, 1, self._unit)
        b.ret_void()

    def _pack(self) -> None:
        """Packs the weights to [tap][channel of a group][feature]."""
        b, v, c = self.b, self.v, self.convolution
        to_y, to_x, to_group, to_channel, to_feature = c.w.strides

        def group(g: Any) -> None:
            def feature(o: Any) -> None:
                source = v.element(self.weights, b.add(b.mul(g, i64(to_group)), b.mul(o, i64(to_feature))))
                target = v.element(self.packed, b.add(b.mul(g, i64(c.features)), o))

                def channel(i: Any) -> None:
                    read = v.element(source, b.mul(i, i64(to_channel)))
                    write = v.element(target, b.mul(i, i64(self.weight_steps[2])))
                    for ky in range(c.kernel[0]):
                        for kx in range(c.kernel[1]):
                            value = v.scalar(v.element(read, i64(ky * to_y + kx * to_x)))
                            at = ky * self.weight_steps[0] + kx * self.weight_steps[1]
                            b.store(value, v.element(write, i64(at)), align=c.dtype.itemsize)

                repeat(b, i64(0), i64(c.channels), 1, channel)

            repeat(b, i64(0), i64(c.features), 1, feature)

        repeat(b, i64(0), i64(c.groups), 1, group)

    def _unit(self, index: Any) -> None:
        b, c, g, v = self.b, self.convolution, self.tiling, self.v
        parts = -(-c.out_size[0] // g.lines)
        image, first = b.udiv(index, i64(parts)), b.mul(b.urem(index, i64(parts)), i64(g.lines))
        last = least(b, b.add(first, i64(g.lines)), i64(c.out_size[0]))
        x = v.element(self.x, b.mul(image, i64(c.a.strides[0])))
        if g.turned:
            x = self._turned(x, first, last)
        above = b.mul(image, i64(c.out_size[0]))
        repeat(b, first, last, 1, lambda row: self._row(x, row, b.mul(b.add(above, row), i64(c.out_size[1]))))

    def _turned(self, x: Any, first: Any, last: Any) -> Any:
        """Address where the image would start for the turned rows that these rows of pixels read."""
        b, c, v = self.b, self.convolution, self.v
        below = (c.kernel[0] - 1) * c.dilation[0] + 1
        low = greatest(b, self._top(first), i64(0))
        high = least(b, b.add(self._top(b.sub(last, i64(1))), i64(below)), i64(c.size[0]))
        start = v.element(self.turned, b.mul(low, i64(-self.x_row)))

        def row(k: Any) -> None:
            b.call(
                self.turn, [v.element(x, b.mul(k, i64(c.a.strides[1]))), v.element(start, b.mul(k, i64(self.x_row)))]
            )

        repeat(b, low, high, 1, row)
        return start

    def _top(self, row: Any) -> Any:
        """The row of the image that the first row of taps meets."""
        return self.b.sub(self.b.mul(row, i64(self.convolution.stride[0])), i64(self.convolution.padding[0]))

    def _row(self, x: Any, row: Any, pixel: Any) -> None:
        """A row of an image; `pixel` is its first one in the result."""
        b, c, v = self.b, self.convolution, self.v
        top, step = self._top(row), c.dilation[0]
        first, last = (
            b.udiv(greatest(b, b.sub(i64(edge + step - 1), top), i64(0)), i64(step)) for edge in (0, c.size[0])
        )
        last = least(b, last, i64(c.kernel[0]))
        x_row = v.element(x, b.mul(top, i64(self.x_row)))
        for run in self.tiling.runs:

            def tile(t: Any, run: Run = run) -> None:
                start = b.add(i64(run.first), b.mul(t, i64(run.width)))
                column = b.sub(b.mul(start, i64(c.stride[1])), i64(c.padding[1]))
                x_at = v.element(x_row, b.mul(column, i64(self.x_pixel)))
                y_at = v.element(self.y, b.mul(b.add(pixel, start), i64(self.features)))
                b.call(self.tiles[run.pixels], [x_at, self.weights, y_at, first, last])

            repeat(b, i64(0), i64(run.tiles), 1, tile)
        if self.epilogue is not None:
            ends = pixel, b.add(pixel, i64(c.out_size[1]))
            call_epilogue(b, self.epilogue, self.table, ends, (i64(0), i64(self.features)))
