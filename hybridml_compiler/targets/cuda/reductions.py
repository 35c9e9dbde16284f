"""Reductions in squares of threads: neighbours in memory are those of neighbouring threads, rows of which share a sum.

   for j < 4096 { s = reduce add over r < 512 of x[r*4096 + j]; y[j] = s }                    sums of columns
-> for b < 128 block {
     for k < 256 thread { p = reduce add over r < 64 of x[(r*8 + k/32)*4096 + b*32 + k%32]; tile0[k] = p }
     for c < 32 thread { s = reduce add over q < 8 of tile0[q*32 + c]; y[b*32 + c] = s } }

   for c < 64 { s = reduce add over n < 32, p < 49 of x[n*3136 + c*49 + p]; y[c] = s }        of short rows
-> for c < 64 block {
     for k < 196 thread { p = reduce add over n < 8 of x[(n*4 + k/49)*3136 + c*49 + k%49]; tile0[k] = p }
     s = reduce add over k < 196 thread of tile0[k]
     y[c] = s }

A long reduction was cut into parts before (schedule/lowering/split.py), as many as `part_of` asks for: enough blocks
for all multiprocessors. What adds up to what depends on the shape alone, not on the device, so sums have the same bits
on every GPU. [Note: GPU reductions] has the arithmetic behind these numbers, and what an H100 took.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ... import dtypes
from ...loops.builder import LoopBuilder, identity
from ...loops.dependence import independent
from ...loops.index import coefficient
from ...loops.ir import Buffer, Expr, For, Kernel, Reduce, Stmt, Store, extent, loads, nested, perfect_nest, steps
from ...loops.transforms import collapse
from ...record import record, replace

THREADS = 256  # of a block
_BLOCKS = 1024  # of a launch that fills a GPU: 132 multiprocessors of an H100 with 8 each
_LEAST_SPLIT = 1 << 16  # elements: one multiprocessor reads fewer in less time than a launch takes
_LEAST_WORK = 16  # elements of each thread, in a part of a row; in one of a column half
_LINE = 128  # bytes of memory that the threads of a warp read side by side
_LEAST_ROWS = 16  # of a column that threads share
_MOST_COLUMNS = 1 << 17  # from this number on a thread for each fills a GPU
_MOST_ROW = 1 << 13  # elements of a row that one block works on, however few there are


def worth_rows(rows: int, row: int) -> bool:
    """Whether a block for each row leaves few multiprocessors idle, or not for long."""
    return rows >= _BLOCKS // 4 or row <= _MOST_ROW


def part_of(length: int, kept: int, beside: int) -> int:
    """Elements of a long reduction that have a partial result (see schedule/cost.py): so many that there are blocks
    for all multiprocessors, but something to do for each thread. 0 where a reduction is not cut."""
    if length * kept < _LEAST_SPLIT:
        return 0
    columns = min(beside, 32)
    blocks = max(kept // columns, 1)
    least = THREADS // columns * (_LEAST_WORK if columns == 1 else _LEAST_WORK // 2)
    parts = min(-(-_BLOCKS // blocks), length // least)
    return -(-length // parts) if parts > 1 else 0


@record
class Square:
    """The threads of a block as rows of neighbours. Reduced variable number `down` is shared by the rows. Neighbours
    are results along the innermost loop, or, where `rows` hold what is combined, the last reduced variable."""

    width: int
    down: int
    rows: bool

    def lines(self, size: int) -> int:
        """Rows of threads for so many elements: a divisor, unless that leaves half of the threads idle."""
        most = min(THREADS // self.width, size)
        whole = next(n for n in range(most, 0, -1) if size % n == 0)
        return whole if 2 * whole > most else most


def tiled(s: LoopBuilder, kernel: Kernel) -> Kernel | None:
    """The kernel in squares of threads; None where another schedule is as good."""
    loops, body = perfect_nest(kernel.body)
    reductions = [stmt for stmt in body if isinstance(stmt, Reduce)]
    stores = [stmt for stmt in body if isinstance(stmt, Store)]
    if not reductions or [*reductions, *stores] != [*body] or kernel.scratch:
        return None
    if any(stmt.op.startswith("arg") for stmt in reductions):
        return None
    if len({tuple(map(extent, stmt.vars)) for stmt in reductions}) > 1:
        return None
    variables = [loop.var for loop in loops]
    if not all(independent(loop, variables[:k]) for k, loop in enumerate(loops)):
        return None
    square = _square(variables, reductions)
    return None if square is None else _Writer(s, kernel, square).kernel(loops, reductions, stores)


def _square(variables: Sequence[Expr], reductions: Sequence[Reduce]) -> Square | None:
    first = reductions[0]
    sizes = [int(extent(var)) for var in first.vars]
    kept, length = math.prod(int(extent(var)) for var in variables), math.prod(sizes)
    if any(is_contiguous(stmt) for stmt in reductions):
        down = max(range(len(sizes) - 1), key=sizes.__getitem__, default=0)
        if len(sizes) < 2 or sizes[-1] > THREADS // 2 or length < THREADS // 2:
            return None
        return Square(sizes[-1], down, rows=True)
    if not variables or length < _LEAST_ROWS or kept > _MOST_COLUMNS:
        return None
    along = variables[-1]
    read = [e for stmt in reductions for e in loads(stmt.value) if coefficient(e.args[0], along) == 1]
    if not read:
        return None
    size, wanted = int(extent(along)), _LINE // max(e.dtype.itemsize for e in read)
    width = next(n for n in range(min(wanted, size), 0, -1) if size % n == 0)
    if 2 * width < min(wanted, size):
        return None
    return Square(width, max(range(len(sizes)), key=sizes.__getitem__), rows=False)


def is_contiguous(stmt: Reduce) -> bool:
    """Whether neighbours along the last variable are neighbours in memory."""
    last = stmt.vars[-1]
    return any(coefficient(load.args[0], last) in (1, -1) for load in loads(stmt.value))


class _Writer:
    """Writes a kernel whose reductions are made in squares: each in one part by every thread, which are combined."""

    def __init__(self, s: LoopBuilder, kernel: Kernel, square: Square) -> None:
        self.s, self.source, self.square = s, kernel, square
        self.along: Expr | None = None  # the loop over columns, of which the first of a block is number `start`
        self.start: Expr = s.const(0, dtypes.int64)
        self.scratch: list[Buffer] = []
        self.found: dict[Expr, Expr] = {}  # results by those of the source, for all threads
        self.totals: dict[Expr, Buffer] = {}  # of columns, where a later loop of threads reads them

    def kernel(self, loops: Sequence[For], reductions: Sequence[Reduce], stores: Sequence[Store]) -> Kernel:
        outer = [loop.var for loop in loops]
        if not self.square.rows:
            self.along = outer.pop()
            blocks = int(extent(self.along)) // self.square.width
            if blocks > 1:
                outer.append(self.s.var("i", blocks))
                self.start = self.s.mul(outer[-1], self.square.width)
        made: list[Stmt] = []
        groups = [[stmt for stmt in step if isinstance(stmt, Reduce)] for step in steps(reductions)]
        for k, group in enumerate(groups):
            tiles = self._parts(group, made)
            if self.square.rows:
                self._whole_rows(group, tiles, made)
            else:
                self._whole_columns(group, tiles, stores if k == len(groups) - 1 else (), made)
        if self.square.rows:
            made += [self._store(stmt, self.found) for stmt in stores]
        body = nested([For(var, (), "block") for var in outer], made)
        kernel = replace(self.source, buffers=(*self.source.buffers, *self.scratch), body=body)
        return collapse(self.s, kernel, len(outer)) if len(outer) > 1 else kernel

    def _parts(self, group: Sequence[Reduce], made: list[Stmt]) -> list[Buffer]:
        """The buffers of what each thread combines alone, after the loop that fills them."""
        s, square, variables = self.s, self.square, group[0].vars
        down = variables[square.down]
        size = int(extent(down))
        lines = square.lines(size)
        thread = s.var("i", square.width * lines)
        column, line = s.mod(thread, square.width), s.floordiv(thread, square.width)
        turn = s.var("r", -(-size // lines))
        row = s.add(s.mul(turn, lines), line)
        inside = s.lt(row, size)
        where = {down: row if size % lines == 0 else s.minimum(row, size - 1)} | self._columns(column)
        if square.rows:
            where[variables[-1]] = column
        over = tuple(turn if var is down else var for var in variables if var not in where or var is down)
        fill: list[Stmt] = []
        stores: list[Stmt] = []
        tiles = []
        for stmt in group:
            value = s.substitute(stmt.value, where)
            if size % lines:
                value = s.select(inside, value, s.const(identity(stmt.op, value.dtype), value.dtype))
            result = s.reduction_result(stmt.op, value, over)
            fill.append(Reduce(result, stmt.op, over, value))
            tiles.append(self._new(value, square.width * lines))
            stores.append(Store(tiles[-1], thread, result))
        made.append(For(thread, (*fill, *stores), "thread"))
        return tiles

    def _whole_rows(self, group: Sequence[Reduce], tiles: Sequence[Buffer], made: list[Stmt]) -> None:
        """Adds the reductions of all parts, whose results every thread knows."""
        var = self.s.var("r", tiles[0].size)
        for stmt, tile in zip(group, tiles, strict=True):
            value = self.s.load(tile, var)
            self.found[stmt.result] = self.s.reduction_result(stmt.op, value, (var,))
            made.append(Reduce(self.found[stmt.result], stmt.op, (var,), value, "thread"))

    def _whole_columns(
        self, group: Sequence[Reduce], tiles: Sequence[Buffer], stores: Sequence[Store], made: list[Stmt]
    ) -> None:
        """Adds the loop in which a thread for each column combines its parts, and keeps or stores the results."""
        s, width = self.s, self.square.width
        column = s.var("i", width)
        var = s.var("r", int(tiles[0].size) // width)
        where = self._columns(column)
        inside: list[Stmt] = []
        for stmt, tile in zip(group, tiles, strict=True):
            value = s.load(tile, s.add(s.mul(var, width), column))
            result = where[stmt.result] = s.reduction_result(stmt.op, value, (var,))
            inside.append(Reduce(result, stmt.op, (var,), value))
        for stmt in group if not stores else ():
            self.totals[stmt.result] = self._new(where[stmt.result], width)
            inside.append(Store(self.totals[stmt.result], column, where[stmt.result]))
        inside += [self._store(stmt, where) for stmt in stores]
        made.append(For(column, tuple(inside), "thread"))

    def _columns(self, column: Expr) -> dict[Expr, Expr]:
        """The variables and results of the source, as they are in the column of a thread."""
        where = dict(self.found)
        where |= {result: self.s.load(total, column) for result, total in self.totals.items()}
        if self.along is not None:
            where[self.along] = self.s.add(self.start, column)
        return where

    def _store(self, stmt: Store, where: dict[Expr, Expr]) -> Store:
        return Store(stmt.buffer, self.s.substitute(stmt.index, where), self.s.substitute(stmt.value, where))

    def _new(self, value: Expr, size: int) -> Buffer:
        self.scratch.append(Buffer(f"tile{len(self.scratch)}", value.dtype, size, "scratch"))
        return self.scratch[-1]
