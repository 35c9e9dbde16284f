"""The micro-kernel of a gradient of weights: some of its elements in registers, over a block of pixels.

Its rows are channels of the input, broadcast, for one tap: every pixel adds an outer product. Or they are all taps of a
row: then it goes over pixels in runs, and loads the columns of the input that those meet once. Where the
features are those of many groups, each group spreads one of its channels over its features.
"""

from __future__ import annotations

from typing import Any

from .....schedule.kernels.convolution import Convolution
from .....sizes.dims import is_dim
from ...kernels.conv_depthwise import Run
from ...kernels.conv_weights_blocking import WeightBlocking
from .. import ir
from ..contraction.loops import i64, least, loop
from ..contraction.micro_kernel import Axis, MicroKernel, Sums
from ..types import I1, I64, PTR

# x, gradient, result; images, rows, pixels of a row, live features, first block?
_ARGUMENTS = [PTR, PTR, PTR, I64, I64, I64, I64, I1]


class WeightTile(MicroKernel):
    """`void tile(ptr x, ptr gradient, ptr out, i64 images, i64 rows, i64 pixels, i64 live, i1 first)`.

    `rows`: channels of the input, or taps times channels.
    """

    def __init__(self, module: ir.Module, name: str, c: Convolution, blocking: WeightBlocking, rows: int) -> None:
        g = blocking
        super().__init__(module, name, _ARGUMENTS, c.dtype, g.lanes, g.vectors)
        self.convolution, self.blocking = c, g
        to_channel, height, width, _, image = c.a.strides
        self.channels, self.to_channel = c.batch if g.runs else rows, to_channel
        # Elements of both operands from image to image, row to row, pixel to pixel; and to the next block.
        self.steps = tuple(
            zip((image, c.dilation[0] * height, c.dilation[1] * width), g.gradient_steps(c), strict=True)
        )
        self.ahead: tuple[int, int] | None = None
        cut = [axis for axis, count in enumerate(g.blocks(c)) if is_dim(count) or count > 1]
        if cut:
            axis = cut[-1]
            size, (of_x, of_gradient) = (g.images, g.lines, g.pixels)[axis], self.steps[axis]
            self.ahead = size * of_x, 0 if g.turned else size * of_gradient
        live = self.args[6]
        self.masks = self.v.masks(live, g.vectors, c.features % g.columns != 0)
        self.share, self.inputs = 0, self.masks
        if g.group is not None:
            channels, features = g.group
            self.share = g.lanes // features * channels  # of the input, for one vector of features
            if channels < features:
                left = self.b.sdiv(self.b.mul(live, i64(channels)), i64(features))
                ends = [self.b.sub(left, i64(j * self.share)) for j in range(g.vectors)]
                self.inputs = [self.v.mask(least(self.b, end, i64(self.share)), 0) for end in ends]

    def emit(self) -> ir.Function:
        b, c, g = self.b, self.convolution, self.blocking
        x, gradient, out, images, rows, pixels, _, first = self.args
        places = [
            tap * g.tap(c) + i * g.channel(c)
            for tap in range(c.out_size[1] if g.runs else 1)
            for i in range(self.channels)
        ]
        axes = [Axis(i64(0), end, *steps) for end, steps in zip((images, rows, pixels), self.steps, strict=True)]

        def add(sums: Sums) -> Sums:
            if g.runs:
                return self.over(axes[:2], x, gradient, sums, self._line)
            return self.over(axes, x, gradient, sums, self._pixel)

        sums = self.where(b.icmp_signed("<", i64(0), b.mul(rows, pixels)), self.zeros(len(places)), add)
        return self.store(out, places, self.masks, sums, unless=None if self.ahead is None else first)

    def _pixel(self, x: Any, gradient: Any, sums: Sums) -> Sums:
        across = self.across(gradient, self.masks)
        self._fetch(x, 0, 1)
        self._fetch(gradient, 1, self.vectors)
        down = (self.down(self.v.element(x, i64(i * self.to_channel))) for i in range(self.channels))
        return self.outer(down, across, sums)

    def _line(self, x: Any, gradient: Any, sums: Sums) -> Sums:
        for run in self.blocking.runs:

            def pixels(k: Any, sums: Sums, run: Run = run) -> Sums:
                start = self.b.add(self.b.mul(k, i64(run.width)), i64(run.first))
                of_x, of_gradient = self.steps[2]
                return self._pixels(run, self.v.at(x, (start, of_x)), self.v.at(gradient, (start, of_gradient)), sums)

            sums = loop(self.b, i64(0), i64(run.tiles), 1, sums, pixels)
        return sums

    def _pixels(self, run: Run, x: Any, gradient: Any, sums: Sums) -> Sums:
        v, c = self.v, self.convolution
        sums, gradients = list(sums), []
        for i in range(run.width):
            pixel = v.element(gradient, i64(i * self.steps[2][1]))
            gradients.append(self.across(pixel, self.masks))
            self._fetch(pixel, 1, self.vectors)
        for column, met in run.columns(c.dilation[1], c.stride[1]).items():
            source = v.element(x, i64(column * c.a.strides[2]))
            self._fetch(source, 0, self.vectors if self.share else 1)
            for i in range(self.channels):
                values = self._channel(source, i)
                for pixel, tap in met:
                    for j in range(self.vectors):
                        at = (tap * self.channels + i) * self.vectors + j
                        sums[at] = v.fma(values[j], gradients[pixel][j], sums[at])
        return sums

    def _channel(self, x: Any, i: int) -> list[Any]:
        """A channel of a pixel, as the vectors to multiply those of features by."""
        v, group = self.v, self.blocking.group
        if group is None:
            return [self.down(v.element(x, i64(i * self.to_channel)))] * self.vectors
        places = [v.element(x, i64(j * self.share)) for j in range(self.vectors)]
        values = [v.load(place, mask) for place, mask in zip(places, self.inputs, strict=True)]
        return [v.spread(value, i, group) for value in values]

    def _fetch(self, start: Any, operand: int, vectors: int) -> None:
        """Fetches vectors of the next block into L2, if there is one ([Note: Prefetching])."""
        if self.ahead is not None:
            place = self.v.element(start, i64(self.ahead[operand]))
            for j in range(vectors):
                self.v.prefetch(self.v.element(place, i64(j * self.v.lanes)), level=2)
