"""A loop-dialect kernel as an LLVM function `void kernel(ptr buffers, i64 lo, i64 hi)`.

`buffers` is a table of data pointers, [lo, hi) the part of the parallel loop to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import dtypes
from ....loops.builder import scan_start
from ....loops.ir import For, Kernel, Reduce, Scan, Stmt, Store, extent, steps
from ....loops.text import print_kernel
from ....record import replace
from ....sizes.dims import Size
from . import ir
from .emitter import LoopEmitter
from .kind import Kind
from .scalars import Lanes
from .types import I64, PTR, VOID, constant
from .vectors.interleave import interleaved
from .vectors.nontemporal import fence
from .vectors.transpose import emit_transposing, transposing

KERNEL_TYPE = ir.FunctionType(VOID, [PTR, I64, I64])


def emit_kernel(module: ir.Module, name: str, kernel: Kernel) -> ir.Function:
    """Add the kernel to the module as the function `name`."""
    return KernelEmitter(module, name, kernel).emit()


def emit_epilogue(module: ir.Module, name: str, kernel: Kernel) -> ir.Function:
    """`void epilogue(ptr buffers, i64 row0, i64 row1, i64 column0, i64 column1)`: those iterations of its two loops.

    There is one copy of it, which the tiles of a product or convolution call in turn.
    """
    (rows,) = kernel.body
    assert isinstance(rows, For)
    columns = next((stmt.var for stmt in rows.body if isinstance(stmt, For)), None)
    function = KernelEmitter(module, name, kernel, (rows.var, columns)).emit()
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function


class KernelEmitter(LoopEmitter):
    """Emits the statements of a kernel."""

    def emit(self) -> ir.Function:
        self.block(self.kernel.body)
        if self.streaming:
            fence(self.b)
        self.b.ret_void()
        return self.function

    # ---- statements

    def block(self, body: Sequence[Stmt]) -> None:
        for step in steps(body):
            match step[0]:
                case Store():
                    # every value before any store: a store may overwrite what another one still reads
                    stores = [s for s in step if isinstance(s, Store)]
                    values = [self.value(s.value) for s in stores]
                    if interleaved(stores, self.vector):
                        self._store_interleaved(stores[0], values)
                        continue
                    for store, value in zip(stores, values, strict=True):
                        self.store(store.buffer, store.index, value)
                case Reduce():
                    self.reduce([s for s in step if isinstance(s, Reduce)])
                case For():
                    self.for_loop(step[0])
                case Scan():
                    self.scan(step[0])

    def for_loop(self, stmt: For) -> None:
        inner = transposing(stmt, self.lanes)
        if inner is not None and not self.bounds.keys() & {stmt.var, inner.var}:
            emit_transposing(self, stmt.var, inner)
            return
        size = extent(stmt.var)
        lo, hi = self.bounds.get(stmt.var) or (constant(0, dtypes.int64), self.size(size))
        if stmt.kind == "vector":
            with self.in_lanes(stmt.var, self.lanes):
                if self.has_loop_of_tail(stmt.var, size):
                    rest = self.b.srem(self.b.sub(hi, lo), constant(self.lanes, dtypes.int64))
                    whole = self.b.sub(hi, rest)
                    self.loop(stmt.var, lo, whole, self.lanes, [], lambda _: self._plain_body(stmt), True)
                    lo = whole
                self.loop(stmt.var, lo, hi, self.lanes, [], lambda _: self.masked_body(stmt, size, hi))
        else:
            self.loop(stmt.var, lo, hi, 1, [], lambda _: self._plain_body(stmt))

    def _plain_body(self, stmt: For) -> list[Lanes]:
        self.block(stmt.body)
        return []

    def masked_body(self, stmt: For, size: Size, hi: Any) -> list[Lanes]:
        with self.tail_mask(stmt.var, size, hi):
            self.block(stmt.body)
        return []

    def reduce(self, joined: Sequence[Reduce]) -> None:
        """Reductions over the same variables, in one loop."""
        from .reductions import reduce  # with the first of them

        for stmt, total in zip(joined, reduce(self, joined), strict=True):
            self.results[stmt.result] = total
            self.level[stmt.result] = len(self.scopes) - 1

    def scan(self, stmt: Scan) -> None:
        width = self.width if self.vector is not None and self.vector in stmt.index.depends else 1
        dtype = stmt.value.dtype
        start = Lanes(constant(scan_start(stmt.op, dtype), dtype, width), dtype, width)
        size = extent(stmt.var)

        def step(carried: list[Lanes]) -> list[Lanes]:
            if stmt.reverse:
                forward = self.scalar_var[stmt.var]
                self.scalar_var[stmt.var] = self.b.sub(self.size(size - 1), forward)
            total = self.combine(stmt.op, carried[0], self.value(stmt.value))
            self.store(stmt.buffer, stmt.index, total)
            return [total]

        self.loop(stmt.var, constant(0, dtypes.int64), self.size(size), 1, [start], step)


KERNEL = Kind(
    emit=emit_kernel,
    # The cost decides about threads in the step; kernels that differ in it alone are one.
    source=lambda kernel, _: print_kernel(replace(kernel, cost=0.0)),
    range=lambda kernel, _: (kernel.total, kernel.granule),
    nanoseconds=lambda kernel: kernel.cost,
)
