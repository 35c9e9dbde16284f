"""NumPy arrays and scalars that each step of a loop makes anew: one loop, with the arrays of eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import both, data, is_loop

N = 20


def recurrence(x: Any) -> Any:
    u, a, t, s = np.zeros(4), np.eye(4) * 0.5, np.zeros(4), hm.zeros((), dtype=x.dtype)
    for k in range(N):
        t[k % 4] = x[k]
        u = a * u.max() + t
        u = u[0] * 0.5 + u.max(axis=0)
        s = s + u.max()
    return u, s


def ints(x: Any) -> Any:
    u, t = np.zeros(4, int), np.zeros(4)
    for k in range(N):
        t[k % 4] = x[k]
        w = u * 2
        u = w % 1000 + (t > 0.5)
    return u


def two(x: Any) -> Any:
    a, b = np.zeros(3), np.ones(3)
    for k in range(N):
        c = np.zeros(3)
        c[1] = x[k]
        a, b = b + c, a * 0.5
    b[0] = 7
    return a, b


def covariance(x: Any) -> Any:
    p, f, skipped = np.eye(2), np.array([[1.0, 0.5], [0.0, 1.0]]), 0
    for k in range(N):
        p = f * p + 0.25
        if x[k] > 0.5:
            p = p * 0.5
        else:
            skipped += 1
    return p, skipped


def parts(x: Any) -> Any:
    m = np.zeros(3)
    for k in range(N):
        w = np.zeros(5)
        w[k % 5] = x[k]
        m = m + w[1:4]
    return m


def filled(x: Any) -> Any:
    m = np.eye(3)
    for k in range(N):
        m = m * 0.5
        m[0, 1] = x[k]
        m += 1.0
    m[0, 0] = 8
    return m


def followed(x: Any) -> Any:
    parent, ends = np.zeros(N, int), np.zeros(N, int)
    for k in range(N):
        parent[k] = x[k] * N
    for k in range(N):
        i = parent[k]
        for _ in range(20):
            i = parent[i]
        ends[k] = i
    i, n = parent[3], 0
    while parent[i] != i and n < 50:
        i = parent[i]
        n += 1
    return ends, i, n


def filtered(x: Any) -> Any:
    w, p, buf, err = np.zeros(3), np.ones(3), np.zeros(3), np.zeros(N)
    for k in range(N):
        buf[1:] = buf[:-1].copy()
        buf[0] = x[k]
        gain = p * buf / (0.9 + buf.max())
        err[k] = x[k] - w.max()
        w = w + gain * err[k] + err[k] * gain
        p = (p - gain * buf.max()) / 0.9
    return w, p, err


def beside_scalars(x: Any) -> Any:
    w, a, ones, below = np.zeros(3), np.zeros(N), np.arange(3.0), 0
    for k in range(N):
        a[k] = x[k]
        w = np.maximum(a[k], w) + (a[k] - ones) * (a[k] > ones) + ones / (1 + a[k])
        w += a[k]
        below = below + (a[k] < ones)
    return w, below


@pytest.mark.parametrize(
    "program", [filtered, beside_scalars, recurrence, ints, two, covariance, parts, filled, followed]
)
def test_they_go_from_step_to_step(program: Callable[[Any], Any]) -> None:
    assert is_loop(both(program, data(N)))


def test_a_float_that_is_an_argument_meets_scalars_of_numpy() -> None:
    def damped(x: Any, factor: float) -> Any:
        p, q = np.eye(3), np.zeros(3)
        for k in range(N):
            q[1] = x[k]
            p = p / (factor + q.max()) + q * (factor - q[1])
            if factor < q.max():
                p = p * 0.5
        return p, factor + q.max()

    assert is_loop(both(damped, data(N), lambda: 0.9))


def in_place(x: Any) -> Any:
    u = np.zeros(4)
    v = u
    for k in range(N):
        u += 1.0
        u[1] = x[k]
        u = u * 0.5
    return u, v


def old(x: Any) -> Any:
    a = np.zeros(3)
    p = a
    for k in range(N):
        c = np.zeros(3)
        c[1] = x[k]
        p = a
        a = a + c
    p[0] = 3
    return a, p


def perhaps_the_first(x: Any) -> Any:
    a = np.zeros(3)
    keep = a
    for k in range(N):
        c = np.zeros(3)
        c[1] = x[k]
        if x[k] > 2:
            a = a + c
    a[0] = 4
    return a, keep


def one_and_the_same(x: Any) -> Any:
    a, b = np.zeros(3), np.zeros(3)
    for k in range(N):
        c = a * 0.5
        c[0] = x[k]
        a = b = c
    a[1] = 5
    return a, b


def views(x: Any) -> Any:
    a, rows = np.zeros(3), np.zeros((N + 1, 3))
    for k in range(N):
        rows[k, 1] = x[k] + a[0]
        a = rows[k]
    a[0] = 9
    return a, rows


def in_lists(x: Any) -> Any:
    m, found = np.eye(3), []
    for k in range(N):
        m = m * 0.5
        m[0, 1] = x[k]
        found.append(m)
    found[2][1, 1] = 5
    m[0, 0] = 8
    return found, m


def turned(x: Any) -> Any:
    m = np.eye(3)
    for k in range(N):
        m = m * 0.5
        m[0, 1] = x[k]
        m = m.T
    m[0, 0] = 8
    return m, m.strides, m.base is None


def perhaps_no_step(x: Any) -> Any:
    p, n = np.eye(3), 0
    q = p
    while x.sum() > 1e-3:
        x = x * 0.25
        p = p * 0.5
        n += 1
    p[0, 1] = 4
    return x, p, q, n


def left_before(x: Any) -> Any:
    u = np.zeros(3)
    keep = u
    for k in range(N):
        c = np.zeros(3)
        c[1] = x[k]
        if x[k] < 0.6:
            break
        u = u + c
    u[0] = 4
    return u, keep


def left_after(x: Any) -> Any:
    u = np.zeros(3)
    keep = u
    for k in range(N):
        c = np.zeros(3)
        c[1] = x[k]
        u = u + c
        if x[k] < 0.6:
            break
    u[0] = 4
    return u, keep


def seen_by_another(x: Any) -> Any:
    u = np.zeros(3)
    keep = u
    for k in range(N):
        keep[0] = x[k]
        u = u + 1
    return u, keep


def view_of_what_is_updated(x: Any) -> Any:
    w = np.zeros((2, 3))
    u = w[0]
    for k in range(N):
        w[0] = x[k]
        u = u + 1
    return u, w


def one_where_it_is_left(x: Any) -> Any:
    a, b = np.zeros(3), np.zeros(3)
    for k in range(N):
        c = np.zeros(3)
        c[1] = x[k]
        a = b = c
        if x[k] < 0.3:
            break
        a = b + 1.0
        b = a * 2.0
    a[0] = 4
    return a, b


def without_data(x: Any) -> Any:
    w = np.arange(5.0)
    for _ in range(N):
        w = w / w.sum() + 0.1
    return x[:5] * w


@pytest.mark.parametrize(
    "program",
    [
        in_place,
        old,
        perhaps_the_first,
        one_and_the_same,
        views,
        in_lists,
        turned,
        perhaps_no_step,
        left_before,
        left_after,
        seen_by_another,
        view_of_what_is_updated,
        one_where_it_is_left,
        without_data,
    ],
)
def test_arrays_that_may_be_in_one_memory_are_as_in_eager_code(program: Callable[[Any], Any]) -> None:
    both(program, data(N))
    both(program, lambda: hm.zeros((N,), dtype="float64"))
