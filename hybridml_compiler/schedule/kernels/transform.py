"""Discrete Fourier transforms of rows as kernels, and the algorithm for each number of points [Note: FFT]."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...loops.ir import KernelSpec
from ...once import once
from ...record import record, replace
from ...sizes.dims import Size, hint

PRIMES = (2, 3, 5, 7, 11, 13)  # of which the number of points is a product
ROWS_POINTS = 64  # up to which rows lie side by side in vectors; longer ones are squares of columns
MOST_POINTS = 1 << 22  # complex ones: tables of a longer row are no part of a kernel any more
MOST_CHIRP = 1 << 16  # points whose number has other prime factors: tables of twice to four times as many numbers
ALIGNED = 8  # complex numbers of a cache line
WHOLE_BYTES = 1 << 19  # of a row that one thread keeps in its scratch memory, a part of L2
SHARED_POINTS = 1 << 12  # from which on threads share the passes of rows that are fewer than they
COLUMN_BYTES = 1 << 20  # of the columns that a thread transforms at a time, twice
NS_PER_FLOP = 0.025  # on one core: 40 GF/s, of 5 n log2(n) operations
# Operations for one point in the butterfly of so many points, with its loads and stores.
_COSTS = {2: 3.0, 3: 4.5, 4: 4.2, 5: 6.5, 7: 9.0, 8: 5.5, 11: 15.0, 13: 18.0}


@record
class Transform(KernelSpec):
    """A pass of transforms along one axis of an array (outer, axis, inner), complex numbers as pairs.

    `rows` transforms contiguous rows, side by side or each by itself. A row of two passes is a matrix whose columns are
    transformed first (`columns`: source -> memory), and then its rows (`squares`: memory -> result). `strided` has
    columns of an array. `pairs` is the step between half a spectrum and the spectrum of half as many complex numbers.

    Other numbers of points are convolutions with a chirp, of `padded` points (`chirp`, `product` and `unchirp` multiply
    rows by its tables); odd numbers of reals are complex ones (`half`: rows cut behind half a spectrum, `mirror`: the
    whole of one, `parts`: real parts).
    """

    stage: str
    dtype: np.dtype  # of real and imaginary parts
    points: int  # complex
    kind: str = "c2c"  # "r2c", "c2r": of twice as many real numbers
    inverse: bool = False
    scale: float = 1.0
    real: bool = False  # whether the source of a c2c is real numbers
    inner: int = 1
    padded: int = 0
    count: Size = 1  # rows; columns of `strided` are `inner` each

    @property
    def flops(self) -> float:
        """Estimated operations."""
        share = {"rows": 1.0, "strided": 1.0, "columns": 0.5, "squares": 0.5}.get(self.stage, 0.1)
        n = max(self.points, self.padded)
        return share * 5 * n * math.log2(max(n, 2)) * self.inner * hint(self.count)

    @property
    def source_step(self) -> int:
        """Real numbers from a row of the operand to the next."""
        return {"c2c": 1 if self.real else 2, "r2c": 2, "c2r": 2}[self.kind] * self.points + 2 * (self.kind == "c2r")

    @property
    def result_step(self) -> int:
        """Real numbers from a row of the result to the next."""
        return 2 * self.points + 2 * (self.kind == "r2c")

    @property
    def code(self) -> str:
        """All that its code depends on."""
        return repr(replace(self, count=1))

    def part_counts(self, takes_epilogue: Callable[[Any], bool]) -> set[int]:
        return set()

    def __str__(self) -> str:
        back = "inverse " * self.inverse
        return f"{back}Fourier transform {self.kind} {dtypes.short(self.dtype)}, {self.stage} of {self.points} points"


def smooth(points: int) -> bool:
    """Whether the number of points has small prime factors only."""
    for p in PRIMES:
        while points > 1 and points % p == 0:
            points //= p
    return points == 1


def chirp_points(points: int) -> int:
    """Points of the convolution that a transform of any number of points is: the next power of two.

    >>> chirp_points(1023)
    2048
    """
    return 1 << (2 * points - 2).bit_length()


@once
def radices(points: int) -> tuple[int, ...]:
    """Points of the butterflies of each pass: 8 and 4 where it can be, then odd primes.

    >>> radices(4096), radices(60)
    ((8, 8, 8, 8), (4, 5, 3))
    """
    twos = (points & -points).bit_length() - 1
    found = [8] * (twos // 3) + [[], [2], [4]][twos % 3]
    if twos % 3 == 1 and twos > 3:
        found = [8] * (twos // 3 - 1) + [4, 4]
    rest = points >> twos
    for p in reversed(PRIMES[1:]):
        while rest % p == 0:
            found.append(p)
            rest //= p
    assert rest == 1
    return tuple(found) or (1,)


@once
def split(points: int, lanes: int) -> tuple[int, int]:
    """(rows, columns) of the matrix that a long row is: those with the least work in vectors of so many lanes."""

    def work(n: int, beside: int) -> float:
        return n * sum(_COSTS[r] for r in radices(n)) * -(-beside // lanes) * lanes

    pairs = [(n, points // n) for n in range(2, math.isqrt(points) + 1) if points % n == 0]
    pairs += [(columns, rows) for rows, columns in pairs]
    if not pairs:
        raise AssertionError(f"{points} points are no matrix")

    def cost(pair: tuple[int, int]) -> float:
        rows, columns = pair
        # A vector that is in two cache lines takes twice as long, and most where it is stored.
        apart = 2.0 * (rows % ALIGNED > 0) + 1.0 * (columns % ALIGNED > 0)
        return (
            work(rows, columns)
            + work(columns, rows)
            + points * (apart + 4 * math.sqrt(math.sqrt(max(pair) / min(pair))))
        )

    return min(pairs, key=cost)


def by_rows(points: int) -> bool:
    """Whether rows are so short that they are transformed side by side."""
    return points <= ROWS_POINTS


def blocks(stage: str, points: int, inner: int, lanes: int) -> int:
    """Parts that a row, or all columns of an array, are cut into: what threads share."""
    if stage == "strided":
        return -(-inner // lanes)
    if stage == "pairs":
        return max(-(-(points // 2) // lanes), 1)
    rows, columns = split(points, lanes)
    return -(-(columns if stage == "columns" else rows) // lanes)


def memory_numbers(points: int, lanes: int) -> int:
    """Real numbers of memory between the passes of a long row: blocks of columns, and one square more."""
    rows, columns = split(points, lanes)
    return (-(-columns // lanes) * rows + lanes) * 2 * lanes
