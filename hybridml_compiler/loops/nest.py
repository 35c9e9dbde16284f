"""Loop nests from scalar stores: merge adjacent loops, choose the one that runs in lanes, mark the parallel one.

   out[i0*4 + i1] = f(x[i0*4 + i1])      i0 < 3, i1 < 4
-> for i < 12 vector: out[i] = f(x[i])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from .. import dtypes
from ..record import record, replace
from ..sizes.dims import Size, hint, is_dim
from .builder import LoopBuilder
from .columns import accumulated
from .index import affine_coefficient, coefficient, is_affine_step, opaque_leaves
from .ir import Buffer, Expr, For, Kernel, Reduce, Scan, Stmt, Store, expressions, extent, loads, operands
from .tile import tiled
from .transcendental import TABLE

# Threads and chains share the iterations of the outermost loop. Where there are fewer, it takes in the loop inside of
# it (attention of 8 heads: rows of all heads), if a row is long enough for a division to be nothing.
_MIN_RANGE = 256
_LONG_ROW = 64
# Below this many iterations a loop is not worth lanes: mask set-up costs more than it saves.
_MIN_VECTOR = 4
# Vectors that an iteration of a long loop works on, side by side. A polynomial is one chain of dependent operations,
# longer than the out-of-order window: two chains overlap ([Note: Micro-kernels]).
_VECTORS = 2
_LONG_LOOP = 8
# A loop over columns whose body runs down the rows reads a piece of every row: the longer it is, the better memory does
# ([Note: Memory order]). Its accumulators stay in registers, so the number of vectors falls with the other values in
# them.
_COLUMN_VECTORS = ((8, 8), (24, 4))  # up to so many operations per element: so many vectors
_POLYNOMIAL = 20  # operations of a transcendental function
# Parts of a row of a scatter, which threads share; each of them goes through all of the indices.
_SCATTER_PARTS = 8
_ONE: Size = 1
_MASKED_VECTORS = 4  # a vector of a masked loop takes one of eight mask registers


@record
class Fill:
    """Stores over an inner index space: a row of results, or of values that later stages read again."""

    vars: tuple[Expr, ...]
    stores: tuple[Store, ...]


@record
class Body:
    """The work of one iteration of the output space: stages in order, then stores."""

    vars: tuple[Expr, ...]  # output loop variables, outer to inner
    stages: tuple[Reduce | Fill, ...]
    stores: tuple[Store, ...]

    @property
    def reduces(self) -> tuple[Reduce, ...]:
        return tuple(stage for stage in self.stages if isinstance(stage, Reduce))


def build_kernel(s: LoopBuilder, buffers: Sequence[Buffer], body: Body, *, lanes: int) -> Kernel:
    """The kernel that runs `body` over its output space; `lanes` is the vector width in elements."""
    merged = join_reductions(s, merge_loops(s, without_bounds(s, body)))
    inner_vector, merged = choose_lanes(merged)
    tiles = tiled(s, merged.vars, merged.stores, lanes) if inner_vector and not merged.stages else None
    if tiles is not None and isinstance(tiles[0], For):
        return Kernel(tuple(buffers), tiles, tiles[0].var, lanes)
    merged = collapse_outer(s, merged, len(merged.vars) - inner_vector)
    vectors = _vectors(merged, inner_vector, lanes)
    if inner_vector and merged.reduces and hint(extent(merged.vars[-1])) > vectors * lanes:
        rows = accumulated(s, merged.vars, merged.reduces, merged.stores)
        if rows is not None and isinstance(rows[0], For):
            return Kernel(tuple(buffers), rows, rows[0].var, _VECTORS * lanes)
    lanes *= vectors
    stmts: tuple[Stmt, ...] = (*map(_stage, merged.stages), *merged.stores)
    for depth, var in enumerate(reversed(merged.vars)):
        stmts = (For(var, stmts, vector=inner_vector and depth == 0),)
    outer = merged.vars[0] if merged.vars else None
    granule = lanes if outer is not None and inner_vector and len(merged.vars) == 1 else 1
    return Kernel(tuple(buffers), stmts, outer, lanes, granule)


def build_scan(scan: Scan, vars_: Sequence[Expr], *, lanes: int) -> Kernel:
    """The kernel of a running combination: in lanes over the last of the other variables, where rows are contiguous
    along it."""
    outer = [v for v in vars_ if v is not scan.var]
    in_lanes = bool(outer) and _is_long(outer[-1]) and coefficient(scan.index, outer[-1]) == 1
    if in_lanes:
        lanes *= _column_vectors(hint(extent(outer[-1])), _work([scan], outer[-1]), lanes)
    stmts: tuple[Stmt, ...] = (scan,)
    for depth, var in enumerate(reversed(outer)):
        stmts = (For(var, stmts, vector=in_lanes and depth == 0),)
    granule = lanes if in_lanes and len(outer) == 1 else 1
    return Kernel((), stmts, outer[0] if outer else None, lanes if in_lanes else 1, granule)


def build_scatter(s: LoopBuilder, update: Store, free: Sequence[Expr], bound: Sequence[Expr], *, lanes: int) -> Kernel:
    """The kernel that makes updates in the order of `bound`, the variables that say where an update goes.

    The others run outside, where threads share them without a conflict. If the last of them counts the elements of a
    row, it runs in lanes: a part of the row outside and shared, its vectors inside ([Note: Micro-kernels]).
    """
    in_lanes = bool(free) and _is_long(free[-1]) and coefficient(update.index, free[-1]) == 1
    within = free[-1] if in_lanes else None
    size = extent(within) if within else 1
    parts = 1 if is_dim(size) else min(_SCATTER_PARTS, size // lanes)
    if within and (count := next((n for n in range(parts, 1, -1) if size % n == 0), 1)) > 1:
        part, row, within = s.var("p", count), within, s.var("v", size // count)
        at = {row: s.add(s.mul(part, extent(within)), within)}
        update = Store(update.buffer, s.substitute(update.index, at), s.substitute(update.value, at))
        free = [*free[:-1], part, within]
    outside = free[:-1] if within else free
    stmts: tuple[Stmt, ...] = (For(within, (update,), vector=True),) if within else (update,)
    for var in reversed([*outside, *bound]):
        stmts = (For(var, stmts),)
    return Kernel((), stmts, outside[0] if outside else None, lanes if within else 1)


def _vectors(body: Body, inner_vector: bool, lanes: int) -> int:
    """Number of vectors of `lanes` that its vector loops work on side by side."""
    loops = [stage.vars[-1] for stage in body.stages if isinstance(stage, Fill)]
    loops += [body.vars[-1]] if inner_vector else []
    if not loops:
        return 1
    size = min(hint(extent(var)) for var in loops)
    if not (inner_vector and body.reduces):
        return side_by_side(lanes, size) // lanes
    accumulators = max(len(list(run)) for _, run in groupby(body.reduces, key=lambda r: r.vars))
    return _column_vectors(size, _work(body.reduces, body.vars[-1]), lanes, accumulators)


def _work(stmts: Sequence[Stmt], var: Expr) -> int:
    """Vector operations for an element, in lanes over `var`."""
    varying = (e for e in expressions(stmts) if var in e.depends and not is_affine_step(e))
    return sum(_POLYNOMIAL if e.op in TABLE else 1 for e in varying)


def side_by_side(lanes: int, size: int) -> int:
    """Lanes of a vector loop of so many iterations."""
    return _VECTORS * lanes if size >= _LONG_LOOP * lanes else lanes


def _column_vectors(size: int, spec: int, lanes: int, accumulators: int = 1) -> int:
    count = next((n for most, n in _COLUMN_VECTORS if spec <= most), _VECTORS)
    count = max(count // accumulators, _VECTORS)
    while count > 1 and (size < count * lanes or (size % (count * lanes) and count > _MASKED_VECTORS)):
        count //= 2
    return count


def _stage(stage: Reduce | Fill) -> Stmt:
    if isinstance(stage, Reduce):
        return stage
    stmts: tuple[Stmt, ...] = stage.stores
    for depth, var in enumerate(reversed(stage.vars)):
        stmts = (For(var, stmts, vector=depth == 0 and _is_long(var)),)
    return stmts[0]


def _is_long(var: Expr) -> bool:
    """Whether the loop is worth lanes. One whose size comes with the call is taken for long: the choice must not depend
    on the size that it was captured with, since a reduction in lanes adds up in another order."""
    size = extent(var)
    return is_dim(size) or size >= _MIN_VECTOR


def without_bounds(s: LoopBuilder, body: Body) -> Body:
    """The body once its indices are built, without the promised bounds, which are used up by then."""
    memo: dict[Expr, Expr] = {}
    stages = [
        Fill(stage.vars, tuple(plain_store(s, store, memo) for store in stage.stores))
        if isinstance(stage, Fill)
        else replace(stage, value=s.without_bounds(stage.value, memo))
        for stage in body.stages
    ]
    return Body(body.vars, tuple(stages), tuple(plain_store(s, store, memo) for store in body.stores))


def plain_store(s: LoopBuilder, store: Store, memo: dict[Expr, Expr]) -> Store:
    return Store(store.buffer, s.without_bounds(store.index, memo), s.without_bounds(store.value, memo))


# ---- merging


def merge_loops(s: LoopBuilder, body: Body) -> Body:
    """Adjacent loops (a, b) become one where every use is affine with coefficient(a) = coefficient(b) * extent(b)."""
    fills = [store for stage in body.stages if isinstance(stage, Fill) for store in stage.stores]
    uses = _affine_uses([*body.reduces, *fills, *body.stores])
    mapping: dict[Expr, Expr] = {}
    vars_ = _merge_runs(s, body.vars, uses, mapping)
    return _renamed(s, body, mapping, vars_, [_merge_runs(s, stage.vars, uses, mapping) for stage in body.stages])


def _renamed(
    s: LoopBuilder,
    body: Body,
    mapping: dict[Expr, Expr],
    vars_: tuple[Expr, ...],
    stage_vars: Sequence[tuple[Expr, ...]],
) -> Body:
    """The body over other variables, whose values the mapping gives."""
    memo: dict[Expr, Expr] = {}

    def moved(store: Store) -> Store:
        return Store(store.buffer, s.substitute(store.index, mapping, memo), s.substitute(store.value, mapping, memo))

    stages: list[Reduce | Fill] = []
    for stage, variables in zip(body.stages, stage_vars, strict=True):
        if isinstance(stage, Fill):
            stages.append(Fill(variables, tuple(map(moved, stage.stores))))
            continue
        value = s.substitute(stage.value, mapping, memo)
        result = s.reduction_result(stage.op, value, variables)
        mapping[stage.result] = result
        stages.append(replace(stage, result=result, vars=variables, value=value))
    return Body(vars_, tuple(stages), tuple(map(moved, body.stores)))


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
        size: Size = 1
        for var in run:
            size *= extent(var)
            mapping[var] = s.const(0, dtypes.int64)
        mapping[run[-1]] = s.var("i", size)
        result.append(mapping[run[-1]])
    return tuple(result)


def collapse_outer(s: LoopBuilder, body: Body, plain: int) -> Body:
    """The body with its outermost `plain` loops, which have no lanes, as one loop, whose position gives their
    indices."""
    count, size = 0, _ONE
    while count < plain and hint(size) < _MIN_RANGE:
        size *= extent(body.vars[count])
        count += 1
    inner = math.prod(hint(extent(v)) for v in (*body.vars[count:], *(v for stage in body.stages for v in stage.vars)))
    if count < 2 or inner < _LONG_ROW:
        return body
    position = row = s.var("i", size)
    mapping: dict[Expr, Expr] = {}
    for var in reversed(body.vars[1:count]):
        mapping[var], position = s.mod(position, extent(var)), s.floordiv(position, extent(var))
    mapping[body.vars[0]] = position
    return _renamed(s, body, mapping, (row, *body.vars[count:]), [stage.vars for stage in body.stages])


# ---- several reductions in one loop


def join_reductions(s: LoopBuilder, body: Body) -> Body:
    """The reductions, where those over equal index spaces share their variables: one loop then reads all operands
    once."""
    stages: list[Reduce | Fill] = []
    head: Reduce | None = None
    results: set[Expr] = set()
    for stage in body.stages:
        if isinstance(stage, Fill):
            head = None
        elif head is not None and _joins(head, stage) and not results & stage.value.depends:
            value = s.substitute(stage.value, dict(zip(stage.vars, head.vars, strict=True)))
            stage = replace(stage, vars=head.vars, value=value)
            results.add(stage.result)
        else:
            head, results = stage, {stage.result}
        stages.append(stage)
    return replace(body, stages=tuple(stages))


def _joins(a: Reduce, b: Reduce) -> bool:
    """Whether both are one tree: a sum's order must not depend on other sums that are computed beside it."""
    ops = {a.op, b.op}
    alike = not ops & {"argmin", "argmax"} and (len(ops) == 1 or "mul" not in ops)
    return alike and a.value.dtype is b.value.dtype and [*map(extent, a.vars)] == [*map(extent, b.vars)]


# ---- lanes


def choose_lanes(body: Body) -> tuple[bool, Body]:
    """(whether the innermost output loop runs in lanes, body with reductions marked that run in lanes themselves)."""
    if not body.stages:
        return bool(body.vars) and _is_long(body.vars[-1]), body
    rows = len(body.reduces) < len(body.stages)
    if rows or not body.vars or not _is_long(body.vars[-1]):
        return False, _with_lanes(body)
    along = [r for r in body.reduces if _lanes_allowed(r)]
    strided_along = sum(_strided_loads(r.value, r.vars[-1]) for r in along)
    strided_across = sum(_strided_loads(r.value, body.vars[-1]) for r in body.reduces)
    contiguous = any(_reads_contiguously(r, r.vars[-1]) for r in along)
    if contiguous and strided_along <= strided_across:
        return False, _with_lanes(body)
    return True, body


def _with_lanes(body: Body) -> Body:
    stages = [replace(s, vector=_lanes_allowed(s)) if isinstance(s, Reduce) else s for s in body.stages]
    return replace(body, stages=tuple(stages))


def _lanes_allowed(r: Reduce) -> bool:
    return _is_long(r.vars[-1])


def _reads_contiguously(r: Reduce, var: Expr) -> bool:
    return any(coefficient(load.args[0], var) == 1 for load in loads(r.value))


def _strided_loads(value: Expr, var: Expr) -> int:
    """Loads that lanes over `var` would have to gather."""
    return sum(coefficient(load.args[0], var) not in (0, 1) for load in loads(value))
