"""Loops over arrays as loops of each element: the same bits, and only where no element needs another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

RNG = np.random.default_rng(0)
X, C = RNG.standard_normal((2, 5, 21))
MASK = RNG.random((5, 21)) < 0.7


def _break(x: Any, c: Any, m: Any) -> Any:
    z, alive, times = x * 1, m & True, hm.zeros(x.shape, dtype="int64")
    for i in range(60):
        z[alive] = z[alive] ** 2 + c[alive]
        alive &= abs(z) < 2
        times[alive] = i + 1
        if not alive.any():
            break
    return z, alive, times


def _no_break(x: Any, c: Any, m: Any) -> Any:
    z, alive = x * 1, m & True
    for i in range(40):
        z[alive] = z[alive] ** 2 * 0.9 + c[alive] / (3 * i + 1)
        alive[alive] = abs(z[alive]) < 1.5
    return z, alive


def _one_result(x: Any, c: Any, m: Any) -> Any:
    return _break(x, c, m)[2]


def _complex(x: Any, c: Any, m: Any) -> Any:
    start = x + 1j * c
    z, alive = start * 0, hm.ones(x.shape, dtype="bool")
    for _ in range(50):
        z[alive] = z[alive] ** 2 + start[alive]
        alive &= abs(z) < 2
    return z, alive


def _numbers(x: Any, c: Any, m: Any) -> Any:
    z, alive, t = x * 1, m & True, 0.0
    n = hm.zeros(x.shape, dtype="int32")
    for i in range(30):
        z = hm.where(alive, z * 0.75 + c * t, z)
        n = hm.where(alive, n + i, n)
        alive = alive & (z < 1.0)
        t += 0.125
    return z, n, alive


def _while(x: Any, c: Any, m: Any) -> Any:
    z, alive = x * 1, m & True
    while alive.any():
        z[alive] = z[alive] * 0.5
        alive = alive & (abs(z) > 0.3)
    return z


def _in_a_loop(x: Any, c: Any, m: Any) -> Any:
    total = x * 0
    for k in range(20):
        z, alive = x * k, m & True
        for _ in range(25):
            z[alive] = z[alive] * 0.5 + c[alive]
            alive &= abs(z) > 0.25
        total += z
    return total


def _of_all(x: Any, c: Any, m: Any) -> Any:  # an element that is not alive goes on
    z, alive = x * 1, m & True
    for _ in range(20):
        z = z * 0.5 + c
        alive = alive & (z < 1)
    return z, alive


def _neighbours(x: Any, c: Any, m: Any) -> Any:
    z, alive = x * 1, m & True
    for _ in range(20):
        z = hm.where(alive, z * 0.5 + hm.roll(z, 1, 1), z)
        alive = alive & (abs(z) < 4)
    return z


def _mean(x: Any, c: Any, m: Any) -> Any:
    z, alive = x * 1, m & True
    for _ in range(20):
        z = hm.where(alive, z * 0.5 + z.mean(), z)
        alive = alive & (abs(z) < 4)
    return z


def _count(x: Any, c: Any, m: Any) -> Any:
    z, alive, n = x * 1, m & True, 0
    for _ in range(60):
        z[alive] = z[alive] ** 2 + c[alive]
        alive &= abs(z) < 2
        n += 1
        if not alive.any():
            break
    return z, n


def _revived(x: Any, c: Any, m: Any) -> Any:
    z, alive = x * 1, m & True
    for _ in range(20):
        z = hm.where(alive, z * 0.5 + c, z)
        alive = abs(z) < 1
    return z


def _other_mask(x: Any, c: Any, m: Any) -> Any:
    z, alive, other = x * 1, m & True, x > 0
    for _ in range(20):
        z = hm.where(other, z * 0.5 + c, z)
        alive &= abs(z) < 4
        if not alive.any():
            break
    return z


ELEMENTS = (_break, _no_break, _one_result, _complex, _numbers, _in_a_loop)
OTHERS = (_of_all, _neighbours, _mean, _count, _revived, _other_mask, _while)


def _outcome(fn: Callable[..., Any], mask: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(t) for t in hm.tree_leaves(fn(hm.tensor(X), hm.tensor(C * 0.5), hm.tensor(mask)))]


@pytest.mark.parametrize("fn", [*ELEMENTS, *OTHERS])
@pytest.mark.parametrize("mask", [MASK, ~MASK, MASK & False], ids=["most", "some", "none"])
def test_bits(fn: Callable[..., Any], mask: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        for eager, traced in zip(_outcome(fn, mask), _outcome(hm.trace(fn), mask), strict=True):
            assert eager.dtype == traced.dtype
            if eager.dtype.kind == "c" or fn is _mean:
                np.testing.assert_allclose(traced, eager, rtol=1e-12)
            else:
                np.testing.assert_array_equal(traced, eager)


@pytest.mark.parametrize("fn", [*ELEMENTS, *OTHERS])
def test_which_loops(fn: Callable[..., Any]) -> None:
    traced = hm.trace(fn)
    _outcome(traced, MASK)
    text = traced._shown().program.executable.ir
    assert ("composite" in text) is (fn in ELEMENTS)
    assert (" loop(" in text) is (fn in OTHERS or fn is _in_a_loop)
