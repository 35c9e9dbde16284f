"""The loops of a block over rows that it keeps in registers (kept_rows.py), as CUDA C.

    f32x4 x0[8];
    #pragma unroll
    for (int k0 = 0; k0 < 8; ++k0) { const long long r0 = threadIdx.x + k0 * 256; x0[k0] = ...; }
    #pragma unroll
    for (int k1 = 0; k1 < 8; ++k1) { for (int v0 = 0; v0 < 4; ++v0) { s0 = max_or_nan(s0, x0[k1].lane[v0]); } }

All counts are constants, so that arrays are registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....loops.builder import LoopBuilder, identity
from ....loops.ir import Buffer, Expr, Reduce, Stmt, Store, expressions, operands
from ....walk import postorder
from .kept_rows import Rows, Sweep
from .scalars import C
from .types import c_type, literal
from .values import ValueWriter


def write_rows(w: ValueWriter, rows: Rows, body: Callable[[Sequence[Stmt]], None]) -> None:
    """Writes what is inside of the loop of blocks; `body` writes what is no loop."""
    kept: dict[Expr, str] = {}  # text of an element of a turn, of what earlier loops have kept
    for step in rows.steps:
        if isinstance(step, Sweep):
            _Sweep(w, rows, step, kept).write()
        else:
            body(step)


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
        element = "" if rows.lane is None else ".lane[{lane}]"
        for e in loaded:
            kind = c_type(e.dtype) if rows.lane is None else w.functions.vector(e.dtype, rows.lanes)
            w.blocks[-1].add(f"{kind} {names[e]}[{rows.turns}]{self.empty};")
        turn = self.open()
        for e in loaded:
            self.load(e, f"{names[e]}[{turn}]")
        self.close(turn)
        for e in loaded:
            self.kept[e] = f"{names[e]}[{{turn}}]{element}"

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
        element = to if rows.lane is None else f"{to}.lane[{lane}]"
        w.blocks[-1].add(f"{element} = {w.expression(e)};")
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
            lanes = "" if rows.lane is None else f"[{rows.lanes}]"
            w.blocks[-1].add(f"{c_type(e.dtype)} {names[e]}[{rows.turns}]{lanes}{self.empty};")
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
            self.kept[e] = f"{names[e]}[{{turn}}]" + ("" if rows.lane is None else "[{lane}]")
            element = self.kept[e].format(turn=turn, lane=lane)
            w.blocks[-1].add(f"{element} = {w.expression(e)};")
            self.name(e, element)
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
