"""The passes that Fourier transforms of an array are, with the memory between them [Note: FFT]."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

import numpy as np

from ... import dtypes
from ...aval import Aval
from ...ops.fourier import AxisTransform
from ...record import record
from ...sizes.dims import Size, is_dim
from . import transform as algorithm
from .transform import Transform, by_rows, chirp_points, memory_numbers, smooth


@record
class Steps:
    """Passes, each with the numbers of its source and result: 0 is the array, 1 the result, 2 and up memory."""

    passes: tuple[tuple[Transform, tuple[int, int]], ...]
    memory: tuple[Aval, ...] = ()


def steps_of(
    aval: Aval, transforms: Sequence[AxisTransform], lanes: Callable[[np.dtype], int], cores: int
) -> Steps | None:
    """The passes that compute transforms of an array one after another; None where there are no kernels for them.

    That is decided by dtype, axes and points, and by no number of rows: a row has the same bits in any batch.
    """
    dtype = dtypes.real_of(aval.dtype)
    if dtype not in (dtypes.float32, dtypes.float64) or 0 in aval.shape:
        return None
    planner = _Planner(aval, dtype, lanes(dtype), cores)
    if not all(planner.takes(t, first=not k) for k, t in enumerate(transforms)):
        return None
    shape, source = list(aval.shape), 0
    for t in transforms:
        if t is transforms[-1] or transforms[-1].kind != "c2r":
            target = 1
        else:  # the result has no room for what is transformed first
            target = source or planner.new(*shape, 2)
        planner.add(t, shape, source, target)
        if t.kind != "c2c":
            shape[t.axis] = t.points // 2 + 1 if t.kind == "r2c" else t.points
        source = target
    return Steps(tuple(planner.passes), tuple(planner.memory))


class _Planner:
    """The passes of transforms of an array."""

    def __init__(self, aval: Aval, dtype: np.dtype, lanes: int, cores: int) -> None:
        self.aval, self.dtype, self.lanes, self.cores = aval, dtype, lanes, cores
        self.passes: list[tuple[Transform, tuple[int, int]]] = []
        self.memory: list[Aval] = []

    def new(self, *shape: Size) -> int:
        """The number of new memory, of real numbers."""
        self.memory.append(Aval(shape, self.dtype))
        return len(self.memory) + 1

    def takes(self, t: AxisTransform, first: bool) -> bool:
        """Whether there are kernels for a transform."""
        inner = self.aval.shape[t.axis + 1 :]
        if any(map(is_dim, (t.points, *inner))):
            return False
        if t.kind != "c2c" and (first and self.aval.dtype.kind == "f") != (t.kind == "r2c"):
            return False
        odd = t.kind != "c2c" and t.points % 2 > 0
        points = t.points if t.kind == "c2c" or odd else t.points // 2
        if math.prod(inner) == 1:
            most = algorithm.MOST_POINTS if smooth(points) else algorithm.MOST_CHIRP
            return bool(points <= most)
        strip = 4 * self.lanes * self.dtype.itemsize * points
        return smooth(points) and not odd and strip <= algorithm.COLUMN_BYTES

    def add(self, t: AxisTransform, shape: Sequence[Size], source: int, target: int) -> None:
        """The passes of a transform of an array of this shape."""
        outer: Size = math.prod(shape[: t.axis])
        inner = math.prod(shape[t.axis + 1 :])
        real = source == 0 and self.aval.dtype.kind == "f"
        n = t.points
        if inner > 1:
            points = n if t.kind == "c2c" else n // 2
            whole = t.kind == "c2c" and real
            spec = Transform("strided", self.dtype, points, t.kind, t.inverse, t.scale, whole, inner, count=outer)
            self.passes.append((spec, (source, target)))
        elif t.kind == "c2c":
            self.complex(n, outer, (source, target), t.inverse, t.scale, real)
        elif n % 2:
            self.odd(t, outer, source, target)
        elif self.is_whole(n // 2, outer):
            spec = Transform("rows", self.dtype, n // 2, t.kind, t.inverse, t.scale, count=outer)
            self.passes.append((spec, (source, target)))
        else:
            outer = operator.index(outer)  # the program is for this number of rows
            spectrum = self.new(outer, n)
            pairs = Transform("pairs", self.dtype, n // 2, t.kind, count=outer)
            if t.kind == "c2r":
                self.passes.append((pairs, (source, spectrum)))
                self.complex(n // 2, outer, (spectrum, target), t.inverse, t.scale)
            else:
                self.complex(n // 2, outer, (source, spectrum), t.inverse, t.scale)
                self.passes.append((pairs, (spectrum, target)))

    def is_whole(self, points: int, outer: Size) -> bool:
        """Whether a thread does a row in one go: it is no longer than its memory, and all threads have rows."""
        if by_rows(points) or not smooth(points):
            return smooth(points)
        if memory_numbers(points, self.lanes) * self.dtype.itemsize > algorithm.WHOLE_BYTES:
            return False
        return is_dim(outer) or outer >= self.cores or points < algorithm.SHARED_POINTS

    def complex(
        self, n: int, outer: Size, places: tuple[int, int], inverse: bool, scale: float, real: bool = False
    ) -> None:
        """Transforms of contiguous rows of complex numbers, or of real ones to complex ones."""

        def one(stage: str, scale: float = 1.0, real: bool = False) -> Transform:
            return Transform(stage, self.dtype, n, "c2c", inverse, scale, real, count=outer)

        source, target = places
        if not smooth(n):
            self.convolved(n, outer, places, inverse, scale, real)
        elif self.is_whole(n, outer):
            self.passes.append((one("rows", scale, real), places))
        else:
            outer = operator.index(outer)
            between = self.new(outer, memory_numbers(n, self.lanes))
            self.passes.append((one("columns", real=real), (source, between)))
            self.passes.append((one("squares", scale), (between, target)))

    def convolved(self, n: int, outer: Size, places: tuple[int, int], inverse: bool, scale: float, real: bool) -> None:
        """The same for any number of points (Bluestein, "A linear filtering approach to the computation of discrete
        Fourier transform", 1970)."""
        outer, padded = operator.index(outer), chirp_points(n)
        memory = self.new(outer, 2 * padded)

        def one(stage: str, scale: float = 1.0, real: bool = False) -> Transform:
            return Transform(stage, self.dtype, n, "c2c", inverse, scale, real, padded=padded, count=outer)

        self.passes.append((one("chirp", real=real), (places[0], memory)))
        self.complex(padded, outer, (memory, memory), False, 1.0)
        self.passes.append((one("product"), (memory, memory)))
        self.complex(padded, outer, (memory, memory), False, 1.0)  # back: of conjugates, by the same code
        self.passes.append((one("unchirp", scale), (memory, places[1])))

    def odd(self, t: AxisTransform, outer: Size, source: int, target: int) -> None:
        """An odd number of real ones, as complex ones."""
        outer, n = operator.index(outer), t.points
        whole = self.new(outer, 2 * n)

        def one(stage: str) -> Transform:
            return Transform(stage, self.dtype, n, count=outer)

        if t.kind == "r2c":
            self.complex(n, outer, (source, whole), t.inverse, t.scale, real=True)
            self.passes.append((one("half"), (whole, target)))
            return
        self.passes.append((one("mirror"), (source, whole)))
        self.complex(n, outer, (whole, whole), t.inverse, t.scale)
        self.passes.append((one("parts"), (whole, target)))
