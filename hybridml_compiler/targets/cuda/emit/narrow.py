"""Conversions of bfloat16 and float16, which a GPU has instructions for: a loop nest has them by their bits.

    bitcast(cast(select(x != x, ..., (bits(x) + 0x7fff + ...) >> 16), u16), bf16)  ->  cvt.rn.bf16.f32 of x

A rounding that is widened at once is one instruction: the upper half of a register is a float32 already. All of them
give the bits of the CPU, but for a nan's, which is the hardware's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .... import dtypes
from ....loops.builder import LoopBuilder
from ....loops.float_format import FORMATS
from ....loops.ir import Expr, Kernel, operands, statements
from ....loops.transcendental import TABLE
from ....ops.conversion import convert
from ....walk import postorder

HELPERS = {
    "to_bf16": """\
static __device__ __forceinline__ unsigned short to_bf16(float x) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
""",
    "to_f16": """\
static __device__ __forceinline__ unsigned short to_f16(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
""",
    "from_bf16": """\
static __device__ __forceinline__ float from_bf16(unsigned short bits) {
  unsigned int word;
  asm("mov.b32 %0, {%1, %2};" : "=r"(word) : "h"((unsigned short)0), "h"(bits));
  return __uint_as_float(word);
}
""",
    "from_f16": """\
static __device__ __forceinline__ float from_f16(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
""",
    "as_bf16": """\
static __device__ __forceinline__ float as_bf16(float x) {
  unsigned int bits;  // the number in the upper half, and zero
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f));
  return __uint_as_float(bits);
}
""",
}


# Functions by the names of shorter ones, with the same bits where bfloat16 numbers become such (functions.py).
SHORTER = {"erf": "erf_of_bf16"}


class Conversions:
    """The conversions in a kernel, each with what it converts."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.found: dict[Expr, Expr] = {}
        for expr in kernel.expressions:
            if expr.op == "bitcast" and (dtypes.is_narrow(expr.dtype) or expr.dtype is dtypes.float32):
                source = _converted(expr)
                if source is not None:
                    self.found[expr] = self.product_of(source) if expr.dtype is dtypes.bfloat16 else source

    def product_of(self, quotient: Expr) -> Expr:
        """A quotient of bfloat16 numbers that is rounded to one, by the reciprocal of a divisor that others share.

        Two such numbers' quotient is further from the middle of two others than float32's roundings are, or exactly
        there, where the product of subnormal numbers is exact. A divisor whose reciprocal is too large is scaled.
        """
        if quotient.op != "div" or any(self._kind(x) is not dtypes.bfloat16 for x in quotient.args):
            return quotient
        x, y = quotient.args
        if not _variables(y) < _variables(x):
            return quotient
        s, form = LoopBuilder(), FORMATS[dtypes.float32]
        scale = s.select(s.lt(s.abs(y), s.const(form.tiny, y.dtype)), s.const(2.0**64, y.dtype), s.const(1.0, y.dtype))
        return s.mul(s.mul(x, s.div(s.const(1.0, y.dtype), s.mul(y, scale))), scale)

    def shorter(self, expr: Expr) -> str:
        """The name of the function that gives the same bfloat16 number in fewer instructions; nothing where there is
        none."""
        source = self.found[expr]
        if expr.dtype is not dtypes.bfloat16 or source.op not in SHORTER:
            return ""
        return SHORTER[source.op] if self._kind(source.args[0]) is dtypes.bfloat16 else ""

    def _kind(self, expr: Expr) -> np.dtype:
        """The type of the number that a float32 was."""
        return self.found[expr].dtype if expr in self.found else expr.dtype

    def shared(self) -> set[Expr]:
        """Values that cost something, and vary with less than what needs them."""
        costly = {"div", "sqrt", "select", *TABLE}

        def costs(part: Expr) -> bool:
            if part.op == "load":
                return not part.args[1:]
            return part.dtype.kind == "f" and (part.op in costly or part in self.found)

        users = self.values()
        return {part for expr in users for part in self.args(expr) if part.depends < expr.depends and costs(part)}

    def args(self, expr: Expr) -> tuple[Expr, ...]:
        """The operands of an expression, of a conversion what it converts."""
        source = self.found.get(expr)
        return expr.args if source is None else (source,)

    def values(self) -> list[Expr]:
        """Every distinct expression, operands first, without the insides of conversions."""
        if not self.found:
            return self.kernel.expressions
        return postorder(self.roots(), self.args)

    def roots(self) -> list[Expr]:
        """The operands of all statements."""
        return [expr for stmt in statements(self.kernel.body) for expr in operands(stmt)]


def _variables(expr: Expr) -> set[Expr]:
    return {part for part in expr.depends if part.op == "var"}


def _converted(expr: Expr) -> Expr | None:
    """The value that a bitcast converts, where it is the last instruction of a conversion."""
    if dtypes.is_narrow(expr.dtype):
        source = _origin(expr, lambda e: e.dtype is dtypes.uint32 and e.args[0].dtype is dtypes.float32)
    else:
        source = _origin(expr, lambda e: e.dtype is dtypes.uint16 and dtypes.is_narrow(e.args[0].dtype))
    if source is None or not _same(convert(LoopBuilder(), source, source.dtype, expr.dtype), expr):
        return None
    return source


def _origin(expr: Expr, begins: Callable[[Expr], bool]) -> Expr | None:
    """The operand of the first bitcast that a conversion may begin with, going back from its end."""
    stack: list[Expr] = [*expr.args]
    for _ in range(24):  # more than the instructions of a conversion
        if not stack:
            break
        part = stack.pop()
        if part.op == "bitcast" and begins(part):
            return part.args[0]
        stack += part.args
    return None


def _same(a: Expr, b: Expr) -> bool:
    """Whether two expressions of different builders are one computation."""
    pairs: list[tuple[Expr, Expr]] = [(a, b)]
    seen = set[tuple[Expr, Expr]]()
    while pairs:
        pair = x, y = pairs.pop()
        if x is y or pair in seen:
            continue
        if x.op != y.op or x.dtype is not y.dtype or x.attr != y.attr or len(x.args) != len(y.args):
            return False
        seen.add(pair)
        pairs += zip(x.args, y.args, strict=True)
    return True
