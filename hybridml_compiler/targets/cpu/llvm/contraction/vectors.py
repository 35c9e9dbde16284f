"""Loads, stores and arithmetic on vectors of one dtype and width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..... import dtypes
from .. import ir
from ..types import I1, I32, PTR, VOID, Literal, constant, register_type
from .loops import i64, offset


class Vectors:
    """Loads, stores and arithmetic on vectors of one dtype and width; a mask of None means all lanes."""

    def __init__(self, b: ir.IRBuilder, dtype: np.dtype, lanes: int) -> None:
        self.b, self.dtype, self.lanes = b, dtype, lanes
        self.scalar_type, self.type = register_type(dtype), ir.VectorType(register_type(dtype), lanes)
        self.zero = Literal(self.type, "zeroinitializer")

    def element(self, pointer: Any, offset: Any) -> Any:
        return self.b.gep(pointer, [offset], source_etype=self.scalar_type)

    def at(self, pointer: Any, *terms: tuple[Any, int]) -> Any:
        """Address of an element: indices, values or numbers, with the elements from one to the next."""
        return self.element(pointer, offset(self.b, *terms))

    def scalar(self, pointer: Any) -> Any:
        return self.b.load(pointer, typ=self.scalar_type, align=self.dtype.itemsize)

    def load(self, pointer: Any, mask: Any = None) -> Any:
        if mask is None:
            return self.b.load(pointer, typ=self.type, align=self.dtype.itemsize)
        arguments = [pointer, constant(self.dtype.itemsize, dtypes.int32), mask, self.zero]
        return self.b.intrinsic("masked.load", self.type, arguments, [self.type, PTR])

    def store(self, value: Any, pointer: Any, mask: Any = None) -> None:
        if mask is None:
            self.b.store(value, pointer, align=self.dtype.itemsize)
            return
        arguments = [value, pointer, constant(self.dtype.itemsize, dtypes.int32), mask]
        self.b.intrinsic("masked.store", VOID, arguments, [self.type, PTR])

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """z + x * y, of floats rounded once."""
        if self.dtype.kind in "iu":
            return self.b.add(z, self.b.mul(x, y))
        return self.b.intrinsic("fma", self.type, [x, y, z], [self.type])

    def prefetch(self, pointer: Any, level: int = 1) -> None:
        """Fetches a line into a cache, for reading."""
        arguments = [pointer, *(constant(x, dtypes.int32) for x in (0, 4 - level, 1))]
        self.b.intrinsic("prefetch", VOID, arguments, [PTR])

    def splat(self, x: Any) -> Any:
        return _splat(self.b, x, self.lanes)

    def mask(self, live: Any, vector: int) -> Any:
        """Lanes of vector number `vector` that are within the first `live` columns."""
        left = self.b.trunc(self.b.sub(live, i64(vector * self.lanes)), I32)
        return self.b.icmp_signed("<", _numbers(list(range(self.lanes))), _splat(self.b, left, self.lanes))

    def first(self, count: int) -> Any:
        """The mask of the first lanes, of a number that is known; None for all."""
        return None if count >= self.lanes else prefix(self.lanes, count)

    def masks(self, live: Any, vectors: int, partial: bool = True) -> list[Any]:
        """The masks of some vectors of which so many lanes are live; all of them, unless they may be fewer."""
        return [self.mask(live, j) if partial else None for j in range(vectors)]

    def row(self, pointer: Any, masks: Sequence[Any]) -> list[Any]:
        """Vectors that follow each other, one for each mask."""
        return [self.load(self.element(pointer, i64(j * self.lanes)), mask) for j, mask in enumerate(masks)]

    def merge(self, *incoming: tuple[Any, Any]) -> Any:
        phi = self.b.phi(self.type)
        for value, block in incoming:
            phi.add_incoming(value, block)
        return phi

    def add_to(self, places: list[Any], masks: list[Any], values: list[Any], unless: Any) -> list[Any]:
        """The values with those at their places added to them, or alone."""
        before = self.b.block
        with self.b.if_then(self.b.not_(unless)):
            present = [self.load(place, mask) for place, mask in zip(places, masks, strict=True)]
            add = self.b.fadd if self.dtype.kind == "f" else self.b.add
            added = [add(x, y) for x, y in zip(present, values, strict=True)]
            adding = self.b.block
        return [self.merge((x, before), (y, adding)) for x, y in zip(values, added, strict=True)]

    def shuffle(self, x: Any, order: list[int]) -> Any:
        """Lane k of the result is lane order[k] of x."""
        return x if order == list(range(self.lanes)) else self.b.shuffle_vector(x, x, _numbers(order))

    def spread(self, x: Any, channel: int, group: tuple[int, int]) -> Any:
        """A channel of each group over its features, for groups of so many channels and features beside each other."""
        channels, features = group
        return self.shuffle(x, [lane // features * channels + channel for lane in range(self.lanes)])

    def transpose(self, rows: list[Any]) -> list[Any]:
        """A square: interleaving row i with row i + half turns the bits of (row, column) by one place."""
        half = self.lanes // 2
        low = self.pick("low", [x for k in range(half) for x in (k, self.lanes + k)])
        high = self.pick("high", [x for k in range(half, self.lanes) for x in (k, self.lanes + k)])
        for _ in range(half.bit_length()):
            pairs = zip(rows[:half], rows[half:], strict=True)
            rows = [pick(x, y) for x, y in pairs for pick in (low, high)]
        return rows

    def pick(self, name: str, order: list[int]) -> Callable[[Any, Any], Any]:
        """A function of two vectors: lanes of them, by number.

        Any order is one instruction of AVX-512, but LLVM looks for a better one, twice as long as it takes where it is
        asked for that instruction, with the order in memory ([Note: Compile time]).
        """
        if self.lanes != 16 or self.dtype is not dtypes.float32:
            return lambda x, y: self.b.shuffle_vector(x, y, _numbers(order))
        numbers = _numbers(order)
        index = self.b.load(self.b.module.constant(name, numbers, 64), typ=numbers.type)
        return lambda x, y: self.b.intrinsic("x86.avx512.vpermi2var.ps.512", self.type, [x, index, y])


def prefix(lanes: int, high: int, low: int = 0) -> Any:
    """The mask of lanes from `low` to `high`."""
    return ir.Constant(ir.VectorType(I1, lanes), [int(low <= k < high) for k in range(lanes)])


def _splat(b: ir.IRBuilder, x: Any, lanes: int) -> Any:
    nothing = Literal(ir.VectorType(x.type, lanes), "poison")
    one = b.insert_element(nothing, x, constant(0, dtypes.int32))
    return b.shuffle_vector(one, nothing, _numbers([0] * lanes))


def _numbers(values: list[int]) -> Any:
    return ir.Constant(ir.VectorType(I32, len(values)), values)
