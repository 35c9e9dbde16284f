"""The passes of transforms side by side in the lanes of vectors: Stockham's algorithm, which needs no reordering.

    y[q + s (r p + j)] = w^(p j) sum over k of x[q + s (p + m k)] exp(-2 pi i j k / r)    p < m, q < s, n = r m

turns n s points into r times as many transforms of m points each (Stockham, 1966; Van Loan, "Computational frameworks
for the fast Fourier transform", 1992, section 1.7). Points have a step of their own in memory: pairs of vectors in
scratch memory, or columns of an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....schedule.kernels.roots import roots
from .. import ir
from ..contraction.loops import i64, offset, repeat
from .butterflies import Arithmetic, butterfly
from .points import Points, Scratch, factor_at, pairs, stored


def run_passes(
    v: Arithmetic, radices: Sequence[int], source: Points, result: Points, scratch: Sequence[Any], name: str
) -> None:
    """All passes: from the source to the first scratch memory, to the second, to the first, ..., to the result."""
    s, n = 1, int(np.prod(radices))
    for number, r in enumerate(radices):
        m = n // r
        last = number == len(radices) - 1
        target: Points = result if last else Scratch(v, scratch[number % 2])
        table = _table(v.b.module, v.dtype, m, r, f"{name}_{number}") if m > 1 else None
        _pass(v, source, target, table, r, m, s)
        source, s, n = target, s * r, m


def _pass(v: Arithmetic, source: Points, target: Points, table: Any, r: int, m: int, s: int) -> None:
    b = v.b

    def group(p: Any) -> None:
        factors = None if table is None else v.at(table, (p, 2 * (r - 1)))

        def points(q: Any) -> None:
            start = source.at(offset(b, (q, 1), (p, s)))
            found = butterfly(v, [source.load(start, s * m * k) for k in range(r)])
            if factors is not None:
                found[1:] = [v.times(y, factor_at(v, factors, j)) for j, y in enumerate(found[1:])]
            end = target.at(offset(b, (q, 1), (p, s * r)))
            for j, y in enumerate(found):
                target.store(y, end, s * j)

        repeat(b, i64(0), i64(s), 1, points)

    repeat(b, i64(0), i64(m), 1, group)


def _table(module: ir.Module, dtype: np.dtype, m: int, r: int, name: str) -> Any:
    """w^(p j) for j from 1, pairs of real and imaginary parts."""
    found = roots(np.outer(np.arange(m), np.arange(1, r)), m * r)
    return stored(module, name, pairs(found), dtype)
