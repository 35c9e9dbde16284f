"""Variables that a step updates in place and assigns, and arrays that trade places: nobody else may look at them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.loops import as_eager, is_loop

N = 40


def under_two_names(x: Any) -> Any:
    u = x * 1.0
    v = u
    for _ in range(N):
        u[0] = 0.5
        u = u * 0.9 + 0.1
    return u, v


def with_a_view(x: Any) -> Any:
    u = x * 1.0
    v = u[:2]
    for _ in range(N):
        u[0] = 0.5
        u = u * 0.9 + 0.1
    return u, v + 1


def in_a_list(x: Any) -> Any:
    u = x * 1.0
    hist = [u]
    for _ in range(N):
        u[0] = 0.5
        u = u * 0.9 + 0.1
        hist.append(u)
    return hist


def of_an_argument(x: Any) -> Any:
    u = x
    for k in range(N):
        u[0] = 0.5 + k
        u = u * 0.9 + 0.1
    return u


def assigned_by_data(x: Any) -> Any:
    u = x * 1.0
    for k in range(N):
        u[k % 5] += 0.5
        if u.sum() > 3:
            u = u * 0.5
    return u


def another_name_is_updated(x: Any) -> Any:
    u = x * 1.0
    v = u
    for _ in range(N):
        u[0] += 0.5
        if u.sum() > 3:
            u = u * 0.5
    v[1] = 7.0
    return u, v


def traded_by_a_third_name(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    for _ in range(N):
        u[0] += 0.5
        w = u
        u = v + 0.1
        v = w * 0.9
    return u, v, w


def traded(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    for _ in range(N):
        u[0] += 0.5
        u, v = v, u
    return u, v


def under_two_names_that_are_traded(x: Any) -> Any:
    u = x * 1.0
    v = u
    for _ in range(N):
        u[0] += 0.5
        u, v = v, u * 1.0
    return u, v


def kept_from_the_step_before(x: Any) -> Any:
    u = x * 1.0
    v = x * 2
    for _ in range(N):
        u[0] += 0.5
        v = u
        u = u * 0.9
        v[1] += 0.1
    return u, v


def as_a_view_of_itself(x: Any) -> Any:
    u = x * 1.0
    v = x * 2
    for _ in range(N):
        u[0] += 0.5
        v = u[::-1]
        u = v
    return u, v


def with_a_view_that_steps_read(x: Any) -> Any:
    u = x * 1.0
    v = u[1:]
    for _ in range(N):
        u[1] += 0.5
        s = v[0]
        u = u * 0.9 + s * 0.01
    return u


def left_between_updates(x: Any) -> Any:
    u = x * 1.0
    k = 0
    while k < N:
        u[0] = 0.5
        if u.sum() > 5:
            break
        u[1] += 0.3
        u = u * 1.05 + 0.1
        k += 1
    return u, k


def updated_after_a_while(x: Any) -> Any:
    u = x * 1.0
    k = 0
    while u.sum() < 9:
        u[0] = 0.5
        u = u * 1.05 + 0.1
        k += 1
    u[2] = 3
    return u, k


def in_a_nest(x: Any) -> Any:
    tot = 0.0
    u = x * 1.0
    for _i in range(20):
        for j in range(20):
            u[0] = 0.5 + j
            u = u * 0.9 + 0.1
        tot += u.sum()
    return u, tot


def by_a_function(x: Any) -> Any:
    u = x * 1.0

    def step(u):
        u[0] = 0.5
        return u * 0.9 + 0.1

    for _ in range(N):
        u = step(u)
    return u


def by_another_name(x: Any) -> Any:
    a = x * 1.0
    for _ in range(N):
        b = a
        b[0] += 0.1
        a = b * 0.9
    return a, b


def traded_until_they_agree(x: Any) -> Any:
    old = x * 1.0
    new = x * 1.0
    for _ in range(N):
        new[1:-1] = 0.5 * (old[:-2] + old[2:])
        err = abs(new - old).max()
        old, new = new, old
        if err < 1e-4:
            break
    return old, new, err


def copied_under_another_name(x: Any) -> Any:
    u = x * 1.0
    for _ in range(N):
        u[0] += 1.0
        v = u
        u = v + 0.0
        v[1] = 5.0
    return u, v


def under_two_names_without_a_step(x: Any) -> Any:
    a = x * 1.0
    b = a
    k = 0
    while a.sum() < -6 and k < N:
        a[0] += 0.1
        a = a * 1.01
        k += 1
    a[0] = 4
    return a, b, k


def of_a_while_without_a_step(x: Any) -> Any:
    a = x * 1.0
    k = 0
    while a.sum() < -6 and k < N:
        a[0] += 0.1
        a = a * 1.01
        k += 1
    a[0] = 4
    return a, k


def traded_and_updated_by_data(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    for _ in range(N):
        u, v = v, u
        if u.sum() < v.sum():
            u[0] += 0.3
    return u, v


def kept_from_one_step(x: Any) -> Any:
    u = x * 1.0
    w = 0.0
    for k in range(N):
        u[0] += 0.5
        if k == 20:
            w = u
        u = u * 0.9
    return u, w


def kept_by_data(x: Any) -> Any:
    u = x * 1.0
    w = u
    for _ in range(N):
        u[0] += 0.5
        if u.sum() > 4:
            w = u
        u = u * 0.99
    return u, w


def traded_with_another_name(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    w = v
    for _ in range(N):
        u[0] += 0.5
        u, v = v, u
    return u, v, w


def traded_by_data(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    for _ in range(N):
        if a[0] > 0.5:
            a, b = b, a
        a[0] *= 0.99
        b[1] += 0.01
    return a, b


def traded_by_data_with_another_name(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    c = b
    for _ in range(N):
        if a[0] > 0.5:
            a, b = b, a
        a[0] *= 0.99
    return a, b, c


def traded_with_a_view(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    w = v[1:]
    for _ in range(N):
        u[0] += 0.5
        u, v = v[::-1], u
    return u, v, w + 1


def traded_in_reverse(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    for _ in range(N):
        u[0] += 0.5
        u, v = v[::-1], u
    return u, v


def traded_until_data_leaves(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    k = 0
    while k < N and a.sum() < 30:
        b[1:-1] += 0.5 * (a[:-2] + a[2:])
        a, b = b, a
        k += 1
        if b[2] > 9:
            break
    a[0] = 7
    return a, b, k


def traded_into_a_list(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    hist = []
    for _ in range(N):
        b[1:-1] = 0.5 * (a[:-2] + a[2:])
        a, b = b, a
        hist.append(a)
    return a, b, hist[3], hist[-1]


def traded_with_copies_in_a_list(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    hist = []
    for _ in range(N):
        b[1:-1] = 0.5 * (a[:-2] + a[2:])
        a, b = b, a
        hist.append(a.copy())
    return a, b, hist[3], hist[-1]


def three_in_turn(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    c = x * 3.0
    for _ in range(N):
        a[0] += 0.1
        a = b
        b = c * 0.9
        c = a + 0.1
    return a, b, c


def two_in_turn(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    for _ in range(N):
        a[0] += 0.1
        a = b
        b = a * 0.9
    return a, b


ROLLED = (
    of_an_argument,
    assigned_by_data,
    traded_by_a_third_name,
    traded,
    kept_from_the_step_before,
    left_between_updates,
    updated_after_a_while,
    in_a_nest,
    by_a_function,
    by_another_name,
    traded_until_they_agree,
    copied_under_another_name,
    of_a_while_without_a_step,
    traded_and_updated_by_data,
    kept_from_one_step,
    traded_by_data,
    traded_in_reverse,
    traded_with_copies_in_a_list,
    three_in_turn,
    two_in_turn,
)
OTHERS = (
    under_two_names,
    with_a_view,
    in_a_list,
    another_name_is_updated,
    under_two_names_that_are_traded,
    as_a_view_of_itself,
    with_a_view_that_steps_read,
    under_two_names_without_a_step,
    kept_by_data,
    traded_with_another_name,
    traded_by_data_with_another_name,
    traded_with_a_view,
    traded_until_data_leaves,
    traded_into_a_list,
)


@pytest.mark.parametrize("program", ROLLED)
def test_the_loop_has_the_memory_as_its_own(program: Any) -> None:
    assert is_loop(as_eager(program))


@pytest.mark.parametrize("program", OTHERS)
def test_others_that_look_at_it_see_what_they_see_eagerly(program: Any) -> None:
    as_eager(program)
