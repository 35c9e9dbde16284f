"""Rows that the threads of a block keep in registers: what one loop over a row has read or computed, the next has.

   m = reduce max over r < 8192 thread of x[r]               x is loaded once, 16 bytes at a time, all of it before the
   s = reduce add over r < 8192 thread of exp(x[r] - m)      first is used; exponentials are computed once, and kept for
   for i < 8192 thread { y[i] = exp(x[i] - m) / s }          the last loop

Every thread has the same elements in each of the loops. Rows in shared memory that hand on an element to the thread
that stored it are registers, too, and need no barrier.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....loops.builder import LoopBuilder, identity
from ....loops.index import coefficient
from ....loops.ir import Buffer, Expr, For, Kernel, Reduce, Stmt, Store, args_of, expressions, extent, operands, steps
from ....record import record, replace
from ....walk import postorder, reachable
from ..vectors import VECTOR, inside_of, is_aligned, is_long, with_inside
from .narrow import Conversions
from .scalars import C
from .types import c_type, literal
from .values import ValueWriter

WORDS = 32  # of 4 bytes that a thread keeps of a row, at most
_LEAST_THREADS, _MOST_THREADS = 32, 1024


@record(eq=False)
class Sweep:
    """The reductions or stores of a loop over the row, and what is kept from there on."""

    body: tuple[Stmt, ...]
    first: tuple[Expr, ...] = ()  # loads and values that later loops need
    known: tuple[Expr, ...] = ()  # what it needs of earlier ones


@record(eq=False)
class Rows:
    """How a kernel goes over its rows: `size` elements are number `turn` * `lanes` + `lane`, for each of its turns."""

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
    threads = _threads(planned, size, lanes)
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


def _mapped(step: Sequence[Stmt], change: object) -> tuple[Stmt, ...]:
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


def _planned(
    found: Sequence[tuple[Stmt, ...]], turn: Expr, conversions: Conversions
) -> list[Sweep | tuple[Stmt, ...]]:
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


def _threads(planned: Sequence[Sweep | tuple[Stmt, ...]], size: int, lanes: int) -> int:
    """Threads of a block that keep no more words of a row than a thread may; 0 where nothing is kept, or too much."""
    sweeps = [step for step in planned if isinstance(step, Sweep)]
    live, most = dict[Expr, int](), 0  # last loop that needs it
    for k, sweep in enumerate(sweeps):
        live |= dict.fromkeys(sweep.known, k)
    if not live:
        return 0
    for k in range(1, len(sweeps)):
        before = {e for sweep in sweeps[:k] for e in sweep.first if live[e] >= k}
        most = max(most, sum(max(e.dtype.itemsize, 4 if e.op != "load" else 1) for e in before))
    threads = _LEAST_THREADS
    while threads < _MOST_THREADS and -(-size // lanes // threads) * lanes * most > 4 * WORDS:
        threads *= 2
    return threads if -(-size // lanes // threads) * lanes * most <= 4 * WORDS else 0


# ---- how they are written


def write_rows(w: ValueWriter, rows: Rows) -> None:
    """Writes what is inside of the loop of blocks."""
    kept: dict[Expr, str] = {}  # text of an element of a turn, of what earlier loops have kept
    for step in rows.steps:
        if isinstance(step, Sweep):
            _Sweep(w, rows, step, kept).write()
        else:
            w.body(step)


class _Sweep:
    def __init__(self, w: ValueWriter, rows: Rows, sweep: Sweep, kept: dict[Expr, str]) -> None:
        self.w, self.rows, self.sweep, self.kept = w, rows, sweep, kept
        self.s = LoopBuilder()

    def write(self) -> None:
        w, sweep = self.w, self.sweep
        w.barrier(sweep.body)
        outer, w.uniform = w.uniform, False
        joined = [stmt for stmt in sweep.body if isinstance(stmt, Reduce)]
        totals = [w.new("s", stmt.value.dtype) for stmt in joined]
        for stmt, total in zip(joined, totals, strict=True):
            start = literal(identity(stmt.op, total.dtype), total.dtype)
            w.blocks[-1].add(f"{c_type(total.dtype)} {total} = {start};")
        self.loads()
        self.values(joined, totals)
        w.uniform = outer
        for stmt, total in zip(joined, totals, strict=True):
            w.blocks[-1].add(f"{total} = {w.functions.block_reduction(stmt.op, total.dtype)}({total});")
            w.define(stmt.result, total)
        w.barrier(sweep.body)

    def loads(self) -> None:
        """The loop that loads all that is kept, before anything is computed of it."""
        w, rows = self.w, self.rows
        loaded = [e for e in self.sweep.first if e.op == "load"]
        if not loaded:
            return
        names = {e: w.number("x") for e in loaded}
        for e in loaded:
            kind = w.functions.vector(e.dtype, rows.lanes)
            w.blocks[-1].add(f"{kind} {names[e]}[{rows.turns}]{self.empty};")
        turn = self.open()
        for e in loaded:
            self.load(e, f"{names[e]}[{turn}]")
        self.close(turn)
        for e in loaded:
            self.kept[e] = f"{names[e]}[{{turn}}].lane[{{lane}}]"

    @property
    def empty(self) -> str:
        """What elements begin as: some threads have fewer turns than others."""
        return " = {}" if self.rows.vectors % self.rows.threads else ""

    def load(self, e: Expr, to: str) -> None:
        """Loads the lanes of a turn: at once, where they are neighbours."""
        w, rows = self.w, self.rows
        if self.is_wide(e.attr, e.args):
            kind = w.functions.vector(e.dtype, rows.lanes)
            w.blocks[-1].add(f"{to} = *(const {kind}*)&{e.attr.name}[{self.at(e.args[0])}];")
            return
        lane = self.open_lanes()
        element = w.show(e)
        w.blocks[-1].add(f"{to}.lane[{lane}] = {element};")
        self.close_lanes(lane)

    def is_wide(self, buffer: Buffer, args: Sequence[Expr]) -> bool:
        """Whether the lanes of an access are neighbours in memory that begin at a multiple of 16 bytes."""
        lane = self.rows.lane
        return lane is not None and self.w.is_wide(buffer, args, lane, self.rows.lanes)

    def at(self, index: Expr) -> str:
        lane = self.rows.lane
        assert lane is not None
        return self.w.index(self.s.substitute(index, {lane: self.s.const(0, lane.dtype)}))

    def values(self, joined: Sequence[Reduce], totals: Sequence[C]) -> None:
        """The loop that computes."""
        w, rows, sweep = self.w, self.rows, self.sweep
        computed = [e for e in sweep.first if e.op != "load"]
        names = {e: w.number("h") for e in computed}
        for e in computed:
            w.blocks[-1].add(f"{c_type(e.dtype)} {names[e]}[{rows.turns}][{rows.lanes}]{self.empty};")
        turn = self.open()
        known = {*self.kept}
        vectors: dict[Expr, str] = {}
        for e in expressions(sweep.body):
            if e.op == "load" and rows.lane in e.depends and e not in known and self.is_wide(e.attr, e.args):
                if not self.needs(e, known):
                    continue
                vectors[e] = w.number("x")
                kind = w.functions.vector(e.dtype, rows.lanes)
                w.blocks[-1].add(f"{kind} {vectors[e]};")
                self.load(e, vectors[e])
        stores = [stmt for stmt in sweep.body if isinstance(stmt, Store)]
        given = {}
        for stmt in stores:
            if self.is_wide(stmt.buffer, (stmt.index,)):
                given[id(stmt)] = w.number("y")
                w.blocks[-1].add(f"{w.functions.vector(stmt.buffer.dtype, rows.lanes)} {given[id(stmt)]};")
        lane = self.open_lanes()
        for e, text in self.kept.items():
            self.name(e, text.format(turn=turn, lane=lane))
        for e, text in vectors.items():
            self.name(e, f"{text}.lane[{lane}]")
        for e in computed:
            value = w.expression(e)
            w.blocks[-1].add(f"{names[e]}[{turn}][{lane}] = {value};")
            self.kept[e] = f"{names[e]}[{{turn}}][{{lane}}]"
            self.name(e, self.kept[e].format(turn=turn, lane=lane))
        w.combine(joined, totals)
        after = []
        for stmt in stores:
            to = given.get(id(stmt))
            value = w.expression(stmt.value)
            if to is None:
                w.blocks[-1].add(f"{stmt.buffer.name}[{w.index(stmt.index)}] = {value};")
            else:
                w.blocks[-1].add(f"{to}.lane[{lane}] = {value};")
                after.append((stmt, to))
        self.close_lanes(lane)
        for stmt, to in after:
            store = w.functions.store(stmt.buffer.dtype, rows.lanes)
            w.blocks[-1].add(f"{store}(&{stmt.buffer.name}[{self.at(stmt.index)}], {to});")
        self.close(turn)

    def needs(self, load: Expr, known: set[Expr]) -> bool:
        """Whether something besides what is known reads it."""
        conversions = self.w.conversions
        roots = [e for stmt in self.sweep.body for e in operands(stmt)]
        return load in postorder(roots, lambda e: () if e in known else conversions.args(e))

    def name(self, e: Expr, text: str) -> None:
        self.w.names[e] = C(text, e.dtype)
        self.w.blocks[-1].names.append(e)

    def open(self) -> str:
        """Begins a loop over the turns of a thread."""
        w, rows = self.w, self.rows
        turn, name = w.number("k"), w.new("r", rows.turn.dtype)
        inner = w.open((rows.turn,))
        inner.indent = w.blocks[-2].indent + "  "
        w.names[rows.turn] = name
        inner.add(f"const long long {name} = threadIdx.x + {turn} * {rows.threads};")
        if rows.vectors % rows.threads:
            inner.add(f"if ({name} < {rows.vectors}) {{")
            inner.indent += "  "
        return turn

    def close(self, turn: str) -> None:
        w, rows = self.w, self.rows
        inner = w.blocks[-1]
        w.close(inner)
        if rows.vectors % rows.threads:
            inner.indent = inner.indent[:-2]
            inner.add("}")
        w.blocks[-1].add("#pragma unroll")
        w.blocks[-1].add(f"for (int {turn} = 0; {turn} < {rows.turns}; ++{turn}) {{")
        w.blocks[-1].nest(inner)

    def open_lanes(self) -> str:
        """Begins a loop over the lanes of a turn, where there are several; gives the lane's name."""
        w, rows = self.w, self.rows
        name = "0" if rows.lane is None else w.number("v")
        inner = w.open(() if rows.lane is None else (rows.lane,))
        inner.indent = w.blocks[-2].indent + "  "
        if rows.lane is not None:
            w.names[rows.lane] = C(name, rows.lane.dtype)
        return name

    def close_lanes(self, lane: str) -> None:
        w, rows = self.w, self.rows
        inner = w.blocks[-1]
        w.close(inner)
        if rows.lane is None:
            w.blocks[-1].lines += [line[2:] for line in inner.lines]
            return
        w.blocks[-1].add("#pragma unroll")
        w.blocks[-1].add(f"for (int {lane} = 0; {lane} < {rows.lanes}; ++{lane}) {{")
        w.blocks[-1].nest(inner)
