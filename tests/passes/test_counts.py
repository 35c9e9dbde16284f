"""Counts of a loop go on as ints, with the values of the loop; other numbers stay floats. Counts that nothing else
needs are sums of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

N = 40


def _values() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(N)


def positions(v: Any) -> Any:
    out, count, last = np.zeros(N), 0, -1
    for i in range(N):
        if v[i] > 0:
            out[count] = v[i]
            count += 1
            last = i
    return out, count, last


def from_the_end(v: Any) -> Any:
    out, count = np.zeros(N), 0
    for i in range(N):
        if v[i] > 0:
            out[-1 - count] += 1.0
            count += 1
        elif v[i] < -1 and count > 1:
            count -= 2
    return out, count


def reset(v: Any) -> Any:
    run, most = 0, 0
    for i in range(N):
        if v[i] > 0:
            run += 1
        else:
            run = 0
        if run > most:
            most = run
    return run, most


def merged(v: Any) -> Any:
    out, i, j = np.zeros(N), 0, N // 2
    while i < N // 2 and j < N:
        if v[i] < v[j]:
            out[i + j - N // 2] = v[i]
            i += 1
        else:
            out[i + j - N // 2] = v[j]
            j += 1
    return out, i, j


def nested(v: Any) -> Any:
    pairs, rows = 0, 0
    for i in range(N):
        for j in range(N):
            if v[i] > v[j]:
                pairs += 1
            if v[i] * v[j] < 0:
                v[j] = v[j] * 0.5
        if v[i] > 0:
            rows += 3
    return pairs, rows, v


def shifted(v: Any) -> Any:
    total = 0.0
    for i in range(1, N):
        j = i
        while j > 0 and v[j - 1] > v[j]:
            v[j] = v[j - 1] * 0.5
            j -= 1
        if v[i] > 0.5 and total > 2.0:
            v[0] = v[i]
        total = total * 0.5 + v[i]
    return total, v


def test_an_inner_loop_has_ints_that_were_ints() -> None:
    found = hm.trace(shifted)
    for a, b in zip(shifted(_values()), found(hm.tensor(_values())), strict=True):
        assert np.array_equal(a, b)
    assert " loop(" in found.ir


@pytest.mark.parametrize("program", [positions, from_the_end, reset, merged, nested])
def test_counts_are_ints(program: Callable[..., Any]) -> None:
    eager, traced = _values(), hm.tensor(_values())
    found = hm.trace(program)
    for a, b in zip(program(eager), results := found(traced), strict=True):
        assert np.array_equal(a, b) and (type(a) is not int or type(b) is int)
    assert np.array_equal(eager, traced) and len(results) > 1
    assert _carries(found).isdisjoint({"f64[]", "f64[]~"})


def _carries(traced: Any) -> set[str]:
    """The types of the numbers that loops of the optimized program hand from step to step."""
    text = traced._shown().program.executable.ir
    lines = [line for line in text.splitlines() if " loop(" in line]
    assert lines
    return {line.rpartition(" : ")[2] for line in lines}


def halves(v: Any) -> Any:
    n = 0.0
    for i in range(N):
        if v[i] > 0:
            n += 0.5
    return n


def signed(v: Any) -> Any:
    n = -0.0
    for i in range(N):
        if v[i] > 9:
            n += 1.0
    return n


def large(v: Any) -> Any:
    n = 2.0**53 - 2
    for i in range(N):
        if v[i] > 0:
            n += 1.0
    return n


@pytest.mark.parametrize("program", [halves, signed, large])
def test_other_numbers_stay_floats(program: Callable[..., Any]) -> None:
    found = hm.trace(program)
    expected, result = program(_values()), found(hm.tensor(_values()))
    assert repr(float(expected)) == repr(float(result))
    assert _carries(found) & {"f64[]", "f64[]~"}


def counted(a: Any, low: float) -> Any:
    few, many, weight = 0, 0, 0
    for i in range(N):
        for j in range(N):
            if a[i, j] < low:
                a[i, j] = low
                few += 1
                weight += 3
            if a[i, j] > -low:
                a[i, j] = -low
                many += 1
    return few, many, weight, a


def test_counts_of_all_steps_are_sums() -> None:
    a = np.random.default_rng(1).standard_normal((N, N))
    eager, traced, found = a.copy(), hm.tensor(a.copy()), hm.trace(counted)
    for x, y in zip(counted(eager, -0.7), found(traced, -0.7), strict=True):
        assert np.array_equal(x, y)
    assert np.array_equal(eager, traced)
    assert " loop(" not in found._shown().program.executable.ir


def test_a_count_that_steps_read_is_no_sum() -> None:
    def numbered(a: Any) -> Any:
        n = 0
        for i in range(N):
            if a[i] > 0:
                n += 1
            a[i] = a[i] + n
        return n, a

    eager, traced, found = _values(), hm.tensor(_values()), hm.trace(numbered)
    for x, y in zip(numbered(eager), found(traced), strict=True):
        assert np.array_equal(x, y)
    assert " loop(" in found._shown().program.executable.ir
