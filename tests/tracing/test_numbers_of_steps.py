"""Ints, complex numbers and small arrays that steps of loops decide: one loop, with eager bits and types."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import assert_same, both, data, is_loop

N = 40
PLACES = np.arange(7)


def complex_data(n: int) -> Callable[[], hm.Tensor]:
    rng = np.random.default_rng(3)
    numbers = rng.random(n) + 1j * rng.random(n)
    return lambda: hm.asarray(numbers)


# -- ints


def of_quotients(x: Any) -> Any:
    for k in range(N):
        q, r = divmod(k, 3)
        x[q] = x[r] + x[k] + k // 5 * x[k // 4]
    return x


def truncated(x: Any) -> Any:
    for k in range(N):
        x = x + x[int(k / 3)] * int(k * 0.25) + int(k)
    return x


def rounded(x: Any) -> Any:
    for k in range(N):
        x = x + x[round(k * 0.5)] * round(k / 3) + round(0.1 * k) + round(k)
    return x


def of_math(x: Any) -> Any:
    for k in range(N):
        x[math.ceil(k / 2)] = x[math.floor(k / 7)] + math.trunc(k / 4) - math.floor(-k / 3) + math.ceil(0.3 * k)
    return x


def of_roots(x: Any) -> Any:
    for k in range(N):
        x = x + x[int(math.sqrt(k))] * int(np.sqrt(k))
    return x


def of_floats(x: Any) -> Any:
    for k in range(N):
        x = x + float(k) * 0.1 + float(k // 3)
    return x


def distances(x: Any) -> Any:
    for k in range(N):
        x = x + x[abs(k - 5)] * abs(k - 7) + x[min(k, 5)] * max(k, 7)
    return x


def bounded(x: Any) -> Any:
    for k in range(N):
        for j in range(int(k / 2)):
            x[k] = x[k] + x[j] * 0.1
    return x


def sliced(x: Any) -> Any:
    for k in range(2, N):
        x[: int(k / 2)] = x[int(k / 2) : 2 * int(k / 2)] + 1
    return x


def histogram(x: Any) -> Any:
    h, total = np.zeros(10), hm.zeros(10, dtype="float64")
    for i in range(len(x)):
        h[int(x[i] * 10)] += 1
        total[int(x[i] * 10)] += x[i]
    return h, total


@pytest.mark.parametrize(
    "program",
    [of_quotients, truncated, rounded, of_math, of_roots, of_floats, distances, bounded, sliced, histogram],
    ids=lambda f: f.__name__,
)
def test_ints_of_steps(program: Callable[[Any], Any]) -> None:
    assert is_loop(both(program, data(2 * N)))


def test_ints_of_data_raise_what_python_raises() -> None:
    def program(x: Any) -> Any:
        h = hm.zeros(10)
        for i in range(len(x)):
            h[int(x[i])] += 1
        return h

    traced, x = hm.trace(program), np.arange(20.0) % 10
    assert_same(program(hm.tensor(x)), traced(hm.tensor(x)))
    for value, error in ((math.nan, ValueError), (math.inf, OverflowError), (1e300, IndexError)):
        x[13] = value
        for way in (program, traced):
            with pytest.raises(error):
                way(hm.tensor(x))
    x[13] = -0.5
    assert_same(program(hm.tensor(x)), traced(hm.tensor(x)))


WAYS = [lambda x: int(x), lambda x: round(x), lambda x: math.floor(x), lambda x: math.ceil(x)]
QUOTIENTS = [
    lambda k: k / 2, lambda k: k / 3, lambda k: k / 4, lambda k: k / 6, lambda k: k / 7, lambda k: k / 0.5,
    lambda k: k / 0.1, lambda k: k * 0.1, lambda k: k * 0.5 + 0.25, lambda k: 0.75 * k - k, lambda k: k / 3 * 3,
    lambda k: k / 49 * 49, lambda k: -(k / 4), lambda k: k * 2.0, lambda k: k * 1.0 / 2 / 2, lambda k: k / 3 + k,
]  # fmt: skip


@pytest.mark.parametrize("way", range(len(WAYS)))
@pytest.mark.parametrize("number", range(len(QUOTIENTS)))
def test_all_quotients(way: int, number: int) -> None:
    of, quotient = WAYS[way], QUOTIENTS[number]

    def program(out: Any) -> Any:
        for k in range(60):
            out[k, 0] = of(quotient(k))
            out[k, 1] = of(quotient(7 - k))
            out[k, 2] = of(quotient(2 * k + 1))
        return out

    assert is_loop(both(program, lambda: hm.zeros((60, 3), dtype="float64")))


# -- complex numbers


def turned(z: Any) -> Any:
    for k in range(N):
        z = z * cmath.exp(-0.1j * k) + np.exp(1j * k) * 0.5
    return z


def carried(x: Any) -> Any:
    z, w, total = 1 + 0j, complex(math.cos(0.1), math.sin(0.1)), 0.0
    for _ in range(N):
        z = z * w
        total = total + x * z.real - z.imag
    return total, z


def of_all_kinds(x: Any) -> Any:
    for k in range(1, N):
        z = complex(k, 0.5 * k) / (2 - 1j) - 1j
        u = z.conjugate() ** 2 + k / z + 2.0 * z - z
        x = x + u * abs(z) + cmath.phase(z) + cmath.rect(1.0, 0.1 * k) + -z + complex(k) + cmath.sqrt(k)
    return x


def numpys(x: Any) -> Any:
    z = np.complex128(1)
    for k in range(N):
        z = z - np.exp(0.1j * k)
        x = x + z + abs(z) * np.sqrt(z + 1j)
    return x, z


def asked(x: Any) -> Any:
    for k in range(N):
        z = cmath.exp(1j * k)
        x = x * 2 * z if z != 1 and z else x + 1
    return x * 2.0**-40


def summed(x: Any) -> Any:
    n = len(x)
    found = np.zeros(n, dtype=complex)
    for k in range(n):
        for j in range(n):
            found[k] += x[j] * np.exp(-2j * np.pi * k * j / n)
    return found


def collected(x: Any) -> Any:
    found = []
    for k in range(N):
        found.append(cmath.exp(1j * k) * 2)
        x = x + found[-1]
    return x


@pytest.mark.parametrize("program", [turned, carried, of_all_kinds, numpys, asked, summed], ids=lambda f: f.__name__)
def test_complex_numbers_of_steps(program: Callable[[Any], Any]) -> None:
    assert is_loop(both(program, complex_data(24)))


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float64"])
def test_complex_numbers_take_the_width_of_tensors(dtype: str) -> None:
    def program(x: Any) -> Any:
        y = x + 0j
        for k in range(N):
            y = y * 0.5 + x * cmath.exp(0.1j * k)
        return y

    assert is_loop(both(program, lambda: hm.ones(3, dtype=dtype)))


def test_complex_numbers_that_go_on_in_lists() -> None:
    assert_same(collected(hm.ones(3, dtype="complex128")), hm.trace(collected)(hm.ones(3, dtype="complex128")))

    def program(x: Any) -> Any:
        found = []
        for k in range(N):
            found.append(cmath.exp(1j * k))
            x = x + k
        return x, found

    assert is_loop(both(program, data(3)))


def test_errors_of_complex_numbers_are_those_of_python() -> None:
    def program(x: Any) -> Any:
        for k in range(N):
            x = x + 1j / complex(20 - k, 0)
        return x

    for way in (program, hm.trace(program)):
        with pytest.raises(ZeroDivisionError):
            way(hm.ones(3))


# -- arrays


def waves(x: Any) -> Any:
    for k in range(N):
        x = x + np.cos(0.1 * k * PLACES) + np.arange(7) * k - PLACES / (k + 1)
    return x


def compared(x: Any) -> Any:
    for k in range(N):
        x = x + (0.1 * k < PLACES) * 1.0 + (PLACES < k)
    return x


def updated(x: Any) -> Any:
    for k in range(N):
        y = 0.5 * k * np.arange(7)
        y[0] = 3.0
        y[2:] *= 2
        x = x + y
    return x


def spectrum(x: Any) -> Any:
    for k in range(N):
        x = x * np.exp(-2j * np.pi * k * np.arange(7) / 7) + 1j * k * PLACES
    return x


@pytest.mark.parametrize("program", [waves, compared, updated], ids=lambda f: f.__name__)
def test_arrays_of_steps(program: Callable[[Any], Any]) -> None:
    assert is_loop(both(program, data(7)))


def test_arrays_of_steps_are_looked_up() -> None:
    for program, make in ((waves, data(7)), (spectrum, complex_data(7))):
        traced = both(program, make)
        assert is_loop(traced)
        assert "numpy_" not in str(traced._shown().program.executable.ir)


def test_large_arrays_of_steps_are_calls() -> None:
    def program(x: Any) -> Any:
        for k in range(N):
            x = x + np.cos(0.1 * k * np.arange(5000))
        return x

    traced = both(program, data(5000))
    assert is_loop(traced) and "numpy_unary" in str(traced._shown().program.executable.ir)


def test_floats_that_are_arguments_meet_arrays_as_in_numpy() -> None:
    def program(x: Any, t: float) -> Any:
        return x + t * np.arange(7) + PLACES * t + np.cos(t * PLACES)

    traced = hm.trace(program)
    for t in (0.1, 0.3, 0.7):
        assert_same(program(data(7)(), t), traced(data(7)(), t))
    assert traced.cache_info().compiles == 1
