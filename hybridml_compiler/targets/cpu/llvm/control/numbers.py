"""Kernels as code in place. Those of a few numbers: operands in registers or in memory, and checked indices that
leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..... import dtypes
from .....loops.ir import Buffer, Expr, Kernel, Store, args_of, steps
from .....loops.regions import instruction
from .....sizes.dims import is_dim
from .....walk import postorder
from .. import ir
from ..contraction.loops import i64
from ..emitter import LONG, plain_division
from ..scalars import LaneBuilder, Lanes
from ..sizes import Sizes
from ..types import I64, alignment, memory_type
from .places import Cell, Place
from .vectors import InPlace


class Numbers:
    """Emits kernels at the builder's position. An index out of range goes on at `failed`."""

    def __init__(self, b: ir.IRBuilder, failed: ir.Block) -> None:
        self.b, self.failed = b, failed
        self.s = LaneBuilder(b)
        self.s.called = LONG
        self.inside: dict[tuple[str, ...], Lanes] = {}  # indices that have been checked, by value and size
        self.chosen: dict[str, list[Lanes]] = {}  # by name of the result: condition, and both values
        self.loaded: dict[str, tuple[str, str, int]] = {}  # by name: pointer, index, and the number of stores before
        self.read: dict[tuple[str, str, int], Lanes] = {}  # the same, the other way round, where code is emitted
        self.stores, self.aside, self.status = 0, b.memory(I64, 2), b.memory(I64)

    def kernel(self, kernel: Kernel, places: Mapping[str, Place], sizes: Sizes) -> None:
        if kernel.single:
            self._few(kernel, places, sizes)
        else:
            self._loops(kernel, places, sizes)

    def _loops(self, kernel: Kernel, places: Mapping[str, Place], sizes: Sizes) -> None:
        if kernel.checked:
            self.b.store(i64(0), self.status)
        InPlace(self.b, kernel, places, sizes, self.status).block(kernel.body)
        self.stores += 1
        if kernel.checked:
            on = self.b.append_basic_block("checked")
            self.b.cbranch(self.b.icmp_unsigned("!=", self.b.load(self.status, I64), i64(0)), self.failed, on)
            self.b.position_at_end(on)

    def _few(self, kernel: Kernel, places: Mapping[str, Place], sizes: Sizes) -> None:
        known: dict[Expr, Lanes] = {}

        def value(expr: Expr) -> Lanes:
            for part in postorder([expr], args_of):
                if part not in known:
                    known[part] = self._emit(part, [known[a] for a in part.args], places, sizes)
            return known[expr]

        for step in steps(kernel.body):
            stores = [stmt for stmt in step if isinstance(stmt, Store)]
            made = [(store.buffer, value(store.index), value(store.value)) for store in stores]
            for buffer, index, new in made:
                self._store(places[buffer.name], buffer.dtype, index, new)

    def load(self, place: Place, dtype: np.dtype, index: Lanes | None = None) -> Lanes:
        """The number at a place, or an element of the array there."""
        if isinstance(place, Cell):
            return place.now
        if index is None:
            return self.s.from_memory(self.b.load(place, memory_type(dtype), alignment(dtype)), dtype, 1)
        key = place.text, index.value.text, self.stores
        if (found := self.read.get(key)) is None or found.dtype is not dtype:
            pointer = self._element(place, dtype, index)
            found = self.s.from_memory(self.b.load(pointer, memory_type(dtype), alignment(dtype)), dtype, 1)
            self.loaded[found.value.text], self.read[key] = key, found
        return found

    def store(self, place: Place, value: Lanes) -> None:
        self._store(place, value.dtype, None, value)

    def _store(self, place: Place, dtype: np.dtype, index: Lanes | None, value: Lanes) -> None:
        if isinstance(place, Cell):
            place.value = value
            return
        pointer = place if index is None else self._element(place, dtype, index)
        if index is not None and (kept := self._kept(place, index, value)) is not None:
            value, pointer = kept[1], self.b.select(kept[0].value, pointer, self.aside)
        self.b.store(self.s.to_memory(value), pointer, align=alignment(dtype))
        self.stores += 1

    def _kept(self, place: ir.Value, index: Lanes, value: Lanes) -> list[Lanes] | None:
        """Condition and value of a store that else puts back what it finds at an index of data. Such a store goes
        aside: next time the element found would wait for it, 1 ns a step of a loop that packs what it chooses."""
        choice = self.chosen.get(value.value.text)
        same = place.text, index.value.text, self.stores
        stays = choice is not None and index in self.inside.values() and self.loaded.get(choice[2].value.text) == same
        return choice if stays else None

    def _element(self, pointer: ir.Value, dtype: np.dtype, index: Lanes) -> ir.Value:
        return self.b.gep(pointer, [index.value], source_etype=memory_type(dtype))

    def _emit(self, expr: Expr, args: list[Lanes], places: Mapping[str, Place], sizes: Sizes) -> Lanes:
        if expr.op == "const" and is_dim(expr.attr):
            return Lanes(sizes.value(expr.attr), dtypes.int64)
        if expr.op == "load":
            return self._loaded(expr.attr, places[expr.attr.name], *args)
        if expr.op == "index":
            return self._checked(expr, sizes, *args)
        if expr.op in ("floordiv", "mod") and plain_division(expr):
            emit: Callable[..., Any] = self.b.udiv if expr.op == "floordiv" else self.b.urem
            return Lanes(emit(args[0].value, args[1].value), expr.dtype)
        found: Lanes = instruction(self.s, expr, args)
        if expr.op == "select":
            self.chosen[found.value.text] = args
        return found

    def _loaded(self, buffer: Buffer, place: Place, index: Lanes, mask: Lanes | None = None) -> Lanes:
        if mask is None:
            return self.load(place, buffer.dtype, index)
        if isinstance(place, ir.Value):  # a masked-out index may point anywhere
            index = self.s.select(mask, index, 0)
        value = self.load(place, buffer.dtype, index)
        return value

    def _checked(self, expr: Expr, sizes: Sizes, value: Lanes, mask: Lanes | None = None) -> Lanes:
        """A negative index wrapped, off the path of the others. One that is out of range leaves, where its mask holds,
        or is 0."""
        b, size = self.b, sizes.value(expr.attr[0])
        key = (value.value.text, size.text, "" if mask is None else mask.value.text)
        if key not in self.inside:
            outside, on = b.append_basic_block("outside"), b.append_basic_block("inside")
            entry = b.block
            b.cbranch(b.icmp_unsigned("<", value.value, size), on, outside).set_weights([4096, 1])
            b.position_at_end(outside)
            wrapped = b.add(value.value, size)
            bad = b.icmp_unsigned(">=", wrapped, size)
            if mask is not None:
                wrapped = b.select(bad, i64(0), wrapped)
                bad = b.and_(bad, mask.value)
            b.cbranch(bad, self.failed, on)
            b.position_at_end(on)
            phi = b.phi(I64)
            phi.add_incoming(value.value, entry)
            phi.add_incoming(wrapped, outside)
            found = Lanes(phi, dtypes.int64)
            self.inside[key] = self.inside[phi.text, size.text, ""] = found
        return self.inside[key]
