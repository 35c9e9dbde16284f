"""Blocking of a depthwise convolution with channels first: one plane after another, in tiles of rows. Numbers only.

Pixels of a row are the vector. The last tile of rows and the last vector of a row overlap the one before, rather than
be shorter: their common part is computed twice.
"""

from __future__ import annotations

from ....record import record
from ....schedule.kernels.convolution import Convolution
from ....sizes.dims import Size
from .conv_tiling import Machine
from .plan import Plan

# Rows of a tile share what they read, and their sums hide the latency of each other's (8x128x56x56 by 3x3, one core: 4
# and 8 take 1.0 and 0.9 ms, and the code for 8 twice as long to compile; 2 are as fast there, and a third slower on
# small maps).
MAX_ROWS = 4
MAX_TAPS = 49  # their multiply-adds are unrolled
MAX_BORDERS = 6  # vectors of a row that a tap meets in part
ZEROS_BYTES = 1 << 19  # a row of zeros, in scratch memory, for rows beside the image


@record
class Planes(Plan):
    rows: int  # of a tile
    starts: tuple[int, ...]  # of vectors, pixels in a row

    def units(self, convolution: Convolution) -> Size:
        return convolution.batch * convolution.groups


def planes_of(c: Convolution, machine: Machine) -> Planes | None:
    """The tiling; None where a group has more than one channel, or pixels of a row are not contiguous."""
    if c.channels > 1 or c.features > 1 or c.stride != (1, 1) or c.a.strides[2] != 1:
        return None
    height, width = c.out_size
    lanes = machine.vector_bytes // c.dtype.itemsize
    if zeros(c, lanes) * c.dtype.itemsize > ZEROS_BYTES:
        return None
    starts = (*range(0, width - lanes, lanes), max(0, width - lanes))
    if c.kernel[0] * c.kernel[1] > MAX_TAPS or len(borders(c, starts, lanes)) > MAX_BORDERS:
        return None
    return Planes(lanes, -(-height // -(-height // MAX_ROWS)), starts)


def zeros(c: Convolution, lanes: int) -> int:
    """Length of a row of zeros, which is read in the place of a row of the image."""
    return max(c.padding[1], 0) + c.out_size[1] + 2 * lanes + (c.kernel[1] - 1) * c.dilation[1]


def borders(c: Convolution, starts: tuple[int, ...], lanes: int) -> list[int]:
    """The vectors for some of whose pixels a tap is beside the image."""
    before, beyond = c.padding[1], c.size[1] + c.padding[1] - (c.kernel[1] - 1) * c.dilation[1]
    return [k for k, start in enumerate(starts) if start < before or start + lanes > beyond]
