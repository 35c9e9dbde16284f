"""A convolution as an implicit matrix product: `void convolution(ptr buffers, i64 lo, i64 hi)` over units.

A tile of the result stays in registers over all taps and channels: pixels of the image are broadcast, features are
vectors of the weights (Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD
architectures", 2018). No matrix of windows and no padded image is made: rows of taps outside of the image are left out,
a pixel beside it is read from a zero. Every element is one chain of fused multiply-adds over (ky, kx, c), so that its
bits depend neither on tiles nor on threads nor on the width of vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....schedule.kernels.convolution import Convolution
from ...kernels.conv_tiling import Tiling, panel_size, word_rows, words_of
from ...kernels.low_precision import shifted
from .. import ir
from ..gemm.kernel import call_epilogue, own_table, set_pointer
from ..gemm.tile import AS_EMITTED, Vectors, i64, least, loop, repeat, share
from ..kernel import KERNEL_TYPE
from ..types import I64, PTR, VOID, constant
from ..vectors.packed_operands import multiply_add
from .pack import Panel, emit_pack, emit_planes_of_row, emit_rows, panel_of
from .packed import Pixel, emit_word_panels

Range = tuple[Any, Any]
# x, packed weights, result, a zero; rows of taps from, to; column of the first pixel's first tap; live features
_TILE_TYPE = ir.FunctionType(VOID, [PTR, PTR, PTR, PTR, I64, I64, I64, I64])
# A few channels, as those of a coloured image, are not worth a loop (3 channels: 84 multiply-adds against 28).
_UNROLLED_CHANNELS = 4
# Columns of taps are unrolled where they meet at most this part of a tile's pixels: small maps gain, larger ones only
# compile longer ([Note: Convolutions]).
MOST_MET = 0.85


def emit_direct(
    module: ir.Module,
    name: str,
    convolution: Convolution,
    tiling: Tiling,
    epilogue: ir.Function | None = None,
    turn: str = "",
    buffers: int = 0,
) -> ir.Function:
    """The function; its epilogue runs over the panels of a unit in a row of the result, or in that row of a tile's
    images.

    If the result passes, the epilogue is given `buffers` pointers, with that of the result replaced.
    """
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.update(AS_EMITTED)
    _Direct(function, convolution, tiling, epilogue, turn, buffers).emit()
    return function


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


def emit_packed(module: ir.Module, name: str, convolution: Convolution, tiling: Tiling, turn: str) -> ir.Function:
    """`void weights(ptr buffers, i64 lo, i64 hi)`: weights to the panels that the kernel reads, see `pack_units`."""
    c, g = convolution, tiling
    if c.stored is not None:
        return emit_word_panels(module, name, c, g, turn)
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.update(
        AS_EMITTED if panel_of(c).run else AS_EMITTED[:1]
    )  # rows are copied here, squares are not
    table, low, high = function.args
    b = function.build()
    v, panel = Vectors(b, c.dtype, g.lanes), panel_of(c)
    source, target = (b.load(b.gep(table, [i64(k)], source_etype=PTR), typ=PTR) for k in range(2))
    source = v.element(source, i64(c.w.offset))

    def one_panel(index: Any) -> None:
        group, number = b.udiv(index, i64(g.panels)), b.urem(index, i64(g.panels))
        weights = v.element(source, b.mul(group, i64(c.w.strides[2])))
        place = v.element(target, b.mul(index, i64(panel_size(c, g))))
        emit_pack(v, c, g.columns, panel, weights, place, number, turn)

    def one_tap(index: Any) -> None:
        group, tap = b.udiv(index, i64(kh * kw)), b.urem(index, i64(kh * kw))
        row, column = b.mul(b.udiv(tap, i64(kw)), i64(c.w.strides[0])), b.mul(b.urem(tap, i64(kw)), i64(c.w.strides[1]))
        weights = v.element(source, b.add(b.mul(group, i64(c.w.strides[2])), b.add(row, column)))
        start = b.add(b.mul(group, i64(g.panels * panel_size(c, g))), b.mul(tap, i64(c.channels * g.columns)))
        emit_rows(v, c, g.columns, weights, v.element(target, start), g.panels, panel_size(c, g))

    kh, kw = c.kernel
    unit = one_panel if panel.run else one_tap
    repeat(b, low, high, 1, unit)
    b.ret_void()
    return function


def _panel(c: Convolution, tiling: Tiling) -> Panel:
    """Layout of a panel of weights in memory; in words, that of `emit_word_panels`."""
    if c.stored is None:
        return panel_of(c)
    row, words = word_rows(c, tiling), -(-c.channels // tiling.how.group)
    return Panel(c.kernel[0] * row, row - c.kernel[1] * words, (row, words, 1), (), 0, 0)


class _Tiles:
    """The micro-kernels of a convolution, by the pixels of a row and the images of a tile."""

    def __init__(self, function: ir.Function, convolution: Convolution, tiling: Tiling, panel: Panel) -> None:
        self.function, self.convolution, self.tiling, self.panel = function, convolution, tiling, panel
        self.guarded = _empty_rows(convolution)
        self.starts = convolution.stored is not None and shifted(convolution, tiling.how)
        self.found: dict[tuple[int, int], ir.Function] = {}

    def __getitem__(self, shape: tuple[int, int]) -> ir.Function:
        if shape not in self.found:
            self.found[shape] = self._emit(*shape)
        return self.found[shape]

    def _edges(self, width: int) -> set[int]:
        """Pixels that are beside the image for some tap, in some tile of this width."""
        g = self.tiling
        large = [t * g.width for t in range(g.large)]
        small = [t * (g.width - 1) + g.large for t in range(g.large, g.tiles)]
        starts = large if width == g.width else small
        return {i for i in range(width) if any(_dead(self.convolution, start + i) for start in starts)}

    def _met(self, pixels: list[tuple[int, int]]) -> list[list[int]]:
        """The pixels that each column of taps meets, where a tile is a row of few pixels; else an empty list."""
        c = self.convolution
        if self.tiling.tiles > 1 or self.starts:
            return []
        columns = [
            [i * c.stride[1] + kx * c.dilation[1] - c.padding[1] for _, i in pixels] for kx in range(c.kernel[1])
        ]
        met = [[p for p, column in enumerate(of) if 0 <= column < c.size[1]] for of in columns]
        return met if sum(map(len, met)) <= MOST_MET * len(pixels) * c.kernel[1] else []

    def _emit(self, width: int, images: int) -> ir.Function:
        c, g = self.convolution, self.tiling
        function = ir.Function(self.function.module, _TILE_TYPE, f"{self.function.name}_{width}x{images}")
        function.linkage = "internal"
        for attribute in ("nounwind", "noinline"):
            function.attributes.add(attribute)
        b = function.build()
        x, w, y, zero, first, last, column, live = function.args
        v = Vectors(b, c.dtype, g.lanes)
        word = Pixel(v, c, g)
        edges = self._edges(width)
        at_n, at_h, at_w, _, at_c = c.a.strides
        pixels = [(image, i) for image in range(images) for i in range(width)]
        places = [image * at_n + i * c.stride[1] * at_w for image, i in pixels]
        to_h, to_w, to_c = (g.columns * step for step in self.panel.steps)

        known = self._met(pixels)

        def lanes_of(met: list[int]) -> list[int]:
            return [p * g.vectors + j for p in met for j in range(g.vectors)]

        def row(ky: Any, sums: list[Any]) -> list[Any]:
            x_row = v.element(x, b.mul(ky, i64(c.dilation[0] * at_h)))
            w_row = v.element(w, b.mul(ky, i64(to_h)))
            if self.starts:
                first_row = [v.load(v.element(w_row, i64(j * g.lanes - g.columns))) for j in range(g.vectors)]
                sums = [b.add(total, first_row[k % g.vectors]) for k, total in enumerate(sums)]

            def over_channels(x_tap: Any, kx: Any, met: list[int], edges: set[int], sums: list[Any]) -> list[Any]:
                """One tap over the pixels `met`; those of `edges` may be beside the image."""
                w_tap = v.element(w_row, b.mul(kx, i64(to_w)))
                at = b.add(column, b.mul(kx, i64(c.dilation[1])))
                outside = {
                    i: b.icmp_unsigned(">=", b.add(at, i64(i * c.stride[1])), i64(c.size[1])) for i in sorted(edges)
                }
                sources = {}  # for such a pixel: its first channel, the step to the next
                for p in (p for p in met if pixels[p][1] in edges):
                    beside, source = outside[pixels[p][1]], v.element(x_tap, i64(places[p]))
                    sources[p] = b.select(beside, zero, source), b.select(beside, i64(0), i64(at_c))

                def channel(k: Any, sums: list[Any]) -> list[Any]:
                    weights = v.element(w_tap, b.mul(k, i64(to_c)))
                    across = [v.load(v.element(weights, i64(j * g.lanes))) for j in range(g.vectors)]
                    moved = v.element(x_tap, b.mul(k, i64(at_c)))
                    updated = []
                    for number, p in enumerate(met):
                        place = v.element(moved, i64(places[p]))
                        if p in sources:
                            place = v.element(sources[p][0], b.mul(k, sources[p][1]))
                        pixel, of = word(place), sums[number * g.vectors :]
                        updated += [multiply_add(b, g.how, pixel, across[j], of[j]) for j in range(g.vectors)]
                    return updated

                if c.channels > _UNROLLED_CHANNELS:
                    return loop(b, i64(0), i64(c.channels), 1, sums, channel)
                for k in range(c.channels):
                    sums = channel(i64(k), sums)
                return sums

            def tap(kx: Any, sums: list[Any]) -> list[Any]:
                x_tap = v.element(x_row, b.mul(kx, i64(c.dilation[1] * at_w)))
                return over_channels(x_tap, kx, list(range(len(pixels))), edges, sums)

            if not known:
                return loop(b, i64(0), i64(c.kernel[1]), 1, sums, tap)
            for kx, met in enumerate(known):
                if met:
                    x_tap, chosen = v.element(x_row, i64(kx * c.dilation[1] * at_w)), [sums[k] for k in lanes_of(met)]
                    for k, value in zip(lanes_of(met), over_channels(x_tap, i64(kx), met, set(), chosen), strict=True):
                        sums = [*sums[:k], value, *sums[k + 1 :]]
            return sums

        sums = [v.zero] * (len(pixels) * g.vectors)
        if self.guarded:
            before = b.block
            with b.if_then(b.icmp_signed("<", first, last)):
                computed = loop(b, first, last, 1, sums, row)
                after = b.block
            sums = [v.merge((v.zero, before), (value, after)) for value in computed]
        else:
            sums = loop(b, first, last, 1, sums, row)
        partial = c.features % g.columns != 0 and not c.channels_first
        masks = [v.mask(live, j) if partial else None for j in range(g.vectors)]
        to_pixel, to_image = g.steps(c)
        for p, (image, i) in enumerate(pixels):
            at = image * to_image + i * to_pixel
            for j, mask in enumerate(masks):
                v.store(sums[p * g.vectors + j], v.element(y, i64(at + j * g.lanes)), mask)
        b.ret_void()
        return function


class _Direct:
    """The emission of one function: the loops over units, their images, rows, tiles and panels."""

    def __init__(
        self,
        function: ir.Function,
        convolution: Convolution,
        tiling: Tiling,
        epilogue: ir.Function | None,
        turn: str,
        buffers: int,
    ) -> None:
        self.panel, self.panel_size = _panel(convolution, tiling), panel_size(convolution, tiling)
        convolution = words_of(convolution, tiling.how)
        self.convolution, self.tiling, self.epilogue = convolution, tiling, epilogue
        self.table, self.lo, self.hi = function.args
        self.b = b = function.build()
        self.v = v = Vectors(b, convolution.dtype, tiling.lanes)
        self.zero = b.memory(v.scalar_type)
        self.tiles = _Tiles(function, convolution, tiling, self.panel)
        if convolution.channels_first or convolution.passing:
            self.strip = b.memory(v.scalar_type, tiling.images * tiling.steps(convolution)[1])
        if convolution.passing:
            self.table = own_table(b, self.table, buffers)
        if convolution.channels_first:
            pitch, name = tiling.steps(convolution)[0], f"{function.name}_planes"
            self.planes = emit_planes_of_row(function.module, name, convolution, tiling.lanes, pitch, turn)

    def emit(self) -> None:
        b, v, c, g = self.b, self.v, self.convolution, self.tiling
        x, w, y = (b.load(b.gep(self.table, [i64(k)], source_etype=PTR), typ=PTR) for k in range(3))
        x = v.element(x, i64(c.a.offset))
        b.store(constant(0, c.dtype), self.zero)
        panel_parts, block_parts, row_parts = g.parts(c)
        blocks = -(-c.batch // g.images)

        def unit(index: Any) -> None:
            weights, place = b.udiv(index, i64(block_parts * row_parts)), b.urem(index, i64(block_parts * row_parts))
            group, part = b.udiv(weights, i64(panel_parts)), b.urem(weights, i64(panel_parts))
            panels = self._range(part, g.unit_panels, g.panels)
            first = b.mul(group, i64(g.panels * self.panel_size))
            self.weights = v.element(w, b.add(first, i64(self.panel.first * g.columns)))
            images = self._range(b.udiv(place, i64(row_parts)), g.unit_blocks, blocks)
            rows = self._range(b.urem(place, i64(row_parts)), g.unit_rows, c.out_size[0])
            x_group = v.element(x, b.mul(group, i64(c.a.strides[3])))
            repeat(b, *images, 1, lambda block: self._block(x_group, y, group, block, rows, panels))

        repeat(b, self.lo, self.hi, 1, unit)
        b.ret_void()

    def _range(self, part: Any, size: int, extent: int) -> Range:
        return share(self.b, part, i64(-(-extent // size)), i64(extent))

    def _block(self, x: Any, y: Any, group: Any, block: Any, rows: Range, panels: Range) -> None:
        """Some rows of the images of one block; the last block may have fewer images."""
        b, v, c, g = self.b, self.v, self.convolution, self.tiling
        image = b.mul(block, i64(g.images))
        x_image = v.element(x, b.mul(image, i64(c.a.strides[0])))

        def over_rows(images: int) -> Callable[[Any], None]:
            def one(row: Any) -> None:
                self._row(x_image, y, group, image, row, images, panels)
                for k in range(images):
                    self._finish(y, group, image, k, row, panels)

            return one

        rest = c.batch % g.images
        if not rest:
            repeat(b, *rows, 1, over_rows(g.images))
            return
        with b.if_else(b.icmp_signed("<", block, i64(c.batch // g.images))) as (whole, partial):
            with whole:
                repeat(b, *rows, 1, over_rows(g.images))
            with partial:
                repeat(b, *rows, 1, over_rows(rest))

    def _finish(self, y: Any, group: Any, first: Any, k: int, row: Any, panels: Range) -> None:
        """Finishes row `row` of image number `k` of a block: turns it, or runs the epilogue on the panels of a unit."""
        b, v, c, g = self.b, self.v, self.convolution, self.tiling
        (height, width), image = c.out_size, b.add(first, i64(k))
        low, high = (least(b, b.mul(panel, i64(g.columns)), i64(c.features)) for panel in panels)
        if c.channels_first:
            channel = b.add(b.mul(image, i64(c.groups * c.features)), b.mul(group, i64(c.features)))
            rows, columns = (b.add(channel, low), b.add(channel, high)), b.mul(row, i64(width))
            place = v.element(y, b.add(b.mul(rows[0], i64(height * width)), columns))
            (_, to_image), live = g.steps(c), b.sub(high, low)
            strip = v.element(self.strip, i64(k * to_image))
            b.call(self.planes, [strip, place, live])
            ends = (rows, (columns, b.add(columns, i64(width))))
        else:
            pixel = b.mul(b.add(b.mul(image, i64(height)), row), i64(width))
            channel = b.mul(group, i64(c.features))
            ends = ((pixel, b.add(pixel, i64(width))), (b.add(channel, low), b.add(channel, high)))
            if c.passing:  # the result would start there
                to_pixel, to_image = g.steps(c)
                start = v.element(self.strip, b.sub(i64(k * to_image), b.mul(pixel, i64(to_pixel))))
                set_pointer(b, self.table, 2, start)
        if self.epilogue is not None:
            call_epilogue(b, self.epilogue, self.table, *ends)

    def _row(self, x: Any, y: Any, group: Any, image: Any, row: Any, images: int, panels: Range) -> None:
        """A row of the result in the images of a tile, whose rows of `x` these are."""
        b, v, c, g = self.b, self.v, self.convolution, self.tiling
        top = b.sub(b.mul(row, i64(c.stride[0])), i64(c.padding[0]))
        step = c.dilation[0]
        first = b.udiv(b.add(self._positive(b.sub(i64(0), top)), i64(step - 1)), i64(step))
        last = b.udiv(b.add(self._positive(b.sub(i64(c.size[0]), top)), i64(step - 1)), i64(step))
        last = least(b, last, i64(c.kernel[0]))
        x_row = v.element(x, b.mul(top, i64(c.a.strides[1])))
        (to_pixel, to_image), y_row = g.steps(c), None
        if c.passing:
            y_row = v.element(self.strip, b.mul(group, i64(c.features)))
        elif not c.channels_first:
            start = b.add(b.mul(image, i64(to_image)), b.mul(row, i64(c.out_size[1] * to_pixel)))
            y_row = v.element(y, b.add(start, b.mul(group, i64(c.features))))

        def tiles(width: int, skipped: int) -> Callable[[Any], None]:
            def tile(t: Any) -> None:
                pixel = b.add(b.mul(t, i64(width)), i64(skipped))
                column = b.sub(b.mul(pixel, i64(c.stride[1])), i64(c.padding[1]))
                x_at = v.element(x_row, b.mul(column, i64(c.a.strides[2])))
                y_at = v.element(y_row or self.strip, b.mul(pixel, i64(to_pixel)))

                def panel(j: Any) -> None:
                    w_at = v.element(self.weights, b.mul(j, i64(self.panel_size)))
                    feature = b.mul(j, i64(g.columns))
                    live = b.sub(i64(c.features), feature)
                    first_feature = b.mul(panels[0], i64(g.columns)) if c.channels_first else i64(0)
                    y_panel = v.element(y_at, b.sub(feature, first_feature))
                    b.call(self.tiles[width, images], [x_at, w_at, y_panel, self.zero, first, last, column, live])

                repeat(b, *panels, 1, panel)

            return tile

        repeat(b, i64(0), i64(g.large), 1, tiles(g.width, 0))
        if g.large < g.tiles:
            repeat(b, i64(g.large), i64(g.tiles), 1, tiles(g.width - 1, g.large))

    def _positive(self, x: Any) -> Any:
        return self.b.select(self.b.icmp_signed(">", x, i64(0)), x, i64(0))
