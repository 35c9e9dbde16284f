"""Complex arithmetic on vectors of real and imaginary parts, and transforms of a few points in registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...spec import CpuSpec
from .. import ir
from ..contraction.vectors import Vectors
from ..types import constant

Complex = tuple[Any, Any]  # vectors of real and of imaginary parts


class Arithmetic(Vectors):
    """Vectors with complex arithmetic. Multiply-adds are rounded once where the CPU has them."""

    def __init__(self, b: ir.IRBuilder, dtype: np.dtype, lanes: int, cpu: CpuSpec) -> None:
        super().__init__(b, dtype, lanes)
        self.fused = cpu.registers > 0

    def number(self, value: float) -> Any:
        return constant(value, self.dtype, self.lanes)

    def multiply_add(self, x: Any, y: Any, z: Any) -> Any:
        """The product x * y added to z."""
        return self.fma(x, y, z) if self.fused else self.b.fadd(z, self.b.fmul(x, y))

    def multiply_subtract(self, x: Any, y: Any, z: Any) -> Any:
        """The product x * y taken from z."""
        return self.fma(self.b.fneg(x), y, z) if self.fused else self.b.fsub(z, self.b.fmul(x, y))

    def plus(self, x: Complex, y: Complex) -> Complex:
        return self.b.fadd(x[0], y[0]), self.b.fadd(x[1], y[1])

    def minus(self, x: Complex, y: Complex) -> Complex:
        return self.b.fsub(x[0], y[0]), self.b.fsub(x[1], y[1])

    def plus_i(self, x: Complex, y: Complex) -> Complex:
        """The first plus i times the second."""
        return self.b.fsub(x[0], y[1]), self.b.fadd(x[1], y[0])

    def minus_i(self, x: Complex, y: Complex) -> Complex:
        """The first minus i times the second."""
        return self.b.fadd(x[0], y[1]), self.b.fsub(x[1], y[0])

    def times(self, x: Complex, w: Complex) -> Complex:
        real = self.multiply_subtract(x[1], w[1], self.b.fmul(x[0], w[0]))
        return real, self.multiply_add(x[0], w[1], self.b.fmul(x[1], w[0]))

    def scaled(self, x: Complex, by: Any) -> Complex:
        return self.b.fmul(x[0], by), self.b.fmul(x[1], by)


def butterfly(v: Arithmetic, x: Sequence[Complex]) -> list[Complex]:
    """The transform of as many points: sum over k of x[k] exp(-2 pi i j k / n) for each j."""
    n = len(x)
    if n == 1:
        return list(x)
    if n == 2:
        return [v.plus(*x), v.minus(*x)]
    if n == 4:
        a, b, c, d = v.plus(x[0], x[2]), v.minus(x[0], x[2]), v.plus(x[1], x[3]), v.minus(x[1], x[3])
        return [v.plus(a, c), v.minus_i(b, d), v.minus(a, c), v.plus_i(b, d)]
    return _eight(v, x) if n == 8 else _odd(v, x)


def _eight(v: Arithmetic, x: Sequence[Complex]) -> list[Complex]:
    even, odd = butterfly(v, x[::2]), butterfly(v, x[1::2])
    root = v.number(math.sqrt(0.5))
    found: list[Any] = [None] * 8
    found[0], found[4] = v.plus(even[0], odd[0]), v.minus(even[0], odd[0])
    found[2], found[6] = v.minus_i(even[2], odd[2]), v.plus_i(even[2], odd[2])
    for k, (real, imag) in ((1, v.minus_i(odd[1], odd[1])), (3, v.plus_i(odd[3], odd[3]))):
        # (1 - i) y is y - i y; -(1 + i) y is -(y + i y)
        add, subtract = v.multiply_add, v.multiply_subtract
        first, second = (add, subtract) if k == 1 else (subtract, add)
        found[k] = first(real, root, even[k][0]), first(imag, root, even[k][1])
        found[k + 4] = second(real, root, even[k][0]), second(imag, root, even[k][1])
    return found


def _odd(v: Arithmetic, x: Sequence[Complex]) -> list[Complex]:
    """A prime number of points: sums and differences of pairs have real factors."""
    n, half = len(x), len(x) // 2
    sums = [v.plus(x[k], x[n - k]) for k in range(1, half + 1)]
    differences = [v.minus(x[k], x[n - k]) for k in range(1, half + 1)]
    first = x[0]
    for pair in sums:
        first = v.plus(first, pair)
    found: list[Any] = [first] + [None] * (n - 1)
    for j in range(1, half + 1):
        near, far = x[0], None
        for k, (pair, difference) in enumerate(zip(sums, differences, strict=True), 1):
            angle = 2 * math.pi * (j * k % n) / n
            cosine, sine = v.number(math.cos(angle)), v.number(math.sin(angle))
            near = tuple(v.multiply_add(a, cosine, c) for a, c in zip(pair, near, strict=True))
            if far is None:
                far = v.scaled(difference, sine)
            else:
                far = tuple(v.multiply_add(a, sine, c) for a, c in zip(difference, far, strict=True))
        assert far is not None
        found[j], found[n - j] = v.minus_i(near, far), v.plus_i(near, far)
    return found
