"""Loops whose variables share memory: captured by one step, they are what Python has, or taken step by step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from tests.support.loops import both, data, is_loop


def x() -> hm.Tensor:
    return hm.arange(16.0)


def the_number_alone(x: hm.Tensor) -> Any:
    for i in range(16):
        if x[i] > 3:
            break
    return i


def a_name_of_what_is_updated(x: hm.Tensor) -> Any:
    total = hm.zeros(2)
    for _ in x:
        total += 1
        y = total
    return y


def a_name_of_an_argument(x: hm.Tensor) -> Any:
    for _ in range(16):
        y = x
        y += 1
    return y * 1


def the_last_view(x: hm.Tensor) -> None:
    for i in range(16):
        v = x[i : i + 1]
    v += 100


def two_names(x: hm.Tensor) -> Any:
    for i in range(16):
        p = q = x + i
    p *= 0
    return q


def a_view_of_a_result(x: hm.Tensor) -> Any:
    for i in range(16):
        y = x * 2 + i
        z = y[2:5]
    z += 1
    return y


def the_last_row(x: hm.Tensor) -> None:
    for row in x.reshape((16, 1)):
        row *= 2
    row += 100


def no_step(x: hm.Tensor) -> Any:
    y = x
    while y.sum() > 1000:
        y = y * 0.5
    y += 1
    return y


def a_view_of_the_step_before(x: hm.Tensor) -> Any:
    p, s = x[0], 0.0
    for i in range(16):
        x += 1
        s = s + p
        p = x[i]
    return s


def an_element_that_is_overwritten(x: hm.Tensor) -> Any:
    p, s = x[3], 0.0
    for i in range(1, 17):
        v = x[i - 1]
        x[i - 2] = 0
        s = s + p
        p = v
    return s


def one_item_twice(x: hm.Tensor) -> Any:
    out = []
    for i in range(16):
        y = x * i
        out.append(y)
        out.append(y)
    out[0] += 1
    return out[1]


def an_item_and_its_view(x: hm.Tensor) -> Any:
    out = []
    for i in range(16):
        y = x * i
        out.append(y)
        out.append(y[:3])
    out[0] += 1
    return out[1]


def a_view_that_a_while_updates(x: hm.Tensor, start: hm.Tensor) -> Any:
    y = hm.zeros(len(start) - 1, dtype="float64")
    for i in range(len(start) - 1):
        k = start[i]
        while k < start[i + 1]:
            y[i] += x[k] * x[k]
            k += 1
    return y


def a_row_is_chosen(x: hm.Tensor) -> Any:
    rows = x.reshape((16, 1))
    m = rows[0]
    for i in range(1, 16):
        if rows[i, 0] > 7.5 and rows[i, 0] < 9.5:
            m = rows[i]
    m += 100
    return m * 1


def names_are_swapped(x: hm.Tensor) -> Any:
    y = x * 2
    z = y
    for _ in range(17):
        x, y = y, x
    x[0] = 5.0
    return x * 1, y * 1, z * 1


def one_of_two(x: hm.Tensor) -> Any:
    y = x * 2
    b = x
    for i in range(20):
        if i % 3 == 1:
            b = y
        elif i % 5 == 2:
            b = x
    b[0] = 9.0
    return b * 1, y * 1


PROGRAMS = [
    the_number_alone, a_name_of_what_is_updated, a_name_of_an_argument, the_last_view, two_names, a_view_of_a_result,
    the_last_row, no_step, a_view_of_the_step_before, an_element_that_is_overwritten, one_item_twice,
    an_item_and_its_view, a_row_is_chosen, names_are_swapped, one_of_two,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_variables_that_share_memory(fn: Callable[..., Any]) -> None:
    both(fn, x)


def test_a_view_that_a_while_updates() -> None:
    r = np.random.default_rng(1)
    matrix = (r.random((20, 20)) < 0.1) * r.random((20, 20))
    starts = np.concatenate([[0], np.cumsum((matrix != 0).sum(1))])
    entries = matrix[matrix != 0]
    given = lambda: hm.asarray(entries.copy()), lambda: hm.asarray(starts.copy())
    assert is_loop(both(a_view_that_a_while_updates, *given))


def reflected(a: hm.Tensor) -> Any:
    """Householder's matrices: updates of views of an array that the program makes."""
    q = np.eye(20)
    for k in range(19):
        v = a[k:, k].copy()
        v[0] += 2.0
        a[k:, k:] -= 0.1 * np.outer(v, v @ a[k:, k:])
        q[:, k:] -= 0.1 * np.outer(q[:, k:] @ v, v)
        q[:, k] *= 2.0
    return q


def test_views_of_an_array_that_the_program_makes_are_updated() -> None:
    matrix = np.random.default_rng(1).random((20, 20))
    traced, given = hm.trace(reflected), [hm.asarray(matrix.copy()) for _ in range(2)]
    np.testing.assert_allclose(np.asarray(traced(given[0])), np.asarray(reflected(given[1])), 1e-12)
    assert is_loop(traced)


def test_a_detached_view_that_a_step_updates() -> None:
    def fn(x: hm.Tensor) -> Any:
        for i in range(16):
            view = x[i].detach()
            view += i
        return x.sum()

    assert is_loop(both(fn, x))


def test_a_name_of_a_captured_tensor() -> None:
    w = hm.ones(2)

    def fn(x: hm.Tensor) -> Any:
        for _ in range(16):
            w.mul_(1.5)
            p = w
        return p * 1

    expected = fn(x())
    w[...] = 1.0
    assert hm.trace(fn)(x()).tolist() == expected.tolist() == w.tolist()


def test_what_nobody_writes_to_is_one_loop() -> None:
    def last(x: hm.Tensor) -> Any:
        for row in x.reshape((16, 1)):
            y = z = row * 2
        return row, y, z

    assert is_loop(both(last, x))


def test_lists_beside_a_loop_change_in_each_call() -> None:
    calls, marks = [0], [1] * 20

    def fn(x: hm.Tensor) -> Any:
        calls[0] += 1
        s = 0.0
        for i in range(16):
            s = s + x[i]
        return s * calls[0]

    def two_lists(x: hm.Tensor) -> Any:
        calls[0] += 1
        for i in range(16):
            marks[i] = 2
        return x[1] * calls[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        traced = hm.trace(fn)
        assert [float(traced(x())) for _ in range(3)] == [120, 240, 360] and calls == [3]
        calls[0], traced = 0, hm.trace(two_lists)
        assert [float(traced(x())) for _ in range(3)] == [1, 2, 3] and calls == [3] and marks[15] == 2


# -- what `max` and `min` give is one of their arguments


def written_before_it_is_read(x: hm.Tensor) -> Any:
    m = max(x[0], x[1])
    x[1] = 5.0
    return m * 2, x


def all_are_written(x: hm.Tensor) -> Any:
    m = min(x[0], x[1], x[2])
    x[:3] = 7.0
    return [m], x


def written_in_a_step(x: hm.Tensor) -> Any:
    a = x * 0
    for i in range(20):
        m = max(x[i], x[i + 1])
        x[i + 1] = 5.0
        a[i] = m
    return a, x


def written_a_step_later(x: hm.Tensor) -> Any:
    m = x[0] * 1
    for i in range(1, 20):
        x[i - 1] = 0.0
        m = max(m, x[i])
    return m, x


def written_after_it_goes_on(x: hm.Tensor) -> Any:
    m = x[0] * 1
    for i in range(1, 20):
        m = max(m, x[i])
        x[i] = m * 0.5
    return m, x


def written_after_the_loop(x: hm.Tensor) -> Any:
    m = x[0] * 1
    for i in range(1, 20):
        m = max(m, x[i])
    x[:] = 0.0
    return m


@pytest.mark.parametrize(
    "fn",
    [written_before_it_is_read, all_are_written, written_in_a_step, written_a_step_later, written_after_it_goes_on,
     written_after_the_loop],
    ids=lambda fn: fn.__name__,
)  # fmt: skip
@pytest.mark.parametrize("turned", [False, True])
def test_what_max_and_min_give_shows_what_is_written_there(fn: Callable[..., Any], turned: bool) -> None:
    both(fn, lambda: hm.asarray(data(24)().numpy()[:: -1 if turned else 1].copy()))


def test_what_is_written_at_once_is_no_other_memory() -> None:
    def fn(x: hm.Tensor) -> hm.Tensor:
        for i in range(1, 20):
            x[i] = max(x[i], x[i - 1] * 0.9, x[i + 1])
        return x

    assert is_loop(both(fn, data(24)))
