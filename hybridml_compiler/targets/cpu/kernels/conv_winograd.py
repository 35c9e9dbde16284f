"""Blocking of a convolution of stride 1 for Winograd's minimal filtering F(2x2, rxr), r = 3 or 5. Numbers only.

Each 2x2 square of the result is computed from a square of r + 1 rows and columns of the image with (r + 1)^2
multiplications a channel and feature instead of 4 r^2 (Lavin and Gray, "Fast algorithms for convolutional neural
networks", 2016): 16 instead of 36, 36 instead of 100. Squares of the image and taps are transformed, their numbers
multiplied and summed over channels as (r + 1)^2 matrix products, and these transformed back. A unit does so for some
rows of squares: its transformed squares stay in L2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ....loops.ir import KernelSpec
from ....once import once
from ....record import record
from ....schedule.kernels.convolution import Convolution, Pair, Pretranspose
from ....sizes.dims import Size
from .conv_tiling import Machine
from .plan import NOTHING, Amount, Plan, parts_of

# Where the polynomials are evaluated, and at infinity (Barabasz et al., "Error analysis and improving the accuracy of
# Winograd convolution for deep neural networks", 2020: a point with its negative reciprocal). With -1/2 in the place of
# -2 the error of 5x5 taps is 1.6 times as large.
POINTS = {3: (Fraction(0), Fraction(1), Fraction(-1)), 5: (*map(Fraction, (0, 1, -1)), Fraction(1, 2), Fraction(-2))}
# Nanoseconds on one core of Zen 4, fitted to the layers of ResNet-18 and AlexNet, whose times they give within 15 %.
MULTIPLY_NS = 0.0176  # 114 GF/s
FORWARD_NS = 0.1  # a number of a transformed square of the image
BACKWARD_NS = 0.12  # a number that is transformed back, and stored before
TRANSFORM_NS = 0.38  # a number of the transformed weights, written, and read from L3
PACK_NS = 0.25  # a weight, by the direct kernel
# Transformed squares of a unit: they are read once for every panel of features, from L2.
UNIT_BYTES = 3 << 18
UNIT_SQUARES = 56  # more read the weights less often, which are in L2 or L3
LINE = 64  # channels fill whole cache lines, and so whole vectors of any machine
MOST_ROWS = 14
VECTORS = 2
SCRATCH_BYTES = 1 << 20  # of transformed squares, at least a row of them
ROWS_BYTES = 1 << 18  # rows of an image under a row of squares, turned so that channels follow each other
CHUNK = 32  # channels whose weights are transformed at a time: 36 or 100 KB of taps

Matrix = tuple[tuple[Fraction, ...], ...]


@record
class Winograd(Plan):
    size: int  # of a square of the image
    rows: int  # squares of a tile of the products
    lines: int  # rows of squares of a unit
    panel_parts: int  # into which a unit is cut once more, where units are few
    chunk: int  # channels

    @property
    def columns(self) -> int:
        return self.lanes * VECTORS

    @property
    def numbers(self) -> int:
        """Numbers of a transformed square."""
        return self.size * self.size

    def units(self, convolution: Convolution) -> Size:
        return parts_of(convolution.batch * squares(convolution)[0], self.lines) * self.panel_parts

    def parts(self, convolution: Convolution) -> list[KernelSpec]:
        """The transforms of a square, and what turns one."""
        turn = [Pretranspose(convolution.dtype, self.lanes)] if turns(convolution) or convolution.channels_first else []
        return [*self.transforms(convolution), *turn]

    def transforms(self, convolution: Convolution) -> tuple[Forward, Backward]:
        c, rows = convolution, rows_of_squares(convolution, self)
        steps = (c.size[1] * c.channels, c.channels) if turns(c) else (c.a.strides[1], c.a.strides[2])
        forward = Forward(c.dtype, self.lanes, c.kernel[0], c.size, steps, c.channels, rows * row_of(c, self))
        # With channels first it is two rows of a panel that are turned afterwards.
        last, columns = not c.channels_first, self.columns
        steps = (c.out_size[1] * c.features, c.features) if last else (2 * squares(c)[1] * columns, columns)
        partial = last and c.features % columns > 0
        odd = (last and c.out_size[0] % 2 > 0, last and c.out_size[1] % 2 > 0)
        return forward, Backward(c.dtype, self.lanes, c.kernel[0], steps, rows * columns, partial, odd)

    def prepared(self, convolution: Convolution) -> tuple[Amount, Amount]:
        """The transformed weights: [panel][number][channel][column]."""
        c, panels = convolution, panels_of(convolution, self)
        nbytes = panels * self.numbers * c.channels * self.columns * c.dtype.itemsize
        return NOTHING, Amount(nbytes, panels * (c.channels // self.chunk))


@record
class Forward(KernelSpec):
    """Code that others call: a square of an image, transformed, over channels.

    A module of its own: convolutions of one shape, with any epilogue, share it and `Backward`, half of the time to
    compile one.
    """

    dtype: np.dtype
    lanes: int
    taps: int
    image: Pair  # its rows and columns
    steps: Pair  # elements of the image from a row to the next, and from a pixel
    channels: int
    plane: int  # elements from a number of the transformed square to the next


@record
class Backward(KernelSpec):
    """Code that others call: a square of the result, of two vectors of features."""

    dtype: np.dtype
    lanes: int
    taps: int
    steps: Pair  # elements of the result from a row to the next, and from a pixel
    plane: int
    partial: bool  # may some of the features be beyond the last
    odd: tuple[bool, bool]  # may the second row be, and the second column


@once
def transforms(taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """(of the image, of the taps, of the result): y = A ((G w) * (B d)) are the 2 values of a filter of `taps` taps.

    Toom and Cook's algorithm, transposed: row i of B are the coefficients of the product of all x - p_j but the own, in
    whole numbers; G has the powers of p_i over the value of that product at p_i, A the powers for the result.
    """
    points = POINTS[taps]
    image, weights = [], []
    for k, p in enumerate(points):
        others = [q for j, q in enumerate(points) if j != k]
        row = (*_product(others), Fraction(0))
        scale = math.lcm(*(x.denominator for x in row))
        value = math.prod((p - q for q in others), start=Fraction(1)) * scale
        image.append(tuple(x * scale for x in row))
        weights.append(tuple(p**j / value for j in range(taps)))
    last = _product(points)
    scale = math.lcm(*(x.denominator for x in last))
    image.append(tuple(x * scale for x in last))
    weights.append(tuple(Fraction(int(j == taps - 1), scale) for j in range(taps)))
    result = ((*(Fraction(1) for _ in points), Fraction(0)), (*points, Fraction(1)))
    return tuple(image), tuple(weights), result


def _product(points: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Coefficients of the product of all x - p, the constant first."""
    found = [Fraction(1)]
    for p in points:
        found = [high - p * low for high, low in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return tuple(found)


def squares(convolution: Convolution) -> tuple[int, int]:
    """Rows and columns of squares of one image."""
    return -(-convolution.out_size[0] // 2), -(-convolution.out_size[1] // 2)


def panels_of(convolution: Convolution, winograd: Winograd) -> int:
    return -(-convolution.features // winograd.columns)


def rows_of_squares(convolution: Convolution, winograd: Winograd) -> int:
    """Rows of a unit's transformed image: tiles of rows are computed whole, and rows beyond it are never stored."""
    return -(-winograd.lines * squares(convolution)[1] // winograd.rows) * winograd.rows


def row_of(convolution: Convolution, winograd: Winograd) -> int:
    """Elements of a row of the transformed image: rows of a power of two would share sets of L1."""
    return convolution.channels + winograd.lanes


def turns(convolution: Convolution) -> bool:
    """Whether rows of the image are turned first, so that channels are contiguous."""
    return convolution.a.strides[4] != 1


def winograd_of(convolution: Convolution, machine: Machine) -> Winograd | None:
    """The blocking; None where it does not apply, or the direct kernel is faster: that depends on the convolution
    alone."""
    c, size = convolution, convolution.dtype.itemsize
    if c.kernel not in ((3, 3), (5, 5)) or not c.stride == c.dilation == (1, 1) or c.groups > 1:
        return None
    rows = (c.kernel[0] + 1) * c.size[1] * c.channels * size
    in_place = c.a.strides[4] == 1 or (c.a.strides[2] == 1 and rows <= ROWS_BYTES)
    fits = (c.kernel[0] + 1) ** 2 * squares(c)[1] * (c.channels * size + LINE) <= SCRATCH_BYTES
    if c.channels * size % LINE or not in_place or not fits or _nanoseconds(c) >= _direct_nanoseconds(c):
        return None
    return cut(c, machine)


def cut(convolution: Convolution, machine: Machine) -> Winograd:
    c, size = convolution, convolution.kernel[0] + 1
    lanes = machine.vector_bytes // c.dtype.itemsize
    most_rows = min(MOST_ROWS, (machine.registers - 1 - VECTORS) // VECTORS)  # sums, weights and a number fit
    down, across = squares(c)
    most = min(UNIT_SQUARES, UNIT_BYTES // (size * size * (c.channels + lanes) * c.dtype.itemsize))
    total = c.batch * down
    best = (math.inf, 0, 0)
    for lines in range(1, max(1, min(total, most // across)) + 1):
        for rows in range(most_rows // 2 + 1, most_rows + 1):
            tiles = sum(
                count * -(-part * across // rows) for count, part in ((total // lines, lines), (1, total % lines))
            )
            # A tile of more rows uses the weights more often, a unit of more squares reads them less often.
            cost = tiles * (rows * VECTORS + 1.5) * (1 + 2 / (lines * across))
            best = min(best, (cost, rows, lines))
    _, rows, lines = best
    wanted = 4 * machine.cores
    parts = max(1, min(-(-c.features // (lanes * VECTORS)), -(-wanted // -(-total // lines))))
    return Winograd(lanes, size, rows, lines, parts, max(k for k in range(1, CHUNK + 1) if c.channels % k == 0))


def _nanoseconds(c: Convolution) -> float:
    count, numbers = c.batch * math.prod(squares(c)), (c.kernel[0] + 1) ** 2
    products = MULTIPLY_NS * count * c.channels * c.features
    squares_of = FORWARD_NS * count * c.channels + BACKWARD_NS * count * c.features
    return numbers * (products + squares_of + TRANSFORM_NS * c.channels * c.features)


def _direct_nanoseconds(c: Convolution) -> float:
    """The direct kernel leaves out rows of taps that are not in the image."""
    (height, width), (rows, _), (kh, kw) = c.out_size, c.size, c.kernel
    met = sum(0 <= y + k - c.padding[0] < rows for y in range(height) for k in range(kh))
    return (MULTIPLY_NS * c.batch * width * met * kw + kh * kw * PACK_NS) * c.channels * c.features
