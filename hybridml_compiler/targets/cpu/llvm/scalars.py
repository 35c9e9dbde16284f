"""LaneBuilder: the scalar instruction set emitted as LLVM IR, for one value or for a vector of lanes.

It is a `Builder` of `loops/scalar.py`, so the transcendental polynomials emit themselves through it. No fast-math flag
is ever set, so compiled results are bit-equal to the NumPy builder's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from .... import dtypes
from ....loops.division import float_divmod, int_divmod
from ....loops.transcendental import TABLE
from ....record import record
from . import ir
from .types import I1, I64, Literal, alignment, constant, literals, memory_type, register_type
from .vectors.interleave import every, interleave


@record
class Lanes:
    """An SSA value, its dtype and how many lanes it has (1: a scalar)."""

    value: Any
    dtype: np.dtype
    lanes: int = 1


Operand = Lanes | int | float | bool
_REGISTER = 512  # bits
# Steps of a loop from one poll to the next, some 10 us, and before the first one: once a call is to stop, each vector
# that is left takes so many.
_STEPS_A_POLL, _FIRST_POLL = 1 << 12, 1 << 8
_SIGNED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _binary(name: str) -> Callable[[LaneBuilder, Operand, Operand], Lanes]:
    """An instruction of LLVM on two operands, another one for floats."""

    def method(self: LaneBuilder, a: Operand, b: Operand) -> Lanes:
        x, y = self._same((a, b))
        return self._wrap(getattr(self.b, f"f{name}" if x.dtype.kind == "f" else name)(x.value, y.value), x)

    return method


def _intrinsic(name: str) -> Callable[..., Lanes]:
    return lambda self, *operands: self.call(name, *self._same(operands))


def _comparison(op: str) -> Callable[[LaneBuilder, Operand, Operand], Lanes]:
    return lambda self, a, b: self.compare(op, a, b)


class LaneBuilder:
    def __init__(self, builder: ir.IRBuilder) -> None:
        self.b = builder
        self.module: ir.Module = builder.module
        self.active: Lanes | None = None  # lanes that take the step of the loop around; None: all of them
        self.stops: list[Any] = []  # whether loops of the step have been stopped
        self.called: Container[str] = ()  # functions of which there is one copy, which is called

    # ---- plumbing

    def dtype(self, value: Lanes) -> np.dtype:
        return value.dtype

    def const(self, value: Any, dtype: np.dtype) -> Lanes:
        return Lanes(constant(value, dtype), dtype)

    def splat(self, x: Lanes, lanes: int) -> Lanes:
        if x.lanes == lanes:
            return x
        if x.dtype.kind == "c":
            return self.pair(self.splat(self.real(x), lanes), self.splat(self.imag(x), lanes))
        if isinstance(x.value, Literal):
            text = f"splat ({x.value.type} {x.value.get_reference()})"
            return Lanes(Literal(register_type(x.dtype, lanes), text), x.dtype, lanes)
        wide = register_type(x.dtype, lanes)
        undefined = Literal(wide, "poison")
        first = self.b.insert_element(undefined, x.value, constant(0, dtypes.int32))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        return Lanes(self.b.shuffle_vector(first, undefined, zeros), x.dtype, lanes)

    def _same(self, args: Sequence[Operand]) -> list[Lanes]:
        """Python numbers become constants, scalars become lanes where another operand has lanes."""
        dtype = next((a.dtype for a in reversed(args) if isinstance(a, Lanes)), dtypes.int64)
        values = [a if isinstance(a, Lanes) else self.const(a, dtype) for a in args]
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) for v in values]

    def _wrap(self, value: Any, like: Lanes, dtype: np.dtype | None = None) -> Lanes:
        return Lanes(value, dtype or like.dtype, like.lanes)

    def call(self, name: str, *args: Lanes) -> Lanes:
        """An intrinsic overloaded on its operands' type."""
        kind = args[0].value.type
        return self._wrap(self.b.intrinsic(name, kind, [a.value for a in args], [kind]), args[0])

    def __getattr__(self, name: str) -> Callable[..., Lanes]:
        polynomial = TABLE.get(name)
        if polynomial is None:
            raise AttributeError(name)
        if name in self.called and self.active is None:
            return lambda *args: self._called(name, self._same(args))
        return lambda *args: polynomial(self, *self._same(args))

    def _called(self, name: str, args: Sequence[Lanes]) -> Lanes:
        """The value of a function of the module, which is made with the first call of it."""
        x = args[0]
        symbol, kind = f"{name}.{x.dtype.name}.{x.lanes}", register_type(x.dtype, x.lanes)
        function = self.module.function(symbol, ir.FunctionType(kind, [kind] * len(args)))
        if not function.blocks:
            function.linkage, function.attributes = "internal", {"noinline", "nounwind"}
            inner = LaneBuilder(function.build())
            inner.b.ret(TABLE[name](inner, *[self._wrap(value, x) for value in function.args]).value)
        return self._wrap(self.b.call(function, [a.value for a in args]), x)

    # ---- arithmetic

    add, sub, mul = map(_binary, ("add", "sub", "mul"))
    div, fma = _binary("div"), _intrinsic("fma")

    def ldexp(self, a: Operand, b: Operand) -> Lanes:
        """x * 2^n: one instruction of AVX-512 ([Note: Micro-kernels]), or two products."""
        x, y = self._same((a, b))
        lanes = _REGISTER // (8 * x.dtype.itemsize)
        if x.lanes % lanes or self.module.cpu.vector_bits < _REGISTER:
            from ....loops.notation import Value
            from ....loops.transcendental.exp import in_two_factors

            return self._wrap(in_two_factors(Value(self, x), Value(self, y)).raw.value, x)
        kind, bits = register_type(x.dtype, lanes), ir.IntType(lanes)
        name = f"x86.avx512.mask.scalef.{'ps' if x.dtype is dtypes.float32 else 'pd'}.512"
        every, nearest = Literal(bits, "-1"), constant(4, dtypes.int32)

        def piece(p: Any, n: Any) -> Any:
            return self.b.intrinsic(name, kind, [p, n, Literal(kind, "zeroinitializer"), every, nearest])

        return self._wrap(self._in_pieces(piece, x.lanes, lanes, x.value, y.value), x)

    def _in_pieces(self, piece: Callable[..., Any], lanes: int, of: int, *operands: Any) -> Any:
        """A function of vectors of so many lanes, on vectors of a power of two times as many."""
        if lanes == of:
            return piece(*operands)
        half = lanes // 2
        ends = [[self._picked(x, range(k, k + half)) for x in operands] for k in (0, half)]
        low, high = (self._in_pieces(piece, half, of, *parts) for parts in ends)
        return self.b.shuffle_vector(low, high, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [*range(lanes)]))

    def _picked(self, x: Any, lanes: Sequence[int]) -> Any:
        return self.b.shuffle_vector(x, x, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), [*lanes]))

    def neg(self, x: Lanes) -> Lanes:
        return self._wrap(self.b.fneg(x.value) if x.dtype.kind == "f" else self.b.neg(x.value), x)

    def abs(self, x: Lanes) -> Lanes:
        if x.dtype.kind == "f":
            return self.call("fabs", x)
        return x if x.dtype.kind in "ub" else self.select(self.lt(x, 0), self.neg(x), x)

    sqrt, floor, ceil = map(_intrinsic, ("sqrt", "floor", "ceil"))
    trunc, rint, copysign = map(_intrinsic, ("trunc", "roundeven", "copysign"))

    def minimum(self, a: Operand, b: Operand) -> Lanes:
        return self._extreme("lt", a, b)

    def maximum(self, a: Operand, b: Operand) -> Lanes:
        return self._extreme("gt", a, b)

    def _extreme(self, wins: str, a: Operand, b: Operand) -> Lanes:
        """a if it wins or is nan, else b: the compare-and-select that x86 has as one instruction, plus the nan case."""
        x, y = self._same((a, b))
        best = self.select(self.compare(wins, x, y), x, y)
        return best if x.dtype.kind != "f" else self.select(self.ne(x, x), x, best)

    # ---- division

    def floordiv(self, a: Operand, b: Operand) -> Lanes:
        x, y = self._same((a, b))
        return self._float_divmod(x, y)[0] if x.dtype.kind == "f" else self._int_divmod(x, y)[0]

    def mod(self, a: Operand, b: Operand) -> Lanes:
        x, y = self._same((a, b))
        return self._float_divmod(x, y)[1] if x.dtype.kind == "f" else self._int_divmod(x, y)[1]

    def _int_divmod(self, x: Lanes, y: Lanes) -> tuple[Lanes, Lanes]:
        divide, rest = (self.b.udiv, self.b.urem) if x.dtype.kind == "u" else (self.b.sdiv, self.b.srem)

        def machines(op: Callable[[Any, Any], Any]) -> Callable[[Lanes, Lanes], Lanes]:
            return lambda x, by: self._wrap(op(x.value, by.value), x)

        made: tuple[Lanes, Lanes] = int_divmod(self, x, y, machines(divide), machines(rest))
        return made

    def _float_divmod(self, x: Lanes, y: Lanes) -> tuple[Lanes, Lanes]:
        made: tuple[Lanes, Lanes] = float_divmod(self, x, y, self._wrap(self.b.frem(x.value, y.value), x))
        return made

    # ---- comparison, bits, choice

    def compare(self, op: str, a: Operand, b: Operand) -> Lanes:
        x, y = self._same((a, b))
        symbol = _SIGNED[op]
        if x.dtype.kind == "f":
            emit = self.b.fcmp_unordered if op == "ne" else self.b.fcmp_ordered
        else:
            emit = self.b.icmp_signed if x.dtype.kind == "i" else self.b.icmp_unsigned
        return Lanes(emit(symbol, x.value, y.value), dtypes.bool_, x.lanes)

    eq, ne, lt, le, gt, ge = map(_comparison, ("eq", "ne", "lt", "le", "gt", "ge"))
    and_, or_, xor = map(_binary, ("and_", "or_", "xor"))

    def not_(self, x: Lanes) -> Lanes:
        return self._wrap(self.b.not_(x.value), x)

    def shl(self, a: Operand, b: Operand) -> Lanes:
        x, y = self._same((a, b))
        shifted = self._wrap(self.b.shl(x.value, y.value), x)
        return shifted if self._in_width(b, x) else self.select(self._narrow(y), shifted, 0)

    def shr(self, a: Operand, b: Operand) -> Lanes:
        x, y = self._same((a, b))
        if x.dtype.kind == "u":
            shifted = self._wrap(self.b.lshr(x.value, y.value), x)
            return shifted if self._in_width(b, x) else self.select(self._narrow(y), shifted, 0)
        top = 8 * x.dtype.itemsize - 1
        amount = y if self._in_width(b, x) else self.select(self._narrow(y), y, top)
        return self._wrap(self.b.ashr(x.value, amount.value), x)

    @staticmethod
    def _in_width(amount: Operand, x: Lanes) -> bool:
        if isinstance(amount, Lanes):
            if not isinstance(amount.value, Literal) or amount.lanes != 1:
                return False
            amount = int(amount.value.constant)
        return 0 <= amount < 8 * x.dtype.itemsize

    def _narrow(self, amount: Lanes) -> Lanes:
        width = constant(8 * amount.dtype.itemsize, amount.dtype, amount.lanes)
        return Lanes(self.b.icmp_unsigned("<", amount.value, width), dtypes.bool_, amount.lanes)

    def select(self, cond: Lanes, a: Operand, b: Operand) -> Lanes:
        x, y = self._same((a, b))
        lanes = max(cond.lanes, x.lanes)
        x, y = self.splat(x, lanes), self.splat(y, lanes)
        mask = self.splat(cond, lanes)
        return self._wrap(self.b.select(mask.value, x.value, y.value), x)

    def cast(self, x: Lanes, dtype: np.dtype) -> Lanes:
        source = x.dtype
        if source is dtype:
            return x
        if dtype.kind == "b":
            return self.ne(x, self.const(0, source))
        to = register_type(dtype, x.lanes)
        if source.kind == "f":
            if dtype.kind == "f":
                value = self.b.fpext(x.value, to) if dtype.itemsize > source.itemsize else self.b.fptrunc(x.value, to)
            else:
                value = self._float_to_int(x, dtype)
        elif dtype.kind == "f":
            value = (self.b.sitofp if source.kind == "i" else self.b.uitofp)(x.value, to)
        elif register_type(dtype) == register_type(source):
            value = x.value
        elif source.kind != "b" and dtype.itemsize < source.itemsize:
            value = self.b.trunc(x.value, to)
        else:
            value = (self.b.sext if source.kind == "i" else self.b.zext)(x.value, to)
        return Lanes(value, dtype, x.lanes)

    def _float_to_int(self, x: Lanes, dtype: np.dtype) -> Any:
        """Through a signed integer of at least 32 bits, as the CPU does: negative numbers wrap into unsigned types."""
        if dtype is dtypes.uint64:
            return self.b.fptoui(x.value, register_type(dtype, x.lanes))
        wide = dtypes.int64 if dtype.itemsize == 8 or dtype is dtypes.uint32 else dtypes.int32
        value = self.b.fptosi(x.value, register_type(wide, x.lanes))
        return value if wide.itemsize == dtype.itemsize else self.b.trunc(value, register_type(dtype, x.lanes))

    def bitcast(self, x: Lanes, dtype: np.dtype) -> Lanes:
        to = register_type(dtype, x.lanes)
        return Lanes(x.value if x.value.type == to else self.b.bitcast(x.value, to), dtype, x.lanes)

    # ---- complex numbers

    def real(self, x: Lanes) -> Lanes:
        return Lanes(every(self.b, x.value, 0, 2), dtypes.real_of(x.dtype), x.lanes)

    def imag(self, x: Lanes) -> Lanes:
        return Lanes(every(self.b, x.value, 1, 2), dtypes.real_of(x.dtype), x.lanes)

    def pair(self, a: Operand, b: Operand) -> Lanes:
        x, y = self._same((a, b))
        dtype = dtypes.complex_of(x.dtype)
        if x.lanes > 1:
            return Lanes(interleave(self.b, [x.value, y.value], x.lanes), dtype, x.lanes)
        value: ir.Value = Literal(register_type(dtype), "poison")
        for k, part in enumerate((x, y)):
            value = self.b.insert_element(value, part.value, constant(k, dtypes.int32))
        return Lanes(value, dtype)

    # ---- memory and control

    def table(self, values: Sequence[float], index: Lanes, dtype: np.dtype) -> Lanes:
        """Lookup in a constant array of the module."""
        element = memory_type(dtype)
        text = ", ".join([f"{element} {number}" for number in literals(values, dtype)])
        kind = ir.ArrayType(element, len(values))
        name = f"table.{hashlib.blake2b(f'{dtype}{text}'.encode(), digest_size=8).hexdigest()}"
        found = self.module.constant(name, Literal(kind, f"[{text}]"), 64)
        return self.gather(found, self.cast(index, dtypes.int64), dtype, None)

    def addresses(self, base: Any, index: Lanes, itemsize: int) -> Any:
        """Vector of pointers base + index * itemsize."""
        start = self.splat(Lanes(self.b.ptrtoint(base, I64), dtypes.int64), index.lanes)
        sum_ = self.add(start, self.mul(index, itemsize))
        return self.b.within(self.b.inttoptr(sum_.value, ir.VectorType(ir.PointerType(), index.lanes)), base)

    def gather(self, base: Any, index: Lanes, dtype: np.dtype, mask: Lanes | None) -> Lanes:
        """Elements base[index], zero where the mask is false."""
        if index.lanes == 1:
            pointer = self.b.gep(base, [index.value], source_etype=memory_type(dtype))
            return self.from_memory(self.b.load(pointer, typ=memory_type(dtype), align=alignment(dtype)), dtype, 1)
        if dtype.kind == "c":
            part, first = dtypes.real_of(dtype), self.mul(index, 2)
            return self.pair(*(self.gather(base, self.add(first, k), part, mask) for k in (0, 1)))
        kind = memory_type(dtype, index.lanes)
        pointers = self.addresses(base, index, dtype.itemsize)
        on = mask.value if mask is not None else constant(True, dtypes.bool_, index.lanes)
        arguments = [pointers, constant(dtype.itemsize, dtypes.int32), on, Literal(kind, "zeroinitializer")]
        value = self.b.intrinsic("masked.gather", kind, arguments, [kind, pointers.type])
        return self.from_memory(value, dtype, index.lanes)

    def from_memory(self, value: Any, dtype: np.dtype, lanes: int) -> Lanes:
        if dtype.kind == "b":
            value = self.b.icmp_unsigned("!=", value, constant(0, dtypes.uint8, lanes))
        return Lanes(value, dtype, lanes)

    def to_memory(self, x: Lanes) -> Any:
        return self.b.zext(x.value, memory_type(x.dtype, x.lanes)) if x.dtype.kind == "b" else x.value

    def any(self, cond: Lanes) -> Any:
        """An i1, whether the condition holds in some lane."""
        if cond.lanes == 1:
            return cond.value
        return self.b.intrinsic("vector.reduce.or", I1, [cond.value], [cond.value.type])

    def rarely(self, cond: Lanes, slow: Callable[[], Lanes], fast: Lanes) -> Lanes:
        """select(cond, slow(), fast), where slow() runs only if some lane needs it."""
        fast = self.splat(fast, max(cond.lanes, fast.lanes))
        entry = self.b.block
        rare, join = self.b.append_basic_block("rare"), self.b.append_basic_block("join")
        self.b.cbranch(self.any(cond), rare, join).set_weights([1, 4096])
        self.b.position_at_end(rare)
        chosen = self.select(cond, slow(), fast)
        rare_end = self.b.block
        self.b.branch(join)
        self.b.position_at_end(join)
        phi = self.b.phi(fast.value.type)
        phi.add_incoming(fast.value, entry)
        phi.add_incoming(chosen.value, rare_end)
        return self._wrap(phi, fast)

    def while_(
        self, go: Lanes, carries: Sequence[Lanes], given: Sequence[Lanes], body: Callable[..., Sequence[Lanes]]
    ) -> list[Lanes]:
        """Steps as long as some lane goes on; the carries of those that do not stay. A poll may end it before."""
        lanes = max(x.lanes for x in (go, *carries, *given))
        active, stops, masked = self.active, self.stops, lanes > 1
        if masked and active is not None:
            go = self.and_(go, active)
        starts, entry = [self.splat(x, lanes) for x in (go, *carries)], self.b.block
        head, step, done = (self.b.append_basic_block(name) for name in ("while", "step", "done"))
        self.b.branch(head)
        self.b.position_at_end(head)
        left, phis = self.b.phi(I64), [self.b.phi(x.value.type) for x in starts]
        flag, *now = [self._wrap(phi, x) for phi, x in zip(phis, starts, strict=True)]
        self.b.cbranch(self.any(flag), step, done)
        self.b.position_at_end(step)
        self.active, self.stops = flag if masked else None, []
        goes, *after = [self.splat(x, lanes) for x in body(*now, *given)]
        inner, self.active, self.stops = self.stops, active, stops
        if masked:
            goes = self.and_(flag, goes)
            after = [self.select(flag, new, old) for new, old in zip(after, now, strict=True)]
        stopped = []  # blocks that end the loop before its time
        for stop in inner:
            stopped.append(self.b.block)
            self._leave(stop, done)
        following = self._unless_stopped(left, done, stopped)
        for phi, start, new in zip(phis, starts, (goes, *after), strict=True):
            phi.add_incoming(start.value, entry)
            phi.add_incoming(new.value, self.b.block)
        left.add_incoming(ir.i64(_FIRST_POLL), entry)
        left.add_incoming(following, self.b.block)
        self.b.branch(head)
        self.b.position_at_end(done)
        stop = self.b.phi(I1)
        for block in (head, *stopped):
            stop.add_incoming(constant(block is not head, dtypes.bool_), block)
        self.stops.append(stop)
        return now

    def _leave(self, stop: Any, done: ir.Block) -> None:
        on = self.b.append_basic_block("on")
        self.b.cbranch(stop, done, on).set_weights([1, _STEPS_A_POLL])
        self.b.position_at_end(on)

    def _unless_stopped(self, left: Any, done: ir.Block, stopped: list[ir.Block]) -> Any:
        """The steps until the next poll; one that is due may go on at `done`."""
        fewer, latch = self.b.sub(left, ir.i64(1)), self.b.block
        ask, again = self.b.append_basic_block("ask"), self.b.append_basic_block("again")
        self.b.cbranch(self.b.icmp_signed("==", fewer, ir.i64(0)), ask, again).set_weights([1, _STEPS_A_POLL])
        self.b.position_at_end(ask)
        stopped.append(ask)
        self.b.cbranch(self.b.polled(), done, again)
        self.b.position_at_end(again)
        phi = self.b.phi(I64)
        phi.add_incoming(fewer, latch)
        phi.add_incoming(ir.i64(_STEPS_A_POLL), ask)
        return phi
