"""NumPy arrays of the program that a step updates in place and assigns, or that trade places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.loops import as_eager, is_loop

N = 40


def traded_with_another_name(x: Any) -> Any:
    a = np.zeros(5)
    b = np.zeros(5)
    a[:] = x
    b[:] = x
    c = a
    for _ in range(N):
        b[1:-1] = 0.5 * (a[:-2] + a[2:])
        b[0] += 0.1
        a, b = b, a
    return a, b, c


def under_two_names(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    c = a
    for _ in range(N):
        a[0] += 0.1
        a = a * 0.9
    return a, c


def with_a_view(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    c = a[1:3]
    for _ in range(N):
        a[0] += 0.1
        a[2] += 0.1
        a = a * 0.9
    c[0] = 9
    return a, c


def in_a_list_before(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    c = [a]
    for _ in range(N):
        a[0] += 0.1
        a = a * 0.9
    return a, c[0]


def read_by_another_name(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    c = a
    for _ in range(N):
        a[0] += 0.1
        a = a * 0.9
    return a, float(c[0])


def in_a_list(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    out = []
    for _ in range(N):
        a[0] += 0.1
        a = a * 0.9
        out.append(a)
    return a, out[3], out[-1]


def left_between_updates(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    k = 0
    while a.sum() < 6 and k < N:
        a[0] += 0.1
        if a[0] > 2:
            break
        a[1] += 0.3
        a = a * 1.01
        k += 1
    return a, k


def under_two_names_without_a_step(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    b = a
    k = 0
    while a.sum() < -6 and k < N:
        a[0] += 0.1
        a = a * 1.01
        k += 1
    a[0] = 4
    return a, b, k


def traded(x: Any) -> Any:
    a = np.zeros(5)
    b = np.zeros(5)
    a[:] = x
    b[:] = x * 2
    for _ in range(N):
        b[1:-1] = 0.5 * (a[:-2] + a[2:])
        b[0] += 0.1
        a, b = b, a
    return a, b


def traded_without_updates(x: Any) -> Any:
    a = np.zeros(5)
    b = np.zeros(5)
    a[:] = x
    b[:] = x * 2
    c = b
    for _ in range(N):
        a, b = b, a + 0.1
    a[0] = 9
    return a, b, c


def three_in_turn(x: Any) -> Any:
    a = np.zeros(5)
    b = np.zeros(5)
    c = np.zeros(5)
    a[:] = x
    b[:] = x * 2
    c[:] = x
    for _ in range(N):
        c[1:-1] = 0.5 * (a[:-2] + b[2:])
        a, b, c = b, c, a
    c[1] = 3
    return a, b, c


def the_one_before(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    old = a
    for _ in range(N):
        old = a
        a = a * 0.9
    old[0] = 3
    return a, old


def traded_by_data(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    b = np.zeros(5)
    b[:] = x
    for _ in range(N):
        if a[0] > 0.5:
            a, b = b, a
        a = a * 0.99
    b[0] = 8
    return a, b


def traded_without_a_step(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    b = np.zeros(5)
    b[:] = x
    k = 0
    while a.sum() < -5:
        a, b = b, a
        k += 1
    b[0] = 8
    return a, b


def traded_in_a_while_with_another_name(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    b = np.zeros(5)
    b[:] = x
    c = a
    k = 0
    while a.sum() > 1 and k < N:
        b[1:-1] = a[:-2] * 0.7
        a, b = b, a
        k += 1
    b[0] = 8
    return a, b, c


def traded_in_a_while(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    b = np.zeros(5)
    b[:] = x
    k = 0
    while a.sum() > 1 and k < N:
        b[1:-1] = a[:-2] * 0.7
        a, b = b, a
        k += 1
    b[0] = 8
    return a, b, k


def traded_in_a_nest(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    b = np.zeros(5)
    for _i in range(20):
        for _ in range(20):
            b[1:-1] = a[:-2] * 0.7
            a, b = b, a
        a[0] += 1
    return a, b


def traded_in_a_list_before(x: Any) -> Any:
    a = np.zeros(5)
    b = np.zeros(5)
    a[:] = x
    b[:] = x * 2
    c = [a]
    for _ in range(N):
        b[1] += 0.5
        a, b = b, a
    return a, b, c[0]


def under_two_names_that_are_traded(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    b = a
    for _ in range(N):
        a[0] += 0.1
        a, b = b + 0.1, a
    return a, b


ROLLED = (
    left_between_updates,
    traded,
    three_in_turn,
    traded_by_data,
    traded_without_a_step,
    traded_in_a_while,
    traded_in_a_nest,
)
OTHERS = (
    under_two_names_that_are_traded,
    traded_with_another_name,
    under_two_names,
    with_a_view,
    in_a_list_before,
    read_by_another_name,
    in_a_list,
    under_two_names_without_a_step,
    traded_without_updates,
    the_one_before,
    traded_in_a_while_with_another_name,
    traded_in_a_list_before,
)


@pytest.mark.parametrize("program", ROLLED)
def test_the_loop_has_the_memory_as_its_own(program: Any) -> None:
    assert is_loop(as_eager(program))


@pytest.mark.parametrize("program", OTHERS)
def test_others_that_look_at_it_see_what_they_see_eagerly(program: Any) -> None:
    as_eager(program)
