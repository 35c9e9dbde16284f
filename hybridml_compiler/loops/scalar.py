"""The scalar instruction set: one table, the `Builder` protocol that rows and polynomials are written against, and the
NumPy builder that is the living definition of every instruction.

All float arithmetic is IEEE 754 round to nearest, without contraction and without reassociation; `fma` rounds once and
appears only where it is written. Every backend that keeps to the table is therefore bit-equal to `NumpyBuilder`.

A builder's values are its own affair (arrays here, SSA names in a code generator); they know their dtype through
`s.dtype(v)`. Operands of an instruction have one dtype: there is no implicit promotion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from ..dtypes import bool_, canonical, complex_of, float32, real_of
from ..errors import DTypeError
from ..record import record

Number = bool | int | float
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@record
class Instruction:
    """One row of the table. `kinds`: dtype kinds (b, i, u, f, c) of the operands; `result`: how the result dtype
    follows: `same` (as the operands), `bool`, `asked` (the dtype given), `branch` (as the second operand), `part` and
    `pair` (the real dtype of a complex one, and back)."""

    name: str
    arity: int
    kinds: str
    result: str
    meaning: str


ISA: dict[str, Instruction] = {
    row.name: row
    for row in (
        Instruction("const", 0, "biuf", "asked", "the number, rounded to dtype"),
        Instruction("add", 2, "iuf", "same", "a + b; integers wrap"),
        Instruction("sub", 2, "iuf", "same", "a - b; integers wrap"),
        Instruction("mul", 2, "iuf", "same", "a * b; integers wrap"),
        Instruction("div", 2, "f", "same", "a / b"),
        Instruction("fma", 3, "f", "same", "a * b + c, rounded once"),
        Instruction("ldexp", 2, "f", "same", "a * 2^b rounded once, for whole b; a * 2^(b / 2) is normal or a 0"),
        Instruction("neg", 1, "iuf", "same", "-a (flips the sign bit of floats, wraps integers)"),
        Instruction("abs", 1, "iuf", "same", "|a| (clears the sign bit of floats; |INT_MIN| wraps to INT_MIN)"),
        Instruction("floordiv", 2, "iuf", "same", "floor(a / b) as Python; integers: x // 0 = 0, INT_MIN // -1 wraps"),
        Instruction("mod", 2, "iuf", "same", "a - floordiv(a, b) * b with the sign of b; integers: x % 0 = 0"),
        Instruction("minimum", 2, "biuf", "same", "a if a < b or a is nan, else b (nan if either is; of two zeros, b)"),
        Instruction("maximum", 2, "biuf", "same", "a if a > b or a is nan, else b (nan if either is; of two zeros, b)"),
        Instruction("sqrt", 1, "f", "same", "square root, exactly rounded"),
        Instruction("floor", 1, "f", "same", "largest integer <= a"),
        Instruction("ceil", 1, "f", "same", "smallest integer >= a"),
        Instruction("trunc", 1, "f", "same", "a without its fraction"),
        Instruction("rint", 1, "f", "same", "nearest integer, ties to even"),
        Instruction("copysign", 2, "f", "same", "|a| with the sign bit of b"),
        Instruction("eq", 2, "biuf", "bool", "a == b; false if either is nan"),
        Instruction("ne", 2, "biuf", "bool", "a != b; true if either is nan"),
        Instruction("lt", 2, "biuf", "bool", "a < b; false if either is nan"),
        Instruction("le", 2, "biuf", "bool", "a <= b; false if either is nan"),
        Instruction("gt", 2, "biuf", "bool", "a > b; false if either is nan"),
        Instruction("ge", 2, "biuf", "bool", "a >= b; false if either is nan"),
        Instruction("and_", 2, "biu", "same", "bitwise and"),
        Instruction("or_", 2, "biu", "same", "bitwise or"),
        Instruction("xor", 2, "biu", "same", "bitwise exclusive or"),
        Instruction("not_", 1, "biu", "same", "bitwise complement"),
        Instruction("shl", 2, "iu", "same", "a << b; 0 when b is negative or not less than the width"),
        Instruction("shr", 2, "iu", "same", "a >> b, keeping the sign; over-wide b: 0, or -1 for negative a"),
        Instruction("select", 3, "biufV", "branch", "b where the bool a holds, else c"),
        Instruction("cast", 1, "biuf", "asked", "the value in dtype; float to int truncates; out of range: any value"),
        Instruction("bitcast", 1, "iufV", "asked", "the bits read as dtype, which has the same width"),
        Instruction("table", 1, "iu", "asked", "the index-th of constant values; the index must be in range"),
        Instruction("real", 1, "c", "part", "the real part of a complex number"),
        Instruction("imag", 1, "c", "part", "its imaginary part"),
        Instruction("pair", 2, "f", "pair", "the complex number with the real part a and the imaginary part b"),
        Instruction("rarely", 3, "biufV", "branch", "select(a, b(), c); b is evaluated only if some lane needs it"),
    )
}
# Beside these there is a loop: while go: go, carries = body(carries, given). Each lane takes as many steps as its own
# `go` says, and its carries stay as they are from then on.


# The instruction by which a reduction or a scan combines two values.
COMBINE = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum", "and": "and_", "or": "or_"}


def result_dtype(name: str, operands: tuple[np.dtype, ...], dtype: np.dtype | None = None) -> np.dtype:
    """The dtype of instruction `name` on operands of these dtypes; `dtype` is the one asked for (const, cast, ...).

    Raises DTypeError when the instruction does not take such operands.

    >>> result_dtype("lt", (float32, float32)).name
    'bool'
    """
    row = ISA[name]
    if len(operands) != row.arity:
        raise DTypeError(f"{name} takes {row.arity} operands, got {len(operands)}")
    values = operands[1:] if row.result == "branch" else operands
    if row.result == "branch" and operands[0] != bool_:
        raise DTypeError(f"{name}: the condition must be bool, got {operands[0].name}")
    if len(set(values)) > 1 or any(v.kind not in row.kinds for v in values):
        got = ", ".join(v.name for v in values)
        raise DTypeError(f"{name} takes operands of one dtype of kind {'/'.join(row.kinds)}, got {got}; cast first")
    if row.result == "asked":
        if dtype is None:
            raise DTypeError(f"{name} needs the result dtype")
        if name == "bitcast" and dtype.itemsize != values[0].itemsize:
            raise DTypeError(f"bitcast needs equal widths, got {values[0].name} to {dtype.name}")
        return dtype
    if row.result in ("part", "pair"):
        return (real_of if row.result == "part" else complex_of)(values[0])
    return bool_ if row.result == "bool" else values[0]


V = TypeVar("V")


class Builder(Protocol[V]):
    """The interface of a backend: one method per instruction of `ISA`, which has the meanings."""

    def dtype(self, v: V) -> np.dtype: ...
    def const(self, value: Number, dtype: np.dtype) -> V: ...
    def add(self, a: V, b: V) -> V: ...
    def sub(self, a: V, b: V) -> V: ...
    def mul(self, a: V, b: V) -> V: ...
    def div(self, a: V, b: V) -> V: ...
    def fma(self, a: V, b: V, c: V) -> V: ...
    def ldexp(self, a: V, b: V) -> V: ...
    def neg(self, a: V) -> V: ...
    def abs(self, a: V) -> V: ...
    def floordiv(self, a: V, b: V) -> V: ...
    def mod(self, a: V, b: V) -> V: ...
    def minimum(self, a: V, b: V) -> V: ...
    def maximum(self, a: V, b: V) -> V: ...
    def sqrt(self, a: V) -> V: ...
    def floor(self, a: V) -> V: ...
    def ceil(self, a: V) -> V: ...
    def trunc(self, a: V) -> V: ...
    def rint(self, a: V) -> V: ...
    def copysign(self, a: V, b: V) -> V: ...
    def eq(self, a: V, b: V) -> V: ...
    def ne(self, a: V, b: V) -> V: ...
    def lt(self, a: V, b: V) -> V: ...
    def le(self, a: V, b: V) -> V: ...
    def gt(self, a: V, b: V) -> V: ...
    def ge(self, a: V, b: V) -> V: ...
    def and_(self, a: V, b: V) -> V: ...
    def or_(self, a: V, b: V) -> V: ...
    def xor(self, a: V, b: V) -> V: ...
    def not_(self, a: V) -> V: ...
    def shl(self, a: V, b: V) -> V: ...
    def shr(self, a: V, b: V) -> V: ...
    def select(self, c: V, a: V, b: V) -> V: ...
    def cast(self, x: V, dtype: np.dtype) -> V: ...
    def bitcast(self, x: V, dtype: np.dtype) -> V: ...
    def table(self, values: tuple[Number, ...], index: V, dtype: np.dtype) -> V: ...
    def real(self, x: V) -> V: ...
    def imag(self, x: V) -> V: ...
    def pair(self, a: V, b: V) -> V: ...
    def rarely(self, cond: V, slow: Callable[[], V], fast: V) -> V: ...
    def while_(self, go: V, carries: Sequence[V], given: Sequence[V], body: Callable[..., Sequence[V]]) -> list[V]: ...


def _instruction(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A method that computes its operands so. Lanes that a select drops may overflow or be invalid: the flags of NumPy
    mean nothing here."""

    def method(_: NumpyBuilder, *operands: Any) -> Any:
        with np.errstate(all="ignore"):
            return compute(*operands)

    return method


class NumpyBuilder:
    """Every instruction on NumPy arrays (or scalars), with broadcasting. The definition that backends are tested by.

    >>> s = NumpyBuilder()
    >>> x = np.array([1.0, 4.0], np.float32)
    >>> s.add(s.sqrt(x), s.const(0.5, s.dtype(x)))
    array([1.5, 2.5], dtype=float32)
    """

    def dtype(self, v: Array) -> np.dtype:
        return canonical(v.dtype)

    const = _instruction(np.array)
    add, sub, mul, div = map(_instruction, (np.add, np.subtract, np.multiply, np.divide))
    fma = _instruction(lambda a, b, c: fma32(a, b, c) if a.dtype == float32 else fma64(a, b, c))
    ldexp = _instruction(lambda a, b: np.ldexp(a, np.maximum(b, -10_000).astype(np.int32)))
    neg, abs = map(_instruction, (np.negative, np.absolute))
    floordiv, mod = map(_instruction, (np.floor_divide, np.mod))
    minimum = _instruction(lambda a, b: np.where((a < b) | (a != a), a, b))
    maximum = _instruction(lambda a, b: np.where((a > b) | (a != a), a, b))
    sqrt, floor, ceil, trunc, rint = map(_instruction, (np.sqrt, np.floor, np.ceil, np.trunc, np.rint))
    copysign = _instruction(np.copysign)
    eq, ne, lt = map(_instruction, (np.equal, np.not_equal, np.less))
    le, gt, ge = map(_instruction, (np.less_equal, np.greater, np.greater_equal))
    and_, or_, xor = map(_instruction, (np.bitwise_and, np.bitwise_or, np.bitwise_xor))
    not_, shl, shr = map(_instruction, (np.bitwise_not, np.left_shift, np.right_shift))
    select = _instruction(np.where)
    cast = _instruction(lambda x, dtype: x.astype(dtype))
    bitcast = _instruction(lambda x, dtype: x.view(dtype))

    real, imag = _instruction(np.real), _instruction(np.imag)

    def pair(self, a: Array, b: Array) -> Array:
        found = np.empty(np.broadcast_shapes(np.shape(a), np.shape(b)), complex_of(a.dtype))
        found.real, found.imag = a, b
        return found

    def table(self, values: tuple[Number, ...], index: Array, dtype: np.dtype) -> Array:
        if np.any((index < 0) | (index >= len(values))):
            raise IndexError(f"table of {len(values)} values: index {np.min(index)}..{np.max(index)}; mask the index")
        return np.array(values, dtype)[index]

    def rarely(self, cond: Array, slow: Callable[[], Array], fast: Array) -> Array:
        """Both sides are pure, so where no lane asks for `slow` it need not run; otherwise it runs on all lanes."""
        return np.where(cond, slow(), fast) if np.any(cond) else np.where(cond, fast, fast)

    def while_(
        self, go: Array, carries: Sequence[Array], given: Sequence[Array], body: Callable[..., Sequence[Array]]
    ) -> list[Array]:
        """`body(*carries, *given)` returns whether a lane goes on, and its next carries. It is given the lanes that
        do, side by side, and no others: they might never end."""
        shape = np.broadcast_shapes(*map(np.shape, (go, *carries, *given)))
        found = [np.array(np.broadcast_to(x, shape)).reshape(-1) for x in carries]
        at = np.flatnonzero(np.broadcast_to(go, shape))
        now = [x[at] for x in found]
        fixed = [np.broadcast_to(x, shape).reshape(-1)[at] for x in given]
        while at.size:
            goes, *now = [np.broadcast_to(x, at.shape) for x in body(*now, *fixed)]
            if not goes.all():
                for whole, part in zip(found, now, strict=True):
                    whole[at] = part
                at, now, fixed = at[goes], [x[goes] for x in now], [x[goes] for x in fixed]
        return [x.reshape(shape) for x in found]


def _nudge_to_odd(value: Array, error: Array) -> Array:
    """Round to odd: `value`, a float64 sum rounded to nearest, moved a unit towards its exact `error` if it is even."""
    bits = value.view(np.int64)
    step = np.where((error > 0) == (value > 0), 1, -1)
    inexact_even = (error != 0) & (bits & 1 == 0) & np.isfinite(value)
    return np.where(inexact_even, bits + step, bits).view(np.float64)


def _is_midpoint(total: Array) -> bool:
    """Whether a float64 may be half-way between two float32: bit 28 is the last one that is set; below the normal
    numbers, a higher one. Two ufuncs settle most calls."""
    bits = total.view(np.int64)
    ends = bits & 0x0FFFFFFF == 0
    if not np.any(ends):
        return False
    return bool(np.any(ends & ((bits & 0x10000000 != 0) | ((np.abs(total) < 2.0**-126) & (total != 0)))))


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float32, rounded once. The product is exact in float64; the sum, rounded to odd in float64, rounds
    to float32 as the exact value would (Boldo, Melquiond, "Emulation of FMA and correctly rounded sums", 2008)."""
    product = np.multiply(a, b, dtype=np.float64)
    total = np.add(product, c, dtype=np.float64)
    if _is_midpoint(total):  # only such a sum can round twice
        back = total - product
        total = _nudge_to_odd(total, (product - (total - back)) + (c - back))
    return np.asarray(total).astype(np.float32)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Sum and exact error (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _split(a: Array) -> tuple[Array, Array]:
    """High and low 26 bits (Veltkamp)."""
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float64, rounded once (Boldo and Melquiond; exact product by Dekker).

    The error-free steps hold while nothing overflows or underflows on the way; the few lanes near the ends of the
    exponent range are computed with fractions, so the result is exactly rounded everywhere."""
    a, b, c = np.broadcast_arrays(np.asarray(a), np.asarray(b), np.asarray(c))
    size = np.maximum(np.abs(a), np.abs(b))
    plain = np.where(np.isfinite(size) & ~np.isfinite(c), c, a * b + c)  # a product that overflows is still finite
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    product = a * b
    product_error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    low, lowest = _two_sum(c, product_error)
    high, middle = _two_sum(product, low)
    tail, tail_error = _two_sum(lowest, middle)
    result = high + _nudge_to_odd(tail, tail_error)

    limit = 2.0**990
    finite = np.isfinite(size) & np.isfinite(c)
    tiny = (np.abs(product) < 2.0**-960) & (np.abs(c) < 2.0**-800) & (a != 0) & (b != 0)
    edge = finite & (tiny | (size > limit) | (np.abs(product) > limit) | (np.abs(c) > limit))
    # plain has the sign of an exact zero, and every inf and nan
    result = np.where(finite & (result != 0), result, plain)
    if np.any(edge):
        result[edge] = [_fma_exact(*t) for t in zip(a[edge].tolist(), b[edge].tolist(), c[edge].tolist(), strict=True)]
    return result


def _fma_exact(a: float, b: float, c: float) -> float:
    from fractions import Fraction  # 2 ms, for numbers that a few calls have

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        rounded = float(exact)  # int / int is correctly rounded, subnormals included
    except OverflowError:
        rounded = float("inf")
    return float(np.copysign(rounded, 1.0 if exact > 0 else -1.0))
