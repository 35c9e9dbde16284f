"""Products by one matrix in the steps of a loop are one product before it, where that is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm


def _data(*shape: int) -> hm.Tensor:
    return hm.asarray(np.random.default_rng(0).random(shape))


X, W = _data(120, 120), _data(120, 120)


def rows(x: hm.Tensor, w: hm.Tensor) -> Any:
    out = hm.zeros((len(x), w.shape[1]), dtype="float64")
    for i in range(len(x)):
        out[i] = x[i] @ w + i
    return out


def turned(x: hm.Tensor, w: hm.Tensor) -> Any:
    out = hm.zeros((len(x), w.shape[1]), dtype="float64")
    for i in range(3, len(x)):
        out[i] = w @ x[i] - w.T @ x[i - 3]
    return out


def columns(x: hm.Tensor, w: hm.Tensor) -> Any:
    out = hm.zeros((x.shape[1], x.shape[1]), dtype="float64")
    for i in range(x.shape[1]):
        out[i:, i] = out[i, i:] = w[:, i] @ w[:, i:]
    return out


def backwards(x: hm.Tensor, w: hm.Tensor) -> Any:
    h = hm.zeros(w.shape[1], dtype="float64")
    for i in range(len(x) - 1, -1, -1):
        h = hm.tanh(x[i] @ w * 0.01 + 0.5 * h)
    return h


def matrices(x: hm.Tensor, w: hm.Tensor) -> Any:
    a = x.reshape(30, 4, 120)
    h = hm.zeros((4, w.shape[1]), dtype="float64")
    for t in range(30):
        h = hm.tanh(a[t] @ w * 0.01 + 0.5 * h)
    return h


def over_rows(x: hm.Tensor, w: hm.Tensor) -> Any:
    h = hm.zeros(w.shape[1], dtype="float64")
    for row in x:
        h = h * 0.5 + row @ w
    return h


def nested(x: hm.Tensor, w: hm.Tensor) -> Any:
    a = x.reshape(4, 30, 120)
    out = hm.zeros((4, 30, 120), dtype="float64")
    for j in range(4):
        for i in range(30):
            out[j, i] = a[j, i] @ w * (j + 1)
    return out


def part_of_the_sum(x: hm.Tensor, w: hm.Tensor) -> Any:
    out = hm.zeros((len(x), w.shape[1]), dtype="float64")
    for i in range(len(x)):
        out[i] = x[i, 8:100] @ w[8:100]
    return out


JOINED = (rows, turned, columns, backwards, matrices, over_rows, nested, part_of_the_sum)


def changed_matrix(x: hm.Tensor, w: hm.Tensor) -> Any:
    w, s = w.copy(), hm.zeros(w.shape[1], dtype="float64")
    for i in range(len(x)):
        s += x[i] @ w
        w[i] = s * 0.01
    return s


def changed_rows(x: hm.Tensor, w: hm.Tensor) -> Any:
    x = x.copy()
    for i in range(1, len(x)):
        x[i] = x[i - 1] @ w * 0.01
    return x


def growing_sum(x: hm.Tensor, w: hm.Tensor) -> Any:
    s = hm.zeros(w.shape[1], dtype="float64")
    for i in range(1, len(x)):
        s += x[i, :i] @ w[:i]
    return s


def few_columns(x: hm.Tensor, w: hm.Tensor) -> Any:
    s = hm.zeros(4, dtype="float64")
    for i in range(len(x) - 4):
        s += x[i] @ w[:, i : i + 4]
    return s


def ends(x: hm.Tensor, w: hm.Tensor) -> Any:
    s = hm.zeros(w.shape[1], dtype="float64")
    for i in range(len(x)):
        s += x[i] @ w
        if s[0] > 100.0:
            break
    return s


def _in_bodies(traced: Any) -> bool:
    """Whether its product is in the body of a loop."""
    *bodies, program = traced._shown().program.executable.ir.split("\ngraph ")
    found = any("matmul(" in body for body in bodies)
    assert found or "matmul(" in program
    return found


@pytest.mark.parametrize("fn", [*JOINED, changed_matrix, changed_rows, growing_sum, few_columns, ends])
def test_products_in_steps(fn: Callable[..., Any]) -> None:
    traced = hm.trace(fn)
    for _ in range(2):
        np.testing.assert_allclose(np.asarray(traced(X, W)), np.asarray(fn(X, W)), rtol=1e-12, atol=1e-12)
    assert _in_bodies(traced) is (fn not in JOINED)


@pytest.mark.parametrize("fn", [rows, backwards, matrices])
def test_gradients_go_through(fn: Callable[..., Any]) -> None:
    def loss(x: hm.Tensor, w: hm.Tensor) -> hm.Tensor:
        return (hm.asarray(fn(x, w)) ** 2).sum()

    for k in (0, 1):
        expected = np.asarray(hm.grad(loss, argnums=k)(X, W))
        np.testing.assert_allclose(np.asarray(hm.trace(hm.grad(loss, argnums=k))(X, W)), expected, rtol=1e-9)
