"""Blocking of the gradient of a convolution's weights: tiles for registers, blocks of pixels for caches. Numbers only.

As a `Convolution`, its batch is the channels of the input, its kernel the pixels of the result's gradient, its channels
the images, and its result the taps of the weights. For each tap it is a product [channels x pixels] @ [pixels x
features], summed over the images. A unit is one tile of one tap: some channels, some features. Threads take runs of
units; `together` of them go block by block through the pixels, so that a block is read from memory once for all of
them, and their results stay in cache meanwhile.

Where that tile would be small, as for the one channel of a grey image, it is of all taps of a row, and goes over pixels
in runs that meet the same taps. So does a convolution of small groups, or a depthwise one, which is a product element
by element: there the features of all groups are one axis, and a vector holds those of several (8x28x28, 32 groups of 4
by 3x3: 117 GF/s, group by group 17).
"""

from __future__ import annotations

from ....record import record, replace
from ....schedule.kernels.convolution import Convolution, Pretranspose, Strided
from ....sizes.dims import Size
from .conv_depthwise import Run, runs_of
from .conv_tiling import Machine
from .gemm_blocking import MAX_ROWS, tile_shape
from .plan import Plan, parts_of

# Pixels of a block. 64 to 512 are equal (8x64x56x56, 3x3: 113 GF/s), but for a first layer, whose features fill four
# vectors: 128 of them and the channels are what L1 holds (AlexNet's: 107 GF/s against 98 with 256).
BLOCK_PIXELS = 128
# Results of units that are computed together (16x64x27x27 by 5x5 -> 192, 1.2 MB of them: 104 GF/s with 2^16, 113 with
# 2^18 and 2^19, 102 without blocks of pixels around units).
RESULT_BYTES = 1 << 18
# Sums of a tile that hide the latency of each other's. With fewer, a tile of all taps of a row is better (128x1x28x28
# by 5x5 -> 32: 123 GF/s against 48).
FEW_SUMS = 8
# Bytes of the gradient of a panel in a block, which is turned into scratch memory: longer ones (rows of sound) are cut.
TURNED_BYTES = 1 << 19


@record
class WeightBlocking(Plan):
    rows: int  # channels of the larger tiles, the others have one fewer; or taps times channels
    large: int  # how many tiles are larger; they come first
    tiles: int  # of channels
    vectors: int  # of features across a tile
    panels: int  # of features
    images: int  # of a block of pixels
    lines: int  # rows of pixels of a block
    pixels: int  # of a row
    together: int  # units
    runs: tuple[Run, ...]  # of pixels, for a tile of all taps of a row
    group: tuple[int, int] | None  # its channels and features, where features are those of all groups
    turned: bool  # features are apart in memory: the gradient of a panel and a block is turned first

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors

    def blocks(self, convolution: Convolution) -> tuple[Size, int, int]:
        """Numbers of blocks of images, of the rows of an image, and of the pixels of a row."""
        height, width = convolution.kernel
        return parts_of(convolution.channels, self.images), -(-height // self.lines), -(-width // self.pixels)

    def units(self, convolution: Convolution) -> int:
        groups = convolution.groups if self.group is None else 1
        taps = convolution.out_size[0] * (1 if self.runs else convolution.out_size[1])
        return groups * taps * self.tiles * self.panels

    def parts(self, convolution: Convolution) -> list[Pretranspose]:
        return [Pretranspose(convolution.dtype, self.lanes)] if turns_gradient(convolution) else []

    def gradient_steps(self, convolution: Convolution) -> tuple[int, int, int]:
        """Elements of the gradient, or of its turned copy, from image to image, row to row, pixel to pixel."""
        if not self.turned:
            return convolution.w.strides[3], convolution.w.strides[0], convolution.w.strides[1]
        line = self.pixels * self.columns
        return self.lines * line, line, self.columns

    def tap(self, convolution: Convolution) -> int:
        """Elements of the result from tap to tap."""
        return convolution.groups * convolution.features

    def channel(self, convolution: Convolution) -> int:
        """Elements of the result from channel to channel."""
        return self.tap(convolution) * convolution.out_size[0] * convolution.out_size[1]


def weight_blocking_of(c: Convolution, machine: Machine) -> WeightBlocking | None:
    """The blocking; None where the convolution looks like another one, or neither features nor pixels are contiguous.

    The bits of the result depend on the convolution alone.
    """
    lanes = machine.vector_bytes // c.dtype.itemsize
    exchanged = c.a.strides[0] == 1 and c.batch > 1  # channels, where a batch would be
    pixels, kept = c.kernel[0] * c.kernel[1], c.out_size[0] * c.out_size[1]
    image, _, _, group, channel = c.a.strides
    inner = (c.batch == 1 or channel < image) and (c.groups == 1 or channel < group)  # as channels of an image lie
    if not exchanged and (channel == 1 or pixels * c.channels <= kept or (inner and pixels < kept)):
        return None
    spread = c.batch <= c.features < lanes and lanes % c.features == 0 and (exchanged or c.batch == 1)
    adjacent = (c.a.strides[3], c.w.strides[2]) == (c.batch, c.features) and (c.features == 1 or c.w.strides[4] == 1)
    if c.groups > 1 and spread and adjacent:
        found = _rows_of_taps(features_of_groups(c), lanes, machine.registers, (c.batch, c.features))
        if found is not None:
            return found
    if turns_gradient(c) and c.w.strides[1] != 1:
        return None
    tiles, vectors = tile_shape(c.batch, c.features, lanes, machine.registers, MAX_ROWS)
    rows = -(-c.batch // tiles)
    # Tiles of all taps of a row go over whole rows.
    few = rows * vectors < FEW_SUMS and not (turns_gradient(c) and _most_pixels(c, lanes * vectors) < c.kernel[1])
    by_taps = _rows_of_taps(c, lanes, machine.registers, None) if few else None
    return by_taps or _blocking(c, lanes, rows, tiles, vectors, (), None)


Group = tuple[int, int] | None


def _rows_of_taps(c: Convolution, lanes: int, registers: int, group: Group) -> WeightBlocking | None:
    """The blocking with tiles of two vectors or one; None where not even those fit the registers."""
    rows = c.out_size[1] * c.batch
    exchanged = replace(c, out_size=c.kernel, kernel=c.out_size, stride=c.dilation, dilation=c.stride)
    for vectors in range(min(2, -(-c.features // lanes)), 0, -1):
        most = (registers - 2) // vectors - rows - 1  # sums, gradients and a pixel of x fit
        runs = runs_of(exchanged, min(most, c.out_size[1] + 1)) if most > 0 else None
        if runs is not None:
            return _blocking(c, lanes, rows, 1, vectors, runs, group)
    return None


def _blocking(
    c: Convolution, lanes: int, rows: int, tiles: int, vectors: int, runs: tuple[Run, ...], group: Group
) -> WeightBlocking:
    (height, width), turned = c.kernel, group is None and turns_gradient(c)
    return WeightBlocking(
        lanes=lanes,
        rows=rows,
        large=tiles if runs else c.batch - (rows - 1) * tiles,
        tiles=tiles,
        vectors=vectors,
        panels=-(-c.features // (lanes * vectors)),
        images=_share(c.channels, BLOCK_PIXELS // (height * width)),
        lines=_share(height, BLOCK_PIXELS // width),
        pixels=_share(width, _most_pixels(c, lanes * vectors)) if turned else width,
        together=max(1, RESULT_BYTES // (rows * vectors * lanes * c.dtype.itemsize)),
        runs=runs,
        group=group,
        turned=turned,
    )


def _most_pixels(c: Convolution, columns: int) -> int:
    """Pixels of a row of a block whose gradient is turned."""
    return max(BLOCK_PIXELS, TURNED_BYTES // (columns * c.dtype.itemsize))


def turns_gradient(c: Convolution) -> bool:
    return c.features > 1 and c.w.strides[4] != 1


def features_of_groups(c: Convolution) -> Convolution:
    """The convolution as if there were one group, with the features of all."""
    to_y, to_x, _, to_image, _ = c.w.strides
    return replace(c, groups=1, features=c.groups * c.features, w=Strided(c.w.offset, (to_y, to_x, 0, to_image, 1)))


def _share(extent: int, most: int) -> int:
    """Size of nearly equal blocks, at least 1."""
    blocks = -(-extent // max(1, most))
    return -(-extent // blocks)
