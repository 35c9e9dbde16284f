"""Stores side by side into every n-th element, as one store: element i*n + k is lane i of the k-th value.

    b[t*4] = v0; b[t*4 + 1] = v1; b[t*4 + 2] = v2; b[t*4 + 3] = v3     t in lanes
-> b[t*4 .. t*4 + 4*lanes] = v0[0], v1[0], v2[0], v3[0], v0[1], ...

A scatter writes lane by lane: four of 8 words take as long on Zen 4 as the ten Philox rounds that make the words
([Note: Micro-kernels]).
"""

from __future__ import annotations

from collections.abc import Sequence

from .....loops.index import coefficient
from .....loops.ir import Expr, Store
from .. import ir
from ..types import Literal

FACTORS = (2, 4)


def interleaved(stores: Sequence[Store], vector: Expr | None) -> bool:
    """Whether these stores, in this order, fill a run of memory where the variable is in lanes."""
    first, count = stores[0], len(stores)
    if vector is None or count not in FACTORS or first.value.dtype.kind == "c":
        return False
    if coefficient(first.index, vector) != count:
        return False
    return all(s.buffer == first.buffer and _beyond(s.index, first.index, k) for k, s in enumerate(stores) if k)


def _beyond(index: Expr, base: Expr, by: int) -> bool:
    return index.op == "add" and index.args[0] is base and index.args[1].op == "const" and int(index.args[1].attr) == by


def interleave(b: ir.IRBuilder, values: Sequence[ir.Value], lanes: int) -> ir.Value:
    """One vector of the lanes of all values, lane by lane."""
    joined = list(values)
    while len(joined) > 1:
        size = lanes * len(values) // len(joined)
        pairs = zip(joined[::2], joined[1::2], strict=True)
        joined = [b.shuffle_vector(x, y, _order(range(2 * size))) for x, y in pairs]
    order = _order([k * lanes + i for i in range(lanes) for k in range(len(values))])
    return b.shuffle_vector(joined[0], joined[0], order)


def every(b: ir.IRBuilder, values: ir.Value, k: int, step: int) -> ir.Value:
    """The k-th of each `step` lanes: alone, where there are no more."""
    count = values.type.count // step
    if count == 1:
        return b.extract_element(values, ir.Constant(ir.IntType(32), k))
    return b.shuffle_vector(values, values, _order(range(k, values.type.count, step)))


def _order(lanes: Sequence[int]) -> Literal:
    kind = ir.VectorType(ir.IntType(32), len(lanes))
    return Literal(kind, "<" + ", ".join(f"i32 {lane}" for lane in lanes) + ">")
