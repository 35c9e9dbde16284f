"""Gradients of long Python loops: they keep what is carried at the starts of segments, and compute those again."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loop_gradients import (
    FORMS,
    T,
    assert_close,
    bodies,
    both,
    forms,
    recurrent_network,
    runge_kutta,
    second,
    stencil,
)

R = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loop that takes less memory in segments has some."""
    monkeypatch.setenv("HYBRIDML_GRADIENT_MEMORY", "0")


def is_in_segments(traced: Any) -> bool:
    return re.search(r"loop\(.*step=\"i3[2-9]\"", traced.ir) is not None


@forms
def test_gradients_in_segments(fn: Any, a: Any, b: Any) -> None:
    x, y = hm.asarray(a), hm.asarray(np.asarray(b))
    gradient = hm.trace(both(fn))
    assert_close(gradient(x, y), both(fn)(x, y))
    assert_close(both(hm.trace(fn))(x, y), both(fn)(x, y))
    assert is_in_segments(gradient) is (fn in (stencil, runge_kutta, bodies, recurrent_network))  # others save less


@pytest.mark.parametrize(("fn", "a", "b"), [form for form in FORMS if form[0] in (stencil, recurrent_network)])
def test_second_derivatives_in_segments(fn: Any, a: Any, b: Any) -> None:
    x, y = hm.asarray(a), hm.asarray(np.asarray(b))
    traced = hm.trace(second(fn))
    assert_close(traced(x, y), second(fn)(x, y))
    assert is_in_segments(traced)


def with_a_list(a: Any, w: Any) -> Any:
    h, seen, n = w * 0.0, [], a.shape[0]
    for t in range(n):
        h = hm.sin(h * 0.9 + a[t] * w)
        seen.append(hm.cos(h) * a[n - 1 - t])
    return (hm.stack(seen) * a).sum() + h.sum()


def with_a_branch(a: Any, w: Any) -> Any:
    h, n = w * 0.0, a.shape[0]
    for t in range(n):
        h = hm.sin(h * 0.9 + a[t] * w) * hm.cos(a[n - 1 - t] * h)
        if h[0] > 0.1:
            h = hm.exp(h * 0.5) * a[t]
    return (h * h).sum()


@pytest.mark.parametrize("loss", [with_a_list, with_a_branch])
@pytest.mark.parametrize("steps", [17, 36, 97])
def test_any_number_of_steps(loss: Any, steps: int) -> None:
    """A loop of which some steps are left after the last whole segment: their numbers count on through all of them."""
    a, w = hm.asarray(R.random((steps, 3))), hm.asarray(R.random(3))
    gradient = hm.trace(both(loss))
    for scale in (1.0, 0.5):
        assert_close(gradient(a * scale, w), both(loss)(a * scale, w))
    assert is_in_segments(gradient)


def test_memory_is_of_the_square_root_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(y: Any, h: Any) -> Any:
        for _ in range(2500):
            y = y + h * hm.sin(y)
        return (y * y).sum()

    traced = hm.trace(both(loss))
    y, h = hm.asarray(R.random(7)), hm.asarray(0.01)
    found = traced(y, h)
    rows = [int(n) for n in re.findall(r"f64\[(\d+),7\]", traced.ir)]
    assert 40 <= max(rows) <= 100
    monkeypatch.delenv("HYBRIDML_GRADIENT_MEMORY")
    whole = hm.trace(both(loss))
    assert_close(found, whole(y, h))
    assert max(int(n) for n in re.findall(r"f64\[(\d+),7\]", whole.ir)) == 2500


def test_short_loops_have_no_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRIDML_GRADIENT_MEMORY")
    traced = hm.trace(both(stencil))
    traced(hm.asarray(R.random(30)), hm.asarray(0.1))
    assert not is_in_segments(traced)


@pytest.mark.parametrize("memory", ["0", "256"])
def test_checkpoints_of_a_step_and_of_a_loop(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDML_GRADIENT_MEMORY", memory)

    def step(h: Any, x: Any, w: Any) -> Any:
        return hm.tanh(w @ hm.sin(h) + x)

    def of_steps(x: Any, w: Any) -> Any:
        h = x[0] * 0
        for t in range(T):
            h = hm.checkpoint(step, h, x[t], w)
        return (h * h).sum()

    def of_a_loop(x: Any, w: Any) -> Any:
        def run(x: Any, w: Any) -> Any:
            h = x[0] * 0
            for t in range(T):
                h = step(h, x[t], w)
            return h

        h = hm.checkpoint(run, x, w)
        return (h * h).sum()

    x, w = hm.asarray(R.random((T, 4))), hm.asarray(R.random((4, 4)) * 0.3)
    for fn in (of_steps, of_a_loop):
        traced = hm.trace(both(fn))
        assert_close(traced(x, w), both(fn)(x, w))
        assert " loop(" in traced.ir
