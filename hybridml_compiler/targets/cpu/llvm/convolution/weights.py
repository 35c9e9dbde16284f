"""The gradient of a convolution's weights: `void convolution(ptr buffers, i64 lo, i64 hi)` over units.

The loops around the micro-kernel of weights_tile.py, cut as conv_weights_blocking.py says. The input and the
result's gradient are read in place; pixels for which a tap is beside the input are left out by ranges. Blocks are
added up in order, each element by one thread, so that there are no partial results of threads, and bits depend on
shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .....schedule.kernels.convolution import Convolution
from ...kernels.conv_weights_blocking import WeightBlocking, features_of_groups
from .. import ir
from ..gemm.tile import AS_EMITTED, Vectors, greatest, i64, least, repeat
from ..kernel import KERNEL_TYPE
from ..types import I64, PTR
from .pack import declared_turn
from .weights_tile import WeightTile, emit_weight_tile

Range = tuple[Any, Any]


def emit_weight_gradient(
    module: ir.Module, name: str, convolution: Convolution, blocking: WeightBlocking, turn: str = ""
) -> ir.Function:
    """`turn` names the function that turns squares, if the blocking wants one."""
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.update(AS_EMITTED)
    _WeightGradient(function, convolution, blocking, turn).emit()
    return function


class _WeightGradient:
    """The emission of one function: the micro-kernels by their number of rows, and the loops over units and blocks of
    pixels."""

    def __init__(self, function: ir.Function, convolution: Convolution, blocking: WeightBlocking, turn: str) -> None:
        if blocking.group is not None:
            convolution = features_of_groups(convolution)
        self.convolution, self.blocking = convolution, blocking
        self.table, self.lo, self.hi = function.args
        self.b = function.build()
        self.v = Vectors(self.b, convolution.dtype, blocking.lanes)
        self.blocks = blocking.blocks(convolution)
        self.gradient_steps = convolution.w.strides[3], convolution.w.strides[0], convolution.w.strides[1]
        if blocking.turned:
            self.turn = declared_turn(function.module, turn)
            line = blocking.pixels * blocking.columns
            self.gradient_steps = blocking.lines * line, line, blocking.columns
            self.turned = self.b.memory(self.v.scalar_type, blocking.images * blocking.lines * line, ir.LINE)
            self.present = self.b.memory(I64)  # which panel is turned
        self.tap = convolution.groups * convolution.features  # from tap to tap in the result
        self.channel = self.tap * convolution.out_size[0] * convolution.out_size[1]
        sizes = {blocking.rows} | ({blocking.rows - 1} if blocking.large < blocking.tiles else set())
        self.tiles = {
            rows: emit_weight_tile(function.module, f"{function.name}_{rows}", self._tile(rows))
            for rows in sorted(sizes)
        }

    def _tile(self, rows: int) -> WeightTile:
        c, g = self.convolution, self.blocking
        channel, height, width, _, image = c.a.strides
        x = (image, c.dilation[0] * height, c.dilation[1] * width)
        gradient = (0, 0, 0) if g.turned else self.gradient_steps
        axis = max((k for k, count in enumerate(self.blocks) if count > 1), default=0)  # where the next block is
        step = (g.images, g.lines, g.pixels)[axis]
        channels = c.batch if g.runs else rows
        taps = c.out_size[1] if g.runs else 1
        meeting = [run.columns(c.dilation[1], c.stride[1]).items() for run in g.runs]
        return WeightTile(
            dtype=c.dtype,
            lanes=g.lanes,
            rows=tuple(tap * self.tap + i * self.channel for tap in range(taps) for i in range(channels)),
            vectors=g.vectors,
            channels=channels,
            channel=channel,
            group=g.group,
            x=x,
            gradient=self.gradient_steps,
            partial=c.features % g.columns != 0,
            ahead=(step * x[axis], step * gradient[axis]) if max(self.blocks) > 1 else None,
            runs=tuple((run, {k * width: met for k, met in m}) for run, m in zip(g.runs, meeting, strict=True)),
        )

    def emit(self) -> None:
        b, c, v = self.b, self.convolution, self.v
        x, gradient, self.out = (b.load(b.gep(self.table, [i64(k)], source_etype=PTR), typ=PTR) for k in range(3))
        self.x, self.gradient = v.element(x, i64(c.a.offset)), v.element(gradient, i64(c.w.offset))
        repeat(b, self.lo, self.hi, self.blocking.together, self._together)
        b.ret_void()

    def _together(self, low: Any) -> None:
        """Units from `low`, block after block."""
        b, c, g = self.b, self.convolution, self.blocking
        high = least(b, b.add(low, i64(g.together)), self.hi)

        def block(index: Any) -> None:
            rest, column = self._divide(index, self.blocks[2])
            image, line = self._divide(rest, self.blocks[1])
            images, lines, pixels = (
                (start, least(b, b.add(start, i64(size)), i64(extent)))
                for start, size, extent in (
                    (b.mul(image, i64(g.images)), g.images, c.channels),
                    (b.mul(line, i64(g.lines)), g.lines, c.kernel[0]),
                    (b.mul(column, i64(g.pixels)), g.pixels, c.kernel[1]),
                )
            )
            first = b.icmp_signed("==", index, i64(0))
            if g.turned:
                b.store(i64(-1), self.present)
            repeat(b, low, high, 1, lambda unit: self._unit(unit, images, lines, pixels, first))

        repeat(b, i64(0), i64(math.prod(self.blocks)), 1, block)

    def _unit(self, index: Any, images: Range, lines: Range, pixels: Range, first: Any) -> None:
        """The taps of a tile follow each other, so that its features and channels of a block stay in L1."""
        b, c, g = self.b, self.convolution, self.blocking
        index, tap_x = self._divide(index, 1 if g.runs else c.out_size[1])
        index, tap_y = self._divide(index, c.out_size[0])
        index, tile = self._divide(index, g.tiles)
        group, panel = self._divide(index, g.panels)
        channel = i64(0) if g.runs else b.add(b.mul(tile, i64(g.rows - 1)), least(b, tile, i64(g.large)))
        feature = b.mul(panel, i64(g.columns))
        (top, bottom), (left, right) = self._pixels(0, tap_y), self._pixels(1, tap_x)
        if g.runs:
            left, right = i64(0), i64(c.kernel[1])
        top, bottom = greatest(b, top, lines[0]), least(b, bottom, lines[1])
        if self.blocks[2] > 1:
            left, right = greatest(b, left, pixels[0]), least(b, right, pixels[1])
        y, x = self._position(0, tap_y, top), self._position(1, tap_x, left)
        tap = b.add(b.mul(tap_y, i64(c.out_size[1])), tap_x)
        share = (
            0 if g.group is None else g.columns // g.group[1] * g.group[0]
        )  # of the channels, for the features of a panel
        source = zip((channel, y, x, group, images[0], panel), (*c.a.strides, share), strict=True)
        arguments = [
            self._at(self.x, source),
            self._gradient(group, (images, lines, pixels), panel, (top, left)),
            self._at(self.out, ((channel, self.channel), (tap, self.tap), (group, c.features), (feature, 1))),
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
        b, c, g = self.b, self.convolution, self.blocking
        images, lines, pixels = block
        feature = b.mul(panel, i64(g.columns))
        if not g.turned:
            index = (*pixel, group, images[0], feature)
            return self._at(self.gradient, zip(index, (*c.w.strides[:4], 1), strict=True))
        number = b.add(b.mul(group, i64(g.panels)), panel)
        with b.if_then(b.icmp_signed("!=", number, b.load(self.present, typ=I64))):
            b.store(number, self.present)

            def image(k: Any) -> None:
                repeat(b, *lines, 1, lambda line: self._turn(group, (k, images[0]), (line, lines[0]), pixels, feature))

            repeat(b, *images, 1, image)
        _, line, column = self.gradient_steps
        return self._at(self.turned, ((b.sub(pixel[0], lines[0]), line), (b.sub(pixel[1], pixels[0]), column)))

    def _turn(self, group: Any, image: Range, line: Range, columns: Range, feature: Any) -> None:
        """Pixels of a row of an image; image and row come with the first one of the block."""
        b, c, g = self.b, self.convolution, self.blocking
        of_image, of_line, _ = self.gradient_steps
        to_line, _, to_group, to_image, to_feature = c.w.strides
        source = self._at(self.gradient, ((line[0], to_line), (group, to_group), (image[0], to_image)))
        target = self._at(self.turned, ((b.sub(*image), of_image), (b.sub(*line), of_line)))

        def pixels(at: Any) -> None:
            live = least(b, b.sub(columns[1], at), i64(g.lanes))
            for j in range(g.vectors):
                first = b.add(feature, i64(j * g.lanes))
                rows = least(b, b.sub(i64(c.features), first), i64(g.lanes))
                read = self._at(source, ((at, 1), (first, to_feature)))
                write = self._at(target, ((b.sub(at, columns[0]), g.columns), (i64(j), g.lanes)))
                b.call(self.turn, [read, i64(to_feature), write, i64(g.columns), rows, live])

        repeat(b, *columns, g.lanes, pixels)

    def _position(self, axis: int, tap: Any, pixel: Any) -> Any:
        """Position in the input of a tap of the weights, for a pixel of the gradient."""
        b, c = self.b, self.convolution
        there = b.add(b.mul(tap, i64(c.stride[axis])), b.mul(pixel, i64(c.dilation[axis])))
        return b.sub(there, i64(c.padding[axis]))

    def _pixels(self, axis: int, tap: Any) -> Range:
        """Range of pixels of the gradient for which the tap is within the input."""
        b, c = self.b, self.convolution
        start, step = self._position(axis, tap, i64(0)), c.dilation[axis]
        first, last = (
            b.udiv(greatest(b, b.sub(i64(edge + step - 1), start), i64(0)), i64(step)) for edge in (0, c.size[axis])
        )
        return first, least(b, last, i64(c.kernel[axis]))

    def _at(self, start: Any, terms: Iterable[tuple[Any, int]]) -> Any:
        at = i64(0)
        for index, stride in terms:
            at = self.b.add(at, self.b.mul(index, i64(stride)))
        return self.v.element(start, at)

    def _divide(self, x: Any, by: int) -> Range:
        return self.b.udiv(x, i64(by)), self.b.urem(x, i64(by))
