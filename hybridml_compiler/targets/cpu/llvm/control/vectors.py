"""Kernels of loops as code in place, in a step of a loop around them: the code of a called kernel, with addresses and
numbers in registers where that has a table of pointers."""

from __future__ import annotations

from collections.abc import Mapping

from .....loops.ir import Buffer, Expr, Kernel
from .. import ir
from ..emitter import LONG
from ..kernel import KernelEmitter
from ..scalars import Lanes
from ..sizes import Sizes
from .places import Cell, Place


class InPlace(KernelEmitter):
    """Emits a kernel at the builder's position."""

    def __init__(
        self, b: ir.IRBuilder, kernel: Kernel, places: Mapping[str, Place], sizes: Sizes, status: ir.Value
    ) -> None:
        self._begin(b, kernel, {})
        self.s.called = LONG
        self.sizes, self.status = sizes, status
        self.pointers = {name: place for name, place in places.items() if not isinstance(place, Cell)}
        self.cells = {name: place for name, place in places.items() if isinstance(place, Cell)}

    def _scalar_load(self, buffer: Buffer, index: Expr, mask: Lanes | None) -> Lanes:
        cell = self.cells.get(buffer.name)
        return super()._scalar_load(buffer, index, mask) if cell is None else cell.now

    def _scalar_load_any(self, buffer: Buffer, index: Expr, on: Lanes | None) -> Lanes:
        cell = self.cells.get(buffer.name)
        return super()._scalar_load_any(buffer, index, on) if cell is None else cell.now

    def _vector_load(self, buffer: Buffer, index: Expr, mask: Lanes | None) -> Lanes:
        cell = self.cells.get(buffer.name)
        return super()._vector_load(buffer, index, mask) if cell is None else self.s.splat(cell.now, self.width)

    def store(self, buffer: Buffer, index: Expr, value: Lanes) -> None:
        cell = self.cells.get(buffer.name)
        if cell is None:
            super().store(buffer, index, value)
        else:
            cell.value = value
