"""Gradients of loops over a range that data ends: the way back has as many steps as there were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loop_gradients import assert_close, both, second

R = np.random.default_rng(0)


def newton(a: Any, w: Any) -> Any:
    x = a * w
    for _ in range(100):
        y = 0.5 * (x + a / x)
        error = hm.abs(y - x).max()
        x = y
        if error < 1e-6:
            break
    return (x * x * w).sum()


def relaxed(u: Any, c: Any) -> Any:
    u = u.clone()
    for _ in range(200):
        v = u.clone()
        u[1:-1] = v[1:-1] + c[0] * 0.2 * (v[2:] - 2 * v[1:-1] + v[:-2])
        if hm.abs(u - v).max() < 1e-2:
            break
    return (u * u).sum()


def at_the_beginning(a: Any, w: Any) -> Any:
    s = w * 1.0
    for _ in range(50):
        if s.sum() > 20:
            break
        s = s + hm.sin(s) * a
    return (s * s).sum()


def in_the_middle(a: Any, w: Any) -> Any:
    s, n = w * 1.0, 0
    for i in range(50):  # noqa: B007 -- it is read after the loop
        s = s + hm.sin(s) * a
        if s.sum() > 20:
            break
        s = s * 1.1
        n += 2
    return (s * s).sum() * (n + i)


def between_branches(a: Any, w: Any) -> Any:
    s = w * 1.0
    for _ in range(50):
        if s.sum() > 3:
            s = s + hm.sin(s) * a
        else:
            s = s * 1.3
        if s.sum() > 20:
            break
        if a.sum() > 4:
            s = s * hm.sqrt(a - 0.4)
    return (s * s).sum()


def never(a: Any, w: Any) -> Any:
    s = w * 1.0
    for _ in range(30):
        s = hm.sin(s * a)
        if s.sum() > 1e9:
            break
    return (s * s).sum()


def in_the_first_step(a: Any, w: Any) -> Any:
    s = w * 1.0
    for _ in range(30):
        if s.sum() > -1e9:
            break
        s = hm.sin(s * a)
    return (s * s).sum()


def in_another_loop(a: Any, w: Any) -> Any:
    s = w * 1.0
    for _ in range(20):
        t = s * 0.5
        for _ in range(30):
            after = hm.cos(t * a)
            error = hm.abs(after - t).max()
            t = after
            if error < 1e-3:
                break
        s = s + t * 0.1
    return (s * s).sum()


def table(a: Any, w: Any) -> Any:
    b, s = hm.zeros((40, 5), dtype="float64"), w * 1.0
    for i in range(40):
        s = hm.tanh(s * a + 0.1 * i)
        b[i] = s
        if s.sum() > 4.5:
            break
    return (b * b).sum()


def until_small(a: Any, w: Any) -> Any:
    x, error, n = a * w, hm.tensor(1.0, dtype="float64"), 0
    while error > 1e-6:
        y = 0.5 * (x + a / x)
        error = hm.abs(y - x).max()
        x = y
        n += 1
    return (x * x * w).sum() * n


def without_end(a: Any, w: Any) -> Any:
    u = (a * w).clone()
    while True:
        v = u.clone()
        u[1:-1] = v[1:-1] + 0.3 * w[0] * (v[2:] - 2 * v[1:-1] + v[:-2])
        if hm.abs(u - v).max() < 1e-3:
            break
        if u.sum() > 1e3:
            u *= 0.5
    return (u * u).sum()


def one_after_the_other(a: Any, w: Any) -> Any:
    s = w * 1.0
    while s.sum() < 20:
        s = s * 1.1 + hm.cos(s) * a * 0.02
    while hm.abs(s).max() > 1:
        s = s * w.mean() * 0.5
    return (s * s).sum()


def no_step(a: Any, w: Any) -> Any:
    s = w * a
    while s.sum() < -1e9:
        s = s * 1.1
    return (s * s).sum()


def of_the_graph(a: Any, w: Any) -> Any:
    s = hm.while_loop(lambda s: s.sum() < 20, lambda s: s * 1.1 + hm.cos(s) * a * 0.02, w * 1.0)
    return (s * s).sum()


PROGRAMS = [
    newton, relaxed, at_the_beginning, in_the_middle, between_branches, never, in_the_first_step, in_another_loop,
    table,
]  # fmt: skip
COUNTED = [until_small, without_end, one_after_the_other, no_step, of_the_graph]


@pytest.mark.parametrize("fn", PROGRAMS)
def test_gradients_of_loops_that_data_ends(fn: Any) -> None:
    a, w = hm.asarray(R.random(5) + 0.5), hm.asarray(R.random(5) + 0.2)
    gradient = hm.trace(both(fn))
    for scale in (1.0, 0.8, 1.3):  # so many steps, and others
        assert_close(gradient(a * scale, w), both(fn)(a * scale, w))
    assert_close(both(hm.trace(fn))(a, w), both(fn)(a, w))
    assert "reverse=True" in gradient.ir and len(gradient.ir.splitlines()) < 150


@pytest.mark.parametrize("fn", COUNTED)
def test_gradients_of_loops_of_any_number_of_steps(fn: Any) -> None:
    a, w = hm.asarray(R.random(5) + 0.5), hm.asarray(R.random(5) + 0.2)
    gradient = hm.trace(both(fn))
    for scale in (1.0, 0.8, 1.3, 1.0):
        assert_close(gradient(a * scale, w), both(fn)(a * scale, w))
    assert "reverse=True" in gradient.ir and len(gradient.ir.splitlines()) < 300
    if fn is not of_the_graph:
        assert_close(both(hm.trace(fn))(a, w), both(fn)(a, w))


@pytest.mark.parametrize("fn", COUNTED)
def test_second_derivatives_of_loops_of_any_number_of_steps(fn: Any) -> None:
    a, w = hm.asarray(R.random(5) + 0.5), hm.asarray(R.random(5) + 0.2)
    traced = hm.trace(second(fn))
    assert_close(traced(a, w), second(fn)(a, w))
    assert " loop(" in traced.ir


def test_numbers_of_steps_share_programs() -> None:
    """One is for up to 32 steps, one for up to 64, and so on."""

    def loss(a: Any) -> Any:
        while a < 100:
            a = a * 1.05
        return a * a

    gradient = hm.trace(hm.grad(loss))
    for start in (60.0, 50.0, 40.0, 30.0, 25.0):  # 10 to 29 steps
        a = hm.tensor(start, dtype="float64")
        assert_close([gradient(a)], [hm.grad(loss)(a)])
    assert gradient.cache_info().compiles == 1
    a = hm.tensor(1.0, dtype="float64")  # 95
    assert_close([gradient(a)], [hm.grad(loss)(a)])
    assert gradient.cache_info().compiles == 2


@pytest.mark.parametrize("fn", [newton, between_branches])
def test_second_derivatives_of_loops_that_data_ends(fn: Any) -> None:
    a, w = hm.asarray(R.random(5) + 0.5), hm.asarray(R.random(5) + 0.2)
    assert_close(hm.trace(second(fn))(a, w), second(fn)(a, w))


def test_what_may_end_early_does_not_keep_much() -> None:
    """Stacks for all steps that there may be are zeros where none was taken."""

    def loss(a: Any) -> Any:
        for _ in range(100_000):
            a = hm.sin(a) * 1.01
            if a.sum() < 100:
                break
        return (a * a).sum()

    a = hm.asarray(R.random(300))
    gradient = hm.trace(hm.grad(loss))
    assert_close([gradient(a)], [hm.grad(loss)(a)])
