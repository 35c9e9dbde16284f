"""Slices and rows of NumPy arrays of ints, bools and complex numbers, whose places steps of a loop decide."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support import random_steps
from tests.support.examples import examples
from tests.support.loops import both, data, is_loop

N = 30


def reversed_parts(x: Any) -> Any:
    order = np.arange(N)
    for i in range(1, N - 1):
        order[i : N - 1] = order[i : N - 1][::-1].copy()
    return order, x[0]


def at_ends_of_data(x: Any) -> Any:
    order = np.arange(N)
    for k in range(N):
        i, j = int(x[k] * 10) + 1, int(x[N - 1 - k] * 10) + 15
        if x[k] > 0.2:
            order[i : j + 1] = order[i : j + 1][::-1].copy()
    return order


def shifted(x: Any) -> Any:
    best = np.zeros((N, N), dtype=np.int64)
    for i in range(1, N):
        best[i] = best[i - 1] + i
        best[i, i:] = np.maximum(best[i - 1, i:], best[i - 1, : N - i] + 3)
    return best, x[0]


def bools(x: Any) -> Any:
    flags, sums = np.ones(N, bool), np.zeros(N, np.int64)
    for i in range(1, N):
        flags[:i] ^= flags[N - i :]
        sums[i] = flags[:i].sum() + (x[i] > 0.5)
        flags[i:] = ~flags[i:]
    return flags, sums


def complex_rows(x: Any) -> Any:
    z = np.zeros((N, 3), complex)
    for i in range(1, N):
        z[i] = z[i - 1] * 1j + x[i]
        z[i, :2] += 1.0
        z[i] *= 2
    return z


def views(x: Any) -> Any:
    grid, found = np.zeros((N, 4), np.int32), np.zeros(N)
    for i in range(1, N):
        row = grid[i]
        row[1] = 3
        row += grid[i - 1] + np.int32(1)
        row[2:].fill(7)
        kept, part = row.copy(), row[1:]
        row[0] -= 1
        found[i] = kept[0] + part.max() + row[2:].sum() / 2 + x[i]
        grid[i, 3] = row.argmax() + len(row) + row.shape[0] + row.ndim
    return grid, found


def dtypes(x: Any) -> Any:
    bytes_, found = np.arange(N * 4, dtype=np.uint8).reshape(N, 4), np.zeros((N, 6))
    for i in range(N):
        row = bytes_[i]
        twice = row + row  # wraps
        found[i, 0] = twice.sum() + x[i]
        found[i, 1] = (row / 2).sum()
        found[i, 2] = (row == 3).sum() + (row > 100).any()
        found[i, 3] = np.where(row > 50, row, twice).max()
        found[i, 4] = row.astype(np.int64).min() - 300
        found[i, 5] = np.sum(row * row, dtype=np.int64)
    return found


def gathered(x: Any) -> Any:
    table, places = np.arange(N * 3).reshape(N, 3) % 7, np.array([2, 0])
    out = np.zeros((N, 2), np.int64)
    for i in range(1, N):
        row = table[i]
        row[1] += table[i - 1][row[0] % 3]
        out[i] = row[places] + (x[i] > 0.5)
    return out, table


PROGRAMS = [
    reversed_parts, at_ends_of_data, shifted, bools, complex_rows, views, dtypes, gathered,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_parts_are_those_of_numpy_by_one_step(program: Callable[[Any], Any]) -> None:
    assert is_loop(both(program, data(N)))


def sorted_rows(x: Any) -> Any:
    grid = np.arange(N * 3).reshape(N, 3)[:, ::-1].copy()
    for i in range(1, N):
        grid[i].sort()
        grid[i] += grid[i - 1] * (x[i] > 0.5)
    return grid


def kept_part(x: Any) -> Any:
    grid, rows = np.zeros((N, 3), np.int64), []
    for i in range(N):
        row = grid[i]
        row[0] = x[i] * 10
        rows.append(row)
    grid += 1
    return rows, row


def read_after(x: Any) -> Any:
    grid = np.zeros((N, 3), np.int64)
    for i in range(N):
        row = grid[i]
        row[0] = x[i] * 10
    row[1] = 5
    return grid, row


def masks(x: Any) -> Any:
    grid = np.arange(N * 3).reshape(N, 3)
    for i in range(1, N):
        row = grid[i]
        row[row > 20] = 0
        row += x[i] > 0.5
    return grid


def transposed(x: Any) -> Any:
    grid, out = np.arange(N * 6).reshape(N, 2, 3), np.zeros((3, 2), np.int64)
    for i in range(N):
        out += grid[i].T * (x[i] > 0.5)
    return out


@pytest.mark.parametrize("program", [sorted_rows, kept_part, read_after, masks, transposed])
def test_what_needs_memory_of_numpys_is_as_in_eager_code(program: Callable[[Any], Any]) -> None:
    both(program, data(N))


def with_dtypes(x: Any) -> Any:
    counts, grid = np.zeros(12, int), np.zeros((N, len(x) + 2), dtype=int)
    halves, numbers, z = np.full(3, 0.5, float), np.arange(5).astype(float), hm.zeros((2,), dtype=float)
    for i in range(N):
        counts[int(x[i] * 10)] += 1
        grid[i, int(x[i] * 10)] = i
    return counts, grid, halves, numbers, z, float(halves[0])


def with_other_uses(x: Any) -> Any:
    counts = np.zeros(12, int)
    for i in range(N):
        counts[int(x[i] * 10)] += 1
    return counts, isinstance(3, int), [*map(int, "12")]


def test_int_is_a_dtype_and_a_function() -> None:
    assert is_loop(both(with_dtypes, data(N)))
    both(with_other_uses, data(N))


@examples(10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 20))
def test_random_programs(seed: int) -> None:
    source, program = random_steps.program_of(seed)
    traced = hm.trace(program)
    for k in range(2):
        r = np.random.default_rng(seed + k)
        given = hm.asarray(r.random(random_steps.N)), hm.asarray(r.integers(0, random_steps.N, random_steps.N))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            results = [(np.asarray(e), np.asarray(f)) for e, f in zip(program(*given), traced(*given), strict=True)]
        for expected, found in results:
            assert expected.dtype == found.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12, err_msg=source)
