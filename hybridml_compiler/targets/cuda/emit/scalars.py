"""CBuilder: the scalar instruction set as expressions of CUDA C.

It is a `Builder` of `loops/scalar.py`, so that the transcendental polynomials write themselves through it. Its values
are texts; what needs more than an expression is a device function (functions.py). Compiled without contraction and
without flushing (see nvrtc.py), each instruction rounds as NumPy's does, and results are bit-equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from .... import dtypes
from ....loops.scalar import ISA, result_dtype
from ....loops.transcendental import TABLE
from ....record import record
from .types import c_type, c_unsigned, literal

# How tightly C binds: a text of a lower level stands in parentheses.
ATOM, UNARY, PRODUCT, SUM, SHIFT, ORDER, EQUAL, BIT_AND, BIT_XOR, BIT_OR, AND, OR, CHOICE = range(13, 0, -1)


@record
class C:
    """An expression of C and its dtype."""

    text: str
    dtype: np.dtype
    level: int = ATOM

    def at(self, level: int) -> str:
        """The text where it has to bind as tightly as this."""
        return self.text if self.level >= level else f"({self.text})"

    def __str__(self) -> str:
        return self.text


class Functions(Protocol):
    """The device functions of a kernel, written when they are first asked for."""

    def function(self, name: str, dtype: np.dtype, arity: int) -> str:
        """The name of the function that is this instruction on so many operands of this dtype."""

    def table(self, values: Sequence[Any], dtype: np.dtype) -> str:
        """The name of an array of constants."""

    def helper(self, name: str) -> str:
        """The name of a function that is known by it."""


Operand = C | int | float | bool
_COMPARE = {"eq": ("==", EQUAL), "ne": ("!=", EQUAL), "lt": ("<", ORDER), "le": ("<=", ORDER), "gt": (">", ORDER),
            "ge": (">=", ORDER)}  # fmt: skip
_ARITHMETIC = {"add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT)}
_BITS = {"and_": ("&", BIT_AND), "or_": ("|", BIT_OR), "xor": ("^", BIT_XOR)}
_LOGIC = {"and_": ("&&", AND), "or_": ("||", OR), "xor": ("!=", EQUAL)}
_CALLS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "copysign": "copysign"}
_BITCASTS = {
    (dtypes.float32, dtypes.int32): "__float_as_int",
    (dtypes.float32, dtypes.uint32): "__float_as_uint",
    (dtypes.int32, dtypes.float32): "__int_as_float",
    (dtypes.uint32, dtypes.float32): "__uint_as_float",
    (dtypes.float64, dtypes.int64): "__double_as_longlong",
    (dtypes.float64, dtypes.uint64): "(unsigned long long)__double_as_longlong",
    (dtypes.int64, dtypes.float64): "__longlong_as_double",
    (dtypes.uint64, dtypes.float64): "__longlong_as_double",
}


def call(name: str, *args: C | str) -> str:
    return f"{name}({', '.join(map(str, args))})"


def _suffixed(name: str, dtype: np.dtype) -> str:
    return name + "f" * (dtype is dtypes.float32)


def _in_width(amount: C) -> bool:
    """Whether a shift by this amount is one that C defines."""
    number = amount.text.rstrip("uL").removesuffix("U")
    return number.isdecimal() and int(number) < 8 * amount.dtype.itemsize


class CBuilder:
    """`keep` is given every value that is more than a name or a number, and may give it a name of its own."""

    def __init__(self, functions: Functions, keep: Callable[[C], C] = lambda value: value) -> None:
        self.functions, self.keep = functions, keep

    def dtype(self, v: C) -> np.dtype:
        return v.dtype

    def const(self, value: Any, dtype: np.dtype) -> C:
        text = literal(value, dtype)
        return C(text, dtype, UNARY if text.startswith("-") else ATOM)

    def __getattr__(self, name: str) -> Callable[..., C]:
        """An instruction without a method of its own, or a transcendental function."""
        if name not in ISA and name not in TABLE:
            raise AttributeError(name)
        return lambda *operands: self._instruction(name, *self._same(operands))

    def _same(self, operands: Sequence[Operand]) -> list[C]:
        """Python numbers become constants of the dtype beside them."""
        dtype = next((x.dtype for x in reversed(operands) if isinstance(x, C)), dtypes.int64)
        return [x if isinstance(x, C) else self.const(x, dtype) for x in operands]

    def _instruction(self, name: str, *args: C) -> C:
        first = args[-1].dtype
        if name in TABLE or name in ("minimum", "maximum", "floordiv", "mod", "shl", "shr", "ldexp"):
            return self._kept(call(self.functions.function(name, first, len(args)), *args), first)
        if name in _COMPARE:
            symbol, level = _COMPARE[name]
            return self._kept(f"{args[0].at(level + 1)} {symbol} {args[1].at(level + 1)}", dtypes.bool_, level)
        if name in _CALLS:
            return self._kept(call(_suffixed(_CALLS[name], first), *args), first)
        if first.kind == "b" and name in _LOGIC:
            return self._infix(_LOGIC[name], args, dtypes.bool_)
        if name in _BITS:
            return self._narrowed(self._infix(_BITS[name], args, first, kept=False))
        return self._arithmetic(name, args, result_dtype(name, tuple(a.dtype for a in args)))

    def _arithmetic(self, name: str, args: Sequence[C], dtype: np.dtype) -> C:
        if dtype.kind == "f" or dtype in (dtypes.uint32, dtypes.uint64):
            return self._infix(_ARITHMETIC[name], args, dtype)
        wrapping = c_unsigned(dtype)
        wide = [C(f"({wrapping}){a.at(UNARY)}", dtype, UNARY) for a in args]
        made = self._infix(_ARITHMETIC[name], wide, dtype, kept=False)
        return self._kept(f"({c_type(dtype)}){made.at(UNARY)}", dtype, UNARY)

    def _infix(self, operator: tuple[str, int], args: Sequence[C], dtype: np.dtype, *, kept: bool = True) -> C:
        symbol, level = operator
        text = f"{args[0].at(level)} {symbol} {args[1].at(level + 1)}"
        return self._kept(text, dtype, level) if kept else C(text, dtype, level)

    def _narrowed(self, made: C) -> C:
        """The value in its own type: C computes in 32 bits at least."""
        if made.dtype.itemsize < 4 and made.dtype.kind in "iu":
            made = C(f"({c_type(made.dtype)}){made.at(UNARY)}", made.dtype, UNARY)
        return self.keep(made)

    def _kept(self, text: str, dtype: np.dtype, level: int = ATOM) -> C:
        return self.keep(C(text, dtype, level))

    # ---- instructions that are no operator on one dtype

    def div(self, a: Operand, b: Operand) -> C:
        return self._infix(("/", PRODUCT), self._same((a, b)), self._same((a, b))[0].dtype)

    def fma(self, a: Operand, b: Operand, c: Operand) -> C:
        args = self._same((a, b, c))
        return self._kept(call(_suffixed("fma", args[0].dtype), *args), args[0].dtype)

    def neg(self, x: C) -> C:
        if x.dtype.kind == "f":
            return self._kept(f"-{x.at(UNARY + 1)}", x.dtype, UNARY)
        return self._arithmetic("sub", [self.const(0, x.dtype), x], x.dtype)

    def abs(self, x: C) -> C:
        if x.dtype.kind == "f":
            return self._kept(call(_suffixed("fabs", x.dtype), x), x.dtype)
        return x if x.dtype.kind in "ub" else self.select(self.lt(x, 0), self.neg(x), x)

    def not_(self, x: C) -> C:
        if x.dtype.kind == "b":
            return self._kept(f"!{x.at(UNARY)}", x.dtype, UNARY)
        return self._narrowed(C(f"~{x.at(UNARY)}", x.dtype, UNARY))

    def shl(self, a: Operand, b: Operand) -> C:
        x, y = self._same((a, b))
        if not _in_width(y):
            return self._instruction("shl", x, y)
        return self._kept(f"({c_type(x.dtype)})(({c_unsigned(x.dtype)}){x.at(UNARY)} << {y})", x.dtype, UNARY)

    def shr(self, a: Operand, b: Operand) -> C:
        x, y = self._same((a, b))
        if not _in_width(y):
            return self._instruction("shr", x, y)
        return self._narrowed(C(f"{x.at(SHIFT)} >> {y}", x.dtype, SHIFT))

    def select(self, cond: C, a: Operand, b: Operand) -> C:
        x, y = self._same((a, b))
        return self._kept(f"{cond.at(CHOICE + 1)} ? {x.at(CHOICE + 1)} : {y.at(CHOICE)}", x.dtype, CHOICE)

    def cast(self, x: C, dtype: np.dtype) -> C:
        source = x.dtype
        if source is dtype:
            return x
        if dtype.kind == "b":
            return self.ne(x, self.const(0, source))
        text = x.at(UNARY)
        if source.kind == "f" and dtype.kind in "iu" and dtype is not dtypes.uint64:
            # As the CPU does: through a signed integer, so that negative numbers wrap into unsigned types.
            wide = dtypes.int64 if dtype.itemsize == 8 or dtype is dtypes.uint32 else dtypes.int32
            text = f"({c_type(wide)}){text}" if wide is not dtype else text
        return self._kept(f"({c_type(dtype)}){text}", dtype, UNARY)

    def bitcast(self, x: C, dtype: np.dtype) -> C:
        name = _BITCASTS.get((x.dtype, dtype))
        if name is not None:
            return self._kept(call(name, x), dtype)
        if c_type(x.dtype) == c_type(dtype):
            return C(x.text, dtype, x.level)
        return self._kept(f"({c_type(dtype)}){x.at(UNARY)}", dtype, UNARY)

    def table(self, values: Sequence[Any], index: C, dtype: np.dtype) -> C:
        return self._kept(f"{self.functions.table(values, dtype)}[{index}]", dtype)

    def real(self, x: C) -> C:
        return self._kept(f"{x.at(ATOM)}.x", dtypes.real_of(x.dtype))

    def imag(self, x: C) -> C:
        return self._kept(f"{x.at(ATOM)}.y", dtypes.real_of(x.dtype))

    def pair(self, a: Operand, b: Operand) -> C:
        x, y = self._same((a, b))
        dtype = dtypes.complex_of(x.dtype)
        return self._kept(call(f"make_{c_type(dtype)}", x, y), dtype)
