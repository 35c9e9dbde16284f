"""Fewer loops for the same iterations in the same order: what any target does before it looks for a schedule.

   for i0 < 3 { for i1 < 4 { out[i0*4 + i1] = f(x[i0*4 + i1]) } }
-> for i < 12 { out[i] = f(x[i]) }
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import dtypes
from ..record import replace
from ..sizes.dims import Size
from ..walk import reachable
from .builder import LoopBuilder
from .index import affine_coefficient, is_affine_step, opaque_leaves
from .ir import Expr, For, Kernel, Reduce, Stmt, extent, nested, operands, perfect_nest, serial, statements
from .transforms import renamed


def merge_loops(s: LoopBuilder, kernel: Kernel) -> Kernel:
    """The kernel with adjacent serial loops (a, b) as one, where every use is affine with coefficient(a) =
    coefficient(b) * extent(b)."""
    uses: list[Expr] = []
    mapping: dict[Expr, Expr] = {}

    def one(vars_: Sequence[Expr]) -> tuple[Expr, ...]:
        if len(vars_) > 1 and not uses:
            uses.extend(_affine_uses(statements(kernel.body)))
        return _merge_runs(s, vars_, uses, mapping)

    def merged(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, For):
                loops, inside = perfect_nest((stmt,))
                made += serial(one([loop.var for loop in loops]), merged(inside))
            elif isinstance(stmt, Reduce):
                made.append(replace(stmt, vars=one(stmt.vars)))
            else:
                made.append(stmt)
        return tuple(made)

    body = merged(kernel.body)
    return replace(kernel, body=renamed(s, body, mapping)) if mapping else kernel


def _affine_uses(stmts: Iterable[Stmt]) -> list[Expr]:
    """Every maximal affine expression, those inside of masks, loaded indices and divisions included.

    A function of `i0*4 + i1` alone is a function of the merged variable, whatever the function is.
    """
    roots = [expr for stmt in stmts for expr in operands(stmt)]
    parts = reachable(roots, lambda expr: opaque_leaves(expr) if is_affine_step(expr) else expr.args)
    return [expr for expr in parts if is_affine_step(expr)]


def _merge_runs(s: LoopBuilder, vars_: Sequence[Expr], uses: list[Expr], mapping: dict[Expr, Expr]) -> tuple[Expr, ...]:
    if len(vars_) < 2:
        return tuple(vars_)
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
        size: Size = 1
        for var in run:
            size *= extent(var)
            mapping[var] = s.const(0, dtypes.int64)
        mapping[run[-1]] = s.var("i", size)
        result.append(mapping[run[-1]])
    return tuple(result)


def join_reductions(s: LoopBuilder, kernel: Kernel) -> Kernel:
    """The kernel with reductions side by side over equal index spaces as one loop, which reads all operands once."""
    loops, inside = perfect_nest(kernel.body)
    made: list[Stmt] = []
    head: Reduce | None = None
    results: set[Expr] = set()
    for stmt in inside:
        if not isinstance(stmt, Reduce):
            head = None
        elif head is not None and _joins(head, stmt) and not results & stmt.value.depends:
            value = s.substitute(stmt.value, dict(zip(stmt.vars, head.vars, strict=True)))
            stmt = replace(stmt, vars=head.vars, value=value)
            results.add(stmt.result)
        else:
            head, results = stmt, {stmt.result}
        made.append(stmt)
    return replace(kernel, body=nested(loops, made))


def _joins(a: Reduce, b: Reduce) -> bool:
    """Whether both are one tree: a sum's order must not depend on other sums that are computed beside it."""
    ops = {a.op, b.op}
    alike = not ops & {"argmin", "argmax"} and (len(ops) == 1 or "mul" not in ops)
    return alike and a.value.dtype is b.value.dtype and [*map(extent, a.vars)] == [*map(extent, b.vars)]
