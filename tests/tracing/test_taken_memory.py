"""Variables that a step updates in place and assigns, and arrays that trade places: nobody else may look at them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.loops import as_eager, is_loop

N = 40


def e1(x: Any) -> Any:
    u = x * 1.0
    v = u
    for _k in range(N):
        u[0] = 0.5
        u = u * 0.9 + 0.1
    return u, v


def e2(x: Any) -> Any:
    u = x * 1.0
    v = u[:2]
    for _k in range(N):
        u[0] = 0.5
        u = u * 0.9 + 0.1
    return u, v + 1


def e3(x: Any) -> Any:
    u = x * 1.0
    hist = [u]
    for _k in range(N):
        u[0] = 0.5
        u = u * 0.9 + 0.1
        hist.append(u)
    return hist


def e4(x: Any) -> Any:
    u = x
    for k in range(N):
        u[0] = 0.5 + k
        u = u * 0.9 + 0.1
    return u


def e5(x: Any) -> Any:
    u = x * 1.0
    for k in range(N):
        u[k % 5] += 0.5
        if u.sum() > 3:
            u = u * 0.5
    return u


def e6(x: Any) -> Any:
    u = x * 1.0
    v = u
    for _k in range(N):
        u[0] += 0.5
        if u.sum() > 3:
            u = u * 0.5
    v[1] = 7.0
    return u, v


def e7(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    for _k in range(N):
        u[0] += 0.5
        w = u
        u = v + 0.1
        v = w * 0.9
    return u, v, w


def e8(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    for _k in range(N):
        u[0] += 0.5
        u, v = v, u
    return u, v


def e9(x: Any) -> Any:
    u = x * 1.0
    v = u
    for _k in range(N):
        u[0] += 0.5
        u, v = v, u * 1.0
    return u, v


def e10(x: Any) -> Any:
    u = x * 1.0
    v = x * 2
    for _k in range(N):
        u[0] += 0.5
        v = u
        u = u * 0.9
        v[1] += 0.1
    return u, v


def e11(x: Any) -> Any:
    u = x * 1.0
    v = x * 2
    for _k in range(N):
        u[0] += 0.5
        v = u[::-1]
        u = v
    return u, v


def e12(x: Any) -> Any:
    u = x * 1.0
    v = u[1:]
    for _k in range(N):
        u[1] += 0.5
        s = v[0]
        u = u * 0.9 + s * 0.01
    return u


def e13(x: Any) -> Any:
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


def e14(x: Any) -> Any:
    u = x * 1.0
    k = 0
    while u.sum() < 9:
        u[0] = 0.5
        u = u * 1.05 + 0.1
        k += 1
    u[2] = 3
    return u, k


def e15(x: Any) -> Any:
    tot = 0.0
    u = x * 1.0
    for _i in range(20):
        for j in range(20):
            u[0] = 0.5 + j
            u = u * 0.9 + 0.1
        tot += u.sum()
    return u, tot


def e16(x: Any) -> Any:
    u = x * 1.0

    def step(u):
        u[0] = 0.5
        return u * 0.9 + 0.1

    for _k in range(N):
        u = step(u)
    return u


def e21(x: Any) -> Any:
    a = x * 1.0
    for _k in range(N):
        b = a
        b[0] += 0.1
        a = b * 0.9
    return a, b


def e22(x: Any) -> Any:
    old = x * 1.0
    new = x * 1.0
    for _k in range(N):
        new[1:-1] = 0.5 * (old[:-2] + old[2:])
        err = abs(new - old).max()
        old, new = new, old
        if err < 1e-4:
            break
    return old, new, err


def e25(x: Any) -> Any:
    u = x * 1.0
    for _k in range(N):
        u[0] += 1.0
        v = u
        u = v + 0.0
        v[1] = 5.0
    return u, v


def e31(x: Any) -> Any:
    a = x * 1.0
    b = a
    k = 0
    while a.sum() < -6 and k < N:
        a[0] += 0.1
        a = a * 1.01
        k += 1
    a[0] = 4
    return a, b, k


def e32(x: Any) -> Any:
    a = x * 1.0
    k = 0
    while a.sum() < -6 and k < N:
        a[0] += 0.1
        a = a * 1.01
        k += 1
    a[0] = 4
    return a, k


def e33(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    for _k in range(N):
        u, v = v, u
        if u.sum() < v.sum():
            u[0] += 0.3
    return u, v


def e34(x: Any) -> Any:
    u = x * 1.0
    w = 0.0
    for k in range(N):
        u[0] += 0.5
        if k == 20:
            w = u
        u = u * 0.9
    return u, w


def e35(x: Any) -> Any:
    u = x * 1.0
    w = u
    for _k in range(N):
        u[0] += 0.5
        if u.sum() > 4:
            w = u
        u = u * 0.99
    return u, w


def e47(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    w = v
    for _k in range(N):
        u[0] += 0.5
        u, v = v, u
    return u, v, w


def e48(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    for _k in range(N):
        if a[0] > 0.5:
            a, b = b, a
        a[0] *= 0.99
        b[1] += 0.01
    return a, b


def e49(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    c = b
    for _k in range(N):
        if a[0] > 0.5:
            a, b = b, a
        a[0] *= 0.99
    return a, b, c


def e50(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    w = v[1:]
    for _k in range(N):
        u[0] += 0.5
        u, v = v[::-1], u
    return u, v, w + 1


def e51(x: Any) -> Any:
    u = x * 1.0
    v = x * 2.0
    for _k in range(N):
        u[0] += 0.5
        u, v = v[::-1], u
    return u, v


def e53(x: Any) -> Any:
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


def e54(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    hist = []
    for _k in range(N):
        b[1:-1] = 0.5 * (a[:-2] + a[2:])
        a, b = b, a
        hist.append(a)
    return a, b, hist[3], hist[-1]


def e55(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    hist = []
    for _k in range(N):
        b[1:-1] = 0.5 * (a[:-2] + a[2:])
        a, b = b, a
        hist.append(a.copy())
    return a, b, hist[3], hist[-1]


def e56(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    c = x * 3.0
    for _k in range(N):
        a[0] += 0.1
        a = b
        b = c * 0.9
        c = a + 0.1
    return a, b, c


def e57(x: Any) -> Any:
    a = x * 1.0
    b = x * 2.0
    for _k in range(N):
        a[0] += 0.1
        a = b
        b = a * 0.9
    return a, b


ROLLED = (e4, e5, e7, e8, e10, e13, e14, e15, e16, e21, e22, e25, e32, e33, e34, e48, e51, e55, e56, e57)
OTHERS = (e1, e2, e3, e6, e9, e11, e12, e31, e35, e47, e49, e50, e53, e54)


@pytest.mark.parametrize("program", ROLLED)
def test_the_loop_has_the_memory_as_its_own(program: Any) -> None:
    traced = as_eager(program)
    assert is_loop(traced) and traced.cache_info().compiles == 1


@pytest.mark.parametrize("program", OTHERS)
def test_others_that_look_at_it_see_what_they_see_eagerly(program: Any) -> None:
    as_eager(program)
