"""Values, loops, loads and stores of a kernel that is being emitted, from which kernel.py makes statements.

Every expression is emitted in the outermost loop that knows its variables, so loop-invariant code is hoisted by
construction and no pass has to find it.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import numpy as np

from .... import dtypes
from ....errors import CompileError
from ....loops.index import coefficient
from ....loops.ir import ANY_LENGTH, Buffer, Expr, Kernel, Store, changing, extent
from ....loops.regions import instruction
from ....loops.scalar import COMBINE
from ....loops.transcendental import TABLE
from ....ops.op import TRANSCENDENTAL
from ....ops.table import OPS
from ....record import record
from ....schedule import cost
from ....sizes.dims import Size, at_most, is_dim, same
from ....walk import postorder
from . import ir
from .scalars import LaneBuilder, Lanes
from .sizes import Sizes
from .types import I64, PTR, VOID, Literal, alignment, constant, memory_type
from .vectors.interleave import interleave
from .vectors.nontemporal import LINE, beside, stream, streamed
from .vectors.steps import in_steps

# Uses of a transcendental function in a kernel from which there is one copy, that is called. A kernel of 47 sines takes
# LLVM 3 s, and 0.08 so; calls take -20 to +6 % of the time of copies (5 of 2000 numbers, AVX2).
_MOST_COPIES = 4
LONG = frozenset(name for name in TABLE if OPS[name].cost >= TRANSCENDENTAL)
# Numbers in the largest array of a kernel that calls each: even one use is a copy in the loop of whole vectors, one in
# that of the last, and four in a sum.
_FEW = 1 << 10
_ENDS = ("load", "index", "var")  # parts of an expression whose own operands have other levels

CarriedBody = Callable[[list[Lanes]], list[Lanes]]  # values carried into an iteration -> out of it


@record(frozen=False)
class Scope:
    """A loop being emitted. `block` is the end of its straight-line code: hoisted expressions are appended there.

    `inline`: one iteration, written into the straight-line code of the scope around it, which ends where this one does.
    """

    block: Any
    inline: bool = False
    values: dict[tuple[Expr, bool], Lanes] = field(default_factory=dict)


class LoopEmitter:
    """Loops, and the expressions in them. `ranges`: the loop variables whose bounds are arguments."""

    status: Any = None
    sizes: Sizes | None = None
    streams: Mapping[str, Any] = {}

    def __init__(self, module: ir.Module, name: str, kernel: Kernel, ranges: Sequence[Expr | None] = ()) -> None:
        ranges = ranges or (kernel.range,)
        self.function = ir.Function(module, ir.FunctionType(VOID, [PTR, *[I64] * (2 * len(ranges))]), name)
        self.function.attributes.add("nounwind")
        table, *ends = self.function.args
        bounds = dict(zip(ranges, zip(ends[::2], ends[1::2], strict=True), strict=True))
        self._begin(self.function.build(), kernel, bounds)
        for k, buffer in enumerate(kernel.operands):
            self.pointers[buffer.name] = self.b.operand(table, k, f"p_{k}")
        for buffer in kernel.scratch:  # of the thread that runs the range
            size = operator.index(buffer.size)
            self.pointers[buffer.name] = self.b.memory(memory_type(buffer.dtype), size, ir.LINE)
        if kernel.checked:  # the status word comes after the kernel's own operands
            self.status = self.b.operand(table, len(kernel.operands), "status")
        if kernel.symbolic:  # and the table of sizes after that
            values = self.b.operand(table, len(kernel.operands) + kernel.checked, "sizes")
            self.sizes = Sizes(self.b, values, kernel.symbols)
        for buffer in kernel.operands if self.b.checks else ():
            if is_dim(buffer.size) or buffer.size < ANY_LENGTH:
                pointer, what = self.pointers[buffer.name], f"{buffer.name} ({buffer.dtype}[{buffer.size}])"
                self.pointers[buffer.name] = self.b.bounded(pointer, self.size(buffer.nbytes), what)
        # What an epilogue or a stage of a chain writes is a part that others may find in a cache.
        whole = len(ranges) == 1 and not kernel.chained
        results = [buffer for buffer in kernel.operands if whole and streamed(buffer, module.cpu)]
        self.streams = {buffer.name: beside(self.b, self._bytes(buffer)) for buffer in results}

    def _begin(self, b: ir.IRBuilder, kernel: Kernel, bounds: dict[Expr | None, tuple[Any, Any]]) -> None:
        """Nothing emitted yet, at the builder's position."""
        self.b, self.kernel, self.lanes, self.bounds = b, kernel, kernel.lanes, bounds
        self.s = LaneBuilder(b)
        uses = Counter(expr.op for expr in kernel.expressions if expr.op in LONG)
        short = all(not is_dim(buffer.size) and buffer.size <= _FEW for buffer in kernel.buffers)
        self.s.called = {name for name, count in uses.items() if short or count > _MOST_COPIES}
        self.scopes = [Scope(b.block)]
        self.changing = changing(kernel.body)
        self.level: dict[Expr, int] = {}  # variables and results -> depth of the loop that defines them
        self.scalar_var: dict[Expr, Any] = {}  # i64 value of each variable (of lane 0 for a vector variable)
        self.results: dict[Expr, Lanes] = {}
        self.vector: Expr | None = None
        self.width = 1
        self.mask: Lanes | None = None  # lanes that are inside of the loop bounds; None: all of them
        self.full: Any = None  # whether a mask has all lanes
        self.pointers: dict[str, Any] = {}
        self.streaming = False
        # AVX2 stores through a mask in 4 ns (Zen 3), and has none for bytes: there the vectors before the last have a
        # loop of their own. A million zeros take 0.10 ms, and 0.56 in one loop; a sum of a million complex64 0.18, and
        # 0.47.
        self.masks_all = b.module.cpu.vector_bits >= 512

    def size(self, size: Size) -> Any:
        """A size as an i64 value, which is computed before all loops."""
        if self.sizes is None or not is_dim(size):
            return constant(size, dtypes.int64)
        with self.at_level(0):
            return self.sizes.value(size)

    def _bytes(self, buffer: Buffer) -> Any:
        """Bytes of an array; if it may have any length, those of two threads' parts of it."""
        if is_dim(buffer.size) or buffer.size < ANY_LENGTH:
            return self.size(buffer.nbytes)
        lo, hi = self.bounds[self.kernel.range]
        return self.b.mul(self.b.sub(hi, lo), constant(2 * buffer.dtype.itemsize, dtypes.int64))

    @contextmanager
    def in_lanes(self, var: Expr, width: int) -> Any:
        if self.vector is not None:
            raise CompileError(f"vector loop over {var} inside of one over {self.vector}")
        self.vector, self.width = var, width
        try:
            yield
        finally:
            self.vector, self.width = None, 1

    def has_tail(self, var: Expr, size: Size, step: int = 1) -> bool:
        """Whether the last vector of a loop may have lanes beyond its end."""
        return not same(size % max(self.width, step), 0) or (
            var in self.bounds and bool(self.kernel.granule % self.width)
        )

    def has_loop_of_tail(self, var: Expr, size: Size, step: int = 1) -> bool:
        """Whether the vectors before the last have a loop of their own, without masks."""
        return not self.masks_all and self.has_tail(var, size, step) and not at_most(size, max(self.width, step) - 1)

    @contextmanager
    def tail_mask(self, var: Expr, size: Size, hi: Any, step: int = 1) -> Any:
        """Mask off the lanes at and beyond `hi`; no mask where the extent is a multiple of the width and the step."""
        if self.has_tail(var, size, step):
            left = self.b.sub(hi, self.scalar_var[var])
            self.full = self.b.icmp_signed(">=", left, constant(self.width, dtypes.int64))
            few = self.b.select(self.full, constant(self.width, dtypes.int64), left)
            count = Lanes(self.b.trunc(few, ir.IntType(32)), dtypes.int32)
            self.mask = self.s.lt(self.lane_numbers(dtypes.int32), count)
        try:
            yield
        finally:
            self.mask = self.full = None

    def lane_numbers(self, dtype: np.dtype) -> Lanes:
        kind = ir.VectorType(ir.IntType(8 * dtype.itemsize), self.width)
        items = ", ".join(f"{kind.element} {k}" for k in range(self.width))
        return Lanes(Literal(kind, f"<{items}>"), dtype, self.width)

    def later(self, var: Expr, k: int) -> Any:
        """Code for the iteration `k` after the current one of a loop that is unrolled."""
        base = self.scalar_var[var]
        return self.iteration(var, self.b.add(base, constant(k, dtypes.int64)) if k else base)

    @contextmanager
    def iteration(self, var: Expr, index: Any) -> Any:
        """Code for one iteration of a variable, written into the current loop."""
        before = self.level.get(var), self.scalar_var.get(var)
        self.scopes.append(Scope(self.b.block, inline=True))
        self.level[var], self.scalar_var[var] = len(self.scopes) - 1, index
        try:
            yield
        finally:
            self.scopes.pop()
            level, value = before
            if level is not None:
                self.level[var], self.scalar_var[var] = level, value

    def loop(
        self,
        var: Expr,
        lo: Any,
        hi: Any,
        step: int,
        carried: Sequence[Lanes],
        body: CarriedBody,
        may_be_empty: bool = False,
    ) -> list[Lanes]:
        """for (var = lo; var < hi; var += step) carried = body(carried), with the carried values in registers."""
        self.scopes[-1].block = self.b.block  # the enclosing scope stays open for hoisted code
        head = self.b.append_basic_block("loop")
        after = self.b.append_basic_block("done")
        # A thread's share may be empty, and so may be the rest of a size that comes with the call.
        may_be_empty = may_be_empty or var in self.bounds or _may_be_empty(var)
        guard = self.b.append_basic_block("skip") if may_be_empty else None
        self.b.position_at_end(head)
        index = self.b.phi(I64, name="i")
        phis = [self.b.phi(c.value.type) for c in carried]
        self.scopes.append(Scope(head))
        self.level[var], self.scalar_var[var] = len(self.scopes) - 1, index
        updated = body([Lanes(p, c.dtype, c.lanes) for p, c in zip(phis, carried, strict=True)])
        following = self.b.add(index, constant(step, dtypes.int64), flags=["nsw"])
        again = self.b.icmp_signed("<", following, hi)
        latch = self.b.block
        self.b.cbranch(again, head, after)
        self.scopes.pop()
        outer = self.scopes[-1]
        self.b.position_at_end(outer.block)
        if guard is None:
            self.b.branch(head)
        else:
            self.b.cbranch(self.b.icmp_signed("<", lo, hi), head, guard)
        index.add_incoming(lo, outer.block)
        index.add_incoming(following, latch)
        finals = []
        for phi, start, new in zip(phis, carried, updated, strict=True):
            phi.add_incoming(start.value, outer.block)
            phi.add_incoming(new.value, latch)
            finals.append(new)
        if guard is not None:
            self.b.position_at_end(guard)
            self.b.branch(after)
        self.b.position_at_end(after)
        if guard is not None:  # values carried into a loop that did not run
            for k, (start, new) in enumerate(zip(carried, finals, strict=True)):
                last = self.b.phi(new.value.type)
                last.add_incoming(new.value, latch)
                last.add_incoming(start.value, guard)
                finals[k] = Lanes(last, new.dtype, new.lanes)
        outer.block = after
        return finals

    def combine(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        if a.dtype.kind == "c":  # a sum, of both parts at once: taken apart and joined they take twice the time
            return Lanes(self.b.fadd(a.value, b.value), a.dtype, a.lanes)
        combined: Lanes = getattr(self.s, COMBINE[op])(a, b)
        return combined

    def const(self, value: int) -> Lanes:
        return self.s.const(value, dtypes.int64)

    # ---- expressions

    def value(self, expr: Expr) -> Lanes:
        """The value for the current iteration: lanes if it varies with the vector variable, else a scalar."""
        for part in self._arithmetic(expr):  # operands first and not by recursion: an expression may be hundreds deep
            self.emit_expr(part, self.vector is not None and self.vector in part.depends)
        return self.emit_expr(expr, self.vector is not None and self.vector in expr.depends)

    @staticmethod
    def _arithmetic(expr: Expr) -> list[Expr]:
        """The parts of an expression, operands first, down to loads and checked indices."""

        def arithmetic(part: Expr) -> list[Expr]:
            return [] if part.op in _ENDS else [a for a in part.args if a.args or a.op in _ENDS]

        return postorder([expr], arithmetic)

    def emit_expr(self, expr: Expr, in_lanes: bool) -> Lanes:
        if expr.op == "const":
            if is_dim(expr.attr):
                return Lanes(self.size(expr.attr), dtypes.int64)
            return self.s.const(expr.attr, expr.dtype)
        if expr.op == "result":
            return self.results[expr]
        depth = max((self.level[d] for d in expr.depends), default=0)
        if expr in self.changing:
            depth = len(self.scopes) - 1
        key = (expr, in_lanes)
        found = self.scopes[depth].values.get(key)
        if found is None:
            with self.at_level(depth):
                found = self.scopes[depth].values[key] = self._emit(expr, in_lanes)
        return found

    @contextmanager
    def at_level(self, depth: int) -> Any:
        """Emit at the end of an enclosing loop's straight-line code."""
        end = depth
        while end + 1 < len(self.scopes) and self.scopes[end + 1].inline:
            end += 1
        if end == len(self.scopes) - 1:
            yield
            return
        resume, inner = self.b.block, self.scopes[end + 1 :]
        del self.scopes[end + 1 :]
        self.b.position_at_end(self.scopes[end].block)
        try:
            yield
        finally:
            self.scopes[end].block = self.b.block
            self.scopes.extend(inner)
            self.b.position_at_end(resume)

    def _emit(self, expr: Expr, in_lanes: bool) -> Lanes:
        if expr.op == "var":
            base = Lanes(self.scalar_var[expr], dtypes.int64)
            return self.s.add(base, self.lane_numbers(dtypes.int64)) if in_lanes else base
        if expr.op == "load":
            return self.load(expr, in_lanes)
        if in_lanes and expr.op in ("lt", "le", "gt", "ge", "eq", "ne"):
            first = self._first_lane(expr)
            if first is not None:
                return first
        args = [self.emit_expr(a, in_lanes and self.vector in a.depends) for a in expr.args]
        if expr.op == "index":
            return self.checked_index(expr, *args)
        if expr.op in ("floordiv", "mod") and plain_division(expr):
            return self._index_division(expr.op, args[0], args[1])
        if expr.op == "while" and in_lanes and self.mask is not None:  # lanes beyond the end might never be done
            args[0] = self.s.and_(args[0], self.mask)
        found: Lanes = instruction(self.s, expr, args)
        return found

    def _first_lane(self, expr: Expr) -> Lanes | None:
        """Compares lane numbers of 32 bits, where one of two indices counts lanes, with the rest of the other. None
        where it is another comparison."""
        x, y = expr.args
        assert self.vector is not None
        if x.dtype is not dtypes.int64 or not all(map(_is_small, expr.args)):
            return None
        steps = coefficient(x, self.vector), coefficient(y, self.vector)
        if steps not in ((1, 0), (0, 1)):
            return None
        a, b = (self.emit_expr(part, False) for part in expr.args)
        lanes = self.lane_numbers(dtypes.int32)
        if steps[0]:
            return self.s.compare(expr.op, lanes, self.s.cast(self.s.sub(b, a), dtypes.int32))
        return self.s.compare(expr.op, self.s.cast(self.s.sub(a, b), dtypes.int32), lanes)

    def checked_index(self, expr: Expr, value: Lanes, mask: Lanes | None = None) -> Lanes:
        """Wrap a negative index; report one out of range in the status word and read element 0 in its place."""
        size = self.const(expr.attr[0]) if not is_dim(expr.attr[0]) else Lanes(self.size(expr.attr[0]), value.dtype)
        wrapped = self.s.select(self.s.lt(value, 0), self.s.add(value, size), value)
        bad = self.s.or_(self.s.lt(wrapped, 0), self.s.ge(wrapped, size))
        failed = bad if mask is None else self.s.and_(bad, mask)
        if self.mask is not None and failed.lanes > 1:
            failed = self.s.and_(failed, self.mask)
        with self.b.if_then(self.s.any(failed), likely=False):
            self.b.store(constant(1, dtypes.int64), self.status)
        return self.s.select(bad, 0, wrapped)

    def _index_division(self, op: str, x: Lanes, y: Lanes) -> Lanes:
        y = self.s.splat(y, x.lanes)
        emit = self.b.udiv if op == "floordiv" else self.b.urem
        return Lanes(emit(x.value, y.value), x.dtype, x.lanes)

    def load(self, expr: Expr, in_lanes: bool) -> Lanes:
        buffer: Buffer = expr.attr
        index, *rest = expr.args
        mask = self.value(rest[0]) if rest and in_lanes else self.emit_expr(rest[0], False) if rest else None
        if not in_lanes:
            return self._scalar_load(buffer, index, mask)
        return self._vector_load(buffer, index, mask)

    def _scalar_load(self, buffer: Buffer, index: Expr, mask: Lanes | None) -> Lanes:
        at = self.emit_expr(index, False)
        if mask is not None:  # a masked-out index may point anywhere: read element 0 instead and drop it
            at = self.s.select(mask, at, self.const(0))
        value = self.s.gather(self.pointers[buffer.name], at, buffer.dtype, None)
        return value

    def _vector_load(self, buffer: Buffer, index: Expr, mask: Lanes | None) -> Lanes:
        assert self.vector is not None
        width = self.width
        on = self._lanes_on(mask)
        stride = coefficient(index, self.vector)
        if stride == 0:
            return self.s.splat(self._scalar_load_any(buffer, index, on), width)
        if type(stride) is int and abs(stride) <= cost.STEP:
            pointer, parts = self.element_pointer(buffer, index), 2 if buffer.dtype.kind == "c" else 1
            mask = None if on is None else on.value

            def run(first: int, mask: Any) -> Any:
                at = self.b.gep(pointer, [constant(first, dtypes.int64)], source_etype=memory_type(buffer.dtype))
                return self._run(buffer, at if first else pointer, mask)

            value = run(0, mask) if stride == 1 else in_steps(self.b, run, width, stride, parts, mask)
            return self.s.from_memory(value, buffer.dtype, width)
        return self.s.gather(self.pointers[buffer.name], self.emit_expr(index, True), buffer.dtype, on)

    def _run(self, buffer: Buffer, pointer: Any, on: Any) -> Any:
        """Elements that follow each other in memory, zero where the mask is off."""
        kind = memory_type(buffer.dtype, self.width)
        if on is None:
            return self.b.load(pointer, typ=kind, align=alignment(buffer.dtype))
        align, zeros = constant(alignment(buffer.dtype), dtypes.int32), Literal(kind, "zeroinitializer")
        return self.b.intrinsic(
            "masked.load", kind, [pointer, align, self._of_parts(buffer, on), zeros], [kind, pointer.type]
        )

    def _scalar_load_any(self, buffer: Buffer, index: Expr, on: Lanes | None) -> Lanes:
        """Loads one element for all lanes; the mask varies over lanes, so any lane that is on makes the address
        valid."""
        at = self.emit_expr(index, False)
        if on is not None:
            at = self.s.select(Lanes(self.s.any(on), dtypes.bool_), at, self.const(0))
        return self.s.gather(self.pointers[buffer.name], at, buffer.dtype, None)

    def _lanes_on(self, mask: Lanes | None) -> Lanes | None:
        if mask is None:
            return self.mask
        wide = self.s.splat(mask, self.width)
        return wide if self.mask is None else self.s.and_(wide, self.mask)

    def element_pointer(self, buffer: Buffer, index: Expr) -> Any:
        at = self.emit_expr(index, False)
        return self.b.gep(self.pointers[buffer.name], [at.value], source_etype=memory_type(buffer.dtype))

    def store(self, buffer: Buffer, index: Expr, value: Lanes) -> None:
        if self.vector is None or self.vector not in index.depends:
            pointer = self.element_pointer(buffer, index)
            self.b.store(self.s.to_memory(value), pointer, align=alignment(buffer.dtype))
            return
        value = self.s.splat(value, self.width)
        if coefficient(index, self.vector) == 1:
            on = None if self.mask is None else self._of_parts(buffer, self.mask.value)
            self._store_run(buffer, index, self.s.to_memory(value), on)
            return
        at, on = self.emit_expr(index, True), constant(True, dtypes.bool_, self.width)
        if self.mask is not None:
            on = self.mask.value
        base, step = self.pointers[buffer.name], alignment(buffer.dtype)
        parts = [value] if buffer.dtype.kind != "c" else [self.s.real(value), self.s.imag(value)]
        for k, part in enumerate(parts):
            target = self.s.addresses(base, self.s.add(self.s.mul(at, len(parts)), k) if len(parts) > 1 else at, step)
            self._masked("masked.scatter", buffer, self.s.to_memory(part), target, on)

    def _of_parts(self, buffer: Buffer, on: Any) -> Any:
        """A mask of elements, for the numbers that they are made of."""
        return interleave(self.b, [on, on], self.width) if buffer.dtype.kind == "c" else on

    def _store_interleaved(self, first: Store, values: Sequence[Lanes]) -> None:
        data = [self.s.to_memory(self.s.splat(value, self.width)) for value in values]
        on = None if self.mask is None else interleave(self.b, [self.mask.value] * len(data), self.width)
        self._store_run(first.buffer, first.index, interleave(self.b, data, self.width), on)

    def _store_run(self, buffer: Buffer, index: Expr, data: Any, on: Any) -> None:
        """Stores a vector to the address of its first element."""
        pointer = self.element_pointer(buffer, index)

        def ordinary() -> None:
            if on is None:
                self.b.store(data, pointer, align=alignment(buffer.dtype))
            else:
                self._masked("masked.store", buffer, data, pointer, on)

        if buffer.name in self.streams and data.type.nbytes % LINE == 0:
            stream(self.b, data, pointer, self.streams[buffer.name], self.full, ordinary)
            self.streaming = True
        else:
            ordinary()

    def _masked(self, name: str, buffer: Buffer, data: Any, target: Any, on: Any) -> None:
        arguments = [data, target, constant(alignment(buffer.dtype), dtypes.int32), on]
        self.b.intrinsic(name, VOID, arguments, [data.type, target.type])


def _is_small(expr: Expr) -> bool:
    """Whether differences of such numbers fit 32 bits."""
    low, high = expr.low, expr.high
    return type(low) is int and type(high) is int and -(1 << 30) < low <= high < 1 << 30  # no Dim, which is an int too


def _may_be_empty(var: Expr) -> bool:
    size = extent(var) if getattr(var, "op", None) == "var" else 1
    return is_dim(size) and not at_most(1, size)


def plain_division(expr: Expr) -> bool:
    """Non-negative by a positive constant: the unsigned instruction is the floor division."""
    x, y = expr.args
    return x.low is not None and at_most(0, x.low) and y.op == "const" and at_most(1, y.attr)
