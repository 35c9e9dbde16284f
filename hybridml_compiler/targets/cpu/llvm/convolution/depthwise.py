"""A depthwise convolution, or one of small groups: `void convolution(ptr buffers, i64 lo, i64 hi)` over rows of pixels.

Features are the vector, those of several groups. For some pixels of a row and one vector, a row of taps is loaded into
registers and each pixel that they meet once; every group spreads one of the pixel's channels over its features. Taps
beside the image are left out, by ranges of rows and by micro-kernels for the borders. Every element is one chain of
fused multiply-adds over (ky, kx, c).

Where the image has channels first, a unit turns the rows that it reads, in squares through registers, into memory of
its own ([Note: Convolutions] has times).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....record import record
from .....schedule.kernels.convolution import Convolution
from ...kernels.conv_depthwise import DepthwiseTiling, Run, turned_row
from .. import ir
from ..contraction.emission import Emission
from ..contraction.loops import divide, greatest, i64, least, offset, repeat
from ..contraction.micro_kernel import Axis, MicroKernel, Sums
from ..types import I64, PTR
from .direct import meeting

_KEPT_WEIGHTS = 24  # of a row of taps, in registers; more are loaded where they are used


@record(frozen=False, eq=False)
class Depthwise(Emission[Convolution, DepthwiseTiling]):
    """The emission of one function: the micro-kernels by the taps that their pixels meet, and the place of the
    weights. The epilogue runs over a row of pixels, when it is in L1 or L2."""

    optimized: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        c, g = self.call, self.plan
        self.features = c.groups * c.features
        to_y, to_x, to_group, to_channel, to_feature = c.w.strides
        self.packs = to_group != c.features or (c.features > 1 and to_feature != 1)  # else they are read where they are
        self.weight_steps = to_y, to_x, to_channel
        if self.packs:
            tap = c.channels * self.features
            self.weight_steps = c.kernel[1] * tap, tap, self.features
            self.packed = self.memory(c.kernel[0] * self.weight_steps[0])
        self.x_row, self.x_pixel = c.a.strides[1:3]
        if g.turned:
            self.x_row = turned_row(c, g.lanes)
            self.x_pixel = self.x_row // c.size[1]
            self.turned = self.memory(g.turned * self.x_row + g.lanes * self.x_pixel)
            self.turn = self._emit_turn()
        patterns = {run.pixels: run for run in g.runs}
        self.tiles = {p: self._emit_tile(f"{self.name}_{k}", run) for k, (p, run) in enumerate(patterns.items())}

    def _emit_turn(self) -> ir.Function:
        """`void turn(ptr row, ptr to)`: [channel][pixel] to [pixel][channel], and up to `lanes` pixels more."""
        c, lanes = self.call, self.plan.lanes
        function, b, v = self.helper("turn", [PTR, PTR])
        source, target = function.args
        ahead = self.plan.lines * c.stride[0] * c.a.strides[1]  # the rows that the next unit turns

        def channels(first: Any) -> None:
            places = [least(b, b.add(first, i64(i)), i64(c.groups - 1)) for i in range(lanes)]
            rows = [v.at(source, (place, c.a.strides[3])) for place in places]

            def pixels(at: Any) -> None:
                mask = v.mask(b.sub(i64(c.size[1]), at), 0) if c.size[1] % lanes else None
                here = [v.element(row, at) for row in rows]
                for place in here:
                    v.prefetch(v.element(place, i64(ahead)), level=2)
                to = v.at(target, (at, self.x_pixel), (first, 1))
                for i, value in enumerate(v.transpose([v.load(place, mask) for place in here])):
                    v.store(value, v.element(to, i64(i * self.x_pixel)))

            repeat(b, i64(0), i64(c.size[1]), lanes, pixels)

        repeat(b, i64(0), i64(c.groups), lanes, channels)
        b.ret_void()
        return function

    def _emit_tile(self, name: str, run: Run) -> ir.Function:
        """`void tile(ptr x, ptr weights, ptr y, i64 first, i64 last)`, all channels of some pixels."""
        c, lanes = self.call, self.plan.lanes
        t = MicroKernel(self.module, name, [PTR, PTR, PTR, I64, I64], c.dtype, lanes)
        b, v, (x, weights, y, first, last) = t.b, t.v, t.args
        height, width = self.x_row, self.x_pixel
        columns = run.columns(c.stride[1], c.dilation[1])
        taps = sorted({tap for met in columns.values() for _, tap in met})
        # A vector of features belongs to some groups, whose channels may be fewer.
        share = lanes // c.features * c.channels

        def channels(k: Any) -> None:
            at, x_at = b.mul(k, i64(lanes)), v.at(x, (k, share))
            w_at, y_at = v.element(weights, at), v.element(y, at)
            mask = v.mask(b.sub(i64(self.features), at), 0) if self.features % lanes else None
            inputs = mask
            if share < lanes:
                left = b.sub(i64(c.groups * c.channels), b.mul(k, i64(share)))
                inputs = v.mask(least(b, left, i64(share)), 0)

            # The addresses that the next row of pixels reads first and writes, into L2 ([Note: Prefetching]).
            below = (c.kernel[0] - 1) * c.dilation[0] + 1
            for line in range(below, below + c.stride[0]) if not self.plan.turned else ():
                for column in columns:
                    v.prefetch(v.element(x_at, i64(line * height + column * width)), level=2)
            for i in range(run.width):
                v.prefetch(v.element(y_at, i64((c.out_size[1] + i) * self.features)), level=2)

            def row(x_row: Any, w_row: Any, sums: Sums) -> Sums:
                def weight(tap: int, i: int) -> Any:
                    return v.load(v.at(w_row, (tap, self.weight_steps[1]), (i, self.weight_steps[2])), mask)

                few = len(taps) * c.channels <= _KEPT_WEIGHTS
                kept = {(tap, i): weight(tap, i) for tap in taps for i in range(c.channels)} if few else {}
                sums = list(sums)
                for column, met in columns.items():
                    value = v.load(v.element(x_row, i64(column * width)), inputs)
                    for i in range(c.channels):
                        spread = v.spread(value, i, (c.channels, c.features))
                        for pixel, tap in met:
                            sums[pixel] = v.fma(spread, kept.get((tap, i)) or weight(tap, i), sums[pixel])
                return sums

            axis = Axis(first, last, c.dilation[0] * height, self.weight_steps[0])
            sums = t.where(
                b.icmp_signed("<", first, last), t.zeros(run.width), lambda sums: t.over([axis], x_at, w_at, sums, row)
            )
            t.put(y_at, [i * self.features for i in range(run.width)], [mask], sums)

        repeat(b, i64(0), i64(-(-self.features // lanes)), 1, channels)
        b.ret_void()
        return t.function

    def emit(self) -> ir.Function:
        x, weights, self.y = self.buffers(3)
        self.x = self.v.element(x, i64(self.call.a.offset))
        self.weights = self.v.element(weights, i64(self.call.w.offset))
        if self.packs:
            self._pack()
            self.weights = self.packed
        return self.over_units(self._unit)

    def _pack(self) -> None:
        """Packs the weights to [tap][channel of a group][feature]."""
        b, v, c = self.b, self.v, self.call
        to_y, to_x, to_group, to_channel, to_feature = c.w.strides

        def channel(group: Any, feature: Any, i: Any) -> None:
            read = v.at(self.weights, (group, to_group), (feature, to_feature), (i, to_channel))
            write = v.at(self.packed, (group, c.features), (feature, 1), (i, self.weight_steps[2]))
            for ky in range(c.kernel[0]):
                for kx in range(c.kernel[1]):
                    value = v.scalar(v.at(read, (ky, to_y), (kx, to_x)))
                    place = v.at(write, (ky, self.weight_steps[0]), (kx, self.weight_steps[1]))
                    b.store(value, place, align=c.dtype.itemsize)

        def over(size: int, body: Callable[[Any], None]) -> None:
            repeat(b, i64(0), i64(size), 1, body)

        over(c.groups, lambda g: over(c.features, lambda o: over(c.channels, lambda i: channel(g, o, i))))

    def _unit(self, index: Any) -> None:
        b, c, g, v = self.b, self.call, self.plan, self.v
        image, part = divide(b, index, -(-c.out_size[0] // g.lines))
        first = b.mul(part, i64(g.lines))
        last = least(b, b.add(first, i64(g.lines)), i64(c.out_size[0]))
        x = v.at(self.x, (image, c.a.strides[0]))
        if g.turned:
            x = self._turned(x, first, last)
        repeat(b, first, last, 1, lambda row: self._row(x, row, offset(b, (image, c.out_size[0]), (row, 1))))

    def _turned(self, x: Any, first: Any, last: Any) -> Any:
        """Address where the image would start for the turned rows that these rows of pixels read."""
        b, c, v = self.b, self.call, self.v
        below = (c.kernel[0] - 1) * c.dilation[0] + 1
        low, high = (b.sub(b.mul(row, i64(c.stride[0])), i64(c.padding[0])) for row in (first, b.sub(last, i64(1))))
        low, high = greatest(b, low, i64(0)), least(b, b.add(high, i64(below)), i64(c.size[0]))
        start = v.at(self.turned, (low, -self.x_row))

        def row(k: Any) -> None:
            b.call(self.turn, [v.at(x, (k, c.a.strides[1])), v.at(start, (k, self.x_row))])

        repeat(b, low, high, 1, row)
        return start

    def _row(self, x: Any, row: Any, above: Any) -> None:
        """A row of an image; `above` are those before it in the result."""
        b, c, v = self.b, self.call, self.v
        pixel = b.mul(above, i64(c.out_size[1]))
        top, first, last = meeting(b, c, 0, row)
        x_row = v.at(x, (top, self.x_row))
        for run in self.plan.runs:

            def tile(t: Any, run: Run = run) -> None:
                start = b.add(i64(run.first), b.mul(t, i64(run.width)))
                column = b.sub(b.mul(start, i64(c.stride[1])), i64(c.padding[1]))
                x_at = v.at(x_row, (column, self.x_pixel))
                y_at = v.at(self.y, (b.add(pixel, start), self.features))
                b.call(self.tiles[run.pixels], [x_at, self.weights, y_at, first, last])

            repeat(b, i64(0), i64(run.tiles), 1, tile)
        self.finish((pixel, b.add(pixel, i64(c.out_size[1]))), (i64(0), i64(self.features)))
