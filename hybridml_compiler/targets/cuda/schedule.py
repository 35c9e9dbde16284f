"""The schedule of loop nests on a GPU: which iterations are threads, and which are blocks.

   for i < 64 { for j < 96 { y[i*96 + j] = x[i*96 + j] + 1 } }
-> for i < 6144 parallel { y[i] = x[i] + 1 }                           a thread for each element
   for i < 64 { s = reduce add over r < 96 of x[i*96 + r]; y[i] = s }
-> for i < 64 block { s = reduce add over r < 96 thread ...; y[i] = s }    a block for each row

   for i < 64 { for j < 96 { y[i*96 + j] = x[j*64 + i] } }           of many elements:
-> for t < 6 block { for k < 1024 thread { for v < 4 vector { tile0[...] = x[...] } } ... } }
   for i < 65536 { y[i] = x[i] + 1 }                                 of many more:
-> for i < 16384 parallel { for j < 4 vector { y[i*4 + j] = x[i*4 + j] + 1 } }

Reductions of columns and of short rows are shared by squares of threads (reductions.py). Of few elements, or of columns
whose number has no fitting divisor, each is one thread's, beside those of its neighbours. Rows come in vectors at the
end (vectors.py).
What cannot be shown to keep the result (see loops/transforms.py) stays serial, in one thread.
"""

from __future__ import annotations

import math

from ...errors import CompileError
from ...loops.builder import LoopBuilder
from ...loops.dependence import independent
from ...loops.index import coefficient
from ...loops.ir import (
    Buffer,
    Expr,
    For,
    Kernel,
    LoopKind,
    Reduce,
    Scan,
    Stmt,
    Store,
    extent,
    loads,
    nested,
    perfect_nest,
)
from ...loops.merge import join_reductions, merge_loops
from ...loops.transforms import bind, collapse, renamed, split, vectorize
from ...record import replace
from .reductions import is_contiguous, tiled
from .scatter.form import rows_first, scatter_of
from .vectors import VECTOR, inside_of, lanes_of, with_inside

# A thread loads and stores 16 bytes at once where this many iterations are left: enough for all threads of a GPU.
_LEAST_VECTORS = 1 << 12
_SIDES = (64, 32)  # of a square that a block transposes: its rows are 128 bytes or more, of bfloat16, too
_MOST_SQUARE_BYTES = 20 << 10  # of all squares, in shared memory
# A row of fewer elements is no work for a warp; a column of more is too much for one thread.
_LEAST_ROW = 32
_MOST_COLUMN = 1024
_LEAST_SCAN = 256  # elements; shorter ones are one thread's


def schedule(s: LoopBuilder, kernel: Kernel) -> Kernel:
    """The kernel with its loops, which are serial, as a grid runs them."""
    found = scatter_of(kernel)
    if found is not None and not found.is_short:
        return kernel  # its launches are written as a whole (scatter.py)
    kernel = rows_first(found) if found is not None else join_reductions(s, merge_loops(s, kernel))
    squares = tiled(s, kernel)
    if squares is not None:
        return squares
    if _has_rows(kernel):
        try:
            return _blocks(s, kernel)
        except CompileError:  # some iterations need each other's results
            pass
    return _threads(s, kernel)


def _threads(s: LoopBuilder, kernel: Kernel) -> Kernel:
    """A thread for each iteration of the outer loops that are independent."""
    turned = _transposed(s, kernel)
    if turned is not None:
        return turned
    count = len(perfect_nest(kernel.body)[0])
    wide = (_wide(s, collapse(s, kernel, count)) if count > 1 else None) or _wide(s, kernel)
    return _outer(s, wide or kernel, "parallel")


def _wide(s: LoopBuilder, kernel: Kernel) -> Kernel | None:
    """The kernel with its innermost loop in vectors; None unless these are in memory as they are in the loop."""
    loops, body = perfect_nest(kernel.body)
    if not loops or not all(isinstance(stmt, Store) for stmt in body):
        return None
    var = loops[-1].var
    lanes = lanes_of(kernel, var, body)
    if math.prod(int(extent(loop.var)) for loop in loops) < lanes * _LEAST_VECTORS or lanes < 2:
        return None
    try:
        kernel, _, inner = split(s, kernel, var, lanes)
        return vectorize(kernel, inner, lanes)
    except CompileError:  # an element needs the result of another
        return None


def _transposed(s: LoopBuilder, kernel: Kernel) -> Kernel | None:
    """The kernel square by square, where it reads down what it writes along: what is read passes through shared memory,
    so that neighbours in memory are always neighbouring threads'. None for any other."""
    loops, body = perfect_nest(kernel.body)
    stores = [stmt for stmt in body if isinstance(stmt, Store)]
    if len(loops) < 2 or len(stores) < len(body) or kernel.scratch:
        return None
    along = loops[-1].var
    read = [e for e in kernel.expressions if e.op == "load" and not e.args[1:] and along in e.depends]
    down = next((x.var for x in loops[:-1] for e in read if _goes_down(e, along, x.var)), None)
    moved = [e for e in read if down is not None and _goes_down(e, along, down)]
    sizes = {loop.var: int(extent(loop.var)) for loop in loops}
    if down is None or math.prod(sizes.values()) < VECTOR * _LEAST_VECTORS // 4:
        return None
    nbytes = sum(e.dtype.itemsize for e in moved)
    side = next((n for n in _SIDES if not (sizes[along] % n or sizes[down] % n) and fits(n, nbytes)), 0)
    if side == 0 or any(coefficient(x.index, along) != 1 for x in stores):
        return None
    if not all(independent(loop, [x.var for x in loops[:k]]) for k, loop in enumerate(loops)):
        return None
    squares = [Buffer(f"tile{k}", e.dtype, side * (side + 1), "scratch") for k, e in enumerate(moved)]
    first = {var: s.mul(s.var("i", sizes[var] // side), side) for var in (down, along)}
    lanes = VECTOR // max(*(e.dtype.itemsize for e in moved), *(x.buffer.dtype.itemsize for x in stores))

    def place(vector: Expr, lane: Expr, *, turned: bool) -> tuple[dict[Expr, Expr], Expr]:
        """(the two variables of an element of the square, its place in shared memory)."""
        line = s.floordiv(vector, side // lanes)
        at = s.add(s.mul(s.mod(vector, side // lanes), lanes), lane)
        line_of, at_of = (along, down) if turned else (down, along)
        row, column = (at, line) if turned else (line, at)
        where = {line_of: s.add(first[line_of], line), at_of: s.add(first[at_of], at)}
        return where, s.add(s.mul(column, side + 1), row)  # one element more in a row: columns are in different banks

    def vectors(*, turned: bool) -> tuple[Expr, Expr, dict[Expr, Expr], Expr]:
        vector, lane = s.var("i", side * side // lanes), s.var("i", lanes)
        return vector, lane, *place(vector, lane, turned=turned)

    vector, lane, where, at = vectors(turned=True)
    keep = [Store(square, at, s.substitute(load, where)) for square, load in zip(squares, moved, strict=True)]
    reads = For(vector, (For(lane, tuple(keep), "vector"),), "thread")
    vector, lane, where, at = vectors(turned=False)
    where |= {load: s.load(square, at) for square, load in zip(squares, moved, strict=True)}
    give = [Store(x.buffer, s.substitute(x.index, where), s.substitute(x.value, where)) for x in stores]
    inside = [reads, For(vector, (For(lane, tuple(give), "vector"),), "thread")]
    outer = [x.var if x.var not in first else first[x.var].args[0] for x in loops]
    body = nested([For(var, (), "block") for var in outer], inside)
    return collapse(s, replace(kernel, buffers=(*kernel.buffers, *squares), body=body), len(outer))


def fits(side: int, nbytes: int) -> bool:
    """Whether squares of elements of so many bytes together fit shared memory."""
    return side * (side + 1) * nbytes <= _MOST_SQUARE_BYTES


def _goes_down(load: Expr, along: Expr, down: Expr) -> bool:
    """Whether neighbours along `down`, and not those along the other variable, are neighbours in memory."""
    return coefficient(load.args[0], down) == 1 and (coefficient(load.args[0], along) or 0) > 1


def _blocks(s: LoopBuilder, kernel: Kernel) -> Kernel:
    """A block for each iteration of the outer loops, whose threads share the loops and the reductions inside."""
    kernel = _outer(s, kernel, "block")
    shared = [_one_loop(s, stmt) if isinstance(stmt, For) else (stmt, stmt) for stmt in inside_of(kernel)]
    kernel = kernel.rescheduled(body=with_inside(kernel, [stmt for stmt, _ in shared]))
    for _, stmt in shared:
        match stmt:
            case For(var, _, _):
                kernel = bind(kernel, var, "thread")
            case Reduce(_, _, variables, _, _):
                kernel = bind(kernel, variables[-1], "thread")
    scans = [replace(x, kind="thread") if isinstance(x, Scan) else x for x in inside_of(kernel)]
    return kernel.rescheduled(body=with_inside(kernel, scans))


def _one_loop(s: LoopBuilder, stmt: For) -> tuple[Stmt, For]:
    """(the loop over all elements of a row, the loop of it that threads share): the innermost, where that is long, and
    else one over the positions of all."""
    loops, inside = perfect_nest((stmt,))
    sizes = [int(extent(loop.var)) for loop in loops]
    if sizes[-1] >= 2 * _LEAST_ROW or len(loops) == 1:
        return stmt, loops[-1]
    var = position = s.var("i", math.prod(sizes))
    where: dict[Expr, Expr] = {}
    for loop, size in zip(reversed(loops), reversed(sizes), strict=True):
        where[loop.var], position = s.mod(position, size), s.floordiv(position, size)
    made = For(var, renamed(s, inside, where))
    return made, made


def _outer(s: LoopBuilder, kernel: Kernel, kind: LoopKind) -> Kernel:
    """The kernel with its outer loops as one of this kind, or as many of them as are independent."""
    loops, _ = perfect_nest(kernel.body)
    count = 0
    for loop in loops:
        try:
            if loop.kind != "serial":
                break
            kernel = bind(kernel, loop.var, kind)
        except CompileError:
            break
        count += 1
    return collapse(s, kernel, count) if count > 1 else kernel


def _has_rows(kernel: Kernel) -> bool:
    """Whether the threads of a block find work beside each other in an iteration of the outer loops."""
    _, inside = perfect_nest(kernel.body)
    reductions = [stmt for stmt in inside if isinstance(stmt, Reduce)]
    if any(isinstance(stmt, Scan) for stmt in inside):
        return all(_is_long(stmt) for stmt in inside if isinstance(stmt, Scan))
    if kernel.scratch or any(_is_row(stmt) for stmt in reductions):
        return True
    return len(kernel.body) > 1 and any(isinstance(stmt, For) for stmt in kernel.body)


def _is_long(stmt: Scan) -> bool:
    """Whether a scan is along neighbours in memory, and long enough for the threads of a block."""
    moving = [stmt.index, *(load.args[0] for load in loads(stmt.value) if stmt.var in load.depends)]
    return int(extent(stmt.var)) >= _LEAST_SCAN and all(coefficient(index, stmt.var) == 1 for index in moving)


def _is_row(stmt: Reduce) -> bool:
    size = math.prod(int(extent(var)) for var in stmt.vars)
    return size >= _LEAST_ROW and (size > _MOST_COLUMN or is_contiguous(stmt))
