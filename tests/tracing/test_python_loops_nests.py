"""Short loops in loops, arrays that a step makes, and numbers that it begins with: one step stands for all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import assert_same, both, data, is_loop


def accelerated(acc: Any, x: Any, m: Any) -> None:
    for i in range(len(x)):
        for j in range(len(x)):
            if i != j:
                d = x[j] - x[i]
                acc[i] += m[j] * d / (0.1 + abs(d[0] * d[1]))


def of_arrays(x: Any, v: Any, m: Any) -> Any:
    for _ in range(40):
        acc = np.zeros((len(x), 3))
        for i in range(len(x)):
            for j in range(len(x)):
                if i != j:
                    d = x[j] - x[i]
                    acc[i] += m[j] * d / (0.1 + abs(d[0] * d[1]))
        v = v + 0.001 * acc
        x = x + 0.001 * v
    return x, v


def of_tensors(x: Any, v: Any, m: Any) -> Any:
    for _ in range(40):
        acc = hm.zeros(x.shape, dtype="float64")
        accelerated(acc, x, m)
        v += 0.001 * acc
        x += 0.001 * v
    return x, v


@pytest.mark.parametrize("n", [2, 3, 5, 6, 8, 16])
@pytest.mark.parametrize("program", [of_arrays, of_tensors], ids=lambda f: f.__name__)
def test_few_bodies(n: int, program: Callable[..., Any]) -> None:
    traced = both(program, data(n, 3), data(n, 3), data(n))
    loops = 2 if n < 6 else 4  # two results of the outer one, and one of each in it
    assert is_loop(traced) and traced.ir.count(" loop(") == loops


def test_short_loops_over_arrays_are_one_pass() -> None:
    def program(x: Any, weights: Any) -> Any:
        for _ in range(20):
            y = hm.zeros((20, 20), dtype="float64")
            for i in range(7):
                for j in range(7):
                    y += x[i : i + 20, j : j + 20] * weights[i, j]
            x[3:23, 3:23] = y
        return x

    traced = both(program, data(26, 26), data(7, 7))
    assert is_loop(traced) and traced.ir.count(" loop(") == 1


def test_a_short_loop_that_is_no_loop_is_unrolled_in_its_step() -> None:
    table = [[0.1 * i * j for j in range(8)] for i in range(8)]

    def program(x: Any) -> Any:
        for _ in range(20):
            for i in range(8):
                for j in range(8):
                    x = x * 0.5 + table[i][j]
        return x

    assert is_loop(both(program, data(3)))


def made_in_a_step(u: Any) -> Any:
    for _ in range(20):
        acc = np.zeros(3)
        acc[:] += u * 2
        acc += u
        u = u + 0.01 * acc
    return u


def asked_for_gradients(u: Any) -> Any:
    for _ in range(20):
        u = u * 0.5 if u.requires_grad else u * 2.0
    return u


@pytest.mark.parametrize("program", [made_in_a_step, asked_for_gradients], ids=lambda f: f.__name__)
def test_what_has_no_gradient_has_none_in_a_step(program: Callable[[Any], Any]) -> None:
    assert is_loop(both(program, data(3)))


def test_what_has_one_has_one_in_a_step() -> None:
    u = hm.asarray(np.ones(3)).requires_grad_()
    assert_same(asked_for_gradients(u).detach(), hm.trace(asked_for_gradients)(u).detach())
    for way in (made_in_a_step, hm.trace(made_in_a_step)):
        with pytest.raises(hm.GradientError, match="records no gradient"):
            way(u)


def test_histories_that_begin_in_a_step() -> None:
    w = hm.asarray(np.full(3, 0.5)).requires_grad_()

    def program(x: Any) -> Any:
        y, z = x, x
        for _ in range(20):
            y, z = y * 0.9 + z, z + w  # y has a history from the second step on
        return y.sum()

    expected = hm.autograd.grad(program(hm.ones(3, dtype="float64")), w)[0]
    traced = hm.trace(lambda x: hm.autograd.grad(program(x), w)[0])
    found = traced(hm.ones(3, dtype="float64"))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)
    assert is_loop(traced)
    out = hm.trace(program)(hm.ones(3, dtype="float64"))
    assert out.requires_grad
    np.testing.assert_allclose(hm.autograd.grad(out, w)[0].numpy(), expected.numpy(), rtol=1e-12)


def test_states_with_histories_from_a_step() -> None:
    w = hm.asarray(np.full(3, 0.5)).requires_grad_()

    def program(x: Any) -> Any:
        total = hm.zeros(3, dtype="float64")
        for k in range(20):
            total += x * w * k
        return total.sum()

    x = hm.ones(3, dtype="float64")
    expected = hm.autograd.grad(program(x), w)[0]
    found = hm.trace(lambda x: hm.autograd.grad(program(x), w)[0])(x)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


def sums(ends: Any, values: Any) -> list[Any]:
    found = []
    for i in range(len(ends) - 1):
        s = 0
        for k in range(ends[i], ends[i + 1]):
            s += values[k]
        found.append(s)
    return found


def twice_and_one(ends: Any, values: Any) -> list[Any]:
    return [2 * s + 1 for s in sums(ends, values)]


def extremes(ends: Any, values: Any) -> list[Any]:
    found = []
    for i in range(len(ends) - 1):
        s = 0.0
        for k in range(ends[i], ends[i + 1]):
            s = max(s, values[k])
        found.append(s * 2 + 1)
    return found


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
@pytest.mark.parametrize("program", [sums, twice_and_one, extremes], ids=lambda f: f.__name__)
def test_a_list_has_numbers_of_python_where_ranges_are_empty(program: Callable[..., Any], dtype: str) -> None:
    rng = np.random.default_rng(0)
    ends, values = np.sort(rng.integers(0, 40, 21)), (10 * rng.random(40)).astype(dtype)
    for where in (ends, np.zeros_like(ends), ends[:4]):
        both(program, partial(hm.tensor, where), partial(hm.tensor, values), calls=1)
