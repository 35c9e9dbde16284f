"""Points in memory as vectors of real and imaginary parts: scratch memory, columns of an array or its pairs of rows."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .. import ir
from ..contraction.loops import i64
from .butterflies import Arithmetic, Complex


class Points(Protocol):
    """Points in memory: `at` is the address of one, `load` and `store` take one so many points behind an address."""

    def at(self, point: Any) -> Any: ...
    def load(self, pointer: Any, by: int) -> Complex: ...
    def store(self, value: Complex, pointer: Any, by: int) -> None: ...


class Scratch:
    """Points as pairs of vectors."""

    def __init__(self, v: Arithmetic, base: Any) -> None:
        self.v, self.base, self.step = v, base, 2 * v.lanes

    def at(self, point: Any) -> Any:
        return self.v.at(self.base, (point, self.step))

    def load(self, pointer: Any, by: int) -> Complex:
        return self._half(pointer, by, 0), self._half(pointer, by, 1)

    def store(self, value: Complex, pointer: Any, by: int) -> None:
        for half in (0, 1):
            place = self.v.element(pointer, i64(by * self.step + half * self.v.lanes))
            self.v.b.store(value[half], place, align=self.v.dtype.itemsize)

    def _half(self, pointer: Any, by: int, half: int) -> Any:
        place = self.v.element(pointer, i64(by * self.step + half * self.v.lanes))
        return self.v.b.load(place, typ=self.v.type, align=self.v.dtype.itemsize)


class Turned(Scratch):
    """Points in scratch memory times factors: those of `near`, which lie as the points do, and a number `far` each."""

    def __init__(self, v: Arithmetic, base: Any, near: Any, far: Any) -> None:
        super().__init__(v, base)
        self.near, self.far = Scratch(v, near), far

    def at(self, point: Any) -> Any:
        far = None if self.far is None else self.v.at(self.far, (point, 2))
        return super().at(point), self.near.at(point), far

    def load(self, pointer: Any, by: int) -> Complex:
        here, near, far = pointer
        found = self.v.times(super().load(here, by), self.near.load(near, by))
        return found if far is None else self.v.times(found, factor_at(self.v, far, by))


class Columns:
    """Points of neighbouring columns of an array of complex numbers, or of real ones with an imaginary part of zero.

    `swapped`: real and imaginary parts change places, which makes a transform its inverse (before and after it).
    `live`: the number of columns where they may be fewer than there are lanes. `scale`: a factor of what is stored.
    """

    def __init__(
        self,
        v: Arithmetic,
        base: Any,
        step: int,
        live: Any = None,
        *,
        real: bool = False,
        swapped: bool = False,
        scale: float = 1.0,
    ) -> None:
        self.v, self.base, self.step, self.real, self.swapped, self.scale = v, base, step, real, swapped, scale
        self.masks: list[Any] = [None] * (1 if real else 2)
        if live is not None:
            numbers = live if real else v.b.mul(live, i64(2))
            self.masks = v.masks(numbers, len(self.masks))

    def at(self, point: Any) -> Any:
        return self.v.at(self.base, (point, self.step))

    def load(self, pointer: Any, by: int) -> Complex:
        found = self.v.row(self.v.element(pointer, i64(by * self.step)), self.masks)
        pair = (found[0], self.v.zero) if self.real else split(self.v, *found)
        return pair[::-1] if self.swapped else pair

    def store(self, value: Complex, pointer: Any, by: int) -> None:
        start = self.v.element(pointer, i64(by * self.step))
        if self.scale != 1:
            value = self.v.scaled(value, self.v.number(self.scale))
        vectors = join(self.v, *(value[::-1] if self.swapped else value))
        for k, (vector, mask) in enumerate(zip(vectors, self.masks, strict=True)):
            self.v.store(vector, self.v.element(start, i64(k * self.v.lanes)), mask)


class RowPairs:
    """Points of neighbouring columns of an array of real numbers: two rows are the real and imaginary parts of one."""

    def __init__(
        self, v: Arithmetic, base: Any, inner: int, live: Any = None, *, swapped: bool = False, scale: float = 1.0
    ) -> None:
        self.v, self.base, self.inner, self.swapped, self.scale = v, base, inner, swapped, scale
        self.mask = None if live is None else v.mask(live, 0)

    def at(self, point: Any) -> Any:
        return self.v.at(self.base, (point, 2 * self.inner))

    def load(self, pointer: Any, by: int) -> Complex:
        real, imag = (self.v.load(place, self.mask) for place in self._places(pointer, by))
        return real, imag

    def store(self, value: Complex, pointer: Any, by: int) -> None:
        if self.scale != 1:
            value = self.v.scaled(value, self.v.number(self.scale))
        for part, place in zip(value, self._places(pointer, by), strict=True):
            self.v.store(part, place, self.mask)

    def _places(self, pointer: Any, by: int) -> list[Any]:
        rows = [self.v.element(pointer, i64((2 * by + part) * self.inner)) for part in (0, 1)]
        return rows[::-1] if self.swapped else rows


def split(v: Arithmetic, first: Any, second: Any, *, backward: bool = False) -> Complex:
    """Real and imaginary parts of as many complex numbers as there are lanes, perhaps the last one first."""
    order = range(v.lanes)[:: -1 if backward else 1]
    name = "backward" * backward
    real = v.pick(f"{name}real", [2 * k for k in order])
    return real(first, second), v.pick(f"{name}imag", [2 * k + 1 for k in order])(first, second)


def join(v: Arithmetic, real: Any, imag: Any, *, backward: bool = False) -> tuple[Any, Any]:
    """Complex numbers, from the first to the last or backward, as two vectors."""
    order = [x for k in range(v.lanes)[:: -1 if backward else 1] for x in (k, v.lanes + k)]
    name = "backward" * backward
    first, second = order[: v.lanes], order[v.lanes :]
    return v.pick(f"{name}first", first)(real, imag), v.pick(f"{name}second", second)(real, imag)


def factor_at(v: Arithmetic, pointer: Any, number: int) -> Complex:
    real, imag = (v.splat(v.scalar(v.element(pointer, i64(2 * number + k)))) for k in (0, 1))
    return real, imag


def pairs(values: np.ndarray) -> np.ndarray:
    """Real and imaginary part of each number side by side."""
    return np.stack([values.real, values.imag], -1)


def stored(module: ir.Module, name: str, numbers: np.ndarray, dtype: np.dtype) -> Any:
    """A table of the module."""
    return module.constant(name, ir.spelled(numbers.astype(dtype).tobytes()), ir.LINE)
