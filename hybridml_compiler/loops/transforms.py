"""Transformations of a kernel's loops, of which a target makes its schedule. None changes what a kernel computes.

    for i < 64 { for j < 96 { y[i*96 + j] = x[i*96 + j] + 1 } }
 -> for i < 64 block { for j < 12 { for k < 8 thread { y[i*96 + j*8 + k] = x[i*96 + j*8 + k] + 1 } } }
    by split(s, kernel, j, 8), bind(kernel, i, "block") and bind(kernel, k, "thread")

A loop is named by its variable. What would change the result, or cannot be shown not to, is refused (`CompileError`):
iterations that may touch each other's elements keep their order (see dependence.py). A factor that does not divide an
extent is refused as well: a loop in lanes, and one of threads, has an end of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import dtypes
from ..errors import CompileError
from ..record import replace
from ..sizes.dims import Size, is_dim, same
from .builder import LoopBuilder
from .dependence import independent
from .ir import Expr, For, Kernel, LoopKind, Reduce, Scan, Stmt, Store, extent, nested, perfect_nest, statements
from .verify import misplaced


def split(s: LoopBuilder, kernel: Kernel, var: Expr, factor: int) -> tuple[Kernel, Expr, Expr]:
    """The kernel with a loop as two: over blocks of `factor` iterations, of the kind of the loop, and serially over
    those of a block; and the variables of the two."""
    size = extent(var)
    if factor < 1 or not same(size % factor, 0):
        raise CompileError(f"split: {factor} does not divide the {size} iterations over {var}; split by a divisor")
    outer, inner = s.var("i", size // factor), s.var("i", factor)

    def parts(loop: For) -> tuple[Stmt, ...]:
        body = renamed(s, loop.body, {var: s.add(s.mul(outer, factor), inner)})
        return (For(outer, (For(inner, body),), loop.kind),)

    return _with_loop(kernel, var, parts, "split"), outer, inner


def reorder(kernel: Kernel, order: Sequence[Expr]) -> Kernel:
    """The kernel with these loops, one directly inside of another, in this order."""
    first = next((stmt for stmt in statements(kernel.body) if isinstance(stmt, For) and stmt.var in order), None)
    loops, inside = perfect_nest((first,) if first else ())
    loops, body = loops[: len(order)], loops[len(order) :]
    found = {loop.var: loop for loop in loops}
    if first is None or found.keys() != set(order) or len(found) < len(order):
        raise CompileError(f"reorder: {list(order)} are not loops with nothing between them; scans keep their order")
    whole = For(first.var, nested([*loops[1:], *body], inside))
    for k, loop in enumerate(loops):
        for other in loops[k + 1 :]:
            if order.index(other.var) < order.index(loop.var):
                others = found.keys()
                if not any(independent(replace(whole, var=x.var), others) for x in (loop, other)):
                    raise CompileError(f"reorder: the order of iterations over {loop.var} and {other.var} matters")
    return _with_loop(kernel, first.var, lambda _: nested([found[v] for v in order], nested(body, inside)), "reorder")


def bind(kernel: Kernel, var: Expr, kind: LoopKind) -> Kernel:
    """The kernel with a loop of this kind; or, where `var` is the last of a reduction, that reduction."""
    if any(isinstance(stmt, Reduce) and stmt.vars[-1] is var for stmt in statements(kernel.body)):
        return _placed(kernel, _with_reductions(kernel.body, var, kind), "bind")
    return _with_loop(kernel, var, lambda loop: (_bound(kernel, loop, kind),), "bind")


def parallelized(s: LoopBuilder, kernel: Kernel) -> Kernel:
    """The kernel with its outermost loop parallel, where its iterations are independent: the simplest schedule."""
    match kernel.body:
        case (For(_, _, "serial") as loop,) if independent(loop, private=True):
            return kernel.rescheduled(body=(replace(loop, kind="parallel"),))
    return kernel


def vectorize(kernel: Kernel, var: Expr, lanes: int) -> Kernel:
    """The kernel with a loop, or a reduction by its last variable, in lanes: so many in all of its vector loops."""
    return bind(kernel, var, "vector").rescheduled(lanes=lanes)


def unroll(s: LoopBuilder, kernel: Kernel, var: Expr) -> Kernel:
    """The kernel with the iterations of a loop one after the other."""
    size = extent(var)
    if is_dim(size):
        raise CompileError(f"unroll: the number of iterations over {var} comes with the call: {size}")

    bodies = [kernel.body, *(stmt.body for stmt in statements(kernel.body) if isinstance(stmt, For))]

    def iterations(loop: For) -> tuple[Stmt, ...]:
        # Stores side by side are one step, in which all are computed before the first is stored.
        if not independent(loop) or all(body[0] is not loop or len(body) > 1 for body in bodies):
            raise CompileError(f"unroll: iterations over {var}, or what is beside them, may need each other's results")
        return tuple(
            stmt
            for k in range(int(size))
            for stmt in renamed(s, loop.body, {var: s.const(k, dtypes.int64)}, fresh=True)
        )

    return _with_loop(kernel, var, iterations, "unroll")


def collapse(s: LoopBuilder, kernel: Kernel, count: int) -> Kernel:
    """The kernel with its outermost `count` loops, all of one kind, as one, whose position gives their indices."""
    loops, inside = perfect_nest(kernel.body)
    joined, kinds = loops[:count], {loop.kind for loop in loops[:count]}
    if len(joined) < count or len(kinds) > 1:
        raise CompileError(f"collapse: there are no {count} loops of one kind around all of the kernel")
    size: Size = 1
    for loop in joined:
        size *= extent(loop.var)
    position = var = s.var("i", size)
    mapping: dict[Expr, Expr] = {}
    for loop in reversed(joined[1:]):
        mapping[loop.var] = s.mod(position, extent(loop.var))
        position = s.floordiv(position, extent(loop.var))
    mapping[joined[0].var] = position
    body = renamed(s, nested(loops[count:], inside), mapping)
    return replace(kernel, body=(For(var, body, joined[0].kind),))


def renamed(
    s: LoopBuilder, body: Sequence[Stmt], mapping: dict[Expr, Expr], *, fresh: bool = False
) -> tuple[Stmt, ...]:
    """The statements with expressions for variables; `mapping` gets the new results of reductions.

    `fresh`: with variables of their own for the loops inside.
    """
    memo: dict[Expr, Expr] = {}

    def new(var: Expr) -> Expr:
        if fresh and var not in mapping:  # reductions in one loop share theirs
            mapping[var] = s.var("i", extent(var))
        return mapping.get(var, var) if fresh else var

    def made(stmt: Stmt) -> Stmt:
        match stmt:
            case For(var, inner, kind):
                var = new(var)
                return For(var, tuple([made(x) for x in inner]), kind)
            case Reduce(result, op, variables, value, kind):
                variables = tuple([new(v) for v in variables])
                value = s.substitute(value, mapping, memo)
                mapping[result] = s.reduction_result(op, value, variables)
                return Reduce(mapping[result], op, variables, value, kind)
            case Scan():
                var = new(stmt.var)
                index, value = s.substitute(stmt.index, mapping, memo), s.substitute(stmt.value, mapping, memo)
                return replace(stmt, index=index, var=var, value=value)
            case Store(buffer, index, value):
                return Store(buffer, s.substitute(index, mapping, memo), s.substitute(value, mapping, memo))

    return tuple([made(stmt) for stmt in body])


def _bound(kernel: Kernel, loop: For, kind: LoopKind) -> For:
    among = kernel.expressions if len(kernel.body) == 1 and kernel.body[0] is loop else None
    own = ("parallel", "block")  # kinds of which an iteration has scratch memory of its own
    promised = kind == "serial" or loop.kind in ("vector", "thread") or (kind in own and loop.kind in own)
    if not promised and not independent(loop, private=kind in own, among=among):
        raise CompileError(f"bind: iterations over {loop.var} may need each other's results; they stay serial")
    return For(loop.var, loop.body, kind)


def _with_reductions(body: Sequence[Stmt], var: Expr, kind: LoopKind) -> tuple[Stmt, ...]:
    def changed(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            return replace(stmt, body=_with_reductions(stmt.body, var, kind))
        return replace(stmt, kind=kind) if isinstance(stmt, Reduce) and stmt.vars[-1] is var else stmt

    return tuple([changed(stmt) for stmt in body])


def _with_loop(kernel: Kernel, var: Expr, change: Callable[[For], tuple[Stmt, ...]], what: str) -> Kernel:
    """The kernel with other statements in place of the loop over `var`."""
    found = False

    def walk(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        nonlocal found
        made: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, For) and stmt.var is var:
                found = True
                made += change(stmt)
            elif isinstance(stmt, For):
                made.append(For(stmt.var, walk(stmt.body), stmt.kind))
            else:
                made.append(stmt)
        return tuple(made)

    body = walk(kernel.body)
    if not found:
        raise CompileError(f"{what}: there is no loop over {var}; a scan runs in order")
    return _placed(kernel, body, what)


def _placed(kernel: Kernel, body: tuple[Stmt, ...], what: str) -> Kernel:
    """The kernel with this body, in which every loop may be where it is."""
    for _, message in misplaced(body):
        raise CompileError(f"{what}: {message}")
    return kernel.rescheduled(body=body) if what == "bind" else replace(kernel, body=body)
