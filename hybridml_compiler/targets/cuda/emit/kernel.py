"""A loop nest as a kernel of CUDA C.

A loop of kind `parallel` is shared by all threads of the grid, one of kind `block` by its blocks; inside of that, loops
and reductions of kind `thread` are shared by the threads of a block, and all else is computed by each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .... import dtypes
from ....loops.builder import LoopBuilder, identity, scan_start
from ....loops.ir import (
    Expr,
    For,
    Kernel,
    LoopKind,
    Reduce,
    Scan,
    Stmt,
    Store,
    extent,
    statements,
    steps,
    variables,
)
from ....loops.text import Block
from ....record import record
from ..vectors import VECTOR, in_vectors
from .functions import WARP, DeviceFunctions, better
from .kept_rows import Rows, kept_rows
from .rows import write_rows
from .scalars import ATOM, C
from .scans import scan_of_block
from .types import c_type, literal
from .values import ValueWriter

ENTRY = "kernel"
# Kinds that the threads of a block share. Of a reduction in vectors they share the last variable but one, and each
# combines neighbours along the last, which it loads at once.
_SHARED: dict[type, tuple[LoopKind, ...]] = {For: ("thread",), Scan: ("thread",), Reduce: ("thread", "vector")}
_INDENT = "  "
# Threads of a block that run iterations of their own: few of a small kernel, which then has blocks for all
# multiprocessors. An H100 moves 2.6 % more bytes in a second with 256 than with 128.
_BLOCK, _LARGE_BLOCK = 128, 256
_LARGE = 1 << 18  # iterations: 2,048 threads for 128 multiprocessors
# Loads of a thread that are under way at once, where it combines vectors and where it combines elements. Left to itself
# the compiler takes 95 registers for some sums of columns, which leave a multiprocessor room for two blocks.
_TURNS, _TERMS = 4, 8
_MOST_TURNS = 8  # of a thread in a loop that is written out, so that all loads are under way
_ROW = 256  # threads of a block that share a row, at most
REGISTERS = 1 << 16  # of a multiprocessor
_ROW_REGISTERS = 64
_KEPT_REGISTERS = 48  # of a thread, where it keeps a row
_MOST_SHARED = 40 << 10  # bytes of shared memory, beside the parts of reductions


@record
class Source:
    """A kernel's CUDA C, and how it is launched: with its operands, the status word where it is `checked`, and the
    iterations lo to hi."""

    text: str
    checked: bool
    block: int  # threads
    per_block: int  # iterations of the range that a block takes at once
    alignment: int = 1  # bytes that all operands begin at a multiple of, if it is more than an element

    def grid(self, iterations: int, most: int) -> int:
        """The number of blocks for so many iterations; they take turns where there are more than `most`."""
        return max(1, min(most, -(-iterations // self.per_block)))


def unsupported(kernel: Kernel) -> str:
    """Why `emit` does not write the kernel; nothing where it does."""
    if kernel.symbolic:
        return "its sizes come with the call"
    if kernel.scratch and not _shares_rows(kernel):
        return "its scratch memory is not shared by the threads of a block"
    if sum(int(buffer.nbytes) for buffer in kernel.scratch) > _MOST_SHARED:
        return f"its scratch memory is more than {_MOST_SHARED} bytes"
    return ""


def emit(kernel: Kernel, *, wide: bool = True) -> Source:
    """The kernel's source; unless it is `wide`, every access is of one element, wherever operands begin."""
    kept = kept_rows(kernel)
    if kept is not None:
        return KernelWriter(kept[0], wide=wide, kept=kept[1]).source()
    return KernelWriter(in_vectors(kernel), wide=wide).source()


def _shares_rows(kernel: Kernel) -> bool:
    return any(_is_shared(stmt) for stmt in statements(kernel.body))


def _is_shared(stmt: Stmt) -> bool:
    return not isinstance(stmt, Store) and stmt.kind in _SHARED[type(stmt)]


def _shared_of(stmt: Reduce) -> Expr:
    """The variable that threads share."""
    return stmt.vars[-2 if stmt.kind == "vector" else -1]


class KernelWriter(ValueWriter):
    """Writes a loop nest, or the body of one; what it calls is added to `functions`."""

    def __init__(
        self,
        kernel: Kernel,
        functions: DeviceFunctions | None = None,
        *,
        wide: bool = True,
        kept: Rows | None = None,
    ) -> None:
        super().__init__(kernel, functions, wide=wide)
        self.kept = kept
        self.rows = kept is not None or _shares_rows(kernel)
        self.uniform = self.rows

    def source(self) -> Source:
        kernel = self.kernel
        block = self.open(())
        for buffer in kernel.scratch:
            block.add(f"__shared__ __align__({VECTOR}) {c_type(buffer.dtype)} {buffer.name}[{buffer.size}];")
        (self.whole if kernel.range is None else self.body)(kernel.body)
        self.close(block)
        # One block for each multiprocessor is enough: unless that is said, the compiler holds some kernels to 31
        # registers, and spills, to have more blocks side by side. Where threads share a row, some blocks have to load
        # while others compute: as many as 64 registers a thread allow, or those of kept rows.
        threads = self.threads()
        own = _ROW_REGISTERS if self.kept is None else _KEPT_REGISTERS
        blocks = max(REGISTERS // (threads * own), 1) if self.rows or self.kept is not None else 1
        parameters = [f"{'const ' * (b.role == 'in')}{c_type(b.dtype)}* {b.name}" for b in kernel.operands]
        parameters += ["long long* status"] * kernel.checked
        head = f"{ENTRY}({', '.join([*parameters, 'long long lo', 'long long hi'])})"
        entry = f'extern "C" __global__ void __launch_bounds__({threads}, {blocks})\n{head} {{'
        text = "\n".join([entry, *block.lines, "}\n"])
        per_block = 1 if self.rows else threads
        return Source(f"{self.functions.text()}{text}", kernel.checked, threads, per_block, self.alignment)

    def inside(self, names: Mapping[Expr, C], body: Sequence[Stmt]) -> list[str]:
        """The lines of a body where these variables and values have names already."""
        block = self.open([expr for expr in names if expr.op == "var"])
        self.names.update(names)
        self.body(body)
        self.close(block)
        return block.lines

    def value(self, names: Mapping[Expr, C], value: Expr) -> tuple[list[str], C]:
        """(the lines that a value needs where these are named, the value)."""
        block = self.open([expr for expr in names if expr.op == "var"])
        self.names.update(names)
        found = self.expression(value)
        self.close(block)
        return block.lines, found

    def threads(self) -> int:
        """Threads of a block: a power of two, as many as its longest loop has iterations, up to a limit."""
        if self.kept is not None:
            return self.kept.threads
        if not self.rows:
            total = int(self.kernel.total)
            return 1 if self.kernel.range is None else _LARGE_BLOCK if total >= _LARGE else _BLOCK
        longest = 1
        for stmt in statements(self.kernel.body):
            if _is_shared(stmt):
                shared = _shared_of(stmt) if isinstance(stmt, Reduce) else variables(stmt)[0]
                each = self.kernel.lanes if isinstance(stmt, Scan) else 1
                longest = max(longest, int(extent(shared)) // each)
        threads = WARP
        while threads < min(longest, _ROW):
            threads *= 2
        return threads

    # ---- statements

    def whole(self, body: Sequence[Stmt]) -> None:
        """Writes what is inside of the loop of blocks, or all of the kernel."""
        if self.kept is None:
            self.body(body)
        else:
            write_rows(self, self.kept, self.body)

    def body(self, body: Sequence[Stmt]) -> None:
        for step in steps(body):
            match step[0]:
                case Store():
                    self.stores([stmt for stmt in step if isinstance(stmt, Store)])
                case Reduce(_, "argmin" | "argmax", _, _, _):
                    for stmt in step:
                        assert isinstance(stmt, Reduce)
                        self.position(stmt)
                case Reduce():
                    self.reduce([stmt for stmt in step if isinstance(stmt, Reduce)])
                case For(_, _, "vector") if self.wide:
                    self.vector(step[0])
                case For():
                    self.loop(step[0])
                case Scan():
                    (scan_of_block if step[0].kind == "thread" else KernelWriter.scan)(self, step[0])

    def stores(self, stmts: Sequence[Store]) -> None:
        block, made = self.blocks[-1], []
        for stmt in stmts:
            at, value = self.index(stmt.index), self.expression(stmt.value)
            if len(stmts) > 1 and value.level < ATOM:  # all are computed before the first is stored
                kept = self.new("v", value.dtype)
                block.add(f"const {c_type(value.dtype)} {kept} = {value};")
                value = kept
            made.append(f"{stmt.buffer.name}[{at}] = {value};")
        if not self.uniform:
            for line in made:
                block.add(line)
            return
        self.barrier(stmts)
        block.add("if (threadIdx.x == 0) {")
        for line in made:
            block.add(_INDENT + line)
        block.add("}")
        self.barrier(stmts)

    def loop(self, stmt: For) -> None:
        name, size = self.new("i", dtypes.int64), extent(stmt.var)
        self.names[stmt.var] = name
        start, end, step = "0", str(size), f"++{name}"
        if stmt.var is self.kernel.range:
            start, end = "lo", "hi"
        if stmt.kind == "parallel":
            self.blocks[-1].add(f"const long long first = {start} + blockIdx.x * (long long)blockDim.x + threadIdx.x;")
            self.blocks[-1].add("const long long stride = gridDim.x * (long long)blockDim.x;")
            start, step = "first", f"{name} += stride"
        elif stmt.kind == "block":
            start, step = f"{start} + blockIdx.x", f"{name} += gridDim.x"
        elif stmt.kind == "thread":
            start, step = "threadIdx.x", f"{name} += blockDim.x"
        outer, block = self.uniform, self.blocks[-1]
        if stmt.kind == "thread":
            self.barrier((stmt,))
        self.uniform = self.uniform and stmt.kind != "thread"
        inner = self.open((stmt.var,))
        (self.whole if stmt.var is self.kernel.range else self.body)(stmt.body)
        self.close(inner)
        self.uniform = outer
        turns = int(size) // self.threads() if stmt.kind == "thread" and self.rows else 0
        if 0 < turns <= _MOST_TURNS and turns * self.threads() == size:
            turn = self.number("k")
            inner.lines.insert(0, f"{inner.indent}const long long {name} = threadIdx.x + {turn} * {self.threads()};")
            block.add("#pragma unroll")
            block.add(f"for (int {turn} = 0; {turn} < {turns}; ++{turn}) {{")
        else:
            if any(isinstance(x, For) and x.kind == "vector" for x in stmt.body):
                block.add("#pragma unroll 1")  # what is left over of several turns would store element by element
            block.add(f"for (long long {name} = {start}; {name} < {end}; {step}) {{")
        block.nest(inner)
        if stmt.kind == "thread":
            self.barrier((stmt,))

    def vector(self, stmt: For) -> None:
        """A loop over stores of neighbours: all elements are loaded at once before it, and stored at once after it."""
        name, lanes, s = self.new("i", dtypes.int64), int(extent(stmt.var)), LoopBuilder()
        first, block = {stmt.var: s.const(0, dtypes.int64)}, self.blocks[-1]
        stores = [x for x in stmt.body if isinstance(x, Store)]
        assert len(stores) == len(stmt.body)
        after = []
        self.names[stmt.var] = name
        self.neighbours(stmt.body, stmt.var, first[stmt.var], lanes, name)
        inner = self.open((stmt.var,))
        for store in stores:
            if not self.is_wide(store.buffer, (store.index,), stmt.var, lanes):
                inner.add(f"{store.buffer.name}[{self.index(store.index)}] = {self.expression(store.value)};")
                continue
            kind, value = self.functions.vector(store.buffer.dtype, lanes), self.new("y", store.buffer.dtype)
            inner.add(f"{value}.lane[{name}] = {self.expression(store.value)};")
            at = self.index(s.substitute(store.index, first))
            block.add(f"{kind} {value};")
            if store.buffer.role == "scratch":
                after.append(f"*({kind}*)&{store.buffer.name}[{at}] = {value};")
            else:
                after.append(f"{self.functions.store(store.buffer.dtype, lanes)}(&{store.buffer.name}[{at}], {value});")
        self.close(inner)
        block.add("#pragma unroll")
        block.add(f"for (int {name} = 0; {name} < {lanes}; ++{name}) {{")
        block.nest(inner)
        for line in after:
            block.add(line)

    def nested(self, variables: Sequence[Expr], kind: str) -> tuple[list[str], Block]:
        """The heads of loops over the variables, the last one of this kind, and the block inside of them."""
        heads = []
        for k, var in enumerate(variables):
            name = self.names[var] = self.new("r", dtypes.int64)
            shared = kind == "thread" and k == len(variables) - 1
            start, step = ("threadIdx.x", f"{name} += blockDim.x") if shared else ("0", f"++{name}")
            heads.append(f"for (long long {name} = {start}; {name} < {extent(var)}; {step}) {{")
        outer = self.blocks[-1]
        inner = self.open(variables)
        inner.indent = outer.indent + _INDENT * len(variables)
        return heads, inner

    def enclose(self, heads: Sequence[str], inner: Block) -> None:
        block = self.blocks[-1]
        for k, head in enumerate(heads):
            for line in head.splitlines():
                block.add(_INDENT * k + line)
        block.lines.extend(inner.lines)
        for k in reversed(range(len(heads))):
            block.add(_INDENT * k + "}")

    def reduce(self, joined: Sequence[Reduce]) -> None:
        """Reductions over the same variables, in one loop."""
        first = joined[0]
        totals = [self.new("s", stmt.value.dtype) for stmt in joined]
        heads, inner = self.over(joined, lambda: self.combine(joined, totals))
        block = self.blocks[-1]
        for stmt, total in zip(joined, totals, strict=True):
            start = literal(identity(stmt.op, total.dtype), total.dtype)
            block.add(f"{c_type(total.dtype)} {total} = {start};")
        self.enclose(heads, inner)
        for stmt, total in zip(joined, totals, strict=True):
            if first.kind in _SHARED[Reduce]:
                block.add(f"{total} = {self.functions.block_reduction(stmt.op, total.dtype)}({total});")
            self.define(stmt.result, total)

    def over(self, joined: Sequence[Reduce], combine: Callable[[], None]) -> tuple[list[str], Block]:
        """(the heads of the loops over the variables of reductions, the block inside of them)."""
        first = joined[0]
        shared = first.kind == "vector"
        heads, inner = self.nested(first.vars[:-1] if shared else first.vars, "thread" if shared else first.kind)
        if shared:
            heads[-1] = f"#pragma unroll {_TURNS}\n{heads[-1]}"
            self.along_neighbours(joined, combine)
        else:
            if self.rows and not self.uniform:
                heads[-1] = f"#pragma unroll {_TERMS}\n{heads[-1]}"
            combine()
        self.close(inner)
        return heads, inner

    def along_neighbours(self, joined: Sequence[Reduce], combine: Callable[[], None]) -> None:
        """The loop over the last variable, before which all along it is loaded."""
        var, name, block = joined[0].vars[-1], self.new("r", dtypes.int64), self.blocks[-1]
        self.names[var] = name
        if self.wide:
            self.neighbours(joined, var, LoopBuilder().const(0, dtypes.int64), int(extent(var)), name)
        inner = self.open((var,))
        combine()
        self.close(inner)
        block.add("#pragma unroll")
        block.add(f"for (int {name} = 0; {name} < {extent(var)}; ++{name}) {{")
        block.nest(inner)

    def position(self, stmt: Reduce) -> None:
        """The row-major position of the first extreme; nan counts as the extreme."""
        dtype = stmt.value.dtype
        at, best = self.new("s", dtypes.int64), self.new("best", dtype)
        heads, inner = self.over([stmt], lambda: self.compare(stmt, at, best))
        block = self.blocks[-1]
        block.add(f"long long {at} = 0;")
        block.add(f"{c_type(dtype)} {best} = {literal(identity(stmt.op[3:], dtype), dtype)};")
        self.enclose(heads, inner)
        if stmt.kind in _SHARED[Reduce]:
            block.add(f"{at} = {self.functions.block_position(stmt.op, dtype)}({best}, {at});")
        self.define(stmt.result, at)

    def compare(self, stmt: Reduce, at: C, best: C) -> None:
        """Takes the element at hand for the best, where it is better."""
        dtype, inner = stmt.value.dtype, self.blocks[-1]
        value, name = self.expression(stmt.value), self.new("v", dtype)
        inner.add(f"const {c_type(dtype)} {name} = {value};")
        position = str(self.names[stmt.vars[0]])
        for var in stmt.vars[1:]:
            position = f"({position}) * {extent(var)} + {self.names[var]}"
        inner.add(f"if ({better(stmt.op, dtype, str(name), str(best))}) {{")
        inner.add(f"{_INDENT}{best} = {name};")
        inner.add(f"{_INDENT}{at} = {position};")
        inner.add("}")

    def scan(self, stmt: Scan) -> None:
        dtype, name, size = stmt.value.dtype, self.new("r", dtypes.int64), extent(stmt.var)
        total, block = self.new("total", dtype), self.blocks[-1]
        self.names[stmt.var] = name
        inner = self.open((stmt.var,))
        at, value = self.index(stmt.index), self.expression(stmt.value)
        inner.add(f"{total} = {self.combined(stmt.op, total, value)};")
        inner.add(f"{stmt.buffer.name}[{at}] = {total};")
        self.close(inner)
        block.add(f"{c_type(dtype)} {total} = {literal(scan_start(stmt.op, dtype), dtype)};")
        forward = f"long long {name} = 0; {name} < {size}; ++{name}"
        backward = f"long long {name} = {size} - 1; {name} >= 0; --{name}"
        block.add(f"for ({backward if stmt.reverse else forward}) {{")
        block.nest(inner)
