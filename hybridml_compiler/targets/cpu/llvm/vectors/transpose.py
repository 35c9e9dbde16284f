"""A vector loop whose stores are contiguous in the loop around it: squares of values, transposed in registers."""

from __future__ import annotations

from typing import Any

from ..... import dtypes
from .....loops.index import coefficient
from .....loops.ir import Expr, For, Store, extent
from .....sizes.dims import same
from .. import ir
from ..emitter import LoopEmitter
from ..scalars import Lanes
from ..types import alignment, constant


def transposing(stmt: For, lanes: int) -> For | None:
    """The vector loop inside of a loop, if its stores are contiguous in the outer one and both take whole vectors."""
    inner = stmt.body[0]
    if stmt.kind == "vector" or not isinstance(inner, For) or inner.kind != "vector" or len(stmt.body) > 1:
        return None
    for store in inner.body:
        if not isinstance(store, Store) or coefficient(store.index, stmt.var) != 1:
            return None
        if coefficient(store.index, inner.var) in (0, 1):
            return None
    return inner if same(extent(stmt.var) % lanes, 0) and same(extent(inner.var) % lanes, 0) else None


def emit_transposing(e: LoopEmitter, outer: Expr, inner: For) -> None:
    """Squares of as many iterations of both loops as there are lanes: values along one, stores along the other."""
    zero, lanes = constant(0, dtypes.int64), e.lanes

    def square(_: list[Lanes]) -> list[Lanes]:
        for store in inner.body:
            assert isinstance(store, Store)
            rows = []
            for k in range(lanes):
                with e.later(outer, k):
                    rows.append(e.s.to_memory(e.s.splat(e.value(store.value), lanes)))
            for k, column in enumerate(transposed(e.b, rows)):
                with e.later(inner.var, k):
                    pointer = e.element_pointer(store.buffer, store.index)
                    e.b.store(column, pointer, align=alignment(store.buffer.dtype))
        return []

    def strip(_: list[Lanes]) -> list[Lanes]:
        with e.in_lanes(inner.var, lanes):
            return e.loop(inner.var, zero, e.size(extent(inner.var)), lanes, [], square)

    e.loop(outer, zero, e.size(extent(outer)), lanes, [], strip)


def transposed(b: ir.IRBuilder, rows: list[Any]) -> list[Any]:
    """Columns of a square of vectors: blocks off the diagonal are exchanged, of half the side, of a quarter, and so on
    (Eklundh, "A fast computer method for matrix transposing", 1972)."""
    n, rows = len(rows), list(rows)
    parts = range(rows[0].type.count // n)  # a complex number has two
    half = n // 2
    while half:
        orders = (
            [k if not k & half else n + k - half for k in range(n)],
            [k + half if not k & half else n + k for k in range(n)],
        )
        numbers = [[len(parts) * k + part for k in order for part in parts] for order in orders]
        picks = [ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order) for order in numbers]
        for r in (r for r in range(n) if not r & half):
            rows[r], rows[r + half] = (b.shuffle_vector(rows[r], rows[r + half], pick) for pick in picks)
        half //= 2
    return rows
