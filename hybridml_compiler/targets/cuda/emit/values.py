"""The expressions of a loop nest as CUDA C, and what else the writers of statements share.

A value is computed in the outermost loop that knows its variables.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .... import dtypes
from ....loops.builder import LoopBuilder
from ....loops.index import coefficient
from ....loops.ir import (
    INFIX,
    Buffer,
    Expr,
    Kernel,
    Reduce,
    Scan,
    Stmt,
    Store,
    changing,
    expressions,
    loads,
    statements,
)
from ....loops.text import Blocks, named
from ....walk import postorder
from ..vectors import is_aligned
from .functions import DeviceFunctions, combination
from .narrow import Conversions
from .scalars import PRODUCT, SUM, C, CBuilder, call
from .types import c_type

BARRIER = "__syncthreads();"


class ValueWriter(Blocks[C]):
    """Writes the values of a loop nest; what it calls is added to `functions`."""

    def __init__(self, kernel: Kernel, functions: DeviceFunctions | None = None, *, wide: bool = True) -> None:
        super().__init__(kernel)
        self.wide, self.alignment = wide, 1
        self.uniform = False  # each thread of a block runs what is being written, on the same values
        self.functions = DeviceFunctions() if functions is None else functions
        self.s = CBuilder(self.functions)
        self.conversions = Conversions(kernel)
        if self.conversions.found:
            self.named = named(self.conversions.values(), self.conversions.roots(), self.conversions.args)
        self.changing = changing(kernel.body)
        stored = {s.buffer.name for s in statements(kernel.body) if isinstance(s, Store | Scan)}
        loaded = {e.attr.name for e in expressions(kernel.body) if e.op == "load"}
        self.exchanged = stored & loaded  # buffers by which iterations may hand on values
        self.named |= {expr for expr in self.conversions.shared() if not self._is_exchanged(expr)}

    def _is_exchanged(self, expr: Expr) -> bool:
        """Whether a value may be another one after the next barrier."""
        return any(load.attr.name in self.exchanged for load in loads(expr))

    def new(self, kind: str, dtype: np.dtype) -> C:
        return C(self.number(kind), dtype)

    def expression(self, expr: Expr) -> C:
        """An operand of a statement; parts that have a name and are not yet defined are defined first."""
        for part in postorder([expr], lambda part: () if part in self.names else self.conversions.args(part)):
            if part in self.named and part not in self.names:
                depth = max((self.level[d] for d in part.depends if d in self.level), default=0)
                if part in self.changing:
                    depth = len(self.blocks) - 1
                value, name = self.show(part), self.new("t", part.dtype)
                self.names[part] = name
                kind = f"{self.functions.loop(part)}_carries" if part.op == "while" else c_type(part.dtype)
                self.blocks[depth].add(f"const {kind} {name} = {value};")
                self.blocks[depth].names.append(part)
        return self.show(expr)

    def show(self, expr: Expr) -> C:
        if expr in self.names:
            return self.names[expr]
        if expr in self.conversions.found:
            return self.conversion(expr)
        match expr.op:
            case "const":
                return self.s.const(expr.attr, expr.dtype)
            case "load":
                return self.load(expr.attr, expr)
            case "cast" | "bitcast":
                made: C = getattr(self.s, expr.op)(self.show(expr.args[0]), expr.dtype)
                return made
            case "while":
                return C(call(self.functions.loop(expr), *map(self.show, expr.args)), expr.dtype)
            case "carry":
                return C(f"{self.show(expr.args[0])}.c{expr.attr}", expr.dtype)
            case "table":
                index = self.show(expr.args[0])
                inside = C(call(self.functions.helper("clamp"), index, str(len(expr.attr))), dtypes.int64)
                return self.s.table(expr.attr, inside, expr.dtype)
            case "index":
                index, counts = self.show(expr.args[0]), self.show(expr.args[1]) if expr.args[1:] else "true"
                check = call(self.functions.helper("checked"), index, counts, str(expr.attr[0]), "status")
                return C(check, dtypes.int64)
        plain = self.plain(expr)
        if plain is not None:
            return plain
        found: C = getattr(self.s, expr.op)(*map(self.show, expr.args))
        return found

    def conversion(self, expr: Expr) -> C:
        """A narrow type's number as a float32, or a float32 rounded to one."""
        source = self.conversions.found[expr]
        if dtypes.is_narrow(expr.dtype):
            name, value = f"to_{dtypes.short(expr.dtype)}", self.rounded(expr)
        elif source.dtype is dtypes.bfloat16 and source in self.conversions.found and source not in self.names:
            name, value = "as_bf16", self.rounded(source)
        else:
            name, value = f"from_{dtypes.short(source.dtype)}", self.show(source)
        return C(call(self.functions.helper(name), value), expr.dtype)

    def rounded(self, expr: Expr) -> C:
        """The value that is rounded to a narrow number."""
        source = self.conversions.found[expr]
        shorter = self.conversions.shorter(expr) if source not in self.named else ""
        if not shorter:
            return self.show(source)
        return C(call(self.functions.function(shorter, source.dtype, 1), self.show(source.args[0])), source.dtype)

    def plain(self, expr: Expr) -> C | None:
        """Index arithmetic, which does not wrap; None for other instructions."""
        if expr.op not in ("add", "sub", "mul", "floordiv", "mod") or expr.dtype is not dtypes.int64:
            return None
        x, y = expr.args
        if expr.low is None or x.low is None or y.low is None:
            return None
        if expr.op in ("floordiv", "mod"):
            if y.op != "const" or y.attr < 1 or x.low < 0:
                return None
            symbol, level = "/%"[expr.op == "mod"], PRODUCT
        else:
            symbol, level = INFIX[expr.op][0], PRODUCT if expr.op == "mul" else SUM
        a, b = (str(e.attr) if e.op == "const" and e.attr >= 0 else None for e in (x, y))
        left = a if a is not None and b is None else self.show(x).at(level)
        right = b if b is not None and a is None else self.show(y).at(level + 1)
        return C(f"{left} {symbol} {right}", expr.dtype, level)

    def load(self, buffer: Buffer, expr: Expr) -> C:
        index, *mask = expr.args
        element = C(f"{buffer.name}[{self.index(index)}]", buffer.dtype)
        if not mask:
            return element
        return self.s.select(self.show(mask[0]), element, self.s.const(0, buffer.dtype))

    def index(self, expr: Expr) -> str:
        return str(expr.attr) if expr.op == "const" else str(self.expression(expr))

    def is_wide(self, buffer: Buffer, args: Sequence[Expr], var: Expr, lanes: int) -> bool:
        """Whether so many neighbours along a variable are neighbours in memory, which begin where an access may."""
        if not self.wide or args[1:] or coefficient(args[0], var) != 1 or not is_aligned(args[0], var, lanes):
            return False
        if buffer.role != "scratch":
            self.alignment = max(self.alignment, lanes * buffer.dtype.itemsize)
        return True

    def neighbours(self, body: Sequence[Stmt], var: Expr, first: Expr, lanes: int, name: C) -> None:
        """Loads so many neighbours along a variable, from `first` on, before a loop over them whose counter has this
        name. What is named already is not loaded."""
        s = LoopBuilder()
        for load in expressions(body):
            if load.op == "load" and load not in self.names and self.is_wide(load.attr, load.args, var, lanes):
                kind, value = self.functions.vector(load.dtype, lanes), self.new("x", load.dtype)
                at = self.index(s.substitute(load.args[0], {var: first}))
                self.blocks[-1].add(f"const {kind} {value} = *(const {kind}*)&{load.attr.name}[{at}];")
                self.names[load] = C(f"{value}.lane[{name}]", load.dtype)

    def barrier(self, body: Sequence[Stmt]) -> None:
        """Waits for the other threads of the block, where they may read what these statements store, or store over what
        they read. A reduction has waited for them already."""
        touched = {stmt.buffer.name for stmt in statements(body) if isinstance(stmt, Store | Scan)}
        touched |= {expr.attr.name for expr in expressions(body) if expr.op == "load"}
        lines = self.blocks[-1].lines
        waited = not lines or lines[-1].strip() == BARRIER or " = block_" in lines[-1]
        if touched & self.exchanged and not waited:
            self.blocks[-1].add(BARRIER)

    def combined(self, op: str, a: C, b: C) -> C:
        return combination(self.s, op, a.dtype)(a, b)

    def combine(self, joined: Sequence[Reduce], totals: Sequence[C]) -> None:
        for stmt, total in zip(joined, totals, strict=True):
            value = self.combined(stmt.op, total, self.expression(stmt.value))
            self.blocks[-1].add(f"{total} = {value};")
