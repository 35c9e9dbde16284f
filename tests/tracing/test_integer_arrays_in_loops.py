"""Arrays of integers and bools that a program makes and fills in a loop are as in eager code, by one step for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

N = 40


def aligned(x: Any) -> Any:  # Smith and Waterman's scores
    score = np.zeros((N + 1, N + 1), dtype=np.int64)
    for i in range(1, N + 1):
        for j in range(1, N + 1):
            step = 3 if x[i - 1] > x[j - 1] else -2
            score[i, j] = max(0, score[i - 1, j - 1] + step, score[i - 1, j] - 2, score[i, j - 1] - 2)
    return score


def counted(x: Any) -> Any:
    above, run = np.ones(N, bool), np.zeros(N, np.int32)
    for i in range(2, N):
        above[i] = above[i - 1] ^ (x[i] > 0.3)
        if above[i - 2]:
            run[i] = run[i - 1] + 1
        else:
            run[i] = min(run[i - 1], 3)
    return above, run


def numbers_of_steps(x: Any) -> Any:
    t, u = np.zeros(N, np.int32), np.zeros(N)
    for i in range(1, N):
        t[i] = i - t[i - 1] * i
        u[i] = i
        u[i - 1] = t[i] / 4 + x[i]
    return t, u


def wrapping(x: Any) -> Any:
    t = np.zeros(N, np.uint8)
    for i in range(1, N):
        t[i] = t[i - 1] + np.uint8(100)
    return t


def truncated(x: Any) -> Any:
    t = np.zeros(N, np.int64)
    for i in range(1, N):
        t[i] = x[i] * 10
        t[i] += 1
        t[i] -= t[i - 1] // 2
    return t.sum(), t * 0.5, t


def functions(x: Any) -> Any:
    t = np.arange(N, dtype=np.int32)
    for i in range(1, N):
        t[i] = np.maximum(abs(t[i - 1] - 5), i * 3) % 7 + (t[i - 1] > 2)
    return t, t[3]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of scalars that overflow
@pytest.mark.parametrize("program", [aligned, counted, numbers_of_steps, wrapping, truncated, functions])
def test_arrays_are_those_of_eager_code_by_one_step(program: Callable[[Any], Any]) -> None:
    traced = hm.trace(program)
    for seed in range(2):
        x = hm.asarray(np.random.default_rng(seed).random(N))
        assert same(traced(x), program(x))
    assert traced.cache_info().compiles == 1
    assert " = loop(" in str(traced.ir)


def too_large(x: Any) -> Any:
    t = np.zeros(2, np.uint8)
    try:
        for i in range(300):
            t[0] = t[0] * 0 + i
    except OverflowError:
        t[1] = 1
    return t


def test_a_number_that_an_array_cannot_hold_raises_as_in_eager_code() -> None:
    x = hm.ones(2)
    assert same(hm.trace(too_large)(x), too_large(x))


def extremes(x: Any) -> Any:
    b = np.zeros(3, x.dtype)
    b[:] = x
    return max(b[0], b[1], b[2]), min(b[0], b[1])


def test_extremes_of_elements_are_no_question() -> None:
    traced = hm.trace(extremes)
    for values in ([1.0, 3.0, 2.0], [3.0, 1.0, np.nan], [np.nan, 1.0, 2.0]):
        for dtype in (np.float32, np.float64):
            x = hm.asarray(np.array(values, dtype))
            assert same(traced(x), extremes(x))
    assert traced.cache_info().compiles == 2  # one for each dtype
