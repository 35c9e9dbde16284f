"""The micro-kernel of a gradient of weights: some of its elements in registers, over a block of pixels.

Its rows are channels of the input, broadcast, for one tap: every pixel adds an outer product. Or they are all taps of a
row: then it goes over pixels in runs, and loads the columns of the input that those meet once. Where the
features are those of many groups, each group spreads one of its channels over its features.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .....record import record
from ...kernels.conv_depthwise import Run
from .. import ir
from ..gemm.tile import Vectors, i64, least, loop
from ..types import I1, I64, PTR, VOID

# x, gradient, result; images, rows, pixels of a row, live features, first block?
TILE_TYPE = ir.FunctionType(VOID, [PTR, PTR, PTR, I64, I64, I64, I64, I1])

Steps = tuple[int, int, int]  # from image to image, row to row, pixel to pixel
Columns = dict[int, list[tuple[int, int]]]  # offset in the input -> pixels and taps that meet there


@record
class WeightTile:
    """Strides are in elements; those of the input are of one step over the pixels of the gradient."""

    dtype: np.dtype
    lanes: int
    rows: tuple[int, ...]  # where each is in the result
    vectors: int
    channels: int
    channel: int  # from one to the next in the input
    group: tuple[int, int] | None  # its channels and features, where features are those of all groups
    x: Steps
    gradient: Steps
    partial: bool  # some tiles have fewer features than their vectors have lanes
    # To the same pixel of the next block, in the input and in the gradient; None where there is one block, else all but
    # the first add to the result.
    ahead: tuple[int, int] | None
    runs: tuple[tuple[Run, Columns], ...]  # rows are taps times channels


def emit_weight_tile(module: ir.Module, name: str, tile: WeightTile) -> ir.Function:
    """`void tile(ptr x, ptr gradient, ptr out, i64 images, i64 rows, i64 pixels, i64 live, i1 first)`."""
    function = ir.Function(module, TILE_TYPE, name)
    function.linkage = "internal"
    for attribute in ("nounwind", "noinline"):
        function.attributes.add(attribute)
    _Tile(function, tile).emit()
    return function


class _Tile:
    def __init__(self, function: ir.Function, tile: WeightTile) -> None:
        self.tile, self.function = tile, function
        self.b = function.build()
        self.v = Vectors(self.b, tile.dtype, tile.lanes)
        *_, live, _ = function.args
        self.masks = [self.v.mask(live, j) if tile.partial else None for j in range(tile.vectors)]
        self.share, self.inputs = 0, self.masks
        if tile.group is not None:
            channels, features = tile.group
            self.share = tile.lanes // features * channels  # of the input, for one vector of features
            if channels < features:
                left = self.b.sdiv(self.b.mul(live, i64(channels)), i64(features))
                ends = [self.b.sub(left, i64(j * self.share)) for j in range(tile.vectors)]
                self.inputs = [self.v.mask(least(self.b, end, i64(self.share)), 0) for end in ends]

    def emit(self) -> None:
        b, v, t = self.b, self.v, self.tile
        x, gradient, out, _, rows, pixels, _, first = self.function.args
        before = b.block
        with b.if_then(b.icmp_signed("<", i64(0), b.mul(rows, pixels))):
            computed = self._over(0, x, gradient, [v.zero] * (len(t.rows) * t.vectors))
            computing = b.block
        sums = [v.merge((v.zero, before), (value, computing)) for value in computed]
        places = [v.element(out, i64(row + j * t.lanes)) for row in t.rows for j in range(t.vectors)]
        masks = self.masks * len(t.rows)
        if t.ahead is not None:
            sums = v.add_to(places, masks, sums, unless=first)
        for value, place, mask in zip(sums, places, masks, strict=True):
            v.store(value, place, mask)
        b.ret_void()

    def _over(self, axis: int, x: Any, gradient: Any, sums: list[Any]) -> list[Any]:
        """Images, rows, pixels."""
        b, v, t = self.b, self.v, self.tile
        if axis == 2 and t.runs:
            return self._line(x, gradient, sums)
        if axis == 3:
            return self._pixel(x, gradient, sums)

        def body(k: Any, sums: list[Any]) -> list[Any]:
            here = v.element(x, b.mul(k, i64(t.x[axis]))), v.element(gradient, b.mul(k, i64(t.gradient[axis])))
            return self._over(axis + 1, *here, sums)

        return loop(b, i64(0), self.function.args[3 + axis], 1, sums, body)

    def _pixel(self, x: Any, gradient: Any, sums: list[Any]) -> list[Any]:
        v, t = self.v, self.tile
        across = self._vectors(gradient)
        if t.ahead is not None:
            self._fetch(v.element(x, i64(t.ahead[0])), 1)
            self._fetch(v.element(gradient, i64(t.ahead[1])), t.vectors)
        updated = []
        for i in range(t.channels):
            down = self._channel(x, i)
            updated += [v.fma(down[j], across[j], sums[i * t.vectors + j]) for j in range(t.vectors)]
        return updated

    def _line(self, x: Any, gradient: Any, sums: list[Any]) -> list[Any]:
        b, t = self.b, self.tile
        for run, columns in t.runs:

            def pixels(k: Any, sums: list[Any], run: Run = run, columns: Columns = columns) -> list[Any]:
                start = b.add(b.mul(k, i64(run.width)), i64(run.first))
                x_at = self.v.element(x, b.mul(start, i64(t.x[2])))
                return self._pixels(
                    run, columns, x_at, self.v.element(gradient, b.mul(start, i64(t.gradient[2]))), sums
                )

            sums = loop(b, i64(0), i64(run.tiles), 1, sums, pixels)
        return sums

    def _pixels(self, run: Run, columns: Columns, x: Any, gradient: Any, sums: list[Any]) -> list[Any]:
        v, t = self.v, self.tile
        sums, gradients = list(sums), []
        for i in range(run.width):
            pixel = v.element(gradient, i64(i * t.gradient[2]))
            gradients.append(self._vectors(pixel))
            if t.ahead is not None:
                self._fetch(v.element(pixel, i64(t.ahead[1])), t.vectors)
        for column, met in columns.items():
            source = v.element(x, i64(column))
            if t.ahead is not None:
                self._fetch(v.element(source, i64(t.ahead[0])), t.vectors if self.share else 1)
            for i in range(t.channels):
                values = self._channel(source, i)
                for pixel, tap in met:
                    for j in range(t.vectors):
                        at = (tap * t.channels + i) * t.vectors + j
                        sums[at] = v.fma(values[j], gradients[pixel][j], sums[at])
        return sums

    def _channel(self, x: Any, i: int) -> list[Any]:
        """A channel of a pixel, as the vectors to multiply those of features by."""
        v, t = self.v, self.tile
        if t.group is not None:
            channels, features = t.group
            places = [v.element(x, i64(j * self.share)) for j in range(t.vectors)]
            values = [v.load(place, mask) for place, mask in zip(places, self.inputs, strict=True)]
            return [v.shuffle(value, [lane // features * channels + i for lane in range(t.lanes)]) for value in values]
        return [v.splat(v.scalar(v.element(x, i64(i * t.channel))))] * t.vectors

    def _vectors(self, start: Any) -> list[Any]:
        v, t = self.v, self.tile
        return [v.load(v.element(start, i64(j * t.lanes)), mask) for j, mask in enumerate(self.masks)]

    def _fetch(self, start: Any, vectors: int) -> None:
        """Fetches vectors of the next block into L2 ([Note: Prefetching])."""
        for j in range(vectors):
            self.v.prefetch(self.v.element(start, i64(j * self.tile.lanes)), level=2)
