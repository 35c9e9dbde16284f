"""Transposed reads in tiles: a map that reads an operand down its columns reads a square of it along its rows instead.

    for i < 2048 { for j < 2048 vector { y[i*2048 + j] = x[j*2048 + i] + 1 } }       a gather of 16 lines per vector
 -> for a < 32 { for b < 32 {
      for j < 64 { for i < 64 vector { t[i*64 + j] = x[(b*64 + j)*2048 + a*64 + i] } }
      for i < 64 { for j < 64 vector { y[(a*64 + i)*2048 + b*64 + j] = t[i*64 + j] + 1 } } } }

The first of the two inner nests is an ordinary one, which a back end may recognise: stores that are contiguous in the
loop around a vector loop are a transpose of registers. A last tile that would reach over the edge is moved back inside,
so that some elements are computed twice; a kernel that reads what it overwrites is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....loops.builder import LoopBuilder
from ....loops.dependence import independent
from ....loops.index import coefficient
from ....loops.ir import Buffer, Expr, For, Kernel, Stmt, Store, expressions, extent, perfect_nest, serial
from ....record import record
from ....sizes.dims import is_symbolic

# Most vectors along a side of a tile. Whole cache lines are read and written from one on, but the rows of a tile are in
# pages of their own, which longer pieces of them pay for ([Note: Memory order]).
_SIDES = (4, 2, 1)
_MIN_RANGE = 16  # iterations of the outermost loop that threads share evenly
_MIN_SPACE = 1 << 12  # elements below which a gather from the first-level cache is as good


@record
class _Tiling:
    """Loads that are contiguous along `along` and not along the innermost variable."""

    along: Expr
    loads: tuple[Expr, ...]


def tiled(s: LoopBuilder, kernel: Kernel, lanes: int) -> Kernel | None:
    """The kernel of a map in tiles; None where nothing is read transposed."""
    nest, stmts = perfect_nest(kernel.body)
    vars_, stores = [loop.var for loop in nest], [stmt for stmt in stmts if isinstance(stmt, Store)]
    found = _find(vars_, stores, lanes) if len(stores) == len(stmts) else None
    if found is None or not all(independent(loop, vars_[:k]) for k, loop in enumerate(nest)):
        return None
    across = vars_[-1]
    sides = [n * lanes for n in _SIDES[len(found.loads) > 1 :]]
    tile = {v: next(n for n in sides if n <= extent(v)) for v in (found.along, across)}
    number = {v: s.var("i", -(-extent(v) // tile[v])) for v in tile}
    first = {v: _first(s, number[v], tile[v], extent(v)) for v in tile}
    scratch = [
        Buffer(f"tile{k}", load.dtype, tile[across] * tile[found.along], "scratch")
        for k, load in enumerate(found.loads)
    ]

    def inside() -> dict[Expr, Expr]:
        return {v: s.var("i", tile[v]) for v in tile}

    def absolute(local: dict[Expr, Expr]) -> dict[Expr, Expr]:
        return {v: s.add(first[v], local[v]) for v in tile}

    def place(local: dict[Expr, Expr]) -> Expr:
        return s.add(s.mul(local[found.along], tile[across]), local[across])

    local = inside()
    memo: dict[Expr, Expr] = {}
    reads = [
        Store(buffer, place(local), s.substitute(load, absolute(local), memo))
        for buffer, load in zip(scratch, found.loads, strict=True)
    ]
    fill = For(local[across], (For(local[found.along], tuple(reads), "vector"),))
    local = inside()
    at = absolute(local)
    memo = {load: s.load(buffer, place(local)) for buffer, load in zip(scratch, found.loads, strict=True)}
    writes = [Store(t.buffer, s.substitute(t.index, at, memo), s.substitute(t.value, at, memo)) for t in stores]
    body: tuple[Stmt, ...] = (fill, For(local[found.along], (For(local[across], tuple(writes), "vector"),)))
    loops = [number.get(var, var) for var in vars_]
    longest = max(loops, key=extent)
    if extent(loops[0]) < _MIN_RANGE:  # threads share the outermost loop: (32, 100000) is one row of tiles
        loops = [longest, *(var for var in loops if var is not longest)]
    outermost, *others = loops
    body = (For(outermost, serial(others, body), "parallel"),)
    return Kernel((*kernel.buffers, *scratch), body, lanes)


def _find(vars_: Sequence[Expr], stores: Sequence[Store], lanes: int) -> _Tiling | None:
    if is_symbolic(map(extent, vars_)):
        return None
    space = 1
    for var in vars_:
        space *= extent(var)
    if lanes < 4 or space < _MIN_SPACE or extent(vars_[-1]) < lanes:
        return None
    every = [e for e in expressions(stores) if e.op == "load"]
    written = {store.buffer.name for store in stores}
    if any(load.attr.name in written for load in every):
        return None
    best: _Tiling | None = None
    for var in vars_[:-1]:
        loads = tuple(load for load in every if _transposed(load, var, vars_[-1]))
        if extent(var) >= lanes and len(loads) > (len(best.loads) if best else 0):
            best = _Tiling(var, loads)
    return best


def _transposed(load: Expr, along: Expr, across: Expr) -> bool:
    if len(load.args) > 1:  # under a mask: an element that is not there must not be read
        return False
    return coefficient(load.args[0], along) == 1 and coefficient(load.args[0], across) not in (None, 0, 1)


def _first(s: LoopBuilder, number: Expr, tile: int, size: int) -> Expr:
    """Index at which a tile starts."""
    start = s.mul(number, tile)
    return start if size % tile == 0 else s.minimum(start, size - tile)
