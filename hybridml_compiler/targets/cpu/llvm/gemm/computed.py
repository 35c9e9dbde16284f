"""Rows of a left operand that has no memory: a prologue (see schedule/fusion) computes them into scratch memory."""

from __future__ import annotations

from typing import Any

from .....loops.ir import Kernel
from .....schedule.fusion.prologue import with_pitch
from .....schedule.kernels.gemm import Product
from ...kernels.gemm_blocking import Blocking
from .. import ir
from ..kernel import emit_epilogue
from ..types import PTR, memory_type
from .tile import i64


class ComputedRows:
    """The rows of one tile, [row][k] or, if A is transposed, [k][row].

    The prologue's own table has A first, then the operands of the launch before B. As A it is given the place where the
    first element of all of it would be.
    """

    def __init__(
        self, b: ir.IRBuilder, table: Any, name: str, product: Product, blocking: Blocking, prologue: Kernel
    ) -> None:
        self.b, self.product, self.blocking = b, product, blocking
        self.element_type = memory_type(product.dtype)
        self.function = emit_epilogue(b.module, f"{name}_prologue", with_pitch(prologue, blocking.pitch))
        size = blocking.depth if product.a.transposed else blocking.rows
        self.memory = b.memory(self.element_type, size * blocking.pitch, ir.LINE)
        self.count = len(prologue.operands) - 1 + prologue.checked  # operands before B
        self.table = b.memory(PTR, 1 + self.count)
        for k in range(self.count):
            self._set(1 + k, b.load(b.gep(table, [i64(k)], source_etype=PTR), typ=PTR))

    def _set(self, number: int, pointer: Any) -> None:
        self.b.store(pointer, self.b.gep(self.table, [i64(number)], source_etype=PTR))

    def compute(self, row: Any, rows: int, k: Any, depth: Any) -> Any:
        """Computes so many rows from this one on, from k on; returns their address."""
        b = self.b
        ends = [(row, b.add(row, i64(rows))), (k, b.add(k, depth))]
        outer, inner = reversed(ends) if self.product.a.transposed else ends
        before = b.add(b.mul(outer[0], i64(self.blocking.pitch)), inner[0])
        self._set(0, b.gep(self.memory, [b.neg(before)], source_etype=self.element_type))
        b.call(self.function, [self.table, *outer, *inner])
        return self.memory
