"""LLVM IR as text, instruction by instruction: types, values, functions and the builder that kernels are emitted with.

It has the names of `llvmlite.ir`, only those that generated code needs, and takes a sixth of its time: an
instruction is a line of text and its result a name. llvmlite keeps every operand, use and attribute as an object to
be printed later, which took a third of a cold compilation. Whether the text is valid is for LLVM to say
(`jit.compile_ir` verifies every module); here are only the checks that cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import eq, ge, gt, le, lt, ne
from typing import Any, ClassVar

from ....errors import CompileError
from ..runtime.llvm_library import PASSES
from ..runtime.thread_block import POLL
from ..spec import CpuSpec
from .values import ArrayType as ArrayType
from .values import Constant as Constant
from .values import DoubleType as DoubleType
from .values import FloatType as FloatType
from .values import FunctionType as FunctionType
from .values import IntType as IntType
from .values import Literal as Literal
from .values import PointerType as PointerType
from .values import Type as Type
from .values import Value as Value
from .values import VectorType as VectorType
from .values import VoidType as VoidType
from .values import every
from .values import i64 as i64
from .values import known as known
from .values import spelled as spelled
from .values import suffix as suffix

LINE = 64  # bytes of a cache line, and of the widest vector
# Stack memory of a module's functions: callers may have small stacks (64 KB), and Python and NumPy need most. Kernels
# that call one another are in modules of their own; only the innermost has more than a few tables.
STACK_BYTES = 1 << 14
SCRATCH = "hml_scratch"  # the function that gives it (runtime/scratch.py)
SCRATCH_BYTES = 1 << 21  # bytes per thread for a module: transformed squares of Winograd's algorithm take most, 1.5 MB

_POINTER, _VOID = PointerType(), VoidType()
_BOOL, _I64 = IntType(1), IntType(64)

# ---- functions and modules


class Phi(Value):
    """The value that the edge brings through which a block is entered."""

    __slots__ = ("incoming",)

    def __init__(self, type: Type, text: str) -> None:
        super().__init__(type, text)
        self.incoming: list[tuple[Value, Block]] = []

    def add_incoming(self, value: Value, block: Block) -> None:
        self.incoming.append((value, block))

    def line(self) -> str:
        edges = ", ".join([f"[{value.text}, %{block.name}]" for value, block in self.incoming])
        return f"  {self.text} = phi {self.type.text} {edges}"


class Frame:
    """A function's part of the scratch memory of its thread, from `base` on; taken when the function is called, and
    given back when it returns.

    That memory begins with a pointer to its free part (targets/cpu/runtime/scratch.py).
    """

    __slots__ = ("base", "memory", "nbytes")

    def __init__(self, memory: Value, base: Value) -> None:
        self.memory, self.base, self.nbytes = memory, base, 0

    def line(self) -> str:
        free = f"{self.base.text}.free"
        return (
            f"  {free} = getelementptr i8, ptr {self.base.text}, i64 {self.nbytes}\n"
            f"  store ptr {free}, ptr {self.memory.text}"
        )


class Branch:
    """A jump that depends on a condition."""

    __slots__ = ("module", "text")

    def __init__(self, module: Module, text: str) -> None:
        self.module, self.text = module, text

    def set_weights(self, weights: Sequence[int]) -> None:
        """Adds weights: how often the condition holds and does not, relative to each other."""
        shares = self.module.metadata(", ".join(['!"branch_weights"', *[f"i32 {w}" for w in weights]]))
        self.text += f", !prof {shares}"

    def line(self) -> str:
        return self.text


class Block:
    """Instructions up to a jump. `once`: the block runs at most once in a call of the function."""

    __slots__ = ("function", "lines", "name", "once", "terminated")

    def __init__(self, function: Function, name: str, once: bool) -> None:
        self.function, self.name, self.once = function, name, once
        self.lines: list[Any] = []
        self.terminated = False


class GlobalVariable(Value):
    __slots__ = ("align", "global_constant", "initializer", "kind", "linkage")

    def __init__(self, module: Module, kind: Type, name: str) -> None:
        super().__init__(_POINTER, f"@{name}")
        self.kind = kind
        self.linkage, self.global_constant = "external", False
        self.initializer: Value | None = None
        self.align: int | None = None
        module.add(name, self)

    def lines(self) -> Iterator[str]:
        what = "constant" if self.global_constant else "global"
        value = "" if self.initializer is None else f" {self.initializer.text}"
        align = "" if self.align is None else f", align {self.align}"
        yield f"{self.text} = {self.linkage} {what} {self.kind.text}{value}{align}"


class Function(Value):
    """Declared, until a block is appended."""

    __slots__ = (
        "args",
        "attributes",
        "blocks",
        "bounds",
        "count",
        "frame",
        "ftype",
        "linkage",
        "module",
        "more",
        "name",
    )

    def __init__(self, module: Module, ftype: FunctionType, name: str) -> None:
        super().__init__(_POINTER, f"@{name}")
        self.module, self.ftype, self.name = module, ftype, name
        self.args = tuple([Value(kind, f"%a{k}") for k, kind in enumerate(ftype.args)])
        self.attributes: set[str] = set()
        self.linkage = ""
        self.blocks: list[Block] = []
        self.count = 0  # of names given
        self.frame: Frame | None = None  # of scratch memory
        self.bounds: dict[str, Value] = {}  # of the memory that its pointers point into (checked.py)
        self.more = module.builder.more_arguments(self)  # which calls of it pass of their own accord
        module.add(name, self)

    def build(self) -> IRBuilder:
        """A builder at the function's first block."""
        return self.module.builder(self.append_basic_block("entry"))

    def append_basic_block(self, name: str = "b") -> Block:
        self.count += 1
        block = Block(self, f"{name}.{self.count}", once=not self.blocks)
        self.blocks.append(block)
        return block

    def lines(self) -> Iterator[str]:
        result, attributes = self.ftype.return_type.text, "".join([f" {a}" for a in sorted(self.attributes)])
        if not self.blocks:
            kinds = ", ".join([x.type.text for x in (*self.args, *self.more)])
            yield f"declare {result} {self.text}({kinds}){attributes}"
            return
        linkage = f"{self.linkage} " if self.linkage else ""
        yield f"define {linkage}{result} {self.text}({', '.join(map(str, (*self.args, *self.more)))}){attributes} {{"
        for block in self.blocks:
            yield f"{block.name}:"
            for line in block.lines:
                yield line if type(line) is str else line.line()
        yield "}"


class Module:
    """Functions and variables for a CPU; `str` is the text that LLVM reads. `builder` is the class that builds its
    functions."""

    def __init__(self, name: str, cpu: CpuSpec, builder: type[IRBuilder] | None = None) -> None:
        self.name, self.cpu, self.builder = name, cpu, builder or IRBuilder
        self.stack, self.scratch = 0, 0  # bytes that all functions together have there
        self.passes = False  # whether its code is not final, and goes through LLVM's passes
        self.globals: dict[str, Any] = {}
        self._metadata: dict[str, str] = {}  # text -> name

    def add(self, name: str, value: Value) -> None:
        if name in self.globals:
            raise CompileError(f"module {self.name}: {name} is defined twice")
        self.globals[name] = value

    def function(self, name: str, kind: FunctionType) -> Any:
        """A function, declared unless the module has it."""
        return self.globals.get(name) or Function(self, kind, name)

    def variable(self, name: str, kind: Type) -> Any:
        """A variable, of another module unless this one has it."""
        return self.globals.get(name) or GlobalVariable(self, kind, name)

    def constant(self, name: str, initializer: Value, align: int | None = None) -> Any:
        """A constant of the module's own."""
        found = self.variable(name, initializer.type)
        found.linkage, found.global_constant, found.initializer, found.align = "internal", True, initializer, align
        return found

    def metadata(self, text: str) -> str:
        """The name of `!{text}`."""
        return self._metadata.setdefault(text, f"!{len(self._metadata)}")

    def __str__(self) -> str:
        lines = [PASSES] * self.passes + [f"; {self.name}"]
        for value in self.globals.values():
            lines += value.lines()
        lines += [f"{name} = !{{{text}}}" for text, name in self._metadata.items()]
        return "\n".join(lines) + "\n"


# ---- instructions

_SIGNED = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}
_UNSIGNED = {"==": "eq", "!=": "ne", "<": "ult", "<=": "ule", ">": "ugt", ">=": "uge"}
_ORDER = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_DECIDE = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_LARGE = 1 << 62


def _operation(what: str) -> Callable[[IRBuilder, Value, Value], Value]:
    """An instruction on two values of a type, with a result of that type."""

    def append(self: IRBuilder, x: Value, y: Value) -> Value:
        return self.binary(what, x, y)

    return append


def _conversion(what: str) -> Callable[[IRBuilder, Value, Type], Value]:
    """An instruction that makes a value of another type; none where it has the type."""

    def append(self: IRBuilder, x: Value, to: Type) -> Value:
        return x if x.type is to else self.append(f"{what} {x.type.text} {x.text} to {to.text}", to)

    return append


def _comparison(what: str, codes: Mapping[str, str]) -> Callable[[IRBuilder, str, Value, Value], Value]:
    """A comparison `op` of two values of a type."""
    return lambda self, op, x, y: self.compare(f"{what}{codes[op]}", x, y)


class IRBuilder:
    """Appends instructions to `block`."""

    checks: ClassVar[bool] = False  # whether accesses are checked (checked.py)

    def __init__(self, block: Block) -> None:
        self.block = block
        self.function = block.function
        self.module = block.function.module

    def position_at_end(self, block: Block) -> None:
        self.block = block

    def append_basic_block(self, name: str = "b") -> Block:
        return self.function.append_basic_block(name)

    def name(self, of: str = "v") -> str:
        self.function.count = count = self.function.count + 1
        return f"%{of}.{count}"

    def append(self, instruction: str, kind: Type, of: str = "v") -> Value:
        """Appends an instruction with a result of this type; the result's name begins with `of`."""
        name = self.name(of)
        self.block.lines.append(f"  {name} = {instruction}")
        return Value(kind, name)

    def binary(self, what: str, x: Value, y: Value, flags: Sequence[str] = ()) -> Value:
        how = f"{what} {' '.join(flags)}" if flags else what
        return self.append(f"{how} {x.type.text} {x.text}, {y.text}", x.type)

    # Integers: constants are folded. Indices are full of `* 1` and `+ 0`.

    def add(self, x: Value, y: Value, flags: Sequence[str] = ()) -> Value:
        p, q = known(x), known(y)
        if q == 0:
            return x
        if p == 0:
            return y
        return self.binary("add", x, y, flags) if p is None or q is None else i64(p + q)

    def sub(self, x: Value, y: Value, flags: Sequence[str] = ()) -> Value:
        p, q = known(x), known(y)
        if q == 0:
            return x
        return self.binary("sub", x, y, flags) if p is None or q is None else i64(p - q)

    def mul(self, x: Value, y: Value, flags: Sequence[str] = ()) -> Value:
        p, q = known(x), known(y)
        if q == 1 or p == 0:
            return x
        if p == 1 or q == 0:
            return y
        if p is None or q is None or abs(p * q) >= _LARGE:
            return self.binary("mul", x, y, flags)
        return i64(p * q)

    def udiv(self, x: Value, y: Value) -> Value:
        return x if known(y) == 1 else self.binary("udiv", x, y)

    def urem(self, x: Value, y: Value) -> Value:
        return i64(0) if known(y) == 1 else self.binary("urem", x, y)

    sdiv, srem = _operation("sdiv"), _operation("srem")
    shl, lshr, ashr = _operation("shl"), _operation("lshr"), _operation("ashr")
    and_, or_, xor = _operation("and"), _operation("or"), _operation("xor")
    fadd, fsub, fmul = _operation("fadd"), _operation("fsub"), _operation("fmul")
    fdiv, frem = _operation("fdiv"), _operation("frem")

    def neg(self, x: Value) -> Value:
        return self.binary("sub", Literal(x.type, every(x.type, "0")), x)

    def not_(self, x: Value) -> Value:
        element = x.type.element if isinstance(x.type, VectorType) else x.type
        return self.binary("xor", x, Literal(x.type, every(x.type, "true" if element is _BOOL else "-1")))

    def fneg(self, x: Value) -> Value:
        return self.append(f"fneg {x.type.text} {x.text}", x.type)

    trunc, zext, sext = _conversion("trunc"), _conversion("zext"), _conversion("sext")
    fptrunc, fpext = _conversion("fptrunc"), _conversion("fpext")
    fptosi, fptoui = _conversion("fptosi"), _conversion("fptoui")
    sitofp, uitofp = _conversion("sitofp"), _conversion("uitofp")
    ptrtoint, inttoptr, bitcast = _conversion("ptrtoint"), _conversion("inttoptr"), _conversion("bitcast")

    # Comparisons and choice

    def compare(self, what: str, x: Value, y: Value) -> Value:
        kind = VectorType(_BOOL, x.type.count) if isinstance(x.type, VectorType) else _BOOL
        return self.append(f"{what} {x.type.text} {x.text}, {y.text}", kind)

    def icmp_signed(self, op: str, x: Value, y: Value) -> Value:
        p, q = known(x), known(y)
        if p is not None and q is not None:
            return Literal(_BOOL, "true" if _DECIDE[op](p, q) else "false")
        return self.compare(f"icmp {_SIGNED[op]}", x, y)

    icmp_unsigned = _comparison("icmp ", _UNSIGNED)
    fcmp_ordered, fcmp_unordered = _comparison("fcmp o", _ORDER), _comparison("fcmp u", _ORDER)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        if type(condition) is Literal and condition.type is _BOOL:
            return x if condition.text == "true" else y
        return self.append(f"select {condition}, {x.type.text} {x.text}, {y.type.text} {y.text}", x.type)

    # Vectors

    def extract_element(self, vector: Value, at: Value) -> Value:
        return self.append(f"extractelement {vector}, {at}", vector.type.element)

    def insert_element(self, vector: Value, x: Value, at: Value) -> Value:
        return self.append(f"insertelement {vector}, {x}, {at}", vector.type)

    def shuffle_vector(self, x: Value, y: Value, mask: Value) -> Value:
        return self.append(f"shufflevector {x}, {y}, {mask}", VectorType(x.type.element, mask.type.count))

    # Memory

    def memory(self, kind: Type, size: int = 1, align: int | None = None) -> Value:
        """Memory of so many elements until the function returns: on the stack, or where the functions of the module
        have more than `STACK_BYTES` there together, in the scratch memory of the thread.

        Raises CompileError where it would be unbounded: a size that is not known, or an allocation in a loop.
        """
        where = f"{self.function.name}: {size} x {kind}"
        if type(size) is not int or not self.block.once:
            raise CompileError(f"{where} has no bound: memory is of known size, and not from within a loop or branch")
        nbytes = -(-kind.nbytes * size // LINE) * LINE
        if self.module.stack + nbytes <= STACK_BYTES:
            self.module.stack += nbytes
            how = "" if align is None else f", align {align}"
            return self.append(f"alloca {kind.text}, i64 {size}{how}", _POINTER)
        self.module.scratch += nbytes
        if self.module.scratch > SCRATCH_BYTES:
            raise CompileError(
                f"{where} is more than the {SCRATCH_BYTES} bytes of scratch memory that a module may have"
            )
        frame = self.function.frame = self.function.frame or self._take()
        at, frame.nbytes = frame.nbytes, frame.nbytes + nbytes
        return self.gep(frame.base, [i64(at)], source_etype=IntType(8))

    def _take(self) -> Frame:
        memory = self.call(self.module.function(SCRATCH, FunctionType(_POINTER, [])), [])
        frame = Frame(memory, self.append(f"load ptr, ptr {memory.text}", _POINTER))
        self.block.lines.append(frame)
        return frame

    def _give(self) -> None:
        """Gives back the memory that `_take` has taken."""
        frame = self.function.frame
        if frame is not None:
            self.block.lines.append(f"  store ptr {frame.base.text}, ptr {frame.memory.text}")

    def operand(self, table: Value, number: int, name: str = "v") -> Value:
        """Entry `number` of a kernel's table of pointers."""
        return self.load(self.gep(table, [i64(number)], source_etype=_POINTER), typ=_POINTER, name=name)

    def set_operand(self, table: Value, number: int, pointer: Value, align: int | None = None) -> None:
        """Sets an entry of such a table."""
        self.store(pointer, self.gep(table, [i64(number)], source_etype=_POINTER), align)

    def given(self, table: Value, number: int) -> Value:
        """Entry `number` of a table of pointers that others than kernels make: Python, or a loop for its body."""
        return self.load(self.gep(table, [i64(number)], source_etype=_POINTER), typ=_POINTER)

    def give(self, table: Value, number: int, pointer: Value) -> None:
        """Sets an entry of such a table."""
        self.store(pointer, self.gep(table, [i64(number)], source_etype=_POINTER))

    # What one that checks has to know.

    @staticmethod
    def more_arguments(function: Function) -> Sequence[Value]:
        """Arguments of a function beyond those of its type."""
        return ()

    def bounded(self, pointer: Value, nbytes: Value, what: str) -> Value:
        """The pointer as one into so many bytes that begin where it points, of those that it points into."""
        return pointer

    def within(self, pointer: Value, other: Value) -> Value:
        """The pointer, or vector of pointers, as one into the memory that the other points into."""
        return pointer

    def plain(self, table: Value, count: int) -> Value:
        """A kernel's table of pointers as Python reads it."""
        return table

    def violated(self) -> Value | None:
        """An i1, whether an access has been out of bounds; None where accesses are not checked."""
        return None

    def polled(self) -> Value:
        """An i1, whether the call is to stop (runtime/polling.py)."""
        return self.icmp_unsigned(
            "!=", self.call(self.module.function(POLL, FunctionType(i64(0).type, [])), []), i64(0)
        )

    def gep(self, pointer: Value, indices: Sequence[Value], source_etype: Type, inbounds: bool = False) -> Value:
        if len(indices) == 1 and known(indices[0]) == 0:
            return pointer
        how = "inbounds " if inbounds else ""
        at = ", ".join([f"{index.type.text} {index.text}" for index in indices])
        return self.append(f"getelementptr {how}{source_etype.text}, {pointer}, {at}", pointer.type)

    def load(self, pointer: Value, typ: Type, align: int | None = None, name: str = "v") -> Value:
        how = "" if align is None else f", align {align}"
        return self.append(f"load {typ.text}, ptr {pointer.text}{how}", typ, name)

    def store(self, value: Value, pointer: Value, align: int | None = None, nontemporal: bool = False) -> None:
        how = "" if align is None else f", align {align}"
        if nontemporal:
            how += f", !nontemporal {self.module.metadata('i32 1')}"
        self.block.lines.append(f"  store {value.type.text} {value.text}, ptr {pointer.text}{how}")

    # Control

    def phi(self, kind: Type, name: str = "v") -> Phi:
        phi = Phi(kind, self.name(name))
        self.block.lines.append(phi)
        return phi

    def call(self, function: Function, args: Sequence[Value]) -> Value:
        kind = function.ftype.return_type
        given = ", ".join([f"{x.type.text} {x.text}" for x in args])
        if kind is _VOID:
            self.block.lines.append(f"  call void {function.text}({given})")
            return Value(kind, "")
        return self.append(f"call {kind.text} {function.text}({given})", kind)

    def intrinsic(self, name: str, result: Type, arguments: Sequence[Value], overloads: Sequence[Type] = ()) -> Value:
        """Calls `llvm.name`, which is overloaded on these types."""
        full = ".".join([f"llvm.{name}", *map(suffix, overloads)])
        return self.call(self.module.function(full, FunctionType(result, [x.type for x in arguments])), arguments)

    def _end(self, line: Any) -> Any:
        self.block.lines.append(line)
        self.block.terminated = True
        return line

    def branch(self, target: Block) -> None:
        self._end(f"  br label %{target.name}")

    def cbranch(self, condition: Value, then: Block, otherwise: Block) -> Branch:
        text = f"  br i1 {condition.text}, label %{then.name}, label %{otherwise.name}"
        branch: Branch = self._end(Branch(self.module, text))
        return branch

    def ret(self, value: Value) -> None:
        self._give()
        self._end(f"  ret {value}")

    def ret_void(self) -> None:
        self._give()
        self._end("  ret void")

    @contextmanager
    def if_then(self, condition: Value, likely: bool | None = None) -> Iterator[Block]:
        """Context of a branch: code emitted inside runs where the condition holds."""
        if type(condition) is Literal and condition.text == "true":
            yield self.block
            return
        then, after = self.append_basic_block("then"), self.append_basic_block("after")
        after.once = self.block.once
        branch = self.cbranch(condition, then, after)
        if likely is not None:
            branch.set_weights([99, 1] if likely else [1, 99])
        with self._inside(then, after):
            yield after
        self.block = after

    @contextmanager
    def if_else(self, condition: Value) -> Iterator[tuple[AbstractContextManager[None], AbstractContextManager[None]]]:
        """Two contexts: code emitted in the first runs where the condition holds, in the second where not."""
        then, otherwise, after = map(self.append_basic_block, ("then", "else", "after"))
        after.once = self.block.once
        self.cbranch(condition, then, otherwise)
        yield self._inside(then, after), self._inside(otherwise, after)
        self.block = after

    @contextmanager
    def _inside(self, block: Block, after: Block) -> Iterator[None]:
        self.block = block
        yield
        if not self.block.terminated:
            self.branch(after)
