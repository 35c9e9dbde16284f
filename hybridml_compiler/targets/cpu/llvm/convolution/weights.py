"""The gradient of a convolution's weights: `void convolution(ptr buffers, i64 lo, i64 hi)` over units.

The loops around the micro-kernel of weights_tile.py, cut as conv_weights_blocking.py says. The input and the
result's gradient are read in place; pixels for which a tap is beside the input are left out by ranges. Blocks are
added up in order, each element by one thread, so that there are no partial results of threads, and bits depend on
shapes alone.
"""

from __future__ import annotations

import math
from typing import Any

from .....record import record
from .....schedule.kernels.convolution import Convolution
from ...kernels.conv_weights_blocking import WeightBlocking, features_of_groups
from ..contraction.emission import Emission, Range
from ..contraction.loops import divide, greatest, i64, least, repeat
from ..contraction.packing import TURN_TYPE, turn_lines
from ..ir import Function
from ..types import I64
from .direct import meeting
from .weights_tile import WeightTile


@record(frozen=False, eq=False)
class WeightGradient(Emission[Convolution, WeightBlocking]):
    """The emission of one function: the micro-kernels by their number of rows, and the loops over units and blocks of
    pixels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plan.group is not None:
            self.call = features_of_groups(self.call)
        c, g = self.call, self.plan
        self.blocks = g.blocks(c)
        self.images, self.block_count = self.size(c.channels), self.size(math.prod(self.blocks))
        if g.turned:
            self.turn = self.module.function(self.symbols[0], TURN_TYPE)
            self.turned = self.memory(g.images * g.gradient_steps(c)[0])
            self.present = self.b.memory(I64)  # which panel is turned
        sizes = {g.rows} | ({g.rows - 1} if g.large < g.tiles else set())
        self.tiles = {rows: WeightTile(self.module, f"{self.name}_{rows}", c, g, rows).emit() for rows in sorted(sizes)}

    def emit(self) -> Function:
        x, gradient, self.out = self.buffers(3)
        self.x = self.v.element(x, i64(self.call.a.offset))
        self.gradient = self.v.element(gradient, i64(self.call.w.offset))
        return self.over_units(self._together, self.plan.together)

    def _together(self, low: Any) -> None:
        """Units from `low`, block after block."""
        b, c, g = self.b, self.call, self.plan
        high = least(b, b.add(low, i64(g.together)), self.hi)

        def block(index: Any) -> None:
            rest, column = divide(b, index, self.blocks[2])
            image, line = divide(b, rest, self.blocks[1])
            images, lines, pixels = (
                (start, least(b, b.add(start, i64(size)), extent))
                for start, size, extent in (
                    (b.mul(image, i64(g.images)), g.images, self.images),
                    (b.mul(line, i64(g.lines)), g.lines, i64(c.kernel[0])),
                    (b.mul(column, i64(g.pixels)), g.pixels, i64(c.kernel[1])),
                )
            )
            first = b.icmp_signed("==", index, i64(0))
            if g.turned:
                b.store(i64(-1), self.present)
            repeat(b, low, high, 1, lambda unit: self._unit(unit, images, lines, pixels, first))

        repeat(b, i64(0), self.block_count, 1, block)

    def _unit(self, index: Any, images: Range, lines: Range, pixels: Range, first: Any) -> None:
        """The taps of a tile follow each other, so that its features and channels of a block stay in L1."""
        b, v, c, g = self.b, self.v, self.call, self.plan
        index, tap_x = divide(b, index, 1 if g.runs else c.out_size[1])
        index, tap_y = divide(b, index, c.out_size[0])
        index, tile = divide(b, index, g.tiles)
        group, panel = divide(b, index, g.panels)
        channel = i64(0) if g.runs else b.add(b.mul(tile, i64(g.rows - 1)), least(b, tile, i64(g.large)))
        feature = b.mul(panel, i64(g.columns))
        # For each pixel of the gradient, a tap has a place in the input: as a pixel has for each tap, exchanged.
        (_, top, bottom), (_, left, right) = (meeting(b, c, axis, tap) for axis, tap in ((0, tap_y), (1, tap_x)))
        if g.runs:
            left, right = i64(0), i64(c.kernel[1])
        top, bottom = greatest(b, top, lines[0]), least(b, bottom, lines[1])
        if self.blocks[2] > 1:
            left, right = greatest(b, left, pixels[0]), least(b, right, pixels[1])
        y, x = (
            b.sub(b.add(b.mul(tap, i64(c.stride[axis])), b.mul(pixel, i64(c.dilation[axis]))), i64(c.padding[axis]))
            for axis, tap, pixel in ((0, tap_y, top), (1, tap_x, left))
        )
        tap = b.add(b.mul(tap_y, i64(c.out_size[1])), tap_x)
        # Channels for the features of a panel, of many groups.
        share = 0 if g.group is None else g.columns // g.group[1] * g.group[0]
        place = zip((channel, y, x, group, images[0], panel), (*c.a.strides, share), strict=True)
        arguments = [
            v.at(self.x, *place),
            self._gradient(group, (images, lines, pixels), panel, (top, left)),
            v.at(self.out, (channel, g.channel(c)), (tap, g.tap(c)), (group, c.features), (feature, 1)),
            *(greatest(b, b.sub(last, start), i64(0)) for start, last in (images, (top, bottom), (left, right))),
            b.sub(i64(c.features), feature),
            first,
        ]
        if g.large == g.tiles:
            b.call(self.tiles[g.rows], arguments)
            return
        with b.if_else(b.icmp_signed("<", tile, i64(g.large))) as (large, small):
            with large:
                b.call(self.tiles[g.rows], arguments)
            with small:
                b.call(self.tiles[g.rows - 1], arguments)

    def _gradient(self, group: Any, block: tuple[Range, Range, Range], panel: Any, pixel: Range) -> Any:
        """Address of a pixel of the first image of a block in the gradient of a panel, or in its turned copy."""
        b, v, c, g = self.b, self.v, self.call, self.plan
        images, lines, pixels = block
        feature, (to_line, to_pixel, to_group, to_image, to_feature) = b.mul(panel, i64(g.columns)), c.w.strides
        if not g.turned:
            index = (*pixel, group, images[0], feature)
            return v.at(self.gradient, *zip(index, (*c.w.strides[:4], 1), strict=True))
        number = b.add(b.mul(group, i64(g.panels)), panel)
        of_image, of_line, of_pixel = g.gradient_steps(c)
        features = least(b, b.sub(i64(c.features), feature), i64(g.columns))
        with b.if_then(b.icmp_signed("!=", number, b.load(self.present, typ=I64))):
            b.store(number, self.present)

            def turn(image: Any, line: Any) -> None:
                at = (line, to_line), (group, to_group), (image, to_image), (feature, to_feature), (pixels[0], to_pixel)
                target = v.at(self.turned, (b.sub(image, images[0]), of_image), (b.sub(line, lines[0]), of_line))
                run = b.sub(pixels[1], pixels[0])
                source = v.at(self.gradient, *at)
                turn_lines(v, self.turn, source, to_feature, features, target, g.columns, run, lines_first=False)

            repeat(b, *images, 1, lambda image: repeat(b, *lines, 1, lambda line: turn(image, line)))
        return v.at(self.turned, (b.sub(pixel[0], lines[0]), of_line), (b.sub(pixel[1], pixels[0]), of_pixel))
