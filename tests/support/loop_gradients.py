"""Programs with Python loops, and their gradients, eager and traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

R = np.random.default_rng(0)
T = 20


def stencil(u: Any, c: Any) -> Any:
    u = u.clone()
    for _ in range(T):
        u[1:-1] = u[1:-1] + c * (u[2:] - 2 * u[1:-1] + u[:-2])
    return (u * u).sum()


def recurrence(a: Any, w: Any) -> Any:
    b = hm.zeros(a.shape, dtype=a.dtype)
    b[0] = a[0]
    for i in range(1, a.shape[0]):
        b[i] = b[i - 1].clone() * w + a[i]
    return (b * b).sum()


def forward_substitution(matrix: Any, b: Any) -> Any:
    x = hm.zeros(b.shape, dtype=b.dtype)
    for i in range(b.shape[0]):
        x[i] = (b[i] - matrix[i, :i] @ x[:i].clone()) / matrix[i, i]
    return (x * x).sum()


def dynamic_program(c: Any, w: Any) -> Any:
    n = c.shape[0]
    d = hm.zeros((n + 1, n + 1), dtype=c.dtype)
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            d[i, j] = c[i - 1, j - 1] + hm.logaddexp(d[i - 1, j].clone(), d[i, j - 1].clone() * w) * 0.5
    return d[n, n]


def cholesky(a: Any, b: Any) -> Any:
    low = a.clone()
    for k in range(a.shape[0]):
        d = hm.sqrt(low[k, k])
        low[k, k] = d
        low[k + 1 :, k] = low[k + 1 :, k] / d
        c = low[k + 1 :, k].clone()
        low[k + 1 :, k + 1 :] = low[k + 1 :, k + 1 :] - c[:, None] * c[None, :]
    return (hm.tril(low) @ b).sum()


def runge_kutta(y: Any, h: Any) -> Any:
    for _ in range(T):
        k1 = hm.sin(y) - y * y
        k2 = hm.sin(y + h / 2 * k1) - y
        y = y + h / 6 * (k1 + 2 * k2)
    return (y * y).sum()


def branches(a: Any, w: Any) -> Any:
    s, found = w * 0.0, hm.zeros(a.shape, dtype=a.dtype)
    for i in range(a.shape[0]):
        if a[i] > 0.5:
            s = s * 0.9 + w * hm.sqrt(a[i] - 0.5)  # which has no gradient at the other numbers
            found[i] = a[i] * w
        else:
            s = s * w
    return s + (found * found).sum()


def bodies(x: Any, m: Any) -> Any:
    v = x * 0.0
    for _ in range(T):
        d = x[None, :, :] - x[:, None, :]
        square = (d * d).sum(-1) + 0.1
        v = v + 0.01 * (d * (m[None, :, None] / (square * hm.sqrt(square))[:, :, None])).sum(1)
        x = x + 0.01 * v
    return (x * x).sum()


def recurrent_network(x: Any, w: Any) -> Any:
    h = x[0] * 0
    for t in range(x.shape[0]):
        h = hm.tanh(w @ h + x[t])
    return (h * h).sum()


def _definite(n: int) -> np.ndarray:
    a = R.random((n, n))
    return a @ a.T + n * np.eye(n)


FORMS = [
    (stencil, R.random(30), R.random() * 0.2), (recurrence, R.random((20, 3)), R.random(3)),
    (forward_substitution, np.tril(R.random((T, T))) + 4 * np.eye(T), R.random(T)),
    (dynamic_program, R.random((16, 16)), R.random()), (cholesky, _definite(T), R.random(T)),
    (runge_kutta, R.random(6), 0.1), (branches, R.random(T), 0.7), (bodies, R.random((5, 3)), R.random(5)),
    (recurrent_network, R.random((T, 4)), R.random((4, 4)) * 0.3),
]  # fmt: skip
forms = pytest.mark.parametrize(("fn", "a", "b"), FORMS, ids=[fn.__name__ for fn, *_ in FORMS])


def both(fn: Callable[..., Any]) -> Callable[..., Any]:
    return hm.grad(fn, argnums=(0, 1))


def second(fn: Callable[..., Any]) -> Callable[..., Any]:
    def length(a: Any, b: Any) -> Any:
        g, h = both(fn)(a, b)
        return (g * g).sum() + (h * h).sum()

    return both(length)


def assert_close(found: Any, expected: Any) -> None:
    for x, y in zip(found, expected, strict=True):
        largest = max(1.0, float(np.abs(np.asarray(y)).max()))
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-11, atol=1e-13 * largest)
