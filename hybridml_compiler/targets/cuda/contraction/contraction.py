"""Library calls as one form: a batch of products, each operand of which is read through digits of its rows and steps.

    out[matrix, row, column] = sum over steps of a[matrix, row, step] * b[matrix, column, step]

An index is a number in mixed radix, such as image, y, x of a pixel; each digit has a stride in memory. Where the
positions of a row and of a step add up to one outside of the image, the element is zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....record import record
from ....schedule.kernels.convolution import Convolution, Strided
from ....schedule.kernels.gemm import Matrix, Product


@record
class Digit:
    """One digit of an index: it runs to `extent`, and is worth `stride` elements."""

    extent: int
    stride: int


@record
class Inside:
    """A coordinate that has to be in an image: row digit * `row_step` + step digit * `step` + `start`, below `extent`;
    the digits by their numbers."""

    row: int
    row_step: int
    digit: int
    step: int
    start: int
    extent: int


@record
class Addresses:
    """Places of an operand's elements, from the most significant digit of each index to the least."""

    offset: int
    batch: tuple[Digit, ...]
    rows: tuple[Digit, ...]
    steps: tuple[Digit, ...]
    inside: tuple[Inside, ...] = ()

    @property
    def size(self) -> int:
        """Product of the rows' digits."""
        return math.prod(digit.extent for digit in self.rows)

    @property
    def depth(self) -> int:
        """Product of the steps' digits."""
        return math.prod(digit.extent for digit in self.steps)


@record
class Contraction:
    """A call in that form; `place` gives row and column of its result from `matrix` and those of a matrix, i and j,
    as text of C."""

    text: str
    dtype: np.dtype
    stored: tuple[np.dtype, np.dtype]
    result: tuple[int, int]
    a: Addresses
    b: Addresses
    place: tuple[str, str]
    sizes: tuple[int, int]  # of the operands in memory, in elements
    swapped: bool = False  # whether a is the second operand of the call

    @property
    def matrices(self) -> int:
        return math.prod(digit.extent for digit in self.a.batch)

    @property
    def m(self) -> int:
        return self.a.size

    @property
    def n(self) -> int:
        return self.b.size

    @property
    def k(self) -> int:
        return self.a.depth


def contraction_of(call: Product | Convolution) -> Contraction:
    """The call as a batch of products."""
    return _of_product(call) if isinstance(call, Product) else _of_convolution(call)


def _of_product(call: Product) -> Contraction:
    def side(matrix: Matrix, rows: int, row: int, column: int) -> Addresses:
        batch = joined([Digit(n, step) for n, step in zip(call.batch, matrix.batch, strict=True)])
        return Addresses(matrix.offset, batch, (Digit(rows, row),), (Digit(call.k, column),))

    a = side(call.a, call.m, call.a.row, call.a.column)
    b = side(call.b, call.n, call.b.column, call.b.row)
    place = "i" if call.matrices == 1 else f"matrix * {call.m} + i", "j"
    sizes = (_extent(a), _extent(b))
    return Contraction(str(call), call.dtype, call.stored or (call.dtype,) * 2, call.result, a, b, place, sizes)


def _of_convolution(call: Convolution) -> Contraction:
    """Pixels by features, or, where the result has its channels first, features by pixels."""
    (h, w), (out_h, out_w), (kh, kw) = call.size, call.out_size, call.kernel
    (sy, sx), (dy, dx), (top, left) = call.stride, call.dilation, call.padding
    n, y, x, g, c = call.a.strides
    # Rows that follow each other are the nearest in memory, and so are steps.
    by_pixel, inner = abs(n) > abs(sx * x), abs(c) > abs(dx * x)
    rows = _ordered(by_pixel, Digit(call.batch, n), Digit(out_h, sy * y), Digit(out_w, sx * x))
    steps = _ordered(inner, Digit(call.channels, c), Digit(kh, dy * y), Digit(kw, dx * x))
    inside = [Inside(by_pixel, sy, inner, dy, -top, h), Inside(1 + by_pixel, sx, 1 + inner, dx, -left, w)]
    needed = tuple(i for i in inside if i.start < 0 or _last(i, rows, steps) >= i.extent)
    start = call.a.offset - top * y - left * x
    pixels = Addresses(start, (Digit(call.groups, g),), tuple(rows), tuple(steps), needed)
    ky, kx, wg, wc, wo = call.w.strides
    weights = Addresses(
        call.w.offset,
        (Digit(call.groups, wg),),
        (Digit(call.features, wo),),
        tuple(_ordered(inner, Digit(call.channels, wc), Digit(kh, ky), Digit(kw, kx))),
    )
    stored, sizes = call.stored or (call.dtype,) * 2, (_memory(call.a, call), _memory(call.w, call, weights=True))
    all_features, size = call.groups * call.features, out_h * out_w
    if not call.channels_first:
        row = "i" if by_pixel else f"i % {call.batch} * {size} + i / {call.batch}"
        column = "j" if call.groups == 1 else f"matrix * {call.features} + j"
        return Contraction(str(call), call.dtype, stored, call.result, pixels, weights, (row, column), sizes)
    image, pixel = (f"j / {size}", f"j % {size}") if by_pixel else (f"j % {call.batch}", f"j / {call.batch}")
    place = f"{image} * {all_features} + matrix * {call.features} + i", pixel
    return Contraction(
        str(call), call.dtype, stored[::-1], call.result, weights, pixels, place, sizes[::-1], swapped=True
    )


def _ordered(pixels_inner: bool, channel: Digit, *pixels: Digit) -> list[Digit]:
    return [channel, *pixels] if pixels_inner else [*pixels, channel]


def _last(inside: Inside, rows: Sequence[Digit], steps: Sequence[Digit]) -> int:
    """The greatest coordinate."""
    row, step = rows[inside.row].extent - 1, steps[inside.digit].extent - 1
    return row * inside.row_step + step * inside.step + inside.start


def _memory(operand: Strided, call: Convolution, *, weights: bool = False) -> int:
    """The number of elements up to the last one of an operand."""
    shape = (*call.kernel, call.groups, call.channels, call.features) if weights else (
        call.batch, *call.size, call.groups, call.channels)  # fmt: skip
    forward = [(n, step) for n, step in zip(shape, operand.strides, strict=True) if step > 0]
    return operand.offset + sum((n - 1) * step for n, step in forward) + 1


def _extent(side: Addresses) -> int:
    digits = (*side.batch, *side.rows, *side.steps)
    return side.offset + sum((digit.extent - 1) * digit.stride for digit in digits) + 1


def joined(digits: Sequence[Digit]) -> tuple[Digit, ...]:
    """The same index with as few digits as its strides allow."""
    found: list[Digit] = []
    for digit in digits:
        if digit.extent == 1:
            continue
        if found and found[-1].stride == digit.extent * digit.stride:
            digit = Digit(found.pop().extent * digit.extent, digit.stride)
        found.append(digit)
    return tuple(found)


def offset(index: str, digits: Sequence[Digit]) -> str:
    """The text of the elements that an index is worth."""
    terms, below = [], 1
    for number, digit in reversed([*enumerate(digits)]):
        if digit.stride and digit.extent > 1:
            value = digit_of(index, digits, number)
            terms.append(value if digit.stride == 1 else f"{value} * {digit.stride}LL")
        below *= digit.extent
    return " + ".join(terms[::-1])


def digit_of(index: str, digits: Sequence[Digit], number: int) -> str:
    """The text of a digit of an index."""
    below = math.prod(digit.extent for digit in digits[number + 1 :])
    value = f"{index} / {below}" if below > 1 else index
    return value if number == 0 else f"{value} % {digits[number].extent}"
