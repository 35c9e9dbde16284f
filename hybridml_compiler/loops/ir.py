"""The loop dialect: loop nests over scalar expressions, the form of a kernel just before code generation.

    kernel = (buffers) { stmt* }
    buffer = name: dtype[size]  in | out | inout | scratch   flat memory, `size` in elements; scratch is that of an
                                                             iteration of the outermost loop, unless it is serial
    stmt   = for var < extent [kind] { stmt* }
           | result = reduce op over var < extent, ... [kind] of expr   its last variable is of that kind
           | scan op over var < extent [reverse] [kind] { buffer[expr] = expr }   running combination, stored at every
                                                                                step; serial, or shared by threads
           | buffer[expr] = expr
    kind   = vector | parallel | block | thread    none: serial, one iteration after the other
    expr   = constant | var | result
           | buffer[expr if expr]       a load; zero where the condition (when there is one) does not hold
           | index(expr if expr, size)  a data-dependent index: wrapped, and reported in `status` when out of range
           | op(expr, ...)              op: scalar ISA or transcendental
           | while(go, carries, given; region)   steps of `region` as long as it says so, at first as `go` says
           | carry(while, k)            its k-th carry, after all steps
    region = params -> go, carries      a function of the carries and of what is given, with no other operands

Iterations of a loop that is not serial are independent of each other. They run in lanes (`vector`), by the threads of a
pool (`parallel`), or as the blocks and the threads of a grid. Lowering makes serial loops; a target's schedule gives
them kinds (see transforms.py).

A size, an extent and an int64 constant may be a `Dim` (see sizes/dims.py), which a call gives a value: the values of
its symbols are in a table that follows the buffers.

`text.py` prints and reads this form, `verify.py` holds its rules, `interpret.py` defines its meaning. Stores that
are side by side are one step: all of their values are computed before the first is stored. Reductions that are side
by side over the same variables are one loop.

Expressions are immutable and interned by their builder, so equality is `is` and a common subexpression is computed
once. Each knows the integer range it can take (for index arithmetic) and the variables and results it depends on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np

from ..once import lazy
from ..record import record, replace
from ..sizes.dims import Size, is_symbolic, symbols_of
from ..walk import postorder, reachable

# A loop extent no array reaches: a kernel takes its real length as an argument.
ANY_LENGTH = (1 << 62) - 1
Role = Literal["in", "out", "inout", "scratch"]
LoopKind = Literal["serial", "vector", "parallel", "block", "thread"]
LOOP_KINDS: tuple[LoopKind, ...] = get_args(LoopKind)

# Instructions that are written between their operands: symbol, and how tightly it binds.
INFIX = {
    "eq": ("==", 1), "ne": ("!=", 1), "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1), "ge": (">=", 1),
    "add": ("+", 2), "sub": ("-", 2), "mul": ("*", 3), "div": ("/", 3),
}  # fmt: skip
args_of: Callable[[Expr], tuple[Expr, ...]] = operator.attrgetter("args")


@record
class Buffer:
    name: str
    dtype: np.dtype
    size: Size
    role: Role = "in"

    @property
    def nbytes(self) -> Size:
        return self.size * self.dtype.itemsize


class Expr:
    """A scalar expression. `op` is "const", "var", "load", "result", "while", "carry", "param" (of a region) or an
    instruction; `attr` holds anything but operands."""

    __slots__ = ("args", "attr", "depends", "dtype", "high", "low", "op")

    op: str
    args: tuple[Expr, ...]
    # constant: value; var, result: name; load: Buffer; index: (size, what); table: values; while: Region;
    # carry, param: number
    attr: Any
    dtype: np.dtype
    low: Size | None  # inclusive integer range, None when unknown
    high: Size | None
    depends: frozenset[Expr]  # variables and results this value varies with

    def __repr__(self) -> str:
        if self.op in ("const", "var", "result"):
            return str(self.attr)
        if self.op == "param":
            return f"param{self.attr}"
        if self.op == "load":
            return f"{self.attr.name}[{', '.join(map(repr, self.args))}]"
        return f"{self.op}({', '.join(map(repr, self.args))})"


@record(eq=False)
class Region:
    """The body of a `while`, with no operands but its parameters. The first result says whether another step follows,
    the others are the next carries."""

    params: tuple[Expr, ...]
    results: tuple[Expr, ...]

    @property
    def carries(self) -> int:
        return len(self.results) - 1

    @lazy
    def expressions(self) -> list[Expr]:
        """Every distinct expression, operands first; those of regions inside are not among them."""
        return postorder(self.results, args_of)


@record
class Store:
    buffer: Buffer
    index: Expr
    value: Expr


@record
class Reduce:
    """result = combination of `value` over the index space `vars` (row-major, identity for an empty space)."""

    result: Expr
    op: str  # add mul min max and or argmin argmax
    vars: tuple[Expr, ...]
    value: Expr
    kind: LoopKind = "serial"  # of the last variable; where it is another one, parts are combined by a fixed tree


@record
class Scan:
    """accumulator op= value; buffer[index] = accumulator, for var in order (or in reverse)."""

    buffer: Buffer
    index: Expr
    op: str
    var: Expr
    value: Expr
    reverse: bool = False
    kind: LoopKind = "serial"  # or "thread": the threads of a block combine parts by a fixed tree


@record
class For:
    var: Expr
    body: tuple[Stmt, ...]
    kind: LoopKind = "serial"


Stmt = Store | Reduce | Scan | For


def extent(var: Expr) -> Size:
    """Number of iterations of a loop variable (it runs from 0)."""
    assert var.op == "var" and var.high is not None
    return var.high + 1


class KernelSpec:
    """The code of a launch: a loop nest (`Kernel`), or one of the kinds that schedule/ has beside it."""

    @property
    def specs(self) -> tuple[KernelSpec, ...]:
        """Specs that it is made of, or itself."""
        return (self,)

    @property
    def nests(self) -> tuple[Kernel, ...]:
        """All loop nests that it runs."""
        return ()

    @property
    def nest(self) -> Kernel | None:
        """The loop nest that it ends with, alone or after a library call."""
        return None

    @property
    def firsts(self) -> Sequence[int]:
        """Number of the operand that is the first of each loop nest."""
        return [0]

    @property
    def checked(self) -> bool:
        """Whether it may fail, at an index or in NumPy. Then the status word is among its operands."""
        return any(nest.checked for nest in self.nests)

    @property
    def symbolic(self) -> bool:
        """Whether a table of sizes follows its operands."""
        return False

    @property
    def symbols(self) -> Sequence[str]:
        """The symbols of its sizes, whose values are in that table."""
        return ()

    def status_at(self, operands: int) -> int:
        """Position of the status word among so many operands: after all of them."""
        return operands

    def written(self, operands: int) -> list[bool]:
        """Whether each of so many operands is written: only the last one."""
        return [k == operands - 1 for k in range(operands)]

    def with_nests(self, nests: Sequence[Kernel]) -> KernelSpec:
        """The same spec with other loop nests."""
        return self

    def part_counts(self, takes_epilogue: Callable[[Any], bool]) -> set[int]:
        """Numbers of equal parts that it can be run in."""
        return {1}

    def in_parts(self, count: int) -> KernelSpec:
        """The spec with a range that `count` divides."""
        return self

    def reads_apart(self, operand: int, size: int, parts: int) -> bool:
        """Whether part i of a library call reads only part i of this operand, of so many elements."""
        return True


@record
class Kernel(KernelSpec):
    """A function `kernel(buffers, lo, hi)`: runs iterations lo..hi of `range` (all of the body when it is None)."""

    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    lanes: int = 1  # width of vector loops, in elements
    granule: int = 1  # split points of the range are multiples of this
    cost: float = 0.0  # estimated nanoseconds on one core, for the decision to run in parallel
    chained: bool = False  # run part by part, between others that find its results in a cache

    @property
    def range(self) -> Expr | None:
        """The variable of the outermost loop, which a launch runs in parts, in any order; None where it is serial."""
        match self.body:
            case (For(var, _, kind),) if kind != "serial":
                return var
        return None

    @lazy
    def operands(self) -> tuple[Buffer, ...]:
        """The buffers that a launch gives it."""
        return tuple(b for b in self.buffers if b.role != "scratch")

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.role == "scratch")

    @lazy
    def checked(self) -> bool:
        """Whether it verifies data-dependent indices; then the status word follows its buffers."""
        return any(e.op == "index" for e in self.expressions)

    @lazy
    def expressions(self) -> list[Expr]:
        """Every distinct expression, operands first; those of regions are not among them."""
        return expressions(self.body)

    @lazy
    def loops(self) -> bool:
        """Whether it has a loop of scalars, which might not end."""
        return any(e.op == "while" for e in self.expressions)

    @lazy
    def single(self) -> bool:
        """Whether it computes a few numbers, by no loop."""
        return not (self.scratch or self.loops) and all(isinstance(stmt, Store) for stmt in self.body)

    def rescheduled(self, **changes: Any) -> Kernel:
        """The kernel with other kinds of loops, or other facts: its expressions stay, which take long to find."""
        made = replace(self, **changes)
        if "expressions" in self.__dict__:
            made.__dict__["expressions"] = self.__dict__["expressions"]
        return made

    @lazy
    def symbols(self) -> list[str]:
        """The symbols of its sizes; where there are some, a table of their values follows its other operands."""
        return sorted(map(str, symbols_of(*sizes_of(self)))) if self.symbolic else []

    @lazy
    def symbolic(self) -> bool:
        return is_symbolic(sizes_of(self))

    @property
    def total(self) -> Size:
        return extent(self.range) if self.range is not None else 1

    @property
    def nests(self) -> tuple[Kernel, ...]:
        return (self,)

    @property
    def nest(self) -> Kernel:
        return self

    def with_nests(self, nests: Sequence[Kernel]) -> Kernel:
        (nest,) = nests
        return nest

    def written(self, operands: int) -> list[bool]:
        """Whether each operand is written: those of its buffers that are not only read, which come last."""
        own = [buffer.role != "in" for buffer in self.operands]
        return [False] * (operands - len(own)) + own

    def part_counts(self, takes_epilogue: Callable[[Any], bool]) -> set[int]:
        if self.checked or self.range is None or self.total % self.granule:
            return {1}
        return divisors(self.total // self.granule)


def divisors(n: int) -> set[int]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return {*small, *(n // d for d in small)}


def sizes_of(kernel: Kernel) -> Iterator[Any]:
    """Every size in a kernel, and its constants."""
    yield from (b.size for b in kernel.buffers)
    for stmt in statements(kernel.body):
        yield from (extent(v) for v in variables(stmt))
    for e in expressions(kernel.body):
        if e.op == "const":
            yield e.attr
        elif e.op == "index":
            yield e.attr[0]


def variables(stmt: Stmt) -> tuple[Expr, ...]:
    """The loop variables that a statement runs over itself."""
    match stmt:
        case For(var, _, _) | Scan(_, _, _, var, _, _):
            return (var,)
        case Reduce(_, _, vars_, _, _):
            return vars_
    return ()


def statements(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """Every statement, outer before inner."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, For):
            yield from statements(stmt.body)


def perfect_nest(body: Sequence[Stmt]) -> tuple[list[For], Sequence[Stmt]]:
    """The loops, outer to inner, that hold one statement each and so the rest; and that rest."""
    loops: list[For] = []
    while len(body) == 1 and isinstance(body[0], For):
        loops.append(body[0])
        body = body[0].body
    return loops, body


def nested(loops: Sequence[For], body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The body in these loops, outer to inner: the inverse of `perfect_nest`."""
    made = tuple(body)
    for loop in reversed(loops):
        made = (For(loop.var, made, loop.kind),)
    return made


def serial(vars_: Sequence[Expr], body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The body in serial loops, outer to inner."""
    return nested([For(var, ()) for var in vars_], body)


def steps(body: Sequence[Stmt]) -> Iterator[tuple[Stmt, ...]]:
    """The statements of a body, those together that are one step: stores side by side, reductions in one loop."""
    run: tuple[Stmt, ...] = ()
    for stmt in body:
        match (*run[:1], stmt):
            case (Store(), Store()):
                run = (*run, stmt)
                continue
            case (Reduce(_, _, one, _, _), Reduce(_, _, other, _, _)) if one == other:
                run = (*run, stmt)
                continue
        if run:
            yield run
        run = (stmt,)
    if run:
        yield run


def operands(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions a statement evaluates itself (not those of its body)."""
    match stmt:
        case Store(_, index, value):
            return (index, value)
        case Reduce(_, _, _, value, _):
            return (value,)
        case Scan(_, index, _, _, value, _):
            return (index, value)
        case _:
            return ()


def loads(expr: Expr) -> list[Expr]:
    """The loads in an expression, each once, those of indices included."""
    return [part for part in reachable([expr], args_of) if part.op == "load"]


def expressions(body: Sequence[Stmt]) -> list[Expr]:
    """Every distinct expression under `body`, operands first."""
    seen: set[Expr] = set()
    return [expr for stmt in statements(body) for expr in postorder(operands(stmt), args_of, seen)]


def changing(body: Sequence[Stmt]) -> set[Expr]:
    """Expressions that read what another iteration has written: elements that a loop stores into several times."""
    buffers: set[str] = set()
    stack = [(stmt, frozenset[Expr]()) for stmt in body]
    while stack:
        stmt, within = stack.pop()
        if isinstance(stmt, For):
            stack += [(inner, within | {stmt.var}) for inner in stmt.body]
        elif isinstance(stmt, Store) and within - stmt.index.depends:
            buffers.add(stmt.buffer.name)
    found: set[Expr] = set()
    for expr in expressions(body) if buffers else ():
        if (expr.op == "load" and expr.attr.name in buffers) or not found.isdisjoint(expr.args):
            found.add(expr)
    return found
