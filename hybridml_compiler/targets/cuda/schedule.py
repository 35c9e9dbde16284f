"""The schedule of loop nests on a GPU: which iterations are threads, and which are blocks.

   for i < 64 { for j < 96 { y[i*96 + j] = x[i*96 + j] + 1 } }
-> for i < 6144 parallel { y[i] = x[i] + 1 }                           a thread for each element
   for i < 64 { s = reduce add over r < 96 of x[i*96 + r]; y[i] = s }
-> for i < 64 block { s = reduce add over r < 96 thread ...; y[i] = s }    a block for each row

A reduction whose neighbours are not neighbours in memory (of columns) is one thread's, beside those of its neighbours.
What cannot be shown to keep the result (see loops/transforms.py) stays serial, in one thread.
"""

from __future__ import annotations

import math

from ...errors import CompileError
from ...loops.builder import LoopBuilder
from ...loops.index import coefficient
from ...loops.ir import Expr, For, Kernel, LoopKind, Reduce, Scan, extent, loads, perfect_nest
from ...loops.transforms import bind, collapse

# A row of fewer elements is no work for a warp; a column of more is too much for one thread.
_LEAST_ROW = 32
_MOST_COLUMN = 1024


def schedule(s: LoopBuilder, kernel: Kernel) -> Kernel:
    """The kernel with its loops, which are serial, as a grid runs them."""
    if _has_rows(kernel):
        try:
            return _blocks(s, kernel)
        except CompileError:  # some iterations need each other's results
            pass
    return _threads(s, kernel)


def _threads(s: LoopBuilder, kernel: Kernel) -> Kernel:
    """A thread for each iteration of the outer loops that are independent."""
    return _outer(s, kernel, "parallel")


def _blocks(s: LoopBuilder, kernel: Kernel) -> Kernel:
    """A block for each iteration of the outer loops, whose threads share the loops and the reductions inside."""
    kernel = _outer(s, kernel, "block")
    inside = perfect_nest(kernel.body)[1] if kernel.range is not None else kernel.body
    for stmt in inside:
        if isinstance(stmt, For):
            kernel = bind(kernel, stmt.var, "thread")
        elif isinstance(stmt, Reduce):
            kernel = bind(kernel, stmt.vars[-1], "thread")
        elif isinstance(stmt, Scan):
            raise CompileError("the threads of a block do not share a scan")
    return kernel


def _outer(s: LoopBuilder, kernel: Kernel, kind: LoopKind) -> Kernel:
    """The kernel with its outer loops as one of this kind, or as many of them as are independent."""
    loops, _ = perfect_nest(kernel.body)
    count = 0
    for loop in loops:
        try:
            kernel = bind(kernel, loop.var, kind)
        except CompileError:
            break
        count += 1
    return collapse(s, kernel, count) if count > 1 else kernel


def _has_rows(kernel: Kernel) -> bool:
    """Whether the threads of a block find work beside each other in an iteration of the outer loops."""
    _, inside = perfect_nest(kernel.body)
    reductions = [stmt for stmt in inside if isinstance(stmt, Reduce)]
    if any(stmt.op.startswith("arg") or stmt.value.dtype.kind == "c" for stmt in reductions):
        return False
    if kernel.scratch or any(_is_row(stmt) for stmt in reductions):
        return True
    return len(kernel.body) > 1 and any(isinstance(stmt, For) for stmt in kernel.body)


def _is_row(stmt: Reduce) -> bool:
    size = math.prod(int(extent(var)) for var in stmt.vars)
    return size >= _LEAST_ROW and (size > _MOST_COLUMN or _is_contiguous(stmt))


def _is_contiguous(stmt: Reduce) -> bool:
    last: Expr = stmt.vars[-1]
    return any(coefficient(load.args[0], last) in (1, -1) for load in loads(stmt.value))
