"""A convolution as an implicit matrix product: `void convolution(ptr buffers, i64 lo, i64 hi)` over units.

A tile of the result stays in registers over all taps and channels: pixels of the image are broadcast, features are
vectors of the weights (Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD
architectures", 2018). No matrix of windows and no padded image is made: rows of taps outside of the image are left out,
a pixel beside it is read from a zero. Every element is one chain of fused multiply-adds over (ky, kx, c), so that its
bits depend neither on tiles nor on threads nor on the width of vectors.
"""

from __future__ import annotations

from typing import Any

from .....record import record
from .....schedule.kernels.convolution import Convolution
from .....sizes.dims import is_dim, same
from ...kernels.conv_tiling import Tiling, panel_size, word_rows, words_of
from ...kernels.low_precision import shifted
from ...kernels.plan import parts_of
from .. import ir
from ..contraction.emission import Emission, Range
from ..contraction.loops import divide, greatest, i64, least, loop, offset, repeat, share
from ..contraction.micro_kernel import Axis, MicroKernel, Sums
from ..types import I64, PTR, constant
from .pack import Panel, emit_planes_of_row, panel_of

# x, packed weights, result, a zero; rows of taps from, to; column of the first pixel's first tap; live features
_ARGUMENTS = [PTR, PTR, PTR, PTR, I64, I64, I64, I64]
# A few channels, as those of a coloured image, are not worth a loop (3 channels: 84 multiply-adds against 28).
_UNROLLED_CHANNELS = 4
# Columns of taps are unrolled where they meet at most this part of a tile's pixels: small maps gain, larger ones only
# compile longer ([Note: Convolutions]).
MOST_MET = 0.85


def _dead(c: Convolution, first: int) -> bool:
    """Whether a tap of the pixel in column `first` of the result is beside the image."""
    at = first * c.stride[1] - c.padding[1]
    return at < 0 or at + (c.kernel[1] - 1) * c.dilation[1] >= c.size[1]


def _empty_rows(c: Convolution) -> bool:
    """Whether the result has a row that no row of taps meets."""
    places = [
        [row * c.stride[0] - c.padding[0] + k * c.dilation[0] for k in range(c.kernel[0])]
        for row in range(c.out_size[0])
    ]
    return any(not any(0 <= place < c.size[0] for place in row) for row in places)


def _panel(c: Convolution, tiling: Tiling) -> Panel:
    """Layout of a panel of weights in memory; in words, that of `emit_packed`."""
    if c.stored is None:
        return panel_of(c)
    row, words = word_rows(c, tiling), -(-c.channels // tiling.how.group)
    return Panel(c.kernel[0] * row, row - c.kernel[1] * words, (row, words, 1), (), 0, 0)


@record(frozen=False, eq=False)
class DirectConvolution(Emission[Convolution, Tiling]):
    """The emission of one function: the loops over units, their images, rows, tiles and panels. Its epilogue runs over
    the panels of a unit in a row of the result, or in that row of a tile's images.

    If the result passes, the epilogue is given a copy of the buffers, with that of the result replaced.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.panel, self.panel_size = _panel(self.call, self.plan), panel_size(self.call, self.plan)
        self.call = words_of(self.call, self.plan.how)
        c, g = self.call, self.plan
        self.zero = self.b.memory(self.v.scalar_type)
        self.guarded, self.starts = _empty_rows(c), c.stored is not None and shifted(c, g.how)
        self.tiles: dict[tuple[int, int], ir.Function] = {}  # by the pixels of a row and the images of a tile
        if c.channels_first or c.passing:
            self.strip = self.b.memory(self.v.scalar_type, g.images * g.steps(c)[1])
        if c.passing:
            self.own_table()
        if c.channels_first:
            self.planes = emit_planes_of_row(self, c, g.steps(c)[0], self.symbols[0], g.unit_tiles >= g.tiles)

    def emit(self) -> ir.Function:
        b, v, c, g = self.b, self.v, self.call, self.plan
        x, w, y = self.buffers(3)
        x = v.element(x, i64(c.a.offset))
        b.store(constant(0, c.dtype), self.zero)
        panel_parts, block_parts, row_parts, tile_parts = g.cuts(c)
        self.batch, self.whole = self.size(c.batch), self.size(c.batch // g.images)  # images, and blocks without a rest
        blocks, block_count = self.size(block_parts), self.size(parts_of(c.batch, g.images))
        units = self.size(block_parts * row_parts * tile_parts)  # of a panel part

        def unit(index: Any) -> None:
            weights, place = divide(b, index, units)
            group, part = divide(b, weights, panel_parts)
            panels = self._range(part, g.unit_panels, g.panels)
            self.weights = v.at(w, (group, g.panels * self.panel_size), (self.panel.first, g.columns))
            block, place = divide(b, place, row_parts * tile_parts)
            row, tile = divide(b, place, tile_parts)
            images = share(b, block, blocks, block_count)
            rows = self._range(row, g.unit_rows, c.out_size[0])
            tiles = self._range(tile, g.unit_tiles, g.tiles)
            x_group = v.at(x, (group, c.a.strides[3]))
            repeat(b, *images, 1, lambda block: self._block(x_group, y, group, block, rows, tiles, panels))

        return self.over_units(unit)

    def _range(self, part: Any, size: int, extent: int) -> Range:
        return share(self.b, part, i64(-(-extent // size)), i64(extent))

    def _block(self, x: Any, y: Any, group: Any, block: Any, rows: Range, tiles: Range, panels: Range) -> None:
        """Some rows of the images of one block. The last block may have fewer images: where their number comes with the
        call, they are computed one by one."""
        b, c, g = self.b, self.call, self.plan
        first = b.mul(block, i64(g.images))
        x_first = self.v.at(x, (first, c.a.strides[0]))

        def over_rows(images: int, image: Any = first, x_image: Any = x_first) -> None:
            def one(row: Any) -> None:
                self._row(x_image, y, group, image, row, images, tiles, panels)
                for k in range(images):
                    self._finish(y, group, image, k, row, tiles, panels)

            repeat(b, *rows, 1, one)

        rest = c.batch % g.images
        if same(rest, 0):
            over_rows(g.images)
            return
        with b.if_else(b.icmp_signed("<", block, self.whole)) as (whole, partial):
            with whole:
                over_rows(g.images)
            with partial:
                if is_dim(rest):
                    repeat(b, first, self.batch, 1, lambda n: over_rows(1, n, self.v.at(x, (n, c.a.strides[0]))))
                else:
                    over_rows(rest)

    def _pixels(self, tiles: Range) -> Range:
        """The pixels of some tiles of a row."""
        b, g = self.b, self.plan
        if g.unit_tiles >= g.tiles:
            return i64(0), i64(self.call.out_size[1])
        first, last = (b.add(b.mul(t, i64(g.width - 1)), least(b, t, i64(g.large))) for t in tiles)
        return first, last

    def _finish(self, y: Any, group: Any, first: Any, k: int, row: Any, tiles: Range, panels: Range) -> None:
        """Finishes some tiles of row `row` of image number `k` of a block: turns them, or runs the epilogue on the
        panels of a unit."""
        b, v, c, g = self.b, self.v, self.call, self.plan
        (height, width), image, (to_pixel, to_image) = c.out_size, b.add(first, i64(k)), g.steps(c)
        start, end = self._pixels(tiles)
        low, high = (least(b, b.mul(panel, i64(g.columns)), i64(c.features)) for panel in panels)
        if c.channels_first:
            channel = offset(b, (image, c.groups * c.features), (group, c.features))
            rows, columns = (b.add(channel, low), b.add(channel, high)), b.add(b.mul(row, i64(width)), start)
            place, strip = (
                v.at(y, (rows[0], height * width), (columns, 1)),
                v.at(self.strip, (k, to_image), (start, to_pixel)),
            )
            pixels = [] if g.unit_tiles >= g.tiles else [b.sub(end, start)]
            b.call(self.planes, [strip, place, b.sub(high, low), *pixels])
            self.finish(rows, (columns, b.add(columns, b.sub(end, start))))
            return
        pixel, channel = b.mul(offset(b, (image, height), (row, 1)), i64(width)), b.mul(group, i64(c.features))
        if c.passing:  # the result would start there
            self.replace_buffer(2, v.at(self.strip, (k, to_image), (pixel, -to_pixel)))
        self.finish((b.add(pixel, start), b.add(pixel, end)), (b.add(channel, low), b.add(channel, high)))

    def _row(self, x: Any, y: Any, group: Any, image: Any, row: Any, images: int, some: Range, panels: Range) -> None:
        """Some tiles of a row of the result in the images of a tile, whose rows of `x` these are."""
        b, v, c, g = self.b, self.v, self.call, self.plan
        top, first, last = meeting(b, c, 0, row)
        x_row = v.at(x, (top, c.a.strides[1]))
        to_pixel, to_image = g.steps(c)
        if c.channels_first:
            y_row = self.strip
        elif c.passing:
            y_row = v.at(self.strip, (group, c.features))
        else:
            y_row = v.at(y, (image, to_image), (row, c.out_size[1] * to_pixel), (group, c.features))

        def tiles(width: int, skipped: int, low: int, high: int) -> None:
            if (width, images) not in self.tiles:
                self.tiles[width, images] = self._tile(width, images)

            def tile(t: Any) -> None:
                pixel = b.add(b.mul(t, i64(width)), i64(skipped))
                column = b.sub(b.mul(pixel, i64(c.stride[1])), i64(c.padding[1]))
                x_at, y_at = v.at(x_row, (column, c.a.strides[2])), v.at(y_row, (pixel, to_pixel))

                def panel(j: Any) -> None:
                    w_at, feature = v.at(self.weights, (j, self.panel_size)), b.mul(j, i64(g.columns))
                    place = b.mul(b.sub(j, panels[0]), i64(g.columns)) if c.channels_first else feature
                    live = b.sub(i64(c.features), feature)
                    arguments = [x_at, w_at, v.element(y_at, place), self.zero, first, last, column, live]
                    b.call(self.tiles[width, images], arguments)

                repeat(b, *panels, 1, panel)

            if g.unit_tiles >= g.tiles:
                repeat(b, i64(low), i64(high), 1, tile)
            else:
                repeat(b, greatest(b, some[0], i64(low)), least(b, some[1], i64(high)), 1, tile)

        tiles(g.width, 0, 0, g.large)
        if g.large < g.tiles:
            tiles(g.width - 1, g.large, g.large, g.tiles)

    # ---- micro-kernels

    def _edges(self, width: int) -> set[int]:
        """Pixels that are beside the image for some tap, in some tile of this width."""
        g = self.plan
        large = [t * g.width for t in range(g.large)]
        small = [t * (g.width - 1) + g.large for t in range(g.large, g.tiles)]
        starts = large if width == g.width else small
        return {i for i in range(width) if any(_dead(self.call, start + i) for start in starts)}

    def _met(self, pixels: list[tuple[int, int]]) -> list[list[int]]:
        """The pixels that each column of taps meets, where a tile is a row of few pixels; else an empty list."""
        c = self.call
        if self.plan.tiles > 1 or self.starts:
            return []
        columns = [
            [i * c.stride[1] + kx * c.dilation[1] - c.padding[1] for _, i in pixels] for kx in range(c.kernel[1])
        ]
        met = [[p for p, column in enumerate(of) if 0 <= column < c.size[1]] for of in columns]
        return met if sum(map(len, met)) <= MOST_MET * len(pixels) * c.kernel[1] else []

    def _tile(self, width: int, images: int) -> ir.Function:
        c, g = self.call, self.plan
        name = f"{self.name}_{width}x{images}"
        t = MicroKernel(self.module, name, _ARGUMENTS, c.dtype, g.lanes, g.vectors, g.how)
        b, v = t.b, t.v
        x, w, y, zero, first, last, column, live = t.args
        beside = self._edges(width)
        at_n, at_h, at_w, _, at_c = c.a.strides
        pixels = [(image, i) for image in range(images) for i in range(width)]
        places = [image * at_n + i * c.stride[1] * at_w for image, i in pixels]
        to_h, to_w, to_c = (g.columns * step for step in self.panel.steps)
        known = self._met(pixels)

        def pixel(place: Any) -> Any:
            value = t.down(place)
            return b.xor(value, constant(-2139062144, c.dtype, g.lanes)) if self.starts else value

        def over_channels(x_tap: Any, w_row: Any, kx: Any, met: list[int], edges: set[int], sums: Sums) -> Sums:
            """One tap over the pixels `met`; those of `edges` may be beside the image."""
            w_tap = v.at(w_row, (kx, to_w))
            at = b.add(column, b.mul(kx, i64(c.dilation[1])))
            outside = {i: b.icmp_unsigned(">=", b.add(at, i64(i * c.stride[1])), i64(c.size[1])) for i in sorted(edges)}
            sources = {}  # for such a pixel: its first channel, the step to the next
            for p in (p for p in met if pixels[p][1] in edges):
                out, source = outside[pixels[p][1]], v.element(x_tap, i64(places[p]))
                sources[p] = b.select(out, zero, source), b.select(out, i64(0), i64(at_c))

            def channel(k: Any, sums: Sums) -> Sums:
                across, moved = t.across(v.at(w_tap, (k, to_c))), v.at(x_tap, (k, at_c))

                def place(p: int) -> Any:
                    here = v.element(moved, i64(places[p]))
                    return v.element(sources[p][0], b.mul(k, sources[p][1])) if p in sources else here

                return t.outer((pixel(place(p)) for p in met), across, sums)

            if c.channels > _UNROLLED_CHANNELS:
                return loop(b, i64(0), i64(c.channels), 1, sums, channel)
            for k in range(c.channels):
                sums = channel(i64(k), sums)
            return sums

        def row(x_row: Any, w_row: Any, sums: Sums) -> Sums:
            if self.starts:
                first_row = t.across(v.element(w_row, i64(-g.columns)))
                sums = [b.add(total, first_row[k % g.vectors]) for k, total in enumerate(sums)]

            def tap(kx: Any, sums: Sums) -> Sums:
                x_tap = v.at(x_row, (kx, c.dilation[1] * at_w))
                return over_channels(x_tap, w_row, kx, list(range(len(pixels))), beside, sums)

            if not known:
                return loop(b, i64(0), i64(c.kernel[1]), 1, sums, tap)
            sums = list(sums)
            for kx, met in enumerate(known):
                if met:
                    x_tap, lanes = v.at(x_row, (kx, c.dilation[1] * at_w)), [p * g.vectors for p in met]
                    lanes = [k + j for k in lanes for j in range(g.vectors)]
                    updated = over_channels(x_tap, w_row, i64(kx), met, set(), [sums[k] for k in lanes])
                    for k, value in zip(lanes, updated, strict=True):
                        sums[k] = value
            return sums

        def rows(sums: Sums) -> Sums:
            return t.over([Axis(first, last, c.dilation[0] * at_h, to_h)], x, w, sums, row)

        sums = t.zeros(len(pixels))
        sums = t.where(b.icmp_signed("<", first, last), sums, rows) if self.guarded else rows(sums)
        masks = v.masks(live, g.vectors, c.features % g.columns != 0 and not c.channels_first)
        to_pixel, to_image = g.steps(c)
        return t.store(y, [image * to_image + i * to_pixel for image, i in pixels], masks, sums)


def meeting(b: ir.IRBuilder, c: Convolution, axis: int, at: Any) -> tuple[Any, Any, Any]:
    """The place in the image of the first tap of a row (or column) of the result, and the taps within the image."""
    step = c.dilation[axis]
    top = b.sub(b.mul(at, i64(c.stride[axis])), i64(c.padding[axis]))
    first, last = (
        b.udiv(greatest(b, b.sub(i64(edge + step - 1), top), i64(0)), i64(step)) for edge in (0, c.size[axis])
    )
    return top, first, least(b, last, i64(c.kernel[axis]))
