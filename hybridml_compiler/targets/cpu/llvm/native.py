"""Native code that is no kernel, written as C would be: values with operators, structs, loops, and labels to jump to.

    @native("i64", "ptr", "i64")
    def total(c, numbers, count):
        sum = c.variable(0)
        with c.each(count) as i:
            sum.value += numbers.item(i)
        c.ret(sum.value)

In another such function `total(c, numbers, 8)` is a call of it. What C has in a variable is a value here, and a phi
where jumps meet: the text is final, and needs none of LLVM's passes. A Python function that is given the builder is
code in place, as C's inline functions are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from ..spec import CpuSpec
from ..structs import Struct
from .ir import Block, Function, GlobalVariable, IRBuilder, Module
from .values import ArrayType, DoubleType, FloatType, FunctionType, IntType, PointerType, Type, Value, VoidType
from .values import Literal as Literal

KINDS: dict[str, Type] = {kind.text: kind for kind in (VoidType(), PointerType(), FloatType(), DoubleType())}
KINDS |= {f"i{width}": IntType(width) for width in (1, 8, 16, 32, 64)}
_POINTER, _I8, _I64 = KINDS["ptr"], KINDS["i8"], KINDS["i64"]
NULL = Literal(_POINTER, "null")
_PAUSE = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}  # 1: yield


def i32(x: int) -> Literal:
    """A number of 32 bits; others are of 64."""
    return Literal(KINDS["i32"], str(x))


def i64(x: int) -> Literal:
    """A number of 64 bits, where no value beside it says so."""
    return Literal(KINDS["i64"], str(x))


def _operator(what: str) -> Callable[[Word, Any], Any]:
    return lambda x, y: getattr(x.b, what)(x, x.b.number(y, x.type))


def _comparison(what: str) -> Callable[[Word, Any], Any]:
    return lambda x, y: x.b.icmp_unsigned(what, x, x.b.number(y, x.type))


class Word(Value):
    """A value with C's operators. Numbers are unsigned; a pointer counts in bytes."""

    __slots__ = ("b",)

    def __init__(self, b: NativeBuilder, type: Type, text: str) -> None:
        super().__init__(type, text)
        self.b = b

    def __add__(self, x: Any) -> Any:
        if self.type is _POINTER:
            return self.b.gep(self, [self.b.number(x, _I64)], source_etype=_I8)
        return self.b.add(self, self.b.number(x, self.type))

    def __rsub__(self, x: int) -> Any:
        return self.b.sub(self.b.number(x, self.type), self)

    __sub__, __mul__, __floordiv__, __mod__ = map(_operator, ("sub", "mul", "udiv", "urem"))
    __and__, __or__, __xor__ = map(_operator, ("and_", "or_", "xor"))
    __lshift__, __rshift__ = map(_operator, ("shl", "lshr"))
    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("<", "<=", ">", ">="))
    __eq__, __ne__ = map(_comparison, ("==", "!="))
    __hash__ = Value.__hash__

    def __invert__(self) -> Any:
        return self.b.not_(self)

    def __bool__(self) -> NoReturn:
        raise TypeError("a value is known when the code runs: use if_then, jump_if or select")

    # A pointer's

    def load(self, kind: str = "i64", order: str = "") -> Any:
        """The value that it points to; with an order the load is atomic."""
        if not order:
            return self.b.load(self, KINDS[kind])
        return self.b.append(f"load atomic {kind}, {self} {order}, align {KINDS[kind].nbytes}", KINDS[kind])

    def store(self, x: Any, order: str = "") -> None:
        """Sets it; a number is of 64 bits."""
        x = self.b.number(x, _I64)
        how = f" {order}, align {x.type.nbytes}" if order else ""
        self.b.block.lines.append(f"  store {'atomic ' * bool(order)}{x}, {self}{how}")

    def item(self, i: Any, kind: str = "i64") -> Any:
        """Item `i` of the array that it points to."""
        return self.b.load(self.b.gep(self, [self.b.number(i, _I64)], source_etype=KINDS[kind]), KINDS[kind])

    def update(self, what: str, x: Any, order: str) -> Any:
        """Atomically *p = *p `what` x; the former value."""
        x = self.b.number(x, _I64)
        return self.b.append(f"atomicrmw {what} {self}, {x} {order}", x.type)

    def replace(self, old: Any, new: Any, order: str) -> Any:
        """Atomically sets it to `new` where it is `old`; whether it was."""
        old = self.b.number(old, _I64)
        pair = self.b.name()
        line = f"cmpxchg {self}, {old}, {self.b.number(new, old.type)} {order} monotonic"
        self.b.block.lines.append(f"  {pair} = {line}")
        return self.b.append(f"extractvalue {{ {old.type}, i1 }} {pair}, 1", KINDS["i1"])

    def struct(self, kind: Struct) -> Record:
        return Record(self, kind)


class Record:
    """A struct by its address: `s[name]` loads a field, `s[name] = x` sets it."""

    def __init__(self, pointer: Word, kind: Struct) -> None:
        self.pointer, self.kind = pointer, kind

    def at(self, name: str) -> Any:
        """The address of a field."""
        return self.pointer + self.kind.offset(name)

    def __getitem__(self, name: str) -> Any:
        return self.at(name).load(self.kind.fields[name][1])

    def __setitem__(self, name: str, x: Any) -> None:
        self.at(name).store(self.pointer.b.number(x, KINDS[self.kind.fields[name][1]]))


class Variable:
    """A value that may be set anew."""

    def __init__(self, b: NativeBuilder, value: Value) -> None:
        self._b, self.kind = b, value.type
        self.value = value

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, x: Any) -> None:
        x = self._b.number(x, self.kind)
        self._value = x if isinstance(x, Word) else Word(self._b, x.type, x.text)


class Label:
    """A place that jumps lead to, with the values that variables have where the jumps are."""

    def __init__(self, c: NativeBuilder, name: str) -> None:
        self.block, self.variables = c.append_basic_block(name), tuple(c.variables)
        self.jumps: list[tuple[Block, list[Any]]] = []


class NativeBuilder(IRBuilder):
    """Appends to a function of native code. `variables` are those in scope."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self.variables: list[Variable] = []
        self._loops: list[tuple[Label, Label]] = []  # where each loop begins and where it ends, the inner ones last

    def append(self, instruction: str, kind: Type, of: str = "v") -> Any:
        return Word(self, kind, super().append(instruction, kind, of).text)

    def number(self, x: Any, kind: Type) -> Value:
        """An operand: a value, a struct's address, or a Python number as a literal of this type."""
        if isinstance(x, Record):
            return x.pointer
        if isinstance(x, Value):
            return x
        return Literal(kind, "null" if kind is _POINTER and x == 0 else str(x))

    def word(self, pointer: Value) -> Any:
        """A pointer as a number."""
        return self.ptrtoint(pointer, _I64)

    def select(self, condition: Value, x: Any, y: Any) -> Any:
        kind = x.type if isinstance(x, Value) else y.type
        return super().select(condition, self.number(x, kind), self.number(y, kind))

    def icmp_signed(self, op: str, x: Value, y: Any) -> Any:
        return super().icmp_signed(op, x, self.number(y, x.type))

    def least(self, x: Any, y: Any) -> Any:
        return self.select(x < y, x, y)

    def greatest(self, x: Any, y: Any) -> Any:
        return self.select(x > y, x, y)

    def local(self, kind: str, size: int = 1) -> Any:
        """Memory on the stack until the function returns."""
        name = self.name()
        self.function.blocks[0].lines.insert(0, f"  {name} = alloca {kind}, i64 {size}")
        return Word(self, _POINTER, name)

    def room(self, kind: str, size: Any) -> Any:
        """The same, of a size that comes with the call."""
        return self.append(f"alloca {kind}, {size}", _POINTER)

    def words(self, name: str, count: int = 1) -> Any:
        """Words of the module, zeros at first."""
        if name not in self.module.globals:
            made = GlobalVariable(self.module, kind := ArrayType(_I64, count), name)
            made.linkage, made.initializer = "internal", Literal(kind, "zeroinitializer")
        return Word(self, _POINTER, f"@{name}")

    def symbol(self, name: str) -> Any:
        """The address of another module's memory."""
        self.module.variable(name, _I8)
        return Word(self, _POINTER, f"@{name}")

    # Calls

    def extern(self, result: str, name: str, *args: Any) -> Any:
        """Calls a function of another module, which is declared by its first use."""
        given = [self.number(x, _I64) for x in args]
        function = self.module.function(name, FunctionType(KINDS[result], [x.type for x in given]))
        return self.through(function, result, *given)

    def through(self, pointer: Any, result: str, *args: Any) -> Any:
        """Calls the function that a pointer points to."""
        line = f"call {result} {pointer.text}({', '.join([str(self.number(x, _I64)) for x in args])})"
        if result != "void":
            return self.append(line, KINDS[result])
        self.block.lines.append(f"  {line}")
        return None

    def pause(self) -> None:
        """Tells the CPU that this is a loop that waits."""
        name, args = _PAUSE.get(self.module.cpu.architecture, ("", ()))
        if name:
            self.extern("void", name, *map(i32, args))

    # Control

    def variable(self, x: Any) -> Variable:
        """A variable of the block of code that it is made in."""
        self.variables.append(made := Variable(self, self.number(x, _I64)))
        return made

    def ret(self, x: Any) -> None:
        super().ret(self.number(x, self.function.ftype.return_type))

    def ret_if(self, condition: Value, x: Any) -> None:
        with self.if_then(condition):
            self.ret(x)

    def label(self, name: str = "label") -> Label:
        return Label(self, name)

    def jump(self, label: Label) -> None:
        self._leave_for(label)
        self.branch(label.block)

    def jump_if(self, condition: Value, label: Label) -> None:
        self._leave_for(label)
        self._fork(condition, label.block, rest := self.append_basic_block(), None)
        self.block = rest

    def unless(self, condition: Value, label: Label) -> None:
        """Jumps where it does not hold, which is unlikely."""
        self._leave_for(label)
        self._fork(condition, rest := self.append_basic_block(), label.block, True)
        self.block = rest

    def place(self, label: Label) -> None:
        """Goes on at a label, after the last jump to it."""
        if not self.block.terminated:
            self.jump(label)
        self.block, self.variables = label.block, list(label.variables)
        for k, variable in enumerate(label.variables):
            values = [(values[k], block) for block, values in label.jumps]
            if all(value is values[0][0] for value, _ in values):
                variable.value = values[0][0] if values else variable.value
            else:
                variable.value = self._meet(variable, values)

    @contextmanager
    def if_then(self, condition: Value, likely: bool | None = None) -> Iterator[Block]:
        after = self.label("after")
        self._leave_for(after)
        self._fork(condition, then := self.append_basic_block("then"), after.block, likely)
        self.block = then
        yield after.block
        self.place(after)

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Runs again and again, until a jump or `break_if` leads out of it."""
        again, after = self.label("loop"), self.label("after")
        self.jump(again)
        self.block = again.block
        phis = [self._meet(variable, ()) for variable in self.variables]
        for variable, phi in zip(self.variables, phis, strict=True):
            variable.value = phi
        self._loops.append((again, after))
        yield
        if not self.block.terminated:
            self.jump(again)
        self._loops.pop()
        for block, values in again.jumps:
            for phi, value in zip(phis, values, strict=False):
                phi.add_incoming(value, block)
        self.place(after)

    def break_if(self, condition: Value) -> None:
        self.jump_if(condition, self._loops[-1][1])

    def next(self) -> None:
        """Goes on with the next turn of the loop, as C's `continue`."""
        self.jump(self._loops[-1][0])

    @contextmanager
    def each(self, end: Any, start: Any = 0, step: int = 1) -> Iterator[Any]:
        """for (i = start; i != end; i += step)"""
        i = self.variable(start)
        with self.loop():
            now = i.value
            self.break_if(now == end)
            i.value = now + step
            yield now
        self.variables.remove(i)

    @contextmanager
    def rows(self, table: Any, count: Any, kind: Struct) -> Iterator[Record]:
        """Each row of a table."""
        with self.each(table + count * kind.nbytes, table, kind.nbytes) as row:
            yield row.struct(kind)

    def _leave_for(self, label: Label) -> None:
        label.jumps.append((self.block, [variable.value for variable in label.variables]))

    def _fork(self, condition: Value, then: Block, otherwise: Block, likely: bool | None) -> None:
        branch = self.cbranch(condition, then, otherwise)
        if likely is not None:
            branch.set_weights([99, 1] if likely else [1, 99])

    def _meet(self, variable: Variable, values: Sequence[tuple[Value, Block]]) -> Any:
        phi = self.phi(variable.kind)
        phi.incoming = list(values)
        return phi


class Native:
    """A function of native code: called with a builder it appends a call, and is defined in the module by the first.

    It is internal to the module, unless its name begins with `hml_`.
    """

    def __init__(self, body: Callable[..., None], result: str, arguments: Sequence[str | Struct], name: str) -> None:
        self.body, self.result, self.arguments, self.name = body, result, arguments, name

    def __call__(self, c: NativeBuilder, *args: Any) -> Any:
        return c.through(self.define(c.module), self.result, *args)

    def define(self, module: Module) -> Any:
        """The function of a module."""
        if self.name in module.globals:
            return module.globals[self.name]
        kinds = [_POINTER if isinstance(kind, Struct) else KINDS[kind] for kind in self.arguments]
        function = Function(module, FunctionType(KINDS[self.result], kinds), self.name)
        function.linkage = "" if self.name.startswith("hml_") else "internal"
        c = NativeBuilder(function.append_basic_block("entry"))
        given = [Word(c, x.type, x.text) for x in function.args]
        typed = zip(given, self.arguments, strict=True)
        self.body(c, *[x.struct(kind) if isinstance(kind, Struct) else x for x, kind in typed])
        if not c.block.terminated:
            c.ret_void()
        return function


def native(result: str, *arguments: str | Struct, name: str = "") -> Callable[[Callable[..., None]], Native]:
    """Makes a Python function that appends a body one of native code, with these types; a struct is its address."""
    return lambda body: Native(body, result, arguments, name or body.__name__)


def text(name: str, cpu: CpuSpec, *functions: Native, optimized: Sequence[str] = ()) -> str:
    """LLVM IR of a module with these functions, and all that they call. Where some are `optimized`, by their names,
    LLVM takes a third of its time for the others, whose registers it chooses as well."""
    module = Module(name, cpu, NativeBuilder)
    for function in functions:
        function.define(module)
    if optimized:
        made = {value for value in module.globals.values() if isinstance(value, Function) and value.blocks}
        for value in made - {module.globals[often] for often in optimized}:
            value.attributes |= {"noinline", "optnone"}
    return str(module)
