"""How a 3x3 convolution of stride 1 is cut for Winograd's minimal filtering F(2x2, 3x3). Numbers only.

Each 2x2 square of the result is computed from a 4x4 square of the image with 16 multiplications a channel and feature
instead of 36 (Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016). Squares of the image and taps
are transformed, the 16 numbers of each multiplied and summed over channels as 16 matrix products, and these transformed
back. A unit does so for some rows of squares: what it transforms stays in L2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .convolve import Convolution
from .tiling import Machine

# Nanoseconds on one core of Zen 4, fitted to 11 layers of ResNet-18 and AlexNet, whose times they give within 15 %.
MULTIPLY_NS = 0.0176  # 114 GF/s
FORWARD_NS = 1.5  # a channel of a square of the image
BACKWARD_NS = 2.0  # a feature of a square of the result, with the products stored
TRANSFORM_NS = 6.0  # a channel and feature of the weights, with 16 numbers written, and read from L3
PACK_NS = 0.25  # a weight, by the direct kernel
# Transformed squares of a unit: they are read once for every panel of features, from L2.
UNIT_BYTES = 3 << 18
UNIT_SQUARES = 56  # more read the weights less often, which lie in L2 or L3
MOST_ROWS = 14
VECTORS = 2
CHUNK = 32  # channels whose weights are transformed at a time: 36 KB of taps


@dataclass(frozen=True)
class Winograd:
    lanes: int
    rows: int  # squares of a tile of the products
    lines: int  # rows of squares of a unit
    panel_parts: int  # into which a unit is cut once more, where units are few
    chunk: int  # channels

    @property
    def columns(self) -> int:
        return self.lanes * VECTORS


def squares(convolution: Convolution) -> tuple[int, int]:
    """Rows and columns of squares of one image."""
    return -(-convolution.out_size[0] // 2), -(-convolution.out_size[1] // 2)


def panels_of(convolution: Convolution, winograd: Winograd) -> int:
    return -(-convolution.features // winograd.columns)


def transformed_bytes(convolution: Convolution, winograd: Winograd) -> int:
    """Memory of the transformed weights: [panel][16][channel][column]."""
    c = convolution
    return c.groups * panels_of(c, winograd) * 16 * c.channels * winograd.columns * c.dtype.itemsize


def winograd_of(convolution: Convolution, machine: Machine) -> Winograd | None:
    """None where it does not apply, or the direct kernel is faster."""
    c = convolution
    applies = c.kernel == (3, 3) and c.stride == c.dilation == (1, 1) and c.groups == 1 and c.a.strides[4] == 1
    fits = machine.registers >= 32 and c.channels % (machine.vector_bytes // c.dtype.itemsize) == 0
    return cut(c, machine) if applies and fits and _nanoseconds(c) < _direct_nanoseconds(c) else None


def cut(convolution: Convolution, machine: Machine) -> Winograd:
    c, size = convolution, convolution.dtype.itemsize
    lanes = machine.vector_bytes // size
    chunk = max(k for k in range(1, CHUNK + 1) if c.channels % k == 0)
    down, across = squares(c)
    most = min(UNIT_SQUARES, UNIT_BYTES // (16 * (c.channels + lanes) * size))
    total = c.batch * down
    best = (math.inf, 0, 0)
    for lines in range(1, max(1, min(total, most // across)) + 1):
        for rows in range(8, MOST_ROWS + 1):
            tiles = sum(
                count * -(-part * across // rows) for count, part in ((total // lines, lines), (1, total % lines))
            )
            # A tile of more rows uses the weights more often, a unit of more squares reads them less often.
            cost = tiles * (rows * VECTORS + 1.5) * (1 + 2 / (lines * across))
            best = min(best, (cost, rows, lines))
    _, rows, lines = best
    wanted = 4 * machine.cores
    parts = max(1, min(panels_of(c, Winograd(lanes, rows, lines, 1, chunk)), -(-wanted // -(-total // lines))))
    return Winograd(lanes, rows, lines, parts, chunk)


def _nanoseconds(c: Convolution) -> float:
    count = c.batch * math.prod(squares(c))
    products = MULTIPLY_NS * 16 * count * c.channels * c.features
    transforms = FORWARD_NS * count * c.channels + BACKWARD_NS * count * c.features
    return products + transforms + TRANSFORM_NS * c.channels * c.features


def _direct_nanoseconds(c: Convolution) -> float:
    """The direct kernel leaves out rows of taps that are not in the image."""
    (height, width), (rows, _) = c.out_size, c.size
    met = sum(0 <= y + k - c.padding[0] < rows for y in range(height) for k in range(3))
    return (MULTIPLY_NS * c.batch * width * met * 3 + 9 * PACK_NS) * c.channels * c.features


def units(convolution: Convolution, winograd: Winograd) -> int:
    return -(-convolution.batch * squares(convolution)[0] // winograd.lines) * winograd.panel_parts


def weight_units(convolution: Convolution, winograd: Winograd) -> int:
    return panels_of(convolution, winograd) * (convolution.channels // winograd.chunk)
