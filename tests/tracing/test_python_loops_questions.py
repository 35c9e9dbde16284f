"""Questions of one line, floats of NumPy, and memory that two variables share, in loops that are captured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import assert_same, both


def x() -> hm.Tensor:
    return hm.asarray(np.array([1.0, 3.0, -6.0]))


def a_count_and_data(x: Any) -> Any:
    n = 0
    while n < 17 and (abs(x) > 1e-9).any():
        x, n = x * 0.5, n + 1
    return x, n


def two_of_data(x: Any) -> Any:
    while x.sum() < 5.0 and (abs(x) > 0.05).any():
        x = x * 0.5
    return x


def chained(x: Any) -> Any:
    n = 0
    while -20.0 < x.sum() < 5.0:
        x, n = x * 1.2, n + 1
    return x, n


def two_that_leave(x: Any) -> Any:
    for k in range(20):  # noqa: B007
        x = x * 0.7
        if x[0] < 0.2 and (x < 0.5).all():
            break
    return x, k


def chained_that_leave(x: Any) -> Any:
    for k in range(20):  # noqa: B007
        x = x * 0.7
        if -1.0 < x.sum() < -0.2:
            break
    return x, k


def one_memory(x: Any) -> Any:
    best = x
    for _ in range(18):
        x += 1
        if x[0] > 100:
            best = x * 1
    return x * 1, best * 1


def a_view_before(x: Any) -> Any:
    y = x[:]
    for _ in range(18):
        x[1] += 1
        y = y * 1.0
    return y


def floats_of_numpy(x: Any) -> Any:
    s, t, kept = 0.0, 0.0, []
    for k in range(20):
        s = s * 0.5 + np.exp(-0.1 * k)
        t = np.sqrt(k)
        kept.append(np.sqrt(k))
    return s, t, kept


def weak_calls(x: Any) -> Any:
    t, s = 0.0, 0.0
    for _ in range(20):
        t += 0.1
        s = s * 0.5 + abs(math.exp(-t))
        t = t * 0.9 + math.cos(t) * 0.01
    return s, t


PROGRAMS = [
    a_count_and_data, two_of_data, chained, two_that_leave, chained_that_leave, one_memory, a_view_before,
    floats_of_numpy, weak_calls,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_they_are_those_of_eager_code(program: Callable[[Any], Any]) -> None:
    both(program, x)


def test_places_that_an_array_of_the_program_tells() -> None:
    def program(places: Any, x: Any) -> Any:
        stack = np.zeros(3, dtype=np.int64)
        stack[0] = places[1]
        x[stack[0]] = 5.0
        x[stack[0]] += 1.0
        return x[stack[0]] * 2

    both(program, lambda: hm.tensor([0, 2, 1]), x)


def test_no_places() -> None:
    def program(x: Any, places: Any) -> Any:
        x[places] += 1
        return x * 1

    both(program, x, lambda: hm.tensor(np.zeros(0, np.int64)))


def test_numbers_of_numpy_that_fill_arrays() -> None:
    def program(a: float) -> Any:
        return hm.full((2,), np.exp(a)), hm.full((2,), np.sqrt(a) * 2)

    assert_same(program(0.5), hm.trace(program)(0.5))


def test_parts_of_complex_arrays_are_updated() -> None:
    def program(x: Any) -> Any:
        z = x + 0j
        for k in range(20):
            z[1:3] = z[1:3] * 1j
            z[0] = k
        return z

    both(program, x)
