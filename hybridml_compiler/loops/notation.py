"""Operator notation over a scalar builder, so that a polynomial reads as the formula it is.

`Value` pairs a builder with one of its values; Python numbers beside it become constants of its dtype. Nothing is
simplified or reordered: an operator is exactly one instruction of the table in `scalar.py`.
"""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ..dtypes import float32, float64
from ..errors import DTypeError
from .float_format import FORMATS, Format
from .scalar import Builder, Number


def _binary(instruction: str) -> Callable[[Value, Value | Number], Value]:
    def method(self: Value, other: Value | Number) -> Value:
        return Value(self.s, getattr(self.s, instruction)(self.raw, self.lift(other).raw))

    return method


def _reflected(operator: Callable[[Value, Value], Value]) -> Callable[[Value, Number], Value]:
    return lambda self, other: operator(self.lift(other), self)


def _unary(instruction: str) -> Callable[[Value], Value]:
    return lambda self: Value(self.s, getattr(self.s, instruction)(self.raw))


class Value:
    """One scalar of a builder.

    >>> from hybridml_compiler.loops.scalar import NumpyBuilder
    >>> x = Value(NumpyBuilder(), np.array([1.0, 2.0], np.float32))
    >>> (x * x + 0.5).raw
    array([1.5, 4.5], dtype=float32)
    """

    __slots__ = ("raw", "s")

    def __init__(self, s: Builder[Any], raw: Any) -> None:
        self.s, self.raw = s, raw

    @property
    def dtype(self) -> np.dtype:
        return self.s.dtype(self.raw)

    @property
    def format(self) -> Format:
        found = FORMATS.get(self.dtype)
        if found is None:
            raise DTypeError(f"transcendental functions take float32 or float64, got {self.dtype.name}; cast it first")
        return found

    def lift(self, other: Value | Number) -> Value:
        """`other` as a value: a number becomes a constant of this value's dtype."""
        return other if isinstance(other, Value) else Value(self.s, self.s.const(other, self.dtype))

    __add__, __sub__, __mul__, __truediv__ = map(_binary, ("add", "sub", "mul", "div"))
    __radd__, __rsub__, __rmul__, __rtruediv__ = map(_reflected, (op.add, op.sub, op.mul, op.truediv))
    __and__, __or__, __xor__ = map(_binary, ("and_", "or_", "xor"))
    __lshift__, __rshift__ = map(_binary, ("shl", "shr"))
    __lt__, __le__, __gt__, __ge__ = map(_binary, ("lt", "le", "gt", "ge"))
    equals, differs, copysign = map(_binary, ("eq", "ne", "copysign"))
    __neg__, __abs__, __invert__ = map(_unary, ("neg", "abs", "not_"))
    sqrt, rint, trunc = map(_unary, ("sqrt", "rint", "trunc"))

    def cast(self, dtype: np.dtype) -> Value:
        return Value(self.s, self.s.cast(self.raw, dtype))

    def bitcast(self, dtype: np.dtype) -> Value:
        return Value(self.s, self.s.bitcast(self.raw, dtype))

    def bits(self) -> Value:
        """The bits of a float as a signed integer."""
        return self.bitcast(self.format.bits)

    def lookup(self, values: tuple[Number, ...], dtype: np.dtype) -> Value:
        """values[self]; the index must be in range."""
        return Value(self.s, self.s.table(values, self.raw, dtype))


def ldexp(p: Value, n: Value) -> Value:
    """p 2^n for a whole number n, rounded once."""
    return Value(p.s, p.s.ldexp(p.raw, n.raw))


def fma(a: Value, b: Value | Number, c: Value | Number) -> Value:
    """a * b + c, rounded once."""
    return Value(a.s, a.s.fma(a.raw, a.lift(b).raw, a.lift(c).raw))


def where(condition: Value, a: Value | Number, b: Value | Number) -> Value:
    """a where the condition holds, else b; one of them is a Value."""
    like = a if isinstance(a, Value) else b
    assert isinstance(like, Value)
    return Value(like.s, like.s.select(condition.raw, like.lift(a).raw, like.lift(b).raw))


def rarely(condition: Value, slow: Callable[[], Value], fast: Value) -> Value:
    """where(condition, slow(), fast), and slow is evaluated only if some lane needs it."""
    return Value(fast.s, fast.s.rarely(condition.raw, lambda: slow().raw, fast.raw))


def at_least(x: Value, low: float) -> Value:
    """max(x, low); nan stays. One instruction where comparison and select fuse."""
    return where(x < low, low, x)


def at_most(x: Value, high: float) -> Value:
    """min(x, high); nan stays."""
    return where(x > high, high, x)


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Coefficients from the constant term up, by Horner's rule in fused steps."""
    result = x.lift(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, c)
    return result


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """The rounded sum and its exact error (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def fast_two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """`two_sum` for |a| >= |b| (Dekker), with fewer operations."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Value, b: Value) -> tuple[Value, Value]:
    """The rounded product and its exact error."""
    product = a * b
    return product, fma(a, b, -product)


def in_float64(formula: Callable[..., Value]) -> Callable[..., Value]:
    """A formula written for float64, which float32 takes by way of it: half the lanes, and 0.5 ulp without a care."""

    @wraps(formula)
    def either(*operands: Value) -> Value:
        if operands[0].dtype != float32:
            return formula(*operands)
        return formula(*(x.cast(float64) for x in operands)).cast(float32)

    return either
