"""A product of few rows with a transposed B as an LLVM function `void product(ptr buffers, i64 lo, i64 hi)` over units.

Rows of B are read once, in place; the planner's gemv.py has the order of the sums. The last tile of a unit overlaps
the one before where columns are left over: it computes the same bits again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .....schedule.kernels.gemm import Product
from ...kernels.gemv import SUMS, Gemv
from .. import ir
from ..kernel import KERNEL_TYPE
from ..types import I1, I32, PTR, VOID
from .kernel import batch_offset, call_epilogue
from .tile import AS_EMITTED, Vectors, i64, least, loop, repeat

_TILE_TYPE = ir.FunctionType(VOID, [PTR, PTR, PTR])  # a, b, c


def emit_dots(
    module: ir.Module, name: str, product: Product, dots: Gemv, epilogue: ir.Function | None = None
) -> ir.Function:
    """The function over units; its buffers are A, B and the result, or those of the epilogue."""
    sizes = {dots.rows} | ({dots.rows - 1} if dots.large < dots.tiles else set())
    tiles = {rows: _emit_tile(module, f"{name}_{rows}", product, dots, rows) for rows in sorted(sizes)}
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.update(AS_EMITTED)
    b = function.build()
    table, lo, hi = function.args
    v = Vectors(b, product.dtype, dots.lanes)
    a, right, c = (b.load(b.gep(table, [i64(k)], source_etype=PTR), typ=PTR) for k in range(3))

    def unit(index: Any) -> None:
        matrix, block = b.udiv(index, i64(dots.blocks)), b.urem(index, i64(dots.blocks))
        a_at = v.element(a, batch_offset(b, product.a, product.batch, matrix))
        b_at = v.element(right, batch_offset(b, product.b, product.batch, matrix))
        c_at = v.element(c, b.mul(matrix, i64(product.m * product.n)))
        first, following = (b.mul(b.add(block, i64(k)), i64(dots.block)) for k in (0, 1))
        end = b.select(b.icmp_signed("==", block, i64(dots.blocks - 1)), i64(product.n), following)

        def columns(j: Any) -> None:
            j = least(b, j, b.sub(end, i64(dots.columns)))
            here, there = v.element(b_at, b.mul(j, i64(product.b.column))), v.element(c_at, j)
            row = 0
            for tile in range(dots.tiles):
                rows = dots.rows if tile < dots.large else dots.rows - 1
                of_a, of_c = v.element(a_at, i64(row * product.a.row)), v.element(there, i64(row * product.n))
                b.call(tiles[rows], [of_a, here, of_c])
                row += rows

        repeat(b, first, end, dots.columns, columns)
        if epilogue is not None:
            above = b.mul(matrix, i64(product.m))
            call_epilogue(b, epilogue, table, (above, b.add(above, i64(product.m))), (first, end))

    repeat(b, lo, hi, 1, unit)
    b.ret_void()
    return function


def _emit_tile(module: ir.Module, name: str, product: Product, dots: Gemv, rows: int) -> ir.Function:
    """`void tile(ptr a, ptr b, ptr c)`, over all of k."""
    function = ir.Function(module, _TILE_TYPE, name)
    function.linkage = "internal"
    for attribute in ("nounwind", "noinline"):
        function.attributes.add(attribute)
    b = function.build()
    a, right, c = function.args
    v, columns, parts = Vectors(b, product.dtype, dots.lanes), range(dots.columns), range(SUMS // dots.lanes)
    a_rows = [v.element(a, i64(i * product.a.row)) for i in range(rows)]
    b_rows = [v.element(right, i64(j * product.b.column)) for j in columns]
    following = i64(dots.columns * product.b.column)

    def step(k: Any, sums: list[Any], live: int = SUMS) -> list[Any]:
        updated = []
        for part in parts:
            at, mask = b.add(k, i64(part * dots.lanes)), None
            if live < SUMS:
                first = part * dots.lanes
                mask = ir.Constant(ir.VectorType(I1, dots.lanes), [int(first + x < live) for x in range(dots.lanes)])
            down = [v.load(v.element(row, at), mask) for row in a_rows]
            for j, row in enumerate(b_rows):
                if dots.far and live == SUMS and part == 0:
                    v.prefetch(v.element(v.element(row, following), at), level=2)
                across = v.load(v.element(row, at), mask)
                before = sums[(part * len(columns) + j) * rows :]
                updated += [v.fma(value, across, total) for value, total in zip(down, before, strict=False)]
        return updated

    left = product.k % SUMS
    sums = loop(b, i64(0), i64(product.k - left), SUMS, [v.zero] * (len(parts) * len(columns) * rows), step)
    if left:
        sums = step(i64(product.k - left), sums, left)
    for i in range(rows):
        totals = _total(b, [[sums[(part * len(columns) + j) * rows + i] for part in parts] for j in columns])
        Vectors(b, product.dtype, len(columns)).store(totals, v.element(c, i64(i * product.n)))
    b.ret_void()
    return function


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
