"""Products of few rows as LLVM functions `void product(ptr buffers, i64 lo, i64 hi)` over units.

Rows of B are read once, in place; the planner's gemv.py has the order of the sums. Where columns are left over, the
last tile of dot products overlaps the one before, and computes the same bits again; of updates it is masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .....record import record
from .....schedule.kernels.gemm import Product
from .....sizes.dims import is_dim
from ...kernels.gemv import BROADCAST, SUMS, Axpys, Gemv
from .. import ir
from ..contraction.emission import Emission
from ..contraction.loops import divide, i64, least, loop, repeat
from ..contraction.micro_kernel import MicroKernel
from ..contraction.vectors import Vectors, prefix
from ..types import I32, PTR
from .operands import batch_offset


@record(frozen=False, eq=False)
class Dots(Emission[Product, Gemv]):
    def emit(self) -> ir.Function:
        b, v, p, g, (a, right, c) = self.b, self.v, self.call, self.plan, self.buffers(3)
        sizes = {g.rows} | ({g.rows - 1} if g.large < g.tiles else set())
        tiles = {rows: _emit_tile(self.module, f"{self.name}_{rows}", p, g, rows) for rows in sorted(sizes)}

        def unit(index: Any) -> None:
            matrix, block = divide(b, index, g.blocks)
            a_at = v.element(a, batch_offset(b, p.a, p.batch, matrix))
            b_at = v.element(right, batch_offset(b, p.b, p.batch, matrix))
            c_at = v.at(c, (matrix, p.m * p.n))
            first, following = (b.mul(b.add(block, i64(k)), i64(g.block)) for k in (0, 1))
            end = b.select(b.icmp_signed("==", block, i64(g.blocks - 1)), i64(p.n), following)

            def columns(j: Any) -> None:
                j = least(b, j, b.sub(end, i64(g.columns)))
                here, there = v.at(b_at, (j, p.b.column)), v.element(c_at, j)
                row = 0
                for tile in range(g.tiles):
                    rows = g.rows if tile < g.large else g.rows - 1
                    b.call(tiles[rows], [v.element(a_at, i64(row * p.a.row)), here, v.element(there, i64(row * p.n))])
                    row += rows

            repeat(b, first, end, g.columns, columns)
            above = b.mul(matrix, i64(p.m))
            self.finish((above, b.add(above, i64(p.m))), (first, end))

        return self.over_units(unit)


def _emit_tile(module: ir.Module, name: str, product: Product, dots: Gemv, rows: int) -> ir.Function:
    """`void tile(ptr a, ptr b, ptr c)`, over all of k."""
    t = MicroKernel(module, name, [PTR, PTR, PTR], product.dtype, dots.lanes)
    b, v, (a, right, c) = t.b, t.v, t.args
    columns, parts = range(dots.columns), range(SUMS // dots.lanes)
    a_rows = [v.element(a, i64(i * product.a.row)) for i in range(rows)]
    b_rows = [v.element(right, i64(j * product.b.column)) for j in columns]
    following = i64(dots.columns * product.b.column)

    def step(k: Any, sums: list[Any], live: int = SUMS) -> list[Any]:
        updated = []
        for part in parts:
            at, mask = b.add(k, i64(part * dots.lanes)), None
            if live < SUMS:
                mask = prefix(dots.lanes, live - part * dots.lanes)
            down = [v.load(v.element(row, at), mask) for row in a_rows]
            for j, row in enumerate(b_rows):
                if dots.far and live == SUMS and part == 0:
                    v.prefetch(v.element(v.element(row, following), at), level=2)
                across = v.load(v.element(row, at), mask)
                before = sums[(part * len(columns) + j) * rows :]
                updated += [v.fma(value, across, total) for value, total in zip(down, before, strict=False)]
        return updated

    left = product.k % SUMS
    sums = loop(b, i64(0), i64(product.k - left), SUMS, t.zeros(len(parts) * len(columns) * rows), step)
    if left:
        sums = step(i64(product.k - left), sums, left)
    for i in range(rows):
        totals = _total(b, [[sums[(part * len(columns) + j) * rows + i] for part in parts] for j in columns])
        Vectors(b, product.dtype, len(columns)).store(totals, v.element(c, i64(i * product.n)))
    b.ret_void()
    return t.function


@record(frozen=False, eq=False)
class Updates(Emission[Product, Axpys]):
    optimized: bool = True

    def emit(self) -> ir.Function:
        b, v, p, plan, (a, right, c) = self.b, self.v, self.call, self.plan, self.buffers(3)
        n, k_end, a_step, b_step = (self.size(size) for size in (p.n, p.k, p.a.column, p.b.row))
        batch = [size for x in (p.a, p.b) for size in (x.offset, *x.batch)]
        for size in (*batch, *p.batch, plan.blocks):  # before all loops
            self.size(size)
        left = p.k % BROADCAST
        last = self.size(p.k - left)

        def unit(index: Any) -> None:
            matrix, block = divide(b, index, self.size(plan.blocks))
            a_at = v.element(a, batch_offset(b, p.a, p.batch, matrix, self.size))
            b_at = v.element(right, batch_offset(b, p.b, p.batch, matrix, self.size))
            c_at = v.element(c, b.mul(matrix, n))
            first = b.mul(block, i64(plan.block))
            end = least(b, b.add(first, i64(plan.block)), n)
            tail = b.urem(b.sub(end, first), i64(plan.lanes))
            whole = b.sub(end, tail)
            some, mask = b.icmp_signed("<", whole, end), v.mask(tail, 0)

            def over_columns(body: Callable[[Any, Any], None]) -> None:
                repeat(b, first, whole, plan.lanes, lambda j: body(j, None))
                with b.if_then(some):
                    body(whole, mask)

            over_columns(lambda j, mask: v.store(v.zero, v.element(c_at, j), mask))

            def rows(k: Any, count: int) -> None:
                steps = [b.add(k, i64(r)) for r in range(count)]
                values = [v.splat(v.scalar(v.element(a_at, b.mul(step, a_step)))) for step in steps]
                places = [v.element(b_at, b.mul(step, b_step)) for step in steps]

                def columns(j: Any, mask: Any) -> None:
                    total = v.load(v.element(c_at, j), mask)
                    for value, place in zip(values, places, strict=True):
                        total = v.fma(value, v.load(v.element(place, j), mask), total)
                    v.store(total, v.element(c_at, j), mask)

                over_columns(columns)

            repeat(b, i64(0), last, BROADCAST, lambda k: rows(k, BROADCAST))
            if is_dim(left):
                repeat(b, last, k_end, 1, lambda k: rows(k, 1))
            elif left:
                rows(last, left)
            self.finish((matrix, b.add(matrix, i64(1))), (first, end))

        return self.over_units(unit)


def _total(b: ir.IRBuilder, sums: list[list[Any]]) -> Any:
    """The sum of each list of vectors, as one vector. Two vectors of one sum are added; then two sums are halved into
    one vector, as long as there are two."""
    while (parts := len(sums[0])) > 1:
        sums = [[b.fadd(x, y) for x, y in zip(s[: parts // 2], s[parts // 2 :], strict=True)] for s in sums]
    vectors = [one for (one,) in sums]
    width = vectors[0].type.count
    while width > 1:
        pairs = zip(vectors[::2], vectors[1::2] or [None], strict=True)
        vectors = [_halves(b, x, y, width) for x, y in pairs]
        width //= 2
    return vectors[0]


def _halves(b: ir.IRBuilder, x: Any, y: Any, width: int) -> Any:
    """For every `width` lanes of x, then of y, the lower half plus the upper."""
    lanes = np.arange(x.type.count * (1 if y is None else 2)).reshape(-1, 2, width // 2)
    low, high = (ir.Constant(ir.VectorType(I32, lanes[:, h].size), lanes[:, h].ravel().tolist()) for h in (0, 1))
    other = x if y is None else y
    return b.fadd(b.shuffle_vector(x, other, low), b.shuffle_vector(x, other, high))
