"""Rows that the threads of a block keep in registers: what one loop over a row has read or computed, the next has.

   m = reduce max over r < 8192 thread of x[r]               x is loaded once, 16 bytes at a time, all of it before the
   s = reduce add over r < 8192 thread of exp(x[r] - m)      first is used; exponentials are computed once, and kept for
   for i < 8192 thread { y[i] = exp(x[i] - m) / s }          the last loop

Every thread has the same elements in each of the loops. Rows in shared memory that hand on an element to the thread
that stored it are registers, too, and need no barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....loops.builder import LoopBuilder
from ....loops.index import coefficient
from ....loops.ir import (
    Buffer,
    Expr,
    For,
    Kernel,
    Reduce,
    Stmt,
    Store,
    args_of,
    expressions,
    extent,
    operands,
    perfect_nest,
    steps,
)
from ....record import record, replace
from ....walk import postorder, reachable
from ..vectors import VECTOR, inside_of, is_aligned, is_long, with_inside
from .narrow import Conversions

WORDS = 32  # of 4 bytes that a thread keeps of a row, at most
_LOADS = 4  # of 16 bytes, each thread's at once, unless there are too few threads: as many as an H100 is fastest with
_MOST_VALUES = 1500  # that are written out for the elements of a thread
_LEAST_THREADS, _MOST_THREADS = 32, 1024


@record(eq=False)
class Sweep:
    """The reductions or stores of a loop over the row, and what is kept from there on."""

    body: tuple[Stmt, ...]
    first: tuple[Expr, ...] = ()  # loads and values that later loops need
    known: tuple[Expr, ...] = ()  # what it needs of earlier ones


@record(eq=False)
class Rows:
    """The way of a kernel over its rows: `size` elements are number `turn` * `lanes` + `lane`, for each turn."""

    size: int
    lanes: int
    threads: int
    turn: Expr
    lane: Expr | None
    steps: tuple[Sweep | tuple[Stmt, ...], ...]

    @property
    def vectors(self) -> int:
        return self.size // self.lanes

    @property
    def turns(self) -> int:
        return -(-self.vectors // self.threads)


def kept_rows(kernel: Kernel) -> tuple[Kernel, Rows] | None:
    """The kernel without the rows in shared memory that are kept in registers, and how it goes over them; None where
    it has no rows that are used again, or that are too long."""
    s = LoopBuilder()
    if len(perfect_nest(kernel.body)[0]) != (kernel.range is not None):
        return None
    found = [*steps(inside_of(kernel))]
    sweeps = [step for step in found if not _is_uniform(step)]
    if len(sweeps) < 2 or not all(map(_is_sweep, sweeps)):
        return None
    size = int(extent(_variable(sweeps[0])))
    if any(int(extent(_variable(step))) != size for step in sweeps):
        return None
    row = s.var("r", size)
    found = [step if _is_uniform(step) else _over(s, step, row) for step in found]
    changed = _forwarded(s, kernel, found, row)
    if changed is None:
        return None
    buffers, found = changed
    lanes = _lanes(found, row) if is_long(size) else 1
    turn, lane = s.var("r", size // lanes), s.var("r", lanes) if lanes > 1 else None
    where = {row: s.add(s.mul(turn, lanes), lane) if lane is not None else turn}
    memo: dict[Expr, Expr] = {}
    found = [_mapped(step, lambda e: s.substitute(e, where, memo)) for step in found]
    body = with_inside(kernel, [stmt for step in found for stmt in step])
    made = replace(kernel, buffers=buffers, body=body, lanes=lanes)
    conversions = Conversions(made)
    planned = _planned(found, turn, conversions)
    values = sum(turn in e.depends and e.dtype.kind == "f" for e in conversions.values())
    threads = _threads(planned, size, lanes, values)
    if threads == 0:
        return None
    return made, Rows(size, lanes, threads, turn, lane, tuple(planned))


def _is_uniform(step: Sequence[Stmt]) -> bool:
    return isinstance(step[0], Store)


def _is_sweep(step: Sequence[Stmt]) -> bool:
    match step:
        case (For(_, body, "thread"),):
            return all(isinstance(stmt, Store) for stmt in body)
        case (Reduce(), *_):
            return all(
                isinstance(x, Reduce) and x.kind == "thread" and len(x.vars) == 1 and not x.op.startswith("arg")
                for x in step
            )
    return False


def _variable(step: Sequence[Stmt]) -> Expr:
    stmt = step[0]
    assert isinstance(stmt, For | Reduce)
    return stmt.var if isinstance(stmt, For) else stmt.vars[0]


def _over(s: LoopBuilder, step: Sequence[Stmt], row: Expr) -> tuple[Stmt, ...]:
    """The reductions, or the stores, of a loop over this variable."""
    inside = step[0].body if isinstance(step[0], For) else step
    memo: dict[Expr, Expr] = {}
    where = {_variable(step): row}
    return _mapped(tuple(inside), lambda e: s.substitute(e, where, memo))


def _mapped(step: Sequence[Stmt], change: Callable[[Expr], Expr]) -> tuple[Stmt, ...]:
    """The statements with other expressions; variables of reductions stay as they are."""
    made: list[Stmt] = []
    for stmt in step:
        if isinstance(stmt, Store):
            made.append(Store(stmt.buffer, change(stmt.index), change(stmt.value)))
        else:
            assert isinstance(stmt, Reduce)
            made.append(replace(stmt, value=change(stmt.value)))
    return tuple(made)


def _forwarded(
    s: LoopBuilder, kernel: Kernel, found: Sequence[tuple[Stmt, ...]], row: Expr
) -> tuple[tuple[Buffer, ...], list[tuple[Stmt, ...]]] | None:
    """(the buffers that are left, the steps with values for what is handed on in shared memory); None where an element
    is read after it has been stored, or by another thread."""
    scratch = {buffer.name for buffer in kernel.scratch}
    values: dict[str, Expr] = {}
    stored: set[str] = set()
    memo: dict[Expr, Expr] = {}
    made: list[tuple[Stmt, ...]] = []

    def forwarded(expr: Expr) -> Expr:
        for part in postorder([expr], lambda part: () if part in memo else part.args):
            if part in memo:
                continue
            if part.op == "load" and part.attr.name in values:
                memo[part] = values[part.attr.name]
            else:
                args = tuple(memo[a] for a in part.args)
                memo[part] = part if args == part.args else s.with_args(part, args)
        return memo[expr]

    for step in found:
        for part in (e for stmt in step for e in expressions([stmt]) if e.op == "load"):
            name = part.attr.name
            if name in scratch and (name not in values or part.args != (row,)):
                return None
            if name in stored:
                return None
        step = _mapped(step, forwarded)
        left: list[Stmt] = []
        for stmt in step:
            if isinstance(stmt, Store) and stmt.buffer.name in scratch:
                if stmt.index is not row or stmt.buffer.name in values:
                    return None
                values[stmt.buffer.name] = stmt.value
                memo.clear()
            else:
                left.append(stmt)
        stored |= {stmt.buffer.name for stmt in left if isinstance(stmt, Store)}
        if left:
            made.append(tuple(left))
    return tuple(b for b in kernel.buffers if b.name not in values), made


def _lanes(found: Sequence[Sequence[Stmt]], row: Expr) -> int:
    """Neighbours that a thread takes at once: 16 bytes of the widest elements; 1 where none are aligned."""
    size = int(extent(row))
    moved = [(stmt.buffer, stmt.index) for step in found for stmt in step if isinstance(stmt, Store)]
    moved += [(e.attr, e.args[0]) for step in found for e in expressions(step) if e.op == "load" and not e.args[1:]]
    widths = [buffer.dtype.itemsize for buffer, index in moved if coefficient(index, row) == 1]
    lanes = VECTOR // max(widths, default=VECTOR)
    if size % lanes or not any(coefficient(i, row) == 1 and is_aligned(i, row, lanes) for _, i in moved):
        return 1
    return lanes


def _planned(found: Sequence[tuple[Stmt, ...]], turn: Expr, conversions: Conversions) -> list[Sweep | tuple[Stmt, ...]]:
    """The steps, with what each loop leaves for later ones."""

    def moving(expr: Expr) -> bool:
        return turn in expr.depends and any(part.op == "load" for part in reachable([expr], args_of))

    def is_kept(expr: Expr) -> bool:
        """Whether a value is worth a register: what is widened is kept as it was loaded."""
        source = conversions.found.get(expr)
        return moving(expr) and not (source is not None and source.op == "load")

    rows = [k for k, step in enumerate(found) if any(turn in e.depends for x in step for e in operands(x))]
    values: dict[int, list[Expr]] = {}  # operands of each loop, in postorder
    known: dict[int, list[Expr]] = {}
    computed: dict[Expr, int] = {}
    for k in rows:
        needed: list[Expr] = []

        def parts(expr: Expr, needed: list[Expr] = needed) -> tuple[Expr, ...]:
            if expr in computed and is_kept(expr):
                needed.append(expr)
                return ()
            return conversions.args(expr)

        values[k] = postorder([e for stmt in found[k] for e in operands(stmt)], parts)
        known[k] = list(dict.fromkeys(needed))
        for expr in values[k]:
            computed.setdefault(expr, k)
    first: dict[int, list[Expr]] = {k: [] for k in rows}
    for expr in dict.fromkeys(e for k in rows for e in known[k]):
        first[computed[expr]].append(expr)
    return [
        Sweep(step, tuple(e for e in values[k] if e in first[k]), tuple(known[k])) if k in first else step
        for k, step in enumerate(found)
    ]


def _threads(planned: Sequence[Sweep | tuple[Stmt, ...]], size: int, lanes: int, values: int) -> int:
    """The least threads of a block of which each keeps no more of a row than it may, where so many values are computed
    of an element; 0 where nothing is kept, or all threads of a block are too few."""
    sweeps = [step for step in planned if isinstance(step, Sweep)]
    last = {e: k for k, sweep in enumerate(sweeps) for e in sweep.known}
    most = 0  # bytes of an element between two loops
    for k in range(1, len(sweeps)):
        kept = [e for sweep in sweeps[:k] for e in sweep.first if last[e] >= k]
        most = max(most, sum(max(e.dtype.itemsize, 4) for e in kept))  # narrow ones are widened before they are used
    threads = _LEAST_THREADS

    def fits(elements: int, wanted: int) -> bool:
        few = elements <= lanes or elements * values <= _MOST_VALUES
        return elements <= wanted and elements * most <= 4 * WORDS and few

    def elements() -> int:
        return -(-size // lanes // threads) * lanes

    wanted = _LOADS * (lanes if lanes > 1 else 4)
    while threads < _MOST_THREADS and not fits(elements(), wanted):
        threads *= 2
    return threads if last and fits(elements(), size) else 0
