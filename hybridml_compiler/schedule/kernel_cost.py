"""The cost of a loop nest: instructions and memory traffic, in nanoseconds on one core (see cost.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..graph.facts import STEPS
from ..loops.index import coefficient
from ..loops.ir import Expr, For, Reduce, Scan, Stmt, Store, extent, operands
from ..loops.transcendental import TABLE
from ..ops.op import TRANSCENDENTAL
from ..ops.table import OPS
from ..sizes.dims import hint, is_dim
from .cost import STEP, memory_cost

# One instruction on one 64-byte vector: Zen 4 retires about one a cycle (0.27 ns), Cascade Lake up to two.
_INSTRUCTION = 0.3
_LANES = 16  # float32 in one vector
_WEIGHT = {"carry": 0, "div": 5, "sqrt": 6, "floordiv": 12, "mod": 12, "index": 6} | {
    name: math.ceil(max(OPS[name].cost, TRANSCENDENTAL) * _LANES / _INSTRUCTION) for name in TABLE
}


def kernel_cost(body: Sequence[Stmt], lanes: int, trips: float = 1.0, vector: Expr | None = None) -> float:
    """Estimated nanoseconds on one core: instructions of every statement times its iterations, plus memory traffic."""
    total = 0.0
    for stmt in body:
        if isinstance(stmt, For):
            count = trips * hint(extent(stmt.var)) / (lanes if stmt.kind == "vector" else 1)
            total += kernel_cost(stmt.body, lanes, count, stmt.var if stmt.kind == "vector" else vector)
            continue
        count, inner = trips, vector
        if isinstance(stmt, Reduce):
            for var in stmt.vars:
                count *= hint(extent(var))
            if stmt.kind == "vector":
                count, inner = count / lanes, stmt.vars[-1]
        elif isinstance(stmt, Scan):
            count *= hint(extent(stmt.var))
        innermost = _innermost(stmt, inner)
        width = lanes if inner is not None else 1
        total += count * sum(_expression_cost(e, inner, width) for e in _varying(stmt, innermost))
        if isinstance(stmt, Store | Scan):
            total += count * memory_cost(1.5 * stmt.buffer.dtype.itemsize * width)
    return total


def _innermost(stmt: Stmt, vector: Expr | None) -> Expr | None:
    if isinstance(stmt, Reduce):
        return stmt.vars[-1]
    return stmt.var if isinstance(stmt, Scan) else vector


def _varying(stmt: Stmt, innermost: Expr | None) -> list[Expr]:
    """Expressions computed again in every innermost iteration (the others are hoisted)."""
    seen: dict[Expr, None] = {}
    stack = list(operands(stmt))
    while stack:
        expr = stack.pop()
        if expr not in seen and expr.args and (innermost is None or innermost in expr.depends):
            seen[expr] = None
            stack.extend(expr.args)
    return list(seen)


def _expression_cost(expr: Expr, vector: Expr | None, width: int) -> float:
    if expr.op == "load":
        step = coefficient(expr.args[0], vector) if vector is not None and vector in expr.depends else 1
        near = step is not None and not is_dim(step) and abs(step) <= STEP
        return abs(step or 1) * (_INSTRUCTION + memory_cost(expr.dtype.itemsize * width)) if near else width * 0.5
    if expr.dtype.kind == "i" and expr.op in ("add", "mul", "sub") and vector is not None:
        return 0.0  # index arithmetic of a vector loop is one scalar addition
    if expr.op == "while":
        return STEPS * sum(_expression_cost(e, None, width) for e in expr.attr.expressions if e.args)
    return _INSTRUCTION * _WEIGHT.get(expr.op, 1)
