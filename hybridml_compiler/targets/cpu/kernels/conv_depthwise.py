"""Blocking of a depthwise convolution, or one of small groups: tiles of pixels of a row, for registers. Numbers only.

Every group has a kernel of its own, so that a vector holds the features of several groups, and little is summed over
channels. Which columns of taps a pixel meets is known for every tile: at the border of the image it is one of a few
patterns.

A unit computes some rows of pixels. Of an image with channels first it turns the rows that it reads before.
"""

from __future__ import annotations

from ....record import record
from ....schedule.kernels.convolution import Convolution, Pair
from ....sizes.dims import Size
from .conv_tiling import PACKED_MOST, Machine
from .plan import Plan

MAX_KERNEL_WIDTH = 11  # weights of a row of taps are held in registers
MAX_RUNS = 8  # a millisecond or two of compilation each; more of them only where dilation is large and maps are small
TURNED_BYTES = 1 << 18  # turned rows are in scratch memory, in L2
MAX_LINES = 8  # the rows that two units read are turned twice

Taps = Pair  # columns of taps [first, last) that a pixel meets


@record
class Run:
    """Tiles next to each other whose pixels meet the same taps."""

    first: int  # pixel
    tiles: int
    pixels: tuple[Taps, ...]  # of a tile

    @property
    def width(self) -> int:
        return len(self.pixels)

    def columns(self, stride: int, dilation: int) -> dict[int, list[Pair]]:
        """Columns of the image, counted from that of the tile's first pixel and tap, with the (pixel, tap) pairs that
        read each."""
        found: dict[int, list[Pair]] = {}
        for pixel, (first, last) in enumerate(self.pixels):
            for tap in range(first, last):
                found.setdefault(pixel * stride + tap * dilation, []).append((pixel, tap))
        return dict(sorted(found.items()))


@record
class DepthwiseTiling(Plan):
    runs: tuple[Run, ...]  # a row of pixels
    lines: int  # rows of pixels of a unit
    turned: int  # rows of the image that a unit turns

    def units(self, convolution: Convolution) -> Size:
        return convolution.batch * -(-convolution.out_size[0] // self.lines)


def depthwise_tiling_of(c: Convolution, machine: Machine) -> DepthwiseTiling | None:
    """The tiling; None where a group is large, or neither channels nor, of a depthwise one, pixels are contiguous."""
    taps = c.kernel[0] * c.kernel[1]
    lanes = machine.vector_bytes // c.dtype.itemsize
    if c.groups == 1 or c.channels > c.features or c.features >= lanes or lanes % c.features:
        return None
    last = c.a.strides[3] == c.channels and (c.a.strides[4] == 1 or c.channels == 1)
    first = c.a.strides[2] == 1 and c.channels == c.features == 1
    size = taps * c.groups * c.channels * c.features * c.dtype.itemsize
    if not (first or last) or c.kernel[1] > MAX_KERNEL_WIDTH or size > PACKED_MOST:
        return None
    # Pixels of a tile share what they read. More of them are fewer loads, but more streams of memory (3x3, 1.0 ms with
    # 4, 1.2 with 8; 7x7, 3.1 and 2.3).
    most = min(c.kernel[1] + 1, machine.registers - c.kernel[1] * c.channels - 2)
    runs = runs_of(c, max(1, most))
    if runs is None:
        return None
    if last:
        return DepthwiseTiling(lanes, runs, lines=1, turned=0)
    fitting = [
        n for n in range(1, MAX_LINES + 1) if _rows(c, n) * turned_row(c, lanes) * c.dtype.itemsize <= TURNED_BYTES
    ]
    if not fitting:
        return None
    lines = -(-c.out_size[0] // -(-c.out_size[0] // fitting[-1]))
    return DepthwiseTiling(lanes, runs, lines, turned=_rows(c, lines))


def turned_row(c: Convolution, lanes: int) -> int:
    """Elements of a row of the image with channels last, in whole vectors."""
    return c.size[1] * -(-c.groups // lanes) * lanes


def _rows(c: Convolution, lines: int) -> int:
    """Rows of the image that so many rows of pixels read."""
    return min((lines - 1) * c.stride[0] + (c.kernel[0] - 1) * c.dilation[0] + 1, c.size[0])


def runs_of(c: Convolution, most: int) -> tuple[Run, ...] | None:
    """A row of pixels in tiles of nearly equal width, `most` or less; None where they differ too much."""
    tiles = -(-c.out_size[1] // most)
    width = -(-c.out_size[1] // tiles)
    large = c.out_size[1] - (width - 1) * tiles
    runs: list[Run] = []
    start = 0
    for tile in range(tiles):
        pixels = tuple(_taps(c, start + i) for i in range(width if tile < large else width - 1))
        if runs and runs[-1].pixels == pixels:
            runs[-1] = Run(runs[-1].first, runs[-1].tiles + 1, pixels)
        else:
            runs.append(Run(start, 1, pixels))
        start += len(pixels)
    return tuple(runs) if len(runs) <= MAX_RUNS else None


def _taps(c: Convolution, pixel: int) -> Taps:
    start, step = pixel * c.stride[1] - c.padding[1], c.dilation[1]
    first, last = (max(0, -(-(edge - start) // step)) for edge in (0, c.size[1]))
    return min(first, c.kernel[1]), min(last, c.kernel[1])
