"""Blocking of our own direct convolution: tiles for registers, panels for caches, units for threads. Numbers only.

A tile is some pixels of a row of the result, the same ones in some images, times some vectors of features. Each step of
its sum is a tap and a channel. The weights are packed first: a panel are those of the features of a tile, step by step.
A unit computes some rows of some images in some panels; where rows are few, some tiles of a row.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import field

from ....record import record, replace
from ....schedule import cost
from ....schedule.kernels.convolution import Convolution, Pretranspose, Strided
from ....sizes.dims import Size
from .low_precision import BYTES, FLOATS, PAIRS, Format, format_of, shifted
from .plan import NOTHING, Amount, Plan, parts_of

# Weights that the tiles of a unit read one after the other stay in half of the L2 of AVX-512 machines.
UNIT_BYTES = 1 << 19
STRIP_BYTES = 1 << 18  # of a row of the result that is turned into planes, in scratch memory
MOST_STRIP_BYTES = 1 << 20  # where one panel has more, a loop nest computes the convolution
UNITS_A_CORE = 8  # for cores that are not equally fast, or not ours alone
PACKED_MOST = 1 << 20  # bytes of weights in the scratch memory of a thread
UNIT_PIXELS = 56  # a unit reads its weights from further away than L2: it has so many pixels at least


@record
class Machine:
    vector_bytes: int
    registers: int
    cores: int
    features: Container[str] = field(default=(), repr=False)  # LLVM's names


@record
class Tiling(Plan):
    vectors: int  # across a tile
    width: int  # pixels of the larger tiles; the others have one fewer
    large: int  # how many tiles of a row are larger; they come first
    tiles: int  # of a row
    images: int  # of a tile
    panels: int
    unit_panels: int
    unit_blocks: int  # of images
    unit_rows: int
    unit_tiles: int
    how: Format = FLOATS  # contents of a word of the image and the weights; a step of the sum is a tap and a word

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors

    def steps(self, convolution: Convolution) -> tuple[int, int]:
        """Elements of the result from a pixel to the next, and to the same one of the next image.

        With channels first it is a strip of the panels of a unit, for a row of the images of a tile, turned afterwards;
        of a result that passes a strip of all features.
        """
        (height, width), features = convolution.out_size, convolution.groups * convolution.features
        if convolution.channels_first:
            return self.unit_panels * self.columns, width * self.unit_panels * self.columns
        return features, (1 if convolution.passing else height) * width * features

    def cuts(self, convolution: Convolution) -> tuple[int, Size, int, int]:
        """Number of units that the panels, the blocks of images, the rows and the tiles of a row are cut into."""
        return (
            -(-self.panels // self.unit_panels),
            parts_of(parts_of(convolution.batch, self.images), self.unit_blocks),
            -(-convolution.out_size[0] // self.unit_rows),
            -(-self.tiles // self.unit_tiles),
        )

    def units(self, convolution: Convolution) -> Size:
        return convolution.groups * math.prod(self.cuts(convolution))

    def parts(self, convolution: Convolution) -> list[Pretranspose]:
        return [Pretranspose(convolution.dtype, self.lanes)] if convolution.channels_first else []

    def prepared(self, convolution: Convolution) -> tuple[Amount, Amount]:
        """Rows of the image, in words; panels of weights, [group][panel][tap and channel][column], by rows of taps if
        they are words. Where features follow each other in memory, by taps: one row of their weights goes to all
        panels."""
        c, size = convolution, convolution.dtype.itemsize
        weights, taps = c.groups * self.panels * panel_size(c, self) * size, c.kernel[0] * c.kernel[1]
        if c.stored is None:
            return NOTHING, Amount(weights, c.groups * (taps if c.w.strides[4] == 1 else self.panels))
        pixels = c.batch * math.prod(c.size) * c.groups * -(-c.channels // self.how.group) * size
        image = NOTHING if words_in_place(c, self.how) else Amount(pixels, c.batch * c.size[0])
        return image, Amount(weights, c.groups * c.kernel[0])


def panel_size(convolution: Convolution, tiling: Tiling) -> int:
    """Elements from one panel to the next."""
    return convolution.kernel[0] * word_rows(convolution, tiling) * tiling.columns


def word_rows(convolution: Convolution, tiling: Tiling) -> int:
    """Rows of a panel for a row of taps; the first holds initial sums if the image is shifted (low_precision.py)."""
    starts = convolution.stored is not None and shifted(convolution, tiling.how)
    return int(starts) + convolution.kernel[1] * -(-convolution.channels // tiling.how.group)


def words_in_place(convolution: Convolution, how: Format) -> bool:
    """Whether the image has words in memory that the instruction can read."""
    c = convolution
    steps = (c.channels, c.a.offset, *c.a.strides[:4])
    return how in (PAIRS, BYTES) and c.a.strides[4] == 1 and all(step % how.group == 0 for step in steps)


def words_of(convolution: Convolution, how: Format) -> Convolution:
    """The convolution as one of words of channels, of an image that is packed unless its memory has words already."""
    c = convolution
    if c.stored is None:
        return c
    words = -(-c.channels // how.group)
    if words_in_place(c, how):
        n, h, w, g, _ = (step // how.group for step in c.a.strides)
        return replace(c, channels=words, a=Strided(c.a.offset // how.group, (n, h, w, g, 1)))
    steps = [math.prod(sizes) for sizes in ((*c.size, c.groups), (c.size[1], c.groups), (c.groups,), ())]
    return replace(c, channels=words, a=Strided(0, (*(step * words for step in steps), 1)))


def can_pass(convolution: Convolution, tiling: Tiling) -> bool:
    """Whether a row of the result, of the images of a tile, fits into scratch memory."""
    c = convolution
    size = tiling.images * c.out_size[1] * c.groups * c.features * c.dtype.itemsize
    return not c.channels_first and size <= STRIP_BYTES


def tiling_of(convolution: Convolution, machine: Machine) -> Tiling | None:
    """The tiling; None where rows of planes are too long. The bits of the result depend on the convolution alone."""
    how = FLOATS if convolution.stored is None else format_of(convolution, machine.features)
    c = words_of(convolution, how)
    size = c.dtype.itemsize
    lanes = machine.vector_bytes // size
    tiles, images, vectors = _shape(c, lanes, machine.registers)
    panels = -(-c.features // (lanes * vectors))
    panel = c.kernel[0] * c.kernel[1] * c.channels * lanes * vectors * size
    width = -(-c.out_size[1] // tiles)
    most = max(1, UNIT_BYTES // panel)
    if c.channels_first:
        strip = images * c.out_size[1] * lanes * vectors * size
        if strip > MOST_STRIP_BYTES:
            return None
        most = max(1, min(most, STRIP_BYTES // strip))
    unit = _unit(c, tiles, images, panels, min(panels, most), machine.cores)
    return Tiling(
        lanes=lanes,
        vectors=vectors,
        width=width,
        large=c.out_size[1] - (width - 1) * tiles,
        tiles=tiles,
        images=images,
        panels=panels,
        unit_panels=unit[0],
        unit_blocks=unit[1],
        unit_rows=unit[2],
        unit_tiles=unit[3],
        how=how,
    )


def _shape(c: Convolution, lanes: int, registers: int) -> tuple[int, int, int]:
    """(tiles of a row, images of a tile, vectors across it): the cheapest that fits the registers."""
    best = (math.inf, 0, 0, 0)
    columns = c.out_size[1]
    for vectors in range(1, min(8, -(-c.features // lanes), (registers - 2) // 2) + 1):
        # Sums, a row of weights and a pixel fit, and one is left (with AVX2, 7x7x512 by 3x3: 96 GF/s, and 87 without).
        most = (registers - 2 - vectors) // vectors
        fewest = -(-columns // most)
        # A number of tiles that divides the row needs one micro-kernel, any other two (8 ms of compilation each).
        dividing = [t for t in range(fewest, 2 * fewest + 1) if columns % t == 0][:1]
        for tiles in (fewest, *dividing):
            width = -(-columns // tiles)
            for images in range(1, min(c.batch, most // width) + 1):
                count = tiles * -(-c.batch // images) * -(-c.features // (lanes * vectors))
                total = _step(width * images, vectors) * count
                kernels = (1 if columns % tiles == 0 else 2) * (1 if c.batch % images == 0 else 2)
                best = min(best, (total * (1 + 0.03 * (kernels - 1)), tiles, images, vectors))
    return best[1], best[2], best[3]


def _step(pixels: int, vectors: int) -> float:
    """Time of one step of a tile: multiply-adds (8 hide their latency) or loads; weights come from further away than
    pixels."""
    return max(pixels * vectors, pixels + vectors, 8) + 0.1 * pixels + 0.3 * vectors + 0.5


def _unit(
    c: Convolution, tiles: int, images: int, panels: int, most_panels: int, cores: int
) -> tuple[int, int, int, int]:
    """(panels, blocks of images, rows, tiles of a row) of a unit: as large as caches and threads allow."""
    blocks, rows = -(-c.batch // images), c.out_size[0]
    panel_parts = -(-panels // most_panels)
    if c.flops * cost.FLOP_NS <= cost.PARALLEL_THRESHOLD_NS:
        return -(-panels // panel_parts), blocks, rows, tiles
    wanted = UNITS_A_CORE * cores
    missing = -(-wanted // (c.groups * panel_parts))
    block_parts = min(blocks, missing)
    most = max(1, -(-blocks // block_parts) * images * rows * c.out_size[1] // UNIT_PIXELS)
    row_parts = min(rows, -(-missing // block_parts), most)
    missing = -(-missing // (block_parts * row_parts))
    tile_parts = min(tiles, missing, most // row_parts) if row_parts == rows else 1
    missing = -(-wanted // (c.groups * block_parts * row_parts * tile_parts))
    panel_parts = max(panel_parts, min(panels, missing))
    return -(-panels // panel_parts), -(-blocks // block_parts), -(-rows // row_parts), -(-tiles // tile_parts)
