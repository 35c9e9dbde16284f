"""From scalar stores to a loop nest: merge adjacent loops, choose the one that runs in lanes, mark the parallel one.

    out[i0*4 + i1] = f(x[i0*4 + i1])      i0 < 3, i1 < 4
 -> for i < 12 vector: out[i] = f(x[i])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .. import dtypes
from .builder import LoopBuilder
from .index import affine_coefficient, coefficient, is_affine_step, opaque_leaves
from .ir import Buffer, Expr, For, Kernel, Reduce, Stmt, Store, extent, operands

# Below this many iterations a loop is not worth lanes: mask set-up costs more than it saves.
_MIN_VECTOR = 4


@dataclass(frozen=True)
class Body:
    """What one iteration of the output space does: reductions in order, then stores."""

    vars: tuple[Expr, ...]  # output loop variables, outer to inner
    reduces: tuple[Reduce, ...]
    stores: tuple[Store, ...]


def build_kernel(s: LoopBuilder, buffers: Sequence[Buffer], body: Body, *, lanes: int) -> Kernel:
    """The kernel that runs `body` over its output space; `lanes` is the vector width in elements."""
    merged = merge_loops(s, body)
    inner_vector, merged = choose_lanes(merged)
    stmts: tuple[Stmt, ...] = (*merged.reduces, *merged.stores)
    for depth, var in enumerate(reversed(merged.vars)):
        stmts = (For(var, stmts, vector=inner_vector and depth == 0),)
    outer = merged.vars[0] if merged.vars else None
    granule = lanes if outer is not None and inner_vector and len(merged.vars) == 1 else 1
    return Kernel(tuple(buffers), stmts, outer, lanes, granule)


# ---- merging


def merge_loops(s: LoopBuilder, body: Body) -> Body:
    """Adjacent loops (a, b) become one where every use is affine with coefficient(a) = coefficient(b) * extent(b)."""
    uses = _affine_uses([*body.reduces, *body.stores])
    mapping: dict[Expr, Expr] = {}
    vars_ = _merge_runs(s, body.vars, uses, mapping)
    reduce_vars = [_merge_runs(s, r.vars, uses, mapping) for r in body.reduces]
    memo: dict[Expr, Expr] = {}
    reduces = []
    for r, variables in zip(body.reduces, reduce_vars, strict=True):
        value = s.substitute(r.value, mapping, memo)
        result = s.reduction_result(r.op, value, variables)
        mapping[r.result] = result
        reduces.append(replace(r, result=result, vars=variables, value=value))
    stores = tuple(
        Store(st.buffer, s.substitute(st.index, mapping, memo), s.substitute(st.value, mapping, memo))
        for st in body.stores
    )
    return Body(vars_, tuple(reduces), stores)


def _affine_uses(stmts: Sequence[Stmt]) -> list[Expr]:
    """Every maximal affine expression, those inside of masks, loaded indices and divisions included.

    A function of `i0*4 + i1` alone is a function of the merged variable, whatever the function is.
    """
    uses: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = [expr for stmt in stmts for expr in operands(stmt)]
    while stack:
        expr = stack.pop()
        if expr in seen:
            continue
        seen.add(expr)
        if is_affine_step(expr):
            uses[expr] = None
            stack.extend(opaque_leaves(expr))
        else:
            stack.extend(expr.args)
    return list(uses)


def _merge_runs(
    s: LoopBuilder, vars_: tuple[Expr, ...], uses: list[Expr], mapping: dict[Expr, Expr]
) -> tuple[Expr, ...]:
    if len(vars_) < 2:
        return vars_
    coefficients = {v: [affine_coefficient(u, v) for u in uses] for v in vars_}

    def mergeable(a: Expr, b: Expr) -> bool:
        return all(p == q * extent(b) for p, q in zip(coefficients[a], coefficients[b], strict=True))

    runs: list[list[Expr]] = [[vars_[0]]]
    for var in vars_[1:]:
        if mergeable(runs[-1][-1], var):
            runs[-1].append(var)
        else:
            runs.append([var])
    result = []
    for run in runs:
        if len(run) == 1:
            result.append(run[0])
            continue
        size = 1
        for var in run:
            size *= extent(var)
            mapping[var] = s.const(0, dtypes.int64)
        mapping[run[-1]] = s.var("i", size)
        result.append(mapping[run[-1]])
    return tuple(result)


# ---- lanes


def choose_lanes(body: Body) -> tuple[bool, Body]:
    """(run the innermost output loop in lanes?, body with reductions marked that run in lanes themselves)."""
    if not body.reduces:
        return bool(body.vars) and extent(body.vars[-1]) >= _MIN_VECTOR, body
    if any(_reads_contiguously(r, r.vars[-1]) and _lanes_allowed(r) for r in body.reduces):
        marked = tuple(replace(r, vector=_lanes_allowed(r)) for r in body.reduces)
        return False, replace(body, reduces=marked)
    if body.vars and extent(body.vars[-1]) >= _MIN_VECTOR:
        return True, body
    return False, replace(body, reduces=tuple(replace(r, vector=_lanes_allowed(r)) for r in body.reduces))


def _lanes_allowed(r: Reduce) -> bool:
    return not r.op.startswith("arg") and extent(r.vars[-1]) >= _MIN_VECTOR


def _reads_contiguously(r: Reduce, var: Expr) -> bool:
    stack, seen = [r.value], set()
    while stack:
        expr = stack.pop()
        if expr in seen:
            continue
        seen.add(expr)
        if expr.op == "load" and coefficient(expr.args[0], var) == 1:
            return True
        stack.extend(expr.args)
    return False

