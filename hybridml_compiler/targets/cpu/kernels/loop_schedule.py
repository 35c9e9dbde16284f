"""A CPU's schedule of a loop nest: which loop runs in lanes and in how many, and which one threads share.

   for i0 < 3 { for i1 < 4 { out[i0*4 + i1] = f(x[i0*4 + i1]) } }
-> for i < 12 vector { out[i] = f(x[i]) }

What cannot be shown to keep the result (see loops/transforms.py) stays serial.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby

from .... import dtypes
from ....errors import CompileError
from ....loops.builder import LoopBuilder
from ....loops.dependence import independent
from ....loops.index import coefficient, is_affine_step, opaque_leaves
from ....loops.ir import (
    Expr,
    For,
    Kernel,
    Reduce,
    Scan,
    Stmt,
    Store,
    expressions,
    extent,
    loads,
    perfect_nest,
    statements,
    variables,
)
from ....loops.merge import join_reductions, merge_loops
from ....loops.regions import everywhere
from ....loops.transcendental import TABLE
from ....loops.transforms import bind, collapse, reorder, split, vectorize
from ....record import replace
from ....schedule import cost
from ....sizes.dims import Size, hint, is_dim
from .loop_columns import accumulated
from .loop_tiles import tiled

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
# Columns, in vectors, up to which they stay there for all of a part of the rows; of more, accumulators are in memory
# (loop_columns.py). Each adds up in an order of its own, so the number alone decides, and not what is computed beside.
_IN_REGISTERS = 4
_POLYNOMIAL = 20  # operations of a transcendental function
# Parts of a row of a scatter, which threads share; each of them goes through all of the indices.
_SCATTER_PARTS = 8
_ONE: Size = 1
_MASKED_VECTORS = 4  # a vector of a masked loop takes one of eight mask registers
# Random bits are 64-bit products, which are stored four words side by side: in more lanes they are no faster.
_WORD_LANES = 8


def schedule(s: LoopBuilder, kernel: Kernel, lanes: int) -> Kernel:
    """The kernel with its loops, which are serial, as a CPU with vectors of so many elements runs them best."""
    loops, inside = perfect_nest(kernel.body)
    if len(inside) == 1 and isinstance(inside[0], Scan):
        return _scan(s, kernel, lanes)
    if _may_meet(inside, [loop.var for loop in loops]):
        bound = [loop.var for k, loop in enumerate(loops) if not independent(loop, [x.var for x in loops[:k]])]
        if bound:
            return _scatter(s, kernel, bound, lanes)
    return _map(s, join_reductions(s, merge_loops(s, kernel)), lanes)


def _may_meet(stmts: Sequence[Stmt], vars_: Sequence[Expr]) -> bool:
    """Whether these are stores of which some may go to one place: to one that data tell, or that a loop does not."""
    stores = [stmt for stmt in stmts if isinstance(stmt, Store)]
    return len(stores) == len(stmts) and any(
        not stmt.index.depends.issuperset(vars_) or opaque_leaves(stmt.index) for stmt in stores
    )


def schedule_matrix(kernel: Kernel, lanes: int) -> Kernel:
    """The kernel of a call's epilogue or prologue, whose loops over rows and columns stay: each has bounds of its own.

    An element is stored once, so no iteration needs another.
    """
    (rows,) = kernel.body
    assert isinstance(rows, For)
    columns = rows.body[0]
    if isinstance(columns, For):
        rows = For(rows.var, (replace(columns, kind="vector"),), "parallel")
        lanes = _side_by_side(lanes, hint(extent(columns.var)))
    else:
        rows = replace(rows, kind="parallel" if extent(rows.var) == 1 else "vector")
    return kernel.rescheduled(body=(rows,), lanes=lanes)


# ---- maps and reductions


def _map(s: LoopBuilder, kernel: Kernel, lanes: int) -> Kernel:
    vars_, reduces, fills = _parts(kernel)
    across = _lanes_across(vars_, reduces, fills)
    if across and not reduces and (tiles := tiled(s, kernel, lanes)) is not None:
        return tiles
    kernel = _share(s, kernel, vars_[: len(vars_) - across])
    vars_, reduces, fills = _parts(kernel)
    if _makes_words(kernel):
        lanes, vectors = _WORD_LANES, 1
    else:
        vectors = _vectors(vars_, reduces, fills, across, lanes)
    if across and reduces and hint(extent(vars_[-1])) > _IN_REGISTERS * lanes:
        rows = accumulated(s, kernel, _VECTORS * lanes)
        if rows is not None:
            return rows
    last = [vars_[-1]] if across else [*dict.fromkeys(r.vars[-1] for r in reduces), *(fill.var for fill in fills)]
    return _in_lanes(kernel, filter(_is_long, last), vectors * lanes)


def _parts(kernel: Kernel) -> tuple[list[Expr], list[Reduce], list[For]]:
    """(loops around all of a kernel, its reductions, the innermost loops of those over rows of results)."""
    loops, inside = perfect_nest(kernel.body)
    reduces = [stmt for stmt in inside if isinstance(stmt, Reduce)]
    return [loop.var for loop in loops], reduces, [perfect_nest((x,))[0][-1] for x in inside if isinstance(x, For)]


def _share(s: LoopBuilder, kernel: Kernel, vars_: Sequence[Expr]) -> Kernel:
    """The kernel with the outermost of these loops parallel, or a few of them as one."""
    count, size = 0, _ONE
    while count < len(vars_) and hint(size) < _MIN_RANGE:
        size *= extent(vars_[count])
        count += 1
    every = [var for stmt in statements(kernel.body) for var in variables(stmt)]
    inner = math.prod(hint(extent(var)) for var in every if var not in vars_[:count])
    count = count if inner >= _LONG_ROW else 1
    with suppress(CompileError):  # iterations that need each other's results stay in order
        for var in vars_[:count]:
            kernel = bind(kernel, var, "parallel")
        if count > 1:
            kernel = collapse(s, kernel, count)
    return kernel


def _in_lanes(kernel: Kernel, vars_: Iterable[Expr], lanes: int) -> Kernel:
    """The kernel with these loops in lanes, where their iterations do not need each other's results."""
    for var in vars_:
        with suppress(CompileError):
            kernel = vectorize(kernel, var, lanes)
    match kernel.body:
        case (For(kind="vector"),):  # threads share whole vectors of it
            return kernel.rescheduled(lanes=lanes, granule=lanes)
    return kernel.rescheduled(lanes=lanes, granule=1)


def _makes_words(kernel: Kernel) -> bool:
    """Whether it makes random bits: 64-bit products, and stores side by side of the words of one iteration."""
    return any(
        isinstance(loop, For)
        and len(loop.body) > 1
        and isinstance(loop.body[0], Store)
        and coefficient(loop.body[0].index, loop.var) == len(loop.body)
        for loop in statements(kernel.body)
    ) and any(e.op == "mul" and e.dtype is dtypes.uint64 and e.depends for e in kernel.expressions)


def _lanes_across(vars_: Sequence[Expr], reduces: Sequence[Reduce], fills: Sequence[For]) -> bool:
    """Whether the innermost loop over results runs in lanes, rather than reductions and rows inside of it."""
    if fills or not vars_ or not _is_long(vars_[-1]):
        return False
    along = [r for r in reduces if _is_long(r.vars[-1])]
    strided_along = sum(_strided_loads(r.value, r.vars[-1]) for r in along)
    strided_across = sum(_strided_loads(r.value, vars_[-1]) for r in reduces)
    contiguous = any(_reads_contiguously(r, r.vars[-1]) for r in along)
    return not (contiguous and strided_along <= strided_across)


def _reads_contiguously(r: Reduce, var: Expr) -> bool:
    return any(_is_near(coefficient(load.args[0], var), 1) for load in loads(r.value))


def _strided_loads(value: Expr, var: Expr) -> int:
    """Loads that lanes over `var` would have to gather."""
    return sum(not _is_near(coefficient(load.args[0], var), 0) for load in loads(value))


def _is_near(step: Size | None, least: int) -> bool:
    """Whether lanes that are so far from each other are loaded as vectors."""
    return step is not None and not is_dim(step) and least <= abs(step) <= cost.STEP


def _vectors(vars_: Sequence[Expr], reduces: Sequence[Reduce], fills: Sequence[For], across: bool, lanes: int) -> int:
    """Number of vectors of `lanes` that its vector loops work on side by side."""
    loops = [*(fill.var for fill in fills), *(vars_[-1:] if across else ())]
    if not loops:
        return 1
    size = min(hint(extent(var)) for var in loops)
    if not (across and reduces):
        return _side_by_side(lanes, size) // lanes
    accumulators = max(len(list(run)) for _, run in groupby(reduces, key=lambda r: r.vars))
    return _column_vectors(size, _work(reduces, vars_[-1]), lanes, accumulators)


def _work(stmts: Sequence[Stmt], var: Expr) -> int:
    """Vector operations for an element, in lanes over `var`."""
    varying = (e for e in expressions(stmts) if var in e.depends and not is_affine_step(e))
    return sum(_POLYNOMIAL if e.op in TABLE else 1 for e in everywhere(varying))


def _side_by_side(lanes: int, size: int) -> int:
    """Lanes of a vector loop of so many iterations."""
    return _VECTORS * lanes if size >= _LONG_LOOP * lanes else lanes


def _column_vectors(size: int, spec: int, lanes: int, accumulators: int = 1) -> int:
    count = next((n for most, n in _COLUMN_VECTORS if spec <= most), _VECTORS)
    count = max(count // accumulators, _VECTORS)
    while count > 1 and (size < count * lanes or (size % (count * lanes) and count > _MASKED_VECTORS)):
        count //= 2
    return count


def _is_long(var: Expr) -> bool:
    """Whether the loop is worth lanes. One whose size comes with the call is taken for long: the choice must not depend
    on the size that it was captured with, since a reduction in lanes adds up in another order."""
    size = extent(var)
    return is_dim(size) or size >= _MIN_VECTOR


# ---- scans and scatters


def _scan(s: LoopBuilder, kernel: Kernel, lanes: int) -> Kernel:
    """A running combination: in lanes over the last of the other variables, where rows are contiguous along it."""
    loops, (scan,) = perfect_nest(kernel.body)
    assert isinstance(scan, Scan)
    vars_ = [loop.var for loop in loops]
    if not vars_ or not _is_long(vars_[-1]) or coefficient(scan.index, vars_[-1]) != 1:
        return _in_lanes(_share(s, kernel, vars_[:1]), (), 1)
    lanes *= _column_vectors(hint(extent(vars_[-1])), _work([scan], vars_[-1]), lanes)
    return _in_lanes(_share(s, kernel, vars_[:1] if len(vars_) > 1 else ()), vars_[-1:], lanes)


def _scatter(s: LoopBuilder, kernel: Kernel, bound: Sequence[Expr], lanes: int) -> Kernel:
    """Updates in the order of `bound`, the variables that say where an update goes.

    The others run outside, where threads share them without a conflict. If the last of them counts the elements of a
    row, it runs in lanes: a part of the row outside and shared, its vectors inside ([Note: Micro-kernels]).
    """
    loops, (update, *_) = perfect_nest(kernel.body)
    free = [loop.var for loop in loops if loop.var not in bound]
    assert isinstance(update, Store)
    within: list[Expr] = []
    if free and _is_long(free[-1]) and coefficient(update.index, free[-1]) == 1:
        *free, row = free
        within, size = [row], extent(row)
        parts = 1 if is_dim(size) else min(_SCATTER_PARTS, size // lanes)
        if (count := next((n for n in range(parts, 1, -1) if size % n == 0), 1)) > 1:
            kernel, part, inside = split(s, kernel, row, size // count)
            free, within = [*free, part], [inside]
    kernel = _share(s, reorder(kernel, [*free, *bound, *within]), free[:1])
    return _in_lanes(kernel, within, lanes if within else 1)
