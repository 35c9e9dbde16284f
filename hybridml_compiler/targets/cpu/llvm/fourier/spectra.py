"""The step between the transform of n complex numbers and half the spectrum of 2 n real ones, which are their parts.

Of c = x[k] + conj x[n - k] and d = x[k] - conj x[n - k] the result is y[k] = e c + f d, and the conjugate of e c - f d
at n - k. To half a spectrum e is 1/2 and f is -i/2 w^k; from it they are 1 and i w^-k, w = exp(-2 pi i / 2n).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .....schedule.kernels import transform as algorithm
from .....schedule.kernels.roots import roots
from .. import ir
from ..contraction.loops import i64, repeat
from .butterflies import Arithmetic, Complex
from .points import Points, Scratch, factor_at, join, pairs, split, stored


class HalfSpectra:
    """Emits that step for rows of n points, or for points side by side; `to_real`: from half a spectrum."""

    def __init__(self, v: Arithmetic, points: int, to_real: bool) -> None:
        self.v, self.b, self.n, self.to_real = v, v.b, points, to_real

    @property
    def blocks(self) -> int:
        """The number of parts that a row has."""
        return algorithm.blocks("pairs", self.n, 1, self.v.lanes)

    def of_row(self, x: Any, y: Any) -> None:
        """All frequencies of a row."""
        self.of_blocks(x, y, i64(0), i64(self.blocks))

    def of_blocks(self, x: Any, y: Any, lo: Any, hi: Any) -> None:
        """Blocks of frequencies k from 1 and n - k beside them; the first block does frequency 0 as well."""
        b, v, w, n = self.b, self.v, self.v.lanes, self.n
        with b.if_then(b.icmp_signed("==", lo, i64(0))):
            self._frequency_zero(x, y)
        near = roots(np.arange(w), 2 * n)
        near = near.conj() if self.to_real else near
        lanes = stored(b.module, "lanes", np.stack([near.real, near.imag]), v.dtype)
        starts = stored(b.module, "starts", pairs(self._factors(1 + w * np.arange(self.blocks))), v.dtype)
        lane = Scratch(v, lanes).load(lanes, 0)

        def block(k: Any) -> None:
            first = b.add(b.mul(k, i64(w)), i64(1))
            live = b.mul(b.sub(i64(n // 2 + 1), first), i64(2))
            forward = v.masks(live, 2)
            dead = b.sub(i64(2 * w), live)
            backward = [b.not_(v.mask(dead, j)) for j in (0, 1)]
            other = b.sub(i64(n - w + 1), first)
            a = split(v, *v.row(v.at(x, (first, 2)), forward))
            c = split(v, *v.row(v.at(x, (other, 2)), backward), backward=True)
            low, high = self._pair(a, c, v.times(lane, factor_at(v, v.at(starts, (k, 2)), 0)))
            for value, at, masks, back in ((high, other, backward, True), (low, first, forward, False)):
                for j, (vector, mask) in enumerate(zip(join(v, *value, backward=back), masks, strict=True)):
                    v.store(vector, v.element(v.at(y, (at, 2)), i64(j * w)), mask)

        repeat(b, lo, hi, 1, block)

    def beside(self, x: Points, y: Points) -> None:
        """All frequencies of points side by side; the points of an inverse transform have their parts swapped."""
        b, v, n = self.b, self.v, self.n
        first, last = x.at(i64(0)), x.at(i64(n))
        a = x.load(first, 0)[0]
        c = x.load(last, 0)[0] if self.to_real else x.load(first, 0)[1]
        total, difference = b.fadd(a, c), b.fsub(a, c)
        if self.to_real:
            y.store((difference, total), y.at(i64(0)), 0)
        else:
            y.store((total, v.zero), y.at(i64(0)), 0)
            y.store((difference, v.zero), y.at(i64(n)), 0)
        factors = stored(b.module, "factors", pairs(self._factors(np.arange(n // 2 + 1))), v.dtype)

        def pair(k: Any) -> None:
            other = b.sub(i64(n), k)
            a, c = x.load(x.at(k), 0), x.load(x.at(other), 0)
            low, high = self._pair(a, c, factor_at(v, v.at(factors, (k, 2)), 0))
            y.store(low[::-1] if self.to_real else low, y.at(k), 0)
            y.store(high[::-1] if self.to_real else high, y.at(other), 0)

        repeat(b, i64(1), i64(n // 2 + 1), 1, pair)

    def _factors(self, k: np.ndarray) -> np.ndarray:
        """The factors f of frequencies k."""
        found = roots(k, 2 * self.n) * -0.5j
        return 2 * found.conj() if self.to_real else found

    def _pair(self, a: Complex, c: Complex, factor: Complex) -> tuple[Complex, Complex]:
        """The results at a frequency k and at n - k."""
        b, v = self.b, self.v
        even = b.fadd(a[0], c[0]), b.fsub(a[1], c[1])
        odd = b.fsub(a[0], c[0]), b.fadd(a[1], c[1])
        turned = v.times(odd, factor)
        if not self.to_real:
            even = v.scaled(even, v.number(0.5))
        high = v.minus(even, turned)
        return v.plus(even, turned), (high[0], b.fneg(high[1]))

    def _frequency_zero(self, x: Any, y: Any) -> None:
        b, v, n = self.b, self.v, self.n
        one, size = v.scalar_type, v.dtype.itemsize
        first = v.scalar(x)
        second = v.scalar(v.element(x, i64(2 * n if self.to_real else 1)))
        total, difference = b.fadd(first, second), b.fsub(first, second)
        b.store(total, y, align=size)
        if self.to_real:
            b.store(difference, v.element(y, i64(1)), align=size)
            return
        zero = ir.Literal(one, "0.0")
        b.store(zero, v.element(y, i64(1)), align=size)
        b.store(difference, v.element(y, i64(2 * n)), align=size)
        b.store(zero, v.element(y, i64(2 * n + 1)), align=size)
