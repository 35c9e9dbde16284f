"""Updates of a table by a gradient that few rows have: `p - (zeros with v added at i) * lr` is p with rows i changed.

    q = p - scatter_add(zeros, i, v) * lr     ->     q = scatter_set(p, i, p[i] - sums[i] * lr)

The sum of each row is made first, in the order of the look-ups, so every bit is as before: what the other rows lose is
0.0, if the factor is positive and finite (-0.0 - -0.0 is 0.0, and 0 times infinity is nan). A factor that comes with
the call is assumed to be so: with any other every index is out of range, the program fails as if a look-up had, with
nothing written, and the program without this pass takes the call (`Stages.cautious`). Where p is updated in place, time
and memory of the update do not depend on its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..dtypes import int64
from ..graph.ir import Graph, Node, constant
from ..graph.rewrite import Rule, Rules, make, rewrite
from ..record import record
from ..sizes.values import has_dims
from .patterns import both_ways, is_op, is_value, sample, scalar, splat


@record
class SparseSum:
    """Zeros with `values` (n, ...) added at `indices` (n,) of the first axis."""

    indices: Node
    values: Node

    @staticmethod
    def of(node: Node) -> SparseSum | None:
        """The parts of a node that is such a sum, and of so few rows that it is worth it."""
        if not is_op(node, "scatter_add") or node.params["axis"] != 0 or node.dtype.char not in "fd":
            return None
        zeros, indices, values = node.inputs
        if not is_value(zeros, 0) or has_dims((node.shape, indices.shape, values.shape)):
            return None
        n = indices.aval.size
        # A pass over the table takes some 1.6 ns an element, sorting 100 ns an index, a sum 4 ns an element.
        if not n or node.aval.size < 128 * n + 8 * values.aval.size:
            return None
        return SparseSum(make("reshape", indices, shape=(n,)), make("reshape", values, shape=(n, *node.shape[1:])))


def sparse_updates(graph: Graph) -> Graph:
    """The graph with updates of few rows instead of whole tables."""
    return rewrite(graph, _RULES)


def described(graph: Graph) -> Iterator[str]:
    """For people: the tables that are updated by rows, and why that is the same."""
    for node in graph.nodes():
        if is_op(node, "scatter_set") and node.where and _is_few_rows(node):
            table, rows = node.inputs[:2]
            yield (
                f"{table.name or 'a table'}: {rows.aval.size:,} rows of {table.shape[0]:,} are updated, as the "
                "gradient of the others is zero"
            )


def _is_few_rows(node: Node) -> bool:
    table, rows, new = node.inputs
    own = new.inputs[0] if is_op(new, "subtract", "add") else None
    return own is not None and is_op(own, "take") and own.inputs[0] is table and is_op(rows, "index")


def _few_rows(node: Node) -> Node | None:
    table, product = node.inputs
    pairs = [(table, product)] if is_op(node, "subtract") else both_ways(node)
    for table, product in pairs:
        if not is_op(product, "multiply"):
            continue
        for total, factor in both_ways(product):
            found = SparseSum.of(total) if factor.aval.size == 1 else None
            if found is not None and table.aval == node.aval == total.aval:
                return _updated(node, table, found, factor)
    return None


def _updated(node: Node, table: Node, found: SparseSum, factor: Node) -> Node | None:
    factor = make("reshape", factor, shape=())
    known = splat(factor)
    least = 0.0 if is_op(node, "subtract") else -math.inf
    low, high = scalar(least, factor.dtype.char), scalar(least + math.inf if least == 0 else 0.0, factor.dtype.char)
    if known is not None and not low.value < known < high.value:
        return None
    count, shape = found.values.shape[0], node.shape
    indices = make("astype", found.indices, dtype=int64)
    if known is None:
        fits = make("logical_and", make("greater", factor, low), make("less", factor, high))
        indices = make("where", fits, indices, constant(np.asarray(shape[0], int64)))
    rows = make("index", indices, size=shape[0], axis=0)
    places = _places(rows)
    zeros = make("full", shape=(count, *shape[1:]), value=0.0, dtype=node.dtype)
    sums = make("take", make("scatter_add", zeros, places, found.values, axis=0), places, axis=0)
    new = make(node.op.name if node.op else "", make("take", table, rows, axis=0), make("multiply", sums, factor))
    return make("scatter_set", table, rows, new, axis=0)


def _places(rows: Node) -> Node:
    """For each row its place among all rows, each counted once, in order."""
    (n,) = rows.shape
    order = make("argsort", rows, axis=0, descending=False)
    ordered = make("take", rows, order, axis=0)
    later, earlier, moved = (
        make("slice", x, starts=(start,), stops=(stop,), steps=(1,))
        for x, start, stop in ((ordered, 1, n), (ordered, 0, n - 1), (order, 1, n))
    )
    begins = make("astype", make("not_equal", later, earlier), dtype=int64)
    steps = make("cumulative_sum", begins, axis=0, dtype=int64, reverse=False)
    zeros = make("full", shape=(n,), value=0, dtype=int64)
    return make("scatter_set", zeros, moved, steps, axis=0)


def _samples() -> list[Node]:
    zeros = make("full", shape=(600, 2), value=0.0, dtype="float32")
    indices = make("astype", sample("?", 3), dtype=int64)
    total = make("scatter_add", zeros, indices, sample("f4", 3, 2), axis=0)
    table = sample("f4", 600, 2)
    product = make("multiply", total, scalar(0.5))
    return [make("subtract", table, product), make("add", table, make("multiply", scalar(-0.5), total))]


SPARSE_RULES = (
    Rule(
        "p - zeros.at[i].add(v) * c -> p with rows i changed", ("subtract", "add"), _few_rows, _samples, ("multiply",)
    ),
)
_RULES = Rules(SPARSE_RULES, lasting=True)
