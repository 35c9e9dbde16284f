"""Python's numbers in steps of loops raise what they raise in Python: a check finds it, and Python makes the call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import assert_same

N = 20
Program = Callable[[hm.Tensor], Any]


def quotient(x: hm.Tensor) -> Any:
    t = 1.0
    for i in range(N):
        t = 0.5 * t + 1.0 / (float(x[i]) - 3.0)
    return t


def whole_quotient(x: hm.Tensor) -> Any:
    t = 1.0
    for i in range(N):
        t = t + 7.5 // (float(x[i]) - 3.0) + 7.5 % (float(x[i]) - 3.0)
    return t


def of_what_goes_on(x: hm.Tensor) -> Any:
    t = 2.0
    for i in range(N):
        x[i] = 1.0 / t
        t = float(x[i]) + 0.5 * t if x[i] > -1.0 else t
        t = t - float(x[i]) if x[i] < 0.4 else t
    return t, x


def in_a_branch(x: hm.Tensor) -> Any:
    t = 0.0
    for i in range(N):
        if x[i] > 3.0:
            t = t + 1.0 / (float(x[i]) - 3.0)
        else:
            t = t - 1.0 / (float(x[i]) - 2.0)
    return t


def before_it_is_left(x: hm.Tensor) -> Any:
    t = 0.0
    for i in range(N):
        if x[i] == 3.0:
            break
        t = t + 1.0 / (float(x[i]) - 3.0)
    return t


def in_a_loop_that_ends(x: hm.Tensor) -> Any:
    t, i = 0.0, 0
    while t < 3.0 and i < N:
        t = t + 1.0 / (float(x[i]) - 3.0)
        i += 1
    return t, i


def of_ints(x: hm.Tensor) -> Any:
    t = 0
    for i in range(N):
        t = 100 // (int(x[i]) - 3) - 100 % (int(x[i]) - 3)
    return t


def of_ints_as_floats(x: hm.Tensor) -> Any:
    t = 0.0
    for i in range(N):
        t = t + 100 / (int(x[i]) - 3)
    return t


def root(x: hm.Tensor) -> Any:
    t = 1.0
    for i in range(N):
        t = 0.5 * t + math.sqrt(float(x[i]) - 3.0)
    return t


def root_of_a_tensor(x: hm.Tensor) -> Any:
    out = hm.zeros(N, dtype="float64")
    for i in range(N):
        out[i] = math.sqrt(x[i] - 3.0)
    return out


def logarithms(x: hm.Tensor) -> Any:
    t = 1.0
    for i in range(N):
        t = 0.5 * t + math.log(float(x[i]) - 3.0)
    return t


def functions_in_branches(x: hm.Tensor) -> Any:
    t = 0.0
    for i in range(N):
        if x[i] > 3.5:
            t = t + math.log(float(x[i]) - 3.0)
        elif x[i] > 2.0:
            t = t - math.atanh(0.5 * (float(x[i]) - 3.0)) + (float(x[i]) - 2.0) ** -0.5
        else:
            t = t * 0.5
    return t


def power(x: hm.Tensor) -> Any:
    t = 0.0
    for i in range(N):
        t = t + (float(x[i]) - 3.0) ** -0.5
    return t


def int_of_nan(x: hm.Tensor) -> Any:
    out = hm.zeros(N, dtype="int64")
    for i in range(N):
        out[i] = int(x[i] * 2)
    return out


PROGRAMS: list[Program] = [
    quotient, whole_quotient, of_what_goes_on, in_a_branch, before_it_is_left, in_a_loop_that_ends, of_ints,
    of_ints_as_floats, root, root_of_a_tensor, logarithms, functions_in_branches, power, int_of_nan,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_a_step_raises_what_python_raises(fn: Program) -> None:
    traced, values = hm.trace(fn), np.arange(N) * 0.5 + 3.6
    odd = [values] + [np.where(np.arange(N) == k, bad, values) for k in (0, 7, N - 1) for bad in (3.0, 1.0, np.nan)]

    def outcome(call: Program, x: np.ndarray) -> Any:
        try:
            return call(hm.asarray(x.copy()))
        except (ZeroDivisionError, ValueError, TypeError) as error:
            return f"{type(error).__name__}: {error}"

    for x in [*odd, np.full(N, 4.0), np.full(N, 2.5)]:
        expected, found = outcome(fn, x), outcome(traced, x)
        assert repr(expected) == repr(found)
        if not isinstance(expected, float | complex):
            assert_same(expected, found) if "nan" not in repr(expected) else None
    assert " loop(" in traced.ir and traced.cache_info().compiles == 1


def test_the_error_is_at_its_place() -> None:
    traced = hm.trace(quotient)
    traced(hm.asarray(np.full(N, 4.0)))
    with pytest.raises(ZeroDivisionError) as raised:
        traced(hm.asarray(np.full(N, 3.0)))
    assert raised.traceback[-1].frame.code.name == "quotient"


def test_what_is_caught_is_what_python_catches() -> None:
    def fn(x: hm.Tensor) -> Any:
        t = 0.0
        try:
            for i in range(N):
                t = t + 1.0 / (float(x[i]) - 3.0)
        except ZeroDivisionError:
            return "zero", t
        return "all", t

    traced = hm.trace(fn)
    for values in (np.full(N, 4.0), np.where(np.arange(N) == 3, 3.0, 4.0), np.full(N, 5.0)):
        assert_same(fn(hm.asarray(values)), traced(hm.asarray(values)))


def test_an_int_of_what_goes_on_is_that_of_a_float64() -> None:
    def fn(x: hm.Tensor) -> Any:
        t, k, out = 16777217.3, 0, hm.zeros(N, dtype="float64")
        while t < 16777230.0:
            out[k] = int(t * 1.0000001)
            k = k + 1
            t += 0.7
        return out

    traced, x = hm.trace(fn), hm.asarray(np.ones(N))
    assert_same(fn(x), traced(x))
    assert " loop(" in traced.ir


def adaptive(u: hm.Tensor) -> Any:
    t, dt, steps, rejected = 0.0, 1e-3, 0, 0
    while t < 0.5 and steps < 300:
        dt = min(dt, 0.5 - t)
        full = u - dt * u
        half = u - 0.5 * dt * u
        half = half - 0.5 * dt * half
        err = abs(full - half).max()
        if err < 1e-5:
            u = 2 * half - full
            t += dt
            steps += 1
        else:
            rejected += 1
        dt *= min(2.0, max(0.3, 0.9 * math.sqrt(1e-5 / (float(err) + 1e-15))))
    return u, t, steps, rejected


def test_steps_as_long_as_an_error_allows_are_a_loop() -> None:
    traced = hm.trace(adaptive)
    for seed in range(3):
        x = hm.asarray(np.random.default_rng(seed).random(N))
        assert_same(adaptive(x), traced(x))
    assert " loop(" in traced.ir and traced.cache_info().compiles == 1
