"""Functions of NumPy and of `math` of the numbers of steps: one loop, with eager bits, and no calls in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import both, data, is_loop

N = 40


def damped(x: Any) -> Any:
    for k in range(N):
        x = x * np.exp(-0.1 * k) + math.cos(k) + np.sin(2 * np.pi * k / N)
    return x


def powers(x: Any) -> Any:
    for k in range(N):
        x = x + 0.5**k * (-1) ** k + x / 2**k + np.power(0.9, k)
    return x


def exact(x: Any) -> Any:
    for k in range(1, N):
        x = x / np.sqrt(k) + np.maximum(k - 3.5, 0) + np.floor(k / 3)
    return x


def carried(x: Any) -> Any:
    t, w = 0.0, 1.0
    for k in range(N):
        t += 0.1
        w = w * 0.9 + k
        x = x + np.sin(t) * np.exp(-w)
    return x, t, w


def nested(x: Any) -> Any:
    for i in range(20):
        for j in range(16):
            x = x + np.cos(i * 0.3 + j) * math.exp(-j)
    return x


def triangular(x: Any) -> Any:
    for i in range(20):
        for j in range(i):
            x[j] = x[j] + np.log(i - j + 0.5) * np.hypot(i, j)
    return x


def until(x: Any) -> Any:
    t = 0.0
    while t < 3.0:
        x = x + np.sin(t) * math.sqrt(t)
        t += 0.1
    return x, t


def left(x: Any) -> Any:
    t = 0.0
    for _ in range(N):
        t += 0.25
        x = x + np.arctan(t)
        if x.sum() > 60.0:
            break
    return x, t


PROGRAMS = [damped, powers, exact, carried, nested, triangular, until, left]


def calls(traced: Any) -> str:
    """The functions that the compiled program calls in its loops."""
    text = str(traced._shown().program.executable.ir)
    return " ".join(name for name in ("numpy_unary", "numpy_binary", "python_math", "python_power") if name in text)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_they_are_looked_up(program: Callable[[Any], Any]) -> None:
    traced = both(program, data(24))
    assert is_loop(traced) and not calls(traced)


def test_what_data_ends_calls_them() -> None:
    def program(x: Any) -> Any:
        t = 0.0
        while x.sum() < 60.0:
            t += 0.1
            x = x + math.atan(t) * 0.1
        return x, t

    assert is_loop(both(program, data(24)))


def test_errors_are_those_of_python() -> None:
    def program(x: Any) -> Any:
        for k in range(N):
            x = x + math.sqrt(20 - k)
        return x

    for way in (program, hm.trace(program)):
        with pytest.raises(ValueError, match=r"math domain error|expected a nonnegative input"):
            way(hm.ones(3))


def test_numbers_of_arguments_are_one_program() -> None:
    def program(x: Any, t: float) -> Any:
        return x * np.exp(-t) + np.cos(np.pi * t)

    traced, x = hm.trace(program), hm.asarray(np.arange(4.0))
    for t in (0.1, 0.2, 0.3, 0.4):
        found, expected = traced(x, t), program(x, t)
        assert found.dtype == expected.dtype and found.tolist() == expected.tolist()
    assert traced.cache_info().compiles == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes_are_those_of_eager_code(dtype: str) -> None:
    def program(x: Any) -> Any:
        y = x
        for k in range(N):
            x, y = x * math.exp(-k), y * 0.5**k
        return x, y

    traced, x = hm.trace(program), hm.ones((3,), dtype=dtype)
    for found, expected in zip(traced(x), program(x), strict=True):
        assert found.dtype == expected.dtype and found.tolist() == expected.tolist()


def test_gradients() -> None:
    def loss(x: Any) -> Any:
        for k in range(N):
            x = hm.tanh(x * np.exp(-0.1 * k)) + 0.1 * np.sin(k)
        return x.sum()

    x = hm.asarray(np.linspace(0.0, 1.0, 5)).requires_grad_()
    (expected,) = hm.autograd.grad(loss(x), x)
    (found,) = hm.trace(lambda x: hm.autograd.grad(loss(x), x))(x)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


def test_tables_are_small() -> None:
    def program(x: Any) -> Any:
        for k in range(100_000):
            x = x + math.sin(k) * 1e-6
        return x

    traced = hm.trace(program)
    np.testing.assert_allclose(traced(hm.zeros(2)).numpy(), program(hm.zeros(2)).numpy(), rtol=1e-4)
    assert calls(traced) == "python_math"


@pytest.mark.parametrize("until", [False, True])
def test_numbers_that_are_given_are_one_call_before_the_loop(until: bool) -> None:
    def program(x: Any, rate: float, dt: float) -> Any:
        t = 0.0
        for k in range(N):
            x = x + math.exp(-rate * k * dt) * np.sin(t) + np.cos(rate + k)
            t = t + dt * rate
            if until and x.sum() > 30.0:
                break
        return x, t

    traced, x = hm.trace(program), hm.asarray(np.arange(4.0))
    for rate in (0.1, 0.3, 0.5):
        (found, end), (expected, last) = traced(x, rate, 0.1), program(x, rate, 0.1)
        assert found.tolist() == expected.tolist() and end == last
    assert is_loop(traced)
    bodies = str(traced._shown().program.executable.ir).partition("graph program")[0]
    assert until or "python_math" not in bodies


def test_complex_numbers_that_are_given_are_one_call_before_the_loop() -> None:
    def program(psi: Any, omega: float, delta: float) -> Any:
        for k in range(N):
            drive = 0.5 * omega * np.exp(-1j * delta * (0.01 * k))
            psi = psi + 0.01 * hm.stack([-1j * drive * psi[1], -1j * np.conj(drive) * psi[0]])
        return psi

    traced, psi = hm.trace(program), hm.asarray(np.array([1.0 + 0j, 0.5j]))
    for delta in (0.3, 0.5, -1.0):
        assert traced(psi, 1.5, delta).tolist() == program(psi, 1.5, delta).tolist()
    assert is_loop(traced)
    bodies = str(traced._shown().program.executable.ir).partition("graph program")[0]
    assert "python_complex" not in bodies
