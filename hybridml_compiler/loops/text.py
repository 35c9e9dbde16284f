"""The text form of kernels: `print_kernel` and its inverse `parse_kernel`.

    kernel = "kernel" "(" [buffer {"," buffer}] ")" {"lanes" N | "granule" N | "cost" F | "chained"} "{" item* "}"
    N      = digits | "{" size "}"                                     a size that comes with the call: {2*n+1}
    buffer = name ":" dtype "[" N "]" ["out" | "inout" | "scratch"]
    item   = name "=" expr                                             a name for a value that is used again
           | "for" var "<" N [kind] "{" item* "}"
           | name "=" "reduce" op "over" vars [kind] ("of" expr | "{" item* "yield" expr "}")
           | "scan" op "over" var "<" N ["reverse"] [kind] "{" item* store "}"
           | store
    store  = name "[" expr "]" "=" expr
    vars   = var "<" N {"," var "<" N}
    kind   = "vector" | "parallel" | "block" | "thread"
    expr   = sums, products and comparisons of terms, with the usual precedence, left to right
    term   = number [":" dtype] | "{" size "}" | "true" | "false" | name | "(" expr ")"
           | name "[" expr ["if" expr] "]"                             a load; zero where the condition does not hold
           | "index" "(" expr ["if" expr] "," N "," string ")"         a checked index into an axis of N elements
           | ("cast" | "bitcast") "(" expr "," dtype ")"
           | "table" "(" expr "," dtype {"," number} ")"
           | "while" "(" expr {"," name "=" expr} ")" ["with" "(" name "=" expr {"," name "=" expr} ")"]
             "{" item* "yield" expr {"," expr} "}"                     carries, what is given; the next go and carries
           | "carry" "(" expr "," N ")"                                the carry of a loop with this number
           | op "(" expr {"," expr} ")"                                an instruction, or a transcendental

    kernel(b0: f32[12], b1: f32[3] out) lanes 16 {
      for i0 < 3 parallel {
        s0 = reduce add over r0 < 4 of b0[i0 * 4 + r0]
        b1[i0] = s0
      }
    }

A number without a dtype is int64. Reductions side by side whose variables have the same names are one loop. Variables
(`i` of loops, `r` of reductions and scans), results (`s`), parameters of regions (`c`) and names of values (`t`) are
numbered in the order of their appearance, so equal kernels have equal text. A value is named where the code generator
computes it: in the outermost loop that knows its variables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Generic, TypeVar

import numpy as np

from .. import dtypes
from ..record import record
from ..sizes.dims import Size, is_dim
from ..walk import postorder
from .ir import INFIX, Buffer, Expr, For, Kernel, LoopKind, Reduce, Scan, Stmt, Store, extent, operands, statements

__all__ = ["Block", "Blocks", "kernel_lines", "named_values", "parse_kernel", "print_kernel"]

_LEAVES = ("const", "var", "result", "param")
_LONG = 8  # operations in one expression before a part of it gets a name: they fit a line, and recursion is bounded


def parse_kernel(text: str) -> Kernel:
    """The kernel that a text stands for, by `parse.parse_kernel`: the parser is imported when it is first needed."""
    from .parse import parse_kernel

    return parse_kernel(text)


def print_kernel(kernel: Kernel) -> str:
    """The kernel's text; `parse_kernel` reads it back as an equal kernel, to the last bit of its constants."""
    return "\n".join(kernel_lines(kernel)[0]) + "\n"


def kernel_lines(kernel: Kernel) -> tuple[list[str], dict[int, int]]:
    """(lines of the text, line number of each statement by its `id`)."""
    return _Printer(kernel).lines()


# ---------------------------------------------------------------- printing


@record(frozen=False, eq=False)
class Block:
    """Lines between two braces, and the names that are defined by them."""

    indent: str
    lines: list[str] = field(default_factory=list)
    at: dict[int, int] = field(default_factory=dict)  # statement -> its line
    loop: dict[Expr, str] = field(default_factory=dict)  # variables of the reduction just written, and their names
    names: list[Expr] = field(default_factory=list)

    def add(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def nest(self, inner: Block, closing: str = "}") -> None:
        for stmt, line in inner.at.items():
            self.at[stmt] = line + len(self.lines)
        self.lines.extend(inner.lines)
        self.add(closing)


Name = TypeVar("Name")


class Blocks(Generic[Name]):
    """Blocks in each other while a kernel is written, and the names of values, which end with their block."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.named = named_values(kernel)
        self.names: dict[Expr, Name] = {}
        self.counts: dict[str, int] = {}
        self.blocks: list[Block] = []
        self.level: dict[Expr, int] = {}  # variables and results in scope -> depth of their block

    def number(self, kind: str) -> str:
        """A new name of this kind: the letters and a number."""
        number = self.counts.get(kind, 0)
        self.counts[kind] = number + 1
        return f"{kind}{number}"

    def open(self, variables: Sequence[Expr]) -> Block:
        """A block in the innermost one, where these variables are known."""
        block = Block("  " * (len(self.blocks) + 1))
        self.blocks.append(block)
        for var in variables:
            self.level[var] = len(self.blocks) - 1
        block.names.extend(variables)
        return block

    def close(self, block: Block) -> None:
        """Ends the innermost block, and all names that it knows."""
        for expr in block.names:
            self.level.pop(expr, None)
            self.names.pop(expr, None)
        self.blocks.pop()

    def define(self, expr: Expr, name: Name) -> None:
        """Names a result in the innermost block."""
        self.names[expr] = name
        self.level[expr] = len(self.blocks) - 1
        self.blocks[-1].names.append(expr)


class _Printer(Blocks[str]):
    def lines(self) -> tuple[list[str], dict[int, int]]:
        kernel = self.kernel
        buffers = ", ".join(
            f"{b.name}: {dtypes.short(b.dtype)}[{_size(b.size)}]" + ("" if b.role == "in" else f" {b.role}")
            for b in kernel.buffers
        )
        facts = [f" lanes {kernel.lanes}"] if kernel.lanes != 1 else []
        facts += [f" granule {kernel.granule}"] if kernel.granule != 1 else []
        facts += [f" cost {kernel.cost!r}"] if kernel.cost else []
        facts += [" chained"] if kernel.chained else []
        whole = Block("")
        whole.add(f"kernel({buffers}){''.join(facts)} {{")
        whole.nest(self.block(kernel.body))
        return whole.lines, whole.at

    def new(self, kind: str, expr: Expr) -> str:
        self.names[expr] = self.number(kind)
        return self.names[expr]

    def block(self, body: Sequence[Stmt], variables: Sequence[Expr] = ()) -> Block:
        block = self.open(variables)
        stores: list[tuple[Store, str]] = []  # side by side they are one step: their operands come before all of them
        for stmt in body:
            if not isinstance(stmt, Reduce):
                block.loop = {}
            if isinstance(stmt, Store):
                stores.append((stmt, self.store(stmt.buffer, stmt.index, stmt.value)))
                continue
            self.add_stores(block, stores)
            self.statement(stmt)
        self.add_stores(block, stores)
        self.close(block)
        return block

    @staticmethod
    def add_stores(block: Block, stores: list[tuple[Store, str]]) -> None:
        for stmt, text in stores:
            block.at[id(stmt)] = len(block.lines)
            block.add(text)
        stores.clear()

    def statement(self, stmt: Stmt) -> None:
        block = self.blocks[-1]
        match stmt:
            case For(var, body, kind):
                line = f"for {self.new('i', var)} < {_size(extent(var))}{_kind(kind)} {{"
                inner = self.block(body, (var,))
                block.at[id(stmt)] = len(block.lines)
                block.add(line)
                block.nest(inner)
            case Reduce(result, op, variables, value, kind):
                if tuple(block.loop) == variables:
                    self.names |= block.loop
                else:
                    block.loop = {v: self.new("r", v) for v in variables}
                over = ", ".join(f"{name} < {_size(extent(v))}" for v, name in block.loop.items())
                inner = self.open(variables)
                shown = self.expression(value)
                self.close(inner)
                self.define(result, self.number("s"))
                head = f"{self.names[result]} = reduce {op} over {over}{_kind(kind)}"
                block.at[id(stmt)] = len(block.lines)
                if inner.lines:
                    inner.add(f"yield {shown}")
                    block.add(head + " {")
                    block.nest(inner)
                else:
                    block.add(f"{head} of {shown}")
            case Scan(buffer, index, op, var, value, reverse, kind):
                over = f"{self.new('r', var)} < {_size(extent(var))}{' reverse' * reverse}"
                line = f"scan {op} over {over}{_kind(kind)} {{"
                inner = self.open((var,))
                inner.add(self.store(buffer, index, value))
                self.close(inner)
                block.at[id(stmt)] = len(block.lines)
                block.add(line)
                block.nest(inner)

    def store(self, buffer: Buffer, index: Expr, value: Expr) -> str:
        target = self.expression(index)
        return f"{buffer.name}[{target}] = {self.expression(value)}"

    def expression(self, expr: Expr) -> str:
        """Text of an operand of a statement; parts that have a name and are not yet defined are defined first."""
        for part in postorder([expr], lambda part: () if part in self.names else part.args):
            if part in self.named and part not in self.names:
                block = self.blocks[max((self.level[d] for d in part.depends if d in self.level), default=0)]
                if part.op == "while":
                    name = self.new("t", part)
                    head, inner = self.loop(part, block.indent + "  ")
                    block.add(f"{name} = {head} {{")
                    block.nest(inner)
                else:
                    text = self.show(part)
                    block.add(f"{self.new('t', part)} = {text}")
                block.names.append(part)
        return self.show(expr)

    def loop(self, expr: Expr, indent: str) -> tuple[str, Block]:
        """The head of a loop of scalars, and its lines: its names are its own."""
        region, (go, *values) = expr.attr, map(self.show, expr.args)
        outer = self.names, self.level, self.blocks, self.named
        inner = Block(indent)
        self.names, self.level, self.blocks = {}, {}, [inner]
        self.named = named(region.expressions, region.results)
        starts = [f"{self.new('c', p)} = {value}" for p, value in zip(region.params, values, strict=True)]
        results = [self.expression(result) for result in region.results]
        inner.add(f"yield {', '.join(results)}")
        self.names, self.level, self.blocks, self.named = outer
        given = starts[region.carries :]
        head = f"while({', '.join([go, *starts[: region.carries]])})"
        return head + (f" with ({', '.join(given)})" if given else ""), inner

    def show(self, expr: Expr, level: int = 0) -> str:
        """Text of an expression in a place that binds as tightly as `level`."""
        if expr in self.names:
            return self.names[expr]
        match expr.op:
            case "const":
                return _number(expr.attr, expr.dtype)
            case "var" | "result" | "param":
                return f"?{expr.attr}"  # not in scope: the kernel is broken, and this is part of a message about it
            case "load":
                return f"{expr.attr.name}[{self.where(expr.args)}]"
            case "index":
                size, what = expr.attr
                return f"index({self.where(expr.args)}, {_size(size)}, {json.dumps(what)})"
            case "cast" | "bitcast":
                return f"{expr.op}({self.show(expr.args[0])}, {dtypes.short(expr.dtype)})"
            case "carry":
                return f"carry({self.show(expr.args[0])}, {expr.attr})"
            case "table":
                values = "".join(f", {_digits(v, expr.dtype)}" for v in expr.attr)
                return f"table({self.show(expr.args[0])}, {dtypes.short(expr.dtype)}{values})"
        if expr.op in INFIX and len(expr.args) == 2:
            symbol, own = INFIX[expr.op]
            left, right = self.show(expr.args[0], own + (own == 1)), self.show(expr.args[1], own + 1)
            text = f"{left} {symbol} {right}"
            return f"({text})" if own < level else text
        return f"{expr.op}({', '.join(map(self.show, expr.args))})"

    def where(self, args: Sequence[Expr]) -> str:
        return " if ".join(map(self.show, args))


def named_values(kernel: Kernel) -> set[Expr]:
    """Values that get a name: those used twice or more, loops, and parts of expressions that would be too long for a
    line."""
    return named(kernel.expressions, [expr for stmt in statements(kernel.body) for expr in operands(stmt)])


def named(order: Sequence[Expr], roots: Sequence[Expr], args: Callable[[Expr], Any] = lambda e: e.args) -> set[Expr]:
    """The expressions that get a name, operands first."""
    uses: dict[Expr, int] = {}
    for users in (*map(args, order), roots):
        for operand in users:
            uses[operand] = uses.get(operand, 0) + 1
    named: set[Expr] = set()
    length: dict[Expr, int] = {}
    for expr in order:
        if expr.op in _LEAVES:
            length[expr] = 0
            continue
        length[expr] = 1 + sum(length[a] for a in args(expr))
        if uses[expr] > 1 or length[expr] > _LONG or expr.op == "while":
            named.add(expr)
            length[expr] = 0
    return named


def _kind(kind: LoopKind) -> str:
    return "" if kind == "serial" else f" {kind}"


def _size(size: Size) -> str:
    return f"{{{size}}}" if is_dim(size) else str(size)


def _number(value: Any, dtype: np.dtype) -> str:
    if is_dim(value):
        return _size(value)
    text = _digits(value, dtype)
    return text if dtype is dtypes.int64 or dtype.kind == "b" else f"{text}:{dtypes.short(dtype)}"


def _digits(value: Any, dtype: np.dtype) -> str:
    """The shortest digits that give back this value in its own dtype; the bits of a marked nan."""
    if dtype.kind == "b":
        return "true" if value else "false"
    number = np.asarray(value).astype(dtype)[()]
    text = str(number)
    # Not `astype` of the text: it loses an interrupt that comes meanwhile (6 of 10).
    if dtypes.is_narrow(dtype) or dtype.type(text).tobytes() != number.tobytes():
        return f"0x{number.view(f'u{dtype.itemsize}'):x}"
    return text
