"""How the gradient of a convolution's weights is cut: tiles for registers, blocks of pixels for caches. Numbers only.

As a `Convolution` its batch are the channels of the input, its kernel the pixels of the result's gradient, its channels
the images, and its result the taps of the weights. For each tap it is a product [channels x pixels] @ [pixels x
features], summed over the images. A unit is one tile of one tap: some channels, some features. Threads take runs of
units, of which `together` go block by block through the pixels, so that a block is read from memory once for all of
them, and their results stay in cache meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from .blocking import MAX_ROWS, tile_shape
from .convolve import Convolution
from .tiling import Machine

# Pixels of a block. 64 to 512 are equal (8x64x56x56, 3x3: 113 GF/s), but for a first layer, whose features fill four
# vectors: 128 of them and the channels are what L1 holds (AlexNet's: 107 GF/s against 98 with 256).
BLOCK_PIXELS = 128
# Results of units that are computed together (16x64x27x27 by 5x5 -> 192, 1.2 MB of them: 104 GF/s with 2^16, 113 with
# 2^18 and 2^19, 102 without blocks of pixels around units).
RESULT_BYTES = 1 << 18


@dataclass(frozen=True)
class WeightBlocking:
    lanes: int
    rows: int  # channels of the larger tiles; the others have one fewer
    large: int  # how many tiles are larger; they come first
    tiles: int  # of channels
    vectors: int  # of features across a tile
    panels: int  # of features
    images: int  # of a block of pixels
    lines: int  # rows of pixels of a block
    together: int  # units

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors

    def blocks(self, convolution: Convolution) -> tuple[int, int]:
        """Of images, of the rows of an image."""
        return -(-convolution.channels // self.images), -(-convolution.kernel[0] // self.lines)


def weight_units(convolution: Convolution, blocking: WeightBlocking) -> int:
    """Extent of the parallel range."""
    height, width = convolution.out_size
    return convolution.groups * height * width * blocking.tiles * blocking.panels


def weight_blocking_of(c: Convolution, machine: Machine) -> WeightBlocking | None:
    """None where the convolution looks like another one, or its features do not follow each other in memory.

    The bits of the result depend on the convolution alone.
    """
    exchanged = c.a.strides[0] == 1 and c.batch > 1  # channels, where a batch would be
    summed, kept = c.kernel[0] * c.kernel[1], c.out_size[0] * c.out_size[1]
    if not (exchanged or summed > kept) or not (c.w.strides[4] == 1 or c.features == 1):
        return None
    lanes = machine.vector_bytes // c.dtype.itemsize
    tiles, vectors = tile_shape(c.batch, c.features, lanes, machine.registers, MAX_ROWS)
    rows = -(-c.batch // tiles)
    height, width = c.kernel
    return WeightBlocking(
        lanes=lanes,
        rows=rows,
        large=c.batch - (rows - 1) * tiles,
        tiles=tiles,
        vectors=vectors,
        panels=-(-c.features // (lanes * vectors)),
        images=_share(c.channels, BLOCK_PIXELS // (height * width)),
        lines=_share(height, BLOCK_PIXELS // width),
        together=max(1, RESULT_BYTES // (rows * vectors * machine.vector_bytes)),
    )


def _share(extent: int, most: int) -> int:
    """Size of nearly equal blocks, at least 1."""
    blocks = -(-extent // max(1, most))
    return -(-extent // blocks)
