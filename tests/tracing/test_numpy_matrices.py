"""`np.linalg` of NumPy arrays that a traced function makes: NumPy computes them in the program, with its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import assert_same, both, data, is_loop

N = 20


def matrices(x: Any) -> Any:
    inverse, det = np.zeros((N, 3, 3)), np.zeros(N)
    found, roots = np.zeros((N, 3)), np.zeros((N, 3))
    for k in range(N):
        m = np.eye(3) * 2
        m[0, 1] = m[1, 0] = x[k]
        i = np.linalg.inv(m)
        inverse[k] = i
        det[k] = np.linalg.det(m)
        found[k] = np.linalg.solve(m, i[0])
        roots[k] = np.linalg.cholesky(m)[1]
    return inverse, det, found, roots


def of_one(x: Any) -> Any:
    m = np.eye(2, dtype=np.float32)
    m[0, 1] = x[0]
    ints = np.eye(2, dtype=int)
    ints[1, 0] = x[1] * 5
    return np.linalg.inv(m), np.linalg.det(ints), np.linalg.solve(m, ints), np.linalg.inv(np.stack([m, m * 2]))


def test_results_are_those_of_numpy() -> None:
    assert is_loop(both(matrices, data(N)))
    both(of_one, data(2))


def singular(x: Any) -> Any:
    m, s = np.ones((2, 2)), np.zeros(N)
    for k in range(N):
        m[0, 0] = x[k]
        s[k] = np.linalg.inv(m)[0, 1]
    return s


def no_square(x: Any) -> Any:
    m = np.ones((2, 3))
    m[0, 0] = x[0]
    return np.linalg.inv(m)


def test_errors_are_those_of_numpy() -> None:
    traced, x = hm.trace(singular), hm.asarray(np.arange(2.0, N + 2))
    assert_same(traced(x), singular(x))
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError, match=r"^Singular matrix"):
            traced(x - 5.0)
    assert_same(traced(x), singular(x))
    assert is_loop(traced)
    for fn in (no_square, hm.trace(no_square)):
        with pytest.raises(np.linalg.LinAlgError, match="must be square"):
            fn(x)
    infinite = hm.asarray(np.full(N, np.inf))
    assert_same(traced(infinite), singular(infinite))
