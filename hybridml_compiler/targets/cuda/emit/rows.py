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
from ....loops.ir import Buffer, Expr, Reduce, Stmt, Store, operands
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
    """The writer of one loop over the row."""

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
        """Writes the loop that loads all that is kept, before anything is computed of it."""
        loaded = [e for e in self.sweep.first if e.op == "load"]
        if not loaded:
            return
        names = {e: self.w.number("x") for e in loaded}
        for e in loaded:
            self.declare(f"{self.kind(e)} {names[e]}[{self.rows.turns}]")
        turn = self.open()
        for e in loaded:
            self.load(e, f"{names[e]}[{turn}]")
        self.close(turn)
        lane = "" if self.rows.lane is None else ".lane[{lane}]"
        self.kept |= {e: f"{names[e]}[{{turn}}]{lane}" for e in loaded}

    def values(self, joined: Sequence[Reduce], totals: Sequence[C]) -> None:
        """Writes the loop that computes."""
        w, rows = self.w, self.rows
        computed = {e: w.number("h") for e in self.sweep.first if e.op != "load"}
        lanes, lane_of = ("", "") if rows.lane is None else (f"[{rows.lanes}]", "[{lane}]")
        for e, name in computed.items():
            self.declare(f"{c_type(e.dtype)} {name}[{rows.turns}]{lanes}")
        turn = self.open()
        known = dict(self.kept)
        for e in self.not_kept():
            name = w.number("x")
            w.blocks[-1].add(f"{self.kind(e)} {name};")
            self.load(e, name)
            known[e] = f"{name}.lane[{{lane}}]"
        stores = [stmt for stmt in self.sweep.body if isinstance(stmt, Store)]
        vectors = [w.number("y") if self.is_wide(stmt.buffer, (stmt.index,)) else "" for stmt in stores]
        for stmt, vector in zip(stores, vectors, strict=True):
            if vector:
                w.blocks[-1].add(f"{w.functions.vector(stmt.buffer.dtype, rows.lanes)} {vector};")
        lane = self.open_lanes()
        for e, text in known.items():
            self.name(e, text.format(turn=turn, lane=lane))
        for e, name in computed.items():
            self.kept[e] = f"{name}[{{turn}}]{lane_of}"
            element = self.kept[e].format(turn=turn, lane=lane)
            w.blocks[-1].add(f"{element} = {w.expression(e)};")
            self.name(e, element)
        w.combine(joined, totals)
        for stmt, vector in zip(stores, vectors, strict=True):
            value = w.expression(stmt.value)
            element = f"{vector}.lane[{lane}]" if vector else f"{stmt.buffer.name}[{w.index(stmt.index)}]"
            w.blocks[-1].add(f"{element} = {value};")
        self.close_lanes(lane)
        for stmt, vector in zip(stores, vectors, strict=True):
            if vector:
                store = w.functions.store(stmt.buffer.dtype, rows.lanes)
                w.blocks[-1].add(f"{store}(&{stmt.buffer.name}[{self.first(stmt.index)}], {vector});")
        self.close(turn)

    def not_kept(self) -> list[Expr]:
        """The loads of neighbours that no other loop needs."""
        conversions, kept = self.w.conversions, self.kept
        roots = [e for stmt in self.sweep.body for e in operands(stmt)]
        read = postorder(roots, lambda e: () if e in kept else conversions.args(e))
        return [e for e in read if e.op == "load" and e not in kept and self.is_wide(e.attr, e.args)]

    # ---- accesses

    def load(self, e: Expr, to: str) -> None:
        """Loads the lanes of a turn: at once, where they are neighbours."""
        w, rows = self.w, self.rows
        if self.is_wide(e.attr, e.args):
            w.blocks[-1].add(f"{to} = *(const {self.kind(e)}*)&{e.attr.name}[{self.first(e.args[0])}];")
            return
        lane = self.open_lanes()
        element = to if rows.lane is None else f"{to}.lane[{lane}]"
        w.blocks[-1].add(f"{element} = {w.expression(e)};")
        self.close_lanes(lane)

    def is_wide(self, buffer: Buffer, args: Sequence[Expr]) -> bool:
        """Whether the lanes of an access are neighbours in memory that begin at a multiple of 16 bytes."""
        lane = self.rows.lane
        return lane is not None and self.w.is_wide(buffer, args, lane, self.rows.lanes)

    def first(self, index: Expr) -> str:
        """The index of the first lane."""
        lane = self.rows.lane
        assert lane is not None
        return self.w.index(self.s.substitute(index, {lane: self.s.const(0, lane.dtype)}))

    def kind(self, e: Expr) -> str:
        """The type of what a thread loads in a turn."""
        return c_type(e.dtype) if self.rows.lane is None else self.w.functions.vector(e.dtype, self.rows.lanes)

    def declare(self, array: str) -> None:
        """Adds an array of all turns; with a value, where some threads have fewer of them."""
        self.w.blocks[-1].add(f"{array}{' = {}' * (self.rows.vectors % self.rows.threads != 0)};")

    def name(self, e: Expr, text: str) -> None:
        self.w.names[e] = C(text, e.dtype)
        self.w.blocks[-1].names.append(e)

    # ---- loops

    def open(self) -> str:
        """Begins a loop over the turns of a thread; gives the turn's name."""
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
        inner.indent = w.blocks[-2].indent + "  " * (rows.lane is not None)
        if rows.lane is not None:
            w.names[rows.lane] = C(name, rows.lane.dtype)
        return name

    def close_lanes(self, lane: str) -> None:
        w, rows = self.w, self.rows
        inner = w.blocks[-1]
        w.close(inner)
        if rows.lane is None:
            w.blocks[-1].lines += inner.lines
            return
        w.blocks[-1].add("#pragma unroll")
        w.blocks[-1].add(f"for (int {lane} = 0; {lane} < {rows.lanes}; ++{lane}) {{")
        w.blocks[-1].nest(inner)
