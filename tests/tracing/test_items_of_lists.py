"""Lists to which a loop appends tuples, and NumPy's arrays and scalars: one loop, with the items of eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import both, data, is_loop

N = 20


def tuples(x: Any) -> Any:
    out, s = [], hm.zeros((), dtype=x.dtype)
    for k in range(N):
        s = s + x[k]
        out.append((k, s * 2, (x[k] * 1.0, "a", k * 0.5)))
        out.append((k, float(k) * 0.1, ()))
    return out


def scalars(x: Any) -> Any:
    h, out = np.arange(N), []
    for k in range(1, N):
        h[k] += h[k - 1] + (x[k] > 0.5)
        out.append(h[k])
        out.append((h[k - 1], x[k] + 1))
    return out


def arrays(x: Any) -> Any:
    m, out = np.eye(2), []
    for k in range(N):
        m = m * 0.5
        m[0, 1] = x[k]
        out.append(m)
    out[2][1, 1] = 5
    m[0, 0] = 8
    return out, m, out[-1] is m


def tensors(x: Any) -> Any:
    out, y = [], x[:2] * 1.0
    for k in range(N):
        y = y * 0.5 + x[k]
        out.append((k, y))
    out[-1][1][0] = 9
    return out, y, out[-1][1] is y


def until(x: Any) -> Any:
    out, n = [], 0
    while x.max() > 1e-2:
        x = x * 0.5
        n += 1
        out.append((n, x.sum()))
    return out, n


@pytest.mark.parametrize("program", [tuples, scalars, arrays, tensors, until])
def test_items_are_those_of_eager_code_by_one_step(program: Callable[[Any], Any]) -> None:
    assert is_loop(both(program, data(N)))


def with_its_start(x: Any) -> Any:
    u, out = np.zeros(2), []
    for k in range(N):
        t = np.zeros(2)
        t[1] = x[k]
        out.append(u)
        u = u + t
    out[0][0] = 3
    return out, u


def perhaps_a_variable(x: Any) -> Any:
    u, out = np.zeros(2), []
    for k in range(N):
        t = np.zeros(2)
        t[1] = x[k]
        u = u + t
        out.append((k, u))
        if x[k] > 0.5:
            u = u * 1
    out[-1][1][0] = 9
    return out, u


def twice(x: Any) -> Any:
    out = []
    for k in range(N):
        t = np.zeros(2)
        t[1] = x[k]
        out.append((t, t))
    out[0][0][0] = 4
    return out


def views(x: Any) -> Any:
    t, out = np.zeros((N, 2)), []
    for k in range(N):
        t[k, 1] = x[k]
        out.append((k, t[k]))
    t += 1
    return out, t


def changed_later(x: Any) -> Any:
    out = []
    for k in range(N):
        pair = (k, [x[k]])
        out.append(pair)
        pair[1].append(k)
    return out


@pytest.mark.parametrize("program", [with_its_start, perhaps_a_variable, twice, views, changed_later])
def test_items_that_others_may_change_are_as_in_eager_code(program: Callable[[Any], Any]) -> None:
    both(program, data(N))
