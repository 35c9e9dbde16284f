"""An `if` without `else` in a step of a captured loop: its ways join in one run of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import assert_same


def negated(x: Any) -> Any:
    n, s, a = 0, 0.0, np.zeros(len(x))
    for i in range(len(x)):
        if not (x[i] > 0 and s < 1.0):
            n += 1
            a[i] = s
        if not x[i] > 0.5 or n > 12:
            s = 0.5 * s + 1.0
        if n:
            a[0] += 1
    return n, s, a


def of_numbers_of_steps(x: Any) -> Any:
    n, a = 0, np.zeros((20, 20))
    for i in range(20):
        for j in range(20):
            if i != j and x[i] > x[j]:
                a[i, j] = 1.0
            if 3 <= j - i < 9 and x[j] > 0:
                n += 1
            if not i >= j and x[i] > 0:
                a[i, j] += x[j]
    return n, a


def of_tuples(x: Any) -> Any:
    a = b = c = d = e = 0
    k = (x[:20] > 0) + 2 * (x[1:21] > 0)
    for i in range(1, 20):
        if (k[i], k[i - 1]) < (2, 1):
            a += 1
        if (k[i],) != (1,):
            b += 1
        if [k[i], 1] == [2, 1]:
            c += 1
        if (k[i], 1) <= (k[i - 1], 0):
            d += 1
        if (i, k[i]) > (7, 2) and x[i] > 0:
            e += 1
    return a, b, c, d, e


def with_empty_bodies(x: Any) -> Any:
    n = 0
    for i in range(len(x)):
        if x[i] > 0:
            pass
        if x[i] > 0.3:
            unread = 2 * x[i]  # noqa: F841
        if x[i] > 0.6:
            if x[i - 1] > 0:
                n += 1
    return n


@pytest.mark.parametrize(
    "program", [negated, of_numbers_of_steps, of_tuples, with_empty_bodies], ids=lambda f: f.__name__
)
def test_ifs_without_else(program: Callable[[Any], Any]) -> None:
    traced = hm.trace(program)
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(30)
        assert_same(program(hm.asarray(x.copy())), traced(hm.asarray(x)))
    assert " loop(" in traced.ir
