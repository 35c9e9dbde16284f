"""`int()` of data outside of loops: one program for all values, unless Python needs the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import assert_same

N = 20


def places(x: Any) -> Any:
    k = int(x.argmax())
    w = x * 2.0
    return w[k] * 1.0, k, k + 1, k // 2, k == 3, -k, k * 0.5


def ends_of_ranges(x: Any) -> Any:
    n, s = int(x.max() * 3), 0.0
    for i in range(n):
        s = s + x[i]
    return s, n


def traced_back(x: Any) -> Any:
    back = np.zeros(N, int)
    for i in range(1, N):
        back[i] = i - 1 if x[i] > 0.5 else i // 2
    path = [int(np.argmax(x))]
    for _ in range(5):
        path.append(int(back[path[-1]]))
    return path[::-1]


def decided(x: Any) -> Any:
    k = int(x.argmax())
    return x * k if k > 50 else x


def used_by_python(x: Any) -> Any:
    k = int(x.sum())
    of = {k: 1}
    return (
        of.get(k),
        [1, 2] * k,
        f"{k}",
        "ab"[k % 2],
        isinstance(k, int),
        type(k) is int,
        k.bit_length(),
        k**2,
        len({k, 1}),
    )


def shapes(x: Any) -> Any:
    n = int(x[0] * 4)
    return hm.zeros((n,)), np.zeros(n), x[:n] * 2


def returned_views(x: Any) -> Any:
    for i in range(1, N):
        x[i] += x[i - 1] * 0.5
    k = int(x.argmax())
    return x[k], k


def large(x: Any) -> Any:
    return x * 2, int(x.sum() * 1e12), int(x[0] * 1e30)


def values(seed: int) -> Any:
    return hm.asarray(np.random.default_rng(seed).random(N))


@pytest.mark.parametrize(
    ("program", "most"),
    [(places, 1), (ends_of_ranges, 1), (traced_back, 1), (decided, 1), (used_by_python, 9), (shapes, 9),
     (returned_views, 9), (large, 9)],
)  # fmt: skip
def test_they_are_those_of_eager_code(program: Callable[[Any], Any], most: int) -> None:
    traced = hm.trace(program)
    for seed in range(6):
        given, same = values(seed), values(seed)
        assert_same([program(given), given], [traced(same), same])
    assert traced.cache_info().compiles <= most


def test_a_loop_stays_one_where_an_int_is_asked_for_after_all() -> None:
    traced = hm.trace(returned_views)
    traced(values(0))
    assert " loop(" in traced.ir


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**53 + 2, -0.5, -3.7])
def test_any_float(value: float) -> None:
    traced = hm.trace(lambda x: int(x[0]))
    assert traced(hm.asarray(np.array([1.0]))) == 1
    if np.isfinite(value):
        assert traced(hm.asarray(np.array([value]))) == int(value)
    else:
        with pytest.raises((ValueError, OverflowError), match="cannot convert float"):
            traced(hm.asarray(np.array([value])))
