"""NumPy arrays of the program that a step updates in place and assigns, or that trade places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.loops import as_eager, is_loop

N = 40


def e17(x: Any) -> Any:
    a = np.zeros(5)
    b = np.zeros(5)
    a[:] = x
    b[:] = x
    c = a
    for _k in range(N):
        b[1:-1] = 0.5 * (a[:-2] + a[2:])
        b[0] += 0.1
        a, b = b, a
    return a, b, c


def e18(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    c = a
    for _k in range(N):
        a[0] += 0.1
        a = a * 0.9
    return a, c


def e19(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    c = a[1:3]
    for _k in range(N):
        a[0] += 0.1
        a[2] += 0.1
        a = a * 0.9
    c[0] = 9
    return a, c


def e26(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    c = [a]
    for _k in range(N):
        a[0] += 0.1
        a = a * 0.9
    return a, c[0]


def e27(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    c = a
    for _k in range(N):
        a[0] += 0.1
        a = a * 0.9
    return a, float(c[0])


def e28(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    out = []
    for _k in range(N):
        a[0] += 0.1
        a = a * 0.9
        out.append(a)
    return a, out[3], out[-1]


def e29(x: Any) -> Any:
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


def e30(x: Any) -> Any:
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


def e37(x: Any) -> Any:
    a = np.zeros(5)
    b = np.zeros(5)
    a[:] = x
    b[:] = x * 2
    for _k in range(N):
        b[1:-1] = 0.5 * (a[:-2] + a[2:])
        b[0] += 0.1
        a, b = b, a
    return a, b


def e38(x: Any) -> Any:
    a = np.zeros(5)
    b = np.zeros(5)
    a[:] = x
    b[:] = x * 2
    c = b
    for _k in range(N):
        a, b = b, a + 0.1
    a[0] = 9
    return a, b, c


def e39(x: Any) -> Any:
    a = np.zeros(5)
    b = np.zeros(5)
    c = np.zeros(5)
    a[:] = x
    b[:] = x * 2
    c[:] = x
    for _k in range(N):
        c[1:-1] = 0.5 * (a[:-2] + b[2:])
        a, b, c = b, c, a
    c[1] = 3
    return a, b, c


def e40(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    old = a
    for _k in range(N):
        old = a
        a = a * 0.9
    old[0] = 3
    return a, old


def e42(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    b = np.zeros(5)
    b[:] = x
    for _k in range(N):
        if a[0] > 0.5:
            a, b = b, a
        a = a * 0.99
    b[0] = 8
    return a, b


def e43(x: Any) -> Any:
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


def e44(x: Any) -> Any:
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


def e45(x: Any) -> Any:
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


def e46(x: Any) -> Any:
    a = np.zeros(5)
    a[:] = x
    b = np.zeros(5)
    for _i in range(20):
        for _k in range(20):
            b[1:-1] = a[:-2] * 0.7
            a, b = b, a
        a[0] += 1
    return a, b


def e52(x: Any) -> Any:
    a = np.zeros(5)
    b = np.zeros(5)
    a[:] = x
    b[:] = x * 2
    c = [a]
    for _k in range(N):
        b[1] += 0.5
        a, b = b, a
    return a, b, c[0]


ROLLED = (e29, e37, e39, e42, e43, e45, e46)
OTHERS = (e17, e18, e19, e26, e27, e28, e30, e38, e40, e44, e52)


@pytest.mark.parametrize("program", ROLLED)
def test_the_loop_has_the_memory_as_its_own(program: Any) -> None:
    traced = as_eager(program)
    assert is_loop(traced) and traced.cache_info().compiles == 1


@pytest.mark.parametrize("program", OTHERS)
def test_others_that_look_at_it_see_what_they_see_eagerly(program: Any) -> None:
    as_eager(program)
