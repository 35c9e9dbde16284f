"""Rows in vectors: the threads of a block load and store 16 bytes at a time, where neighbours in memory allow it.

   s = reduce add over r < 1024 thread of x[r]  ->  s = reduce add over r < 256, v < 4 vector of x[r*4 + v]
   for i < 1024 thread { y[i] = x[i] / s }      ->  for i < 256 thread { for v < 4 vector { y[i*4 + v] = ... } }

This is the last change before a kernel is written; what looks for attention in a plan finds rows as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...loops.builder import LoopBuilder
from ...loops.index import affine_terms, coefficient
from ...loops.ir import Expr, For, Kernel, Reduce, Scan, Stmt, Store, expressions, extent, perfect_nest, steps
from ...loops.transforms import split, vectorize
from ...record import replace
from .emit.narrow import Conversions

VECTOR = 16  # bytes
_MOST_VALUES = 60  # of the body of a loop over vectors, which is written once for each element
_LEAST_ROW = 128  # elements: a vector of four for each lane of a warp
_THREADS = 256  # of a block: of so many values in shared memory each is at hand


def in_vectors(kernel: Kernel) -> Kernel:
    """The kernel with the loops, reductions and scans that the threads of a block share in vectors."""
    rows = [*_rows(inside_of(kernel))]
    found = {var: lanes_of(kernel, var, body) if _is_long(var, body) else 1 for var, body in rows}
    lanes, s = min((n for n in found.values() if n > 1), default=1), LoopBuilder()
    for var, body in rows:
        if found[var] > 1 and isinstance(body[0], Reduce):
            kernel = _reduced(s, kernel, var, lanes)
        elif found[var] > 1 and isinstance(body[0], Store):
            kernel, _, inner = split(s, kernel, var, lanes)
            kernel = vectorize(kernel, inner, lanes)
    # A scan has runs of as many neighbours as the kernel has lanes.
    scans = [var for var, body in rows if isinstance(body[0], Scan)]
    return replace(kernel, lanes=found[scans[0]] if len(scans) == len(rows) == 1 else 1) if scans else kernel


def _rows(inside: Sequence[Stmt]) -> Iterator[tuple[Expr, Sequence[Stmt]]]:
    """The variables that the threads of a block share, each with what is computed along it."""
    for step in steps(inside):
        match step[0]:
            case For() as loop:
                loops, body = perfect_nest((loop,))
                if loops[-1].kind == "thread" and all(isinstance(stmt, Store) for stmt in body):
                    yield loops[-1].var, body
            case Reduce(_, _, variables, _, "thread"):
                yield variables[-1], step
            case Scan(_, _, _, var, _, _, "thread"):
                yield var, step


def is_long(size: int) -> bool:
    """Whether a row is long enough for vectors."""
    return size >= _LEAST_ROW


def _is_long(var: Expr, body: Sequence[Stmt]) -> bool:
    read = [e.attr.role for e in expressions(body) if e.op == "load" and var in e.depends]
    at_hand = int(extent(var)) <= _THREADS and isinstance(body[0], Reduce) and {*read} <= {"scratch"}
    return is_long(int(extent(var))) and not at_hand


def lanes_of(kernel: Kernel, var: Expr, body: Sequence[Stmt]) -> int:
    """The number of neighbours along a variable that a thread loads and stores at once; 1 where it takes each alone."""
    read = [e for e in expressions(body) if e.op == "load" and var in e.depends]
    moving = [(x.buffer, x.index) for x in body if isinstance(x, Store | Scan)]
    moving += [(e.attr, e.args[0]) for e in read]
    lanes = VECTOR // max((buffer.dtype.itemsize for buffer, _ in moving), default=VECTOR)
    if int(extent(var)) % lanes or any(e.args[1:] for e in read) or len(Conversions(kernel).values()) > _MOST_VALUES:
        return 1
    aligned = all(coefficient(index, var) == 1 and is_aligned(index, var, lanes) for _, index in moving)
    return lanes if aligned else 1


def is_aligned(index: Expr, var: Expr, lanes: int) -> bool:
    """Whether an index is a multiple of `lanes` where the variable is."""
    found, constant = affine_terms(index)
    return not constant % lanes and not any(n % lanes for part, n in found.items() if part is not var)


def _reduced(s: LoopBuilder, kernel: Kernel, var: Expr, lanes: int) -> Kernel:
    """The kernel with the reductions whose last variable this is in vectors."""
    outer, inner = s.var("r", int(extent(var)) // lanes), s.var("r", lanes)
    where = {var: s.add(s.mul(outer, lanes), inner)}

    def changed(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Reduce) or stmt.vars[-1] is not var:
            return stmt
        value = s.substitute(stmt.value, where)
        return replace(stmt, vars=(*stmt.vars[:-1], outer, inner), value=value, kind="vector")

    return replace(kernel, body=with_inside(kernel, [changed(stmt) for stmt in inside_of(kernel)]), lanes=lanes)


def inside_of(kernel: Kernel) -> Sequence[Stmt]:
    """The statements inside of the loop of blocks, or all of the kernel."""
    return perfect_nest(kernel.body)[1] if kernel.range is not None else kernel.body


def with_inside(kernel: Kernel, inside: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The body of the kernel with other statements inside of the loop of blocks."""
    match kernel.body:
        case (For() as loop,) if kernel.range is not None:
            return (replace(loop, body=tuple(inside)),)
    return tuple(inside)
