"""A builder whose functions check each access against the bounds of the buffer that its pointer points into.

    load <8 x float>, ptr %p  ->  %q = call ptr @hml_inside(ptr %p, ptr %bounds, i64 32, ptr "k_12 reads")
                                  load <8 x float>, ptr %q

Every pointer has bounds, a second pointer (runtime/sanitize.py), or none where nobody knows. They follow it: along
offsets, choices and loops; through arguments, where a function that takes several pointers has one
more for each; and through tables, whose entries are pairs here. Kernels are emitted by the same code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ..runtime.sanitize import INSIDE, LANES, LARGEST, MASKED, NARROW, VIOLATED, WITHIN
from .ir import (
    Block,
    Constant,
    Function,
    FunctionType,
    GlobalVariable,
    IntType,
    IRBuilder,
    Module,
    Phi,
    Type,
    Value,
    spelled,
)
from .types import I1, I64, PTR, VOID, Literal

_NONE = Literal(PTR, "null")
_COPIES = {"memcpy": 2, "memset": 1}  # how many pointers each takes, before the number of bytes
_MASKED = {"load": 0, "store": 1, "gather": 0, "scatter": 1}  # which argument is a pointer; the mask is 2 behind it


class _PointerPhi(Phi):
    __slots__ = ("bounds", "function")

    def __init__(self, text: str, function: Function, bounds: Phi) -> None:
        super().__init__(PTR, text)
        self.function, self.bounds = function, bounds

    def add_incoming(self, value: Value, block: Block) -> None:
        super().add_incoming(value, block)
        self.bounds.add_incoming(self.function.bounds.get(value.text, _NONE), block)


class CheckedBuilder(IRBuilder):
    """A builder of checked functions; `function.bounds` maps each pointer's name to its bounds."""

    checks = True

    @staticmethod
    def more_arguments(function: Function) -> Sequence[Value]:
        """Arguments for the bounds of its pointers. A single pointer is a table, which is ours; functions of others
        know no bounds."""
        pointers = [x for x in function.args if x.type is PTR]
        if len(pointers) < 2 or function.name.startswith(("hml_", "llvm.")) or function.name in _COPIES:
            return ()
        function.bounds |= {x.text: Value(PTR, f"{x.text}.bounds") for x in pointers}
        return [function.bounds[x.text] for x in pointers]

    # ---- where bounds come from

    def memory(self, kind: Type, size: int = 1, align: int | None = None) -> Value:
        size = 2 * size if kind is PTR else size
        pointer = super().memory(kind, size, align)
        return self.bounded(pointer, Constant(I64, kind.nbytes * size), f"memory of {self.function.name}")

    def bounded(self, pointer: Value, nbytes: Value, what: str) -> Value:
        bounds = super().memory(I64, 3)
        self._run(NARROW, VOID, bounds, self._bounds(pointer), pointer, nbytes, self._text(what))
        found = self.append(f"getelementptr i8, {pointer}, i64 0", PTR)
        self.function.bounds[found.text] = bounds
        return found

    def within(self, pointer: Value, other: Value) -> Value:
        return self._like(pointer, other)

    # ---- where they go

    def _bounds(self, pointer: Value) -> Value:
        return self.function.bounds.get(pointer.text, _NONE)

    def _like(self, pointer: Value, other: Value) -> Value:
        bounds = self._bounds(other)
        if bounds is not _NONE:
            self.function.bounds[pointer.text] = bounds
        return pointer

    def gep(self, pointer: Value, indices: Sequence[Value], source_etype: Type, inbounds: bool = False) -> Value:
        if source_etype is PTR:
            (index,) = indices
            indices = [self.mul(index, Constant(I64, 2))]
        found = super().gep(pointer, indices, source_etype, inbounds)
        return found if found is pointer else self._like(found, pointer)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        found = super().select(condition, x, y)
        if x.type is PTR and found is not x and found is not y:
            self.function.bounds[found.text] = super().select(condition, self._bounds(x), self._bounds(y))
        return found

    def phi(self, kind: Type, name: str = "v") -> Phi:
        if kind is not PTR:
            return super().phi(kind, name)
        bounds = Phi(PTR, self.name(name))
        phi = _PointerPhi(self.name(name), self.function, bounds)
        self.block.lines += [phi, bounds]
        self.function.bounds[phi.text] = bounds
        return phi

    def given(self, table: Value, number: int) -> Value:
        return super().load(super().gep(table, [Constant(I64, number)], PTR), PTR)

    def give(self, table: Value, number: int, pointer: Value) -> None:
        super().store(pointer, super().gep(table, [Constant(I64, number)], PTR))

    def plain(self, table: Value, count: int) -> Value:
        copy = super().memory(PTR, count)
        for k in range(count):
            self.give(copy, k, self.load(self.gep(table, [Constant(I64, k)], PTR), PTR))
        return copy

    # ---- accesses

    def load(self, pointer: Value, typ: Type, align: int | None = None, name: str = "v") -> Value:
        if typ is not PTR:
            return super().load(self._checked(pointer, typ.nbytes, "reads"), typ, align, name)
        pair = self._checked(pointer, 2 * PTR.nbytes, "reads")
        found = super().load(pair, PTR, align, name)
        self.function.bounds[found.text] = super().load(super().gep(pair, [Constant(I64, 1)], PTR), PTR)
        return found

    def store(self, value: Value, pointer: Value, align: int | None = None, nontemporal: bool = False) -> None:
        if value.type is not PTR:
            super().store(value, self._checked(pointer, value.type.nbytes, "writes"), align, nontemporal)
            return
        pair = self._checked(pointer, 2 * PTR.nbytes, "writes")
        super().store(value, pair, align)
        super().store(self._bounds(value), super().gep(pair, [Constant(I64, 1)], PTR))

    def call(self, function: Function, args: Sequence[Value]) -> Value:
        args = list(args)
        if function.name.startswith("llvm.masked."):
            self._mask(function.name.split(".")[2], args)
        elif function.name in _COPIES:
            for k in range(_COPIES[function.name]):
                args[-1] = self._fitting(args[k], args[-1], "reads" if k else "writes")
        if function.more:
            args += [self._bounds(x) for x in args if x.type is PTR]
        return super().call(function, args)

    def violated(self) -> Value:
        return self.icmp_unsigned("!=", self._run(VIOLATED, I64), Constant(I64, 0))

    def _checked(self, pointer: Value, nbytes: int, how: str) -> Value:
        assert nbytes <= LARGEST, f"{self.function.name} {how} {nbytes} bytes at once"
        bounds = self._bounds(pointer)
        if bounds is _NONE:
            return pointer
        return self._run(INSIDE, PTR, pointer, bounds, Constant(I64, nbytes), self._kernel(how))

    def _fitting(self, pointer: Value, nbytes: Value, how: str) -> Value:
        """The number of bytes of a copy, or 0."""
        well = self._run(WITHIN, I1, pointer, self._bounds(pointer), nbytes, self._kernel(how))
        return self.select(well, nbytes, Constant(I64, 0))

    def _mask(self, what: str, args: list[Value]) -> None:
        """Only the lanes of a masked access that are inside."""
        at = _MASKED[what]
        pointer, mask, how = args[at], args[at + 2], "writes" if at else "reads"
        data = args[0] if at else args[3]
        bounds, lanes = self._bounds(pointer), mask.type.count
        if bounds is _NONE:
            return
        bits, each = IntType(lanes), Constant(I64, data.type.element.nbytes)
        on = self.bitcast(mask, bits)
        if what in ("load", "store"):
            for first in range(0, lanes, 64):
                some = self._word(on if not first else self.lshr(on, Literal(bits, str(first))))
                place = super().gep(pointer, [Constant(I64, first)], data.type.element)
                well = self._run(MASKED, I1, place, bounds, some, each, self._kernel(how))
                args[at + 2] = self.select(well, args[at + 2], Literal(mask.type, "zeroinitializer"))
            return
        on = self._word(on)
        slots = self._lane_addresses()
        super().store(pointer, slots, PTR.nbytes)
        kept = self._run(LANES, I64, slots, Constant(I64, lanes), bounds, on, each, self._kernel(how))
        args[at + 2] = self.bitcast(self.trunc(kept, bits), mask.type)

    def _word(self, bits: Value) -> Value:
        return self.zext(bits, I64) if bits.type.width < 64 else self.trunc(bits, I64)

    def _lane_addresses(self) -> Value:
        """Memory of the function for the addresses of one vector."""
        name = "%lane.addresses"
        line = f"  {name} = alloca ptr, i64 64, align 8"
        entry = self.function.blocks[0].lines
        if line not in entry:
            entry.insert(0, line)
        return Value(PTR, name)

    def _run(self, name: str, result: Type, *args: Value) -> Value:
        return super().call(self.module.function(name, FunctionType(result, [x.type for x in args])), args)

    def _kernel(self, how: str) -> Value:
        return self._text(f"{self.function.name} {how}")

    def _text(self, text: str) -> Value:
        return text_of(self.module, text)


def text_of(module: Module, text: str) -> GlobalVariable:
    """A constant of the module with the text, and a zero behind it."""
    data = text.encode() + b"\0"
    name = f"{module.name}.text.{hashlib.blake2b(data, digest_size=8).hexdigest()}"
    found: GlobalVariable = module.constant(name, spelled(data))
    return found
