"""Types of LLVM IR, and operands of instructions: a type with a name or literal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

# ---- types


class _Interned(type):
    """Equal types are one object, so that `==` is `is`."""

    made: ClassVar[dict[Any, Any]] = {}

    def __call__(cls, *args: Any) -> Any:
        found = cls.made.get((cls, *args))
        if found is None:
            found = cls.made[cls, *args] = super().__call__(*args)
        return found


class Type(metaclass=_Interned):
    """A type by its text, with the bytes that it takes in memory."""

    __slots__ = ("nbytes", "text")
    text: str
    nbytes: int

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class IntType(Type):
    __slots__ = ("width",)

    def __init__(self, width: int) -> None:
        self.width, self.text, self.nbytes = width, f"i{width}", -(-width // 8)


class FloatType(Type):
    __slots__ = ()
    text, nbytes = "float", 4


class DoubleType(Type):
    __slots__ = ()
    text, nbytes = "double", 8


class VoidType(Type):
    __slots__ = ()
    text, nbytes = "void", 0


class PointerType(Type):
    __slots__ = ()
    text, nbytes = "ptr", 8


class VectorType(Type):
    __slots__ = ("count", "element")

    def __init__(self, element: Type, count: int) -> None:
        self.element, self.count, self.text = element, count, f"<{count} x {element.text}>"
        self.nbytes = -(-count // 8) if element is _BOOL else count * element.nbytes


class ArrayType(Type):
    __slots__ = ("count", "element")

    def __init__(self, element: Type, count: int) -> None:
        self.element, self.count, self.text = element, count, f"[{count} x {element.text}]"
        self.nbytes = count * element.nbytes


class FunctionType:
    __slots__ = ("args", "return_type")

    def __init__(self, return_type: Type, args: Sequence[Type]) -> None:
        self.return_type, self.args = return_type, tuple(args)


_BOOL, _I64 = IntType(1), IntType(64)

# ---- values


class Value:
    """Something that instructions read: its type, and its name or literal."""

    __slots__ = ("text", "type")

    def __init__(self, type: Any, text: str) -> None:
        self.type, self.text = type, text

    def get_reference(self) -> str:
        return self.text

    def __str__(self) -> str:
        return f"{self.type.text} {self.text}"

    __repr__ = __str__


class Literal(Value):
    """A constant given by its LLVM text."""

    __slots__ = ()

    @property
    def constant(self) -> str:
        return self.text


class Constant(Literal):
    """A number, or a vector of numbers."""

    __slots__ = ()

    def __init__(self, type: Type, value: int | Sequence[int]) -> None:
        text = str(value)
        if isinstance(type, VectorType) and not isinstance(value, int):
            text = f"<{', '.join([f'{type.element.text} {item}' for item in value])}>"
        super().__init__(type, text)


def spelled(data: bytes) -> Literal:
    """An array of these bytes, as its literal."""
    return Literal(ArrayType(IntType(8), len(data)), f'c"{chr(92) * bool(data)}{data.hex(chr(92))}"')


def suffix(kind: Type) -> str:
    """Suffix of an overloaded intrinsic: `f32`, `v16f32`, `v16i1`, `v16p0`."""
    if isinstance(kind, VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    return {"ptr": "p0", "float": "f32", "double": "f64"}.get(kind.text, kind.text)


def known(x: Value) -> int | None:
    """The number that an i64 is, where it is a literal."""
    if type(x) is Literal and x.type is _I64:
        return int(x.text)
    return None


def i64(value: int) -> Literal:
    return Literal(_I64, str(int(value)))


def every(kind: Type, text: str) -> str:
    """A literal, in every lane of a vector."""
    return f"splat ({kind.element.text} {text})" if isinstance(kind, VectorType) else text
