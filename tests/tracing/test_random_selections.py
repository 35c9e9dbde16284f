"""Random programs of masks, traced and as they run eagerly: values, errors, and gradients where functions have no value
for elements that a mask leaves out."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridml as hm

LINES = """
z[m] = hm.sin(z[m])|z[m] = z[m] ** 2 + y[m]|z[m] += 1|z[m] *= y[m]|z[m] /= y[m]|z[~m] *= 2|z[m] = 0.0|z[m] = s
s = s + z[m].sum()|s = s + z[m].mean()|s = s + hm.sqrt(z[m]).sum()|s = s + (1 / z[m]).sum()|s = s + hm.log(y[m]).mean()
s = s + z[m].max()|s = s + hm.min(z[m])|s = s + z[m].var()|s = s + hm.std(z[m], correction=1)|s = s + z[m].prod()
w = z[m] * y[m]; s = s + w.sum(); w += 1; s = s + w.mean()|q = z[m]; s = s + q[q > 0].sum()
s = s + z[m][y[m] > 0].mean()|q = hm.sqrt(z[m]); s = s + (1 / q[q > 0.5]).sum()|m[m] = abs(z[m]) < 1|m &= abs(z) < 1.5
m = m & k|m[2] = False|m = ~m|k[m] = z[m] > 0|s = s + (z[m] > 0).any()|s = s + (z[m] > 0).all()
s = s + X[m].mean(axis=0).sum()|X[m] = X[m] - X[m].mean(axis=0)|X[m, 0] += 1|X[m] *= z[m][:, None]|X[:, 1][m] = z[m]
s = s + X[m, 1].sum()|s = s + X[m][:, 0].max()|X[m, 1:] = 0.0|X[m, 2] = z[m]|s = s + X[m].sum(axis=1).max()
w = X[m]; v = w[:, 0]; w *= 2; s = s + v.sum()|w = X[m]; v = w[:, 0]; v += 1; s = s + w.sum()
w = X[m]; v = w[:, 1:]; w[:, 1] = 0.0; s = s + (v * w[:, 1:]).sum()
w = X[m]; v = w[:, 0]; v = v + w[:, 1]; s = s + v.sum()
w = z[m]; w[w > 0] = 0.0; s = s + w.sum()|s = s + len(z[m])|z = z + z[m].shape[0]|w = z[m]; z[m] = 1.0; z[m] = w
w = z[m]; m = ~m; s = s + w.sum()|w = z[m]; m &= k; s = s + (w * w).sum(); s = s + z[m].sum()
s = s + hm.where(z[m] > 0, z[m], 2.0).sum()|s = s + (z[m] * s).sum()|i = X[m].argmax(1); s = s + (i * z[m]).sum()
s = s + hm.cumsum(z[m]).sum()|s = s + (z[m] @ y[m])|s = s + z[m].detach().sum()|s = s + (z[m].detach() * z[m]).mean()
T[:, m] = T[:, m] * 2|s = s + T[:, m].sum(axis=1).max()|s = s + T[1, m].sum()|T[:, m] += z[m]|T[1, m] = 3.0
T[:, m] -= T[:, m].mean(axis=1, keepdims=True)|s = s + T[:, m].mean(axis=(0, 1))|s = s + (T[:, m] * y[m]).max(0).sum()
c[m] += 1|c[m] = c[m] // d[m]|s = s + c[m].sum()|s = s + (c[m] % d[m]).max()|c[m] = 2 * c[m] - d[m]|s = s + c[m].mean()
B[b] = B[b] * 2|s = s + B[b].sum()|s = s + hm.exp(B[b]).min()|B[b] = B[b] - B[b].mean()|b[b] = B[b] > 0
with hm.no_grad(): z[m] *= 2|fixed = X[m].detach(); fixed += 1; s = s + fixed.sum()
v = z[1:]; z[m] = z[m] + 1; s = s + v.sum()|v = z[:-1]; v[m[1:]] = v[m[1:]] * 2|s = s + z[m].astype("int32").sum()
s = s + z[m].sum(keepdims=True)[0]|s = s + X[m].max(axis=0, keepdims=True).sum()|s = s + (X[m] - X[m].min(0)).sum()
s = s * len(z[m]) / 7 + X[m].shape[0] - z[m].size % 4|w = z[m]; s = s + w[0] - w[-1]; z[m] = 2.0; s = s + w[1]
w = z[m]; v = w[0]; w[0] = 5.0; s = s + v + w.sum()|w = z[m]; v = w[0]; w *= 2; s = s + v + w.sum() * len(w)
i = hm.nonzero(m)[0]; s = s + i.sum() + i.max() + z[i[0]]; z[i] = z[i] * 2
i, j = hm.nonzero(X > 0); s = s + (i * j).sum() / len(i)
u = hm.unique(c[m]); s = s + u.sum() / len(u); c[m] = u[-1]|s = s + (1 if len(z[m]) > 4 else z[m].size)
for v in z[m]: s = s * 0.5 + v; v += 1
for v in X[m]: s = s * 0.5 + v[0] - v.sum()
for i in range(1, len(z[m])): s = s * 0.5 + z[m][i] - z[m][i - 1]
for i in hm.nonzero(m)[0]: s = s * 0.5 + z[i] * y[i]; z[i] = z[i] * 0.5
for i in range(18): w = z[z > i * 0.1]; s = s + len(w) * w.sum(); z = z * 0.9
for i in range(18): z[m] = z[m] * 0.9 + y[m]; m = m & (abs(z) < 5 - 0.1 * i)
for i in range(18): w = z[m] * 0.5; s = s + w.mean() + i; z[m] = w
for i in range(18): c[m] += i; m[m] = c[m] < 40
for i in range(18): s = s + z[z > i * 0.05].sum()
for i in range(18): z[m] = z[m] ** 2 * 0.5; m &= abs(z) > 0.001; c[m] = i
"""
STATEMENTS = [line for row in LINES.strip().splitlines() for line in row.split("|")]
PROGRAM = """
def f(x, y, X, m, k, c, d, b):
    z, X, m, k, c, b, s = x * 1, X * 1, m & True, k & True, c * 1, b & True, x.sum() * 0
    T, B = X.T * 1, X * 1
{body}
    return s, z, X, m, k, c, T, B
"""
ARRAYS = """
def f(x, y, X, m, k, c, d, b):
    z, B, T, X0, c0, s = np.zeros(9), np.zeros((9, 3)), np.zeros((3, 9)), X, c, x.sum() * 0
    X, m, k, c, b = np.zeros((9, 3)), m & True, np.zeros(9, bool), np.zeros(9, int), b & True
    z += x; B += X0; T += X0.T; X += X0; k |= d > 1; c += c0
{body}
    return s, z, X, m, k, c, T, B
"""


def program(lines: list[str], source: str = PROGRAM) -> Callable[..., Any]:
    names: dict[str, Any] = {"hm": hm, "np": np}
    body = "\n".join(f"    {line}" for line in lines)
    exec(compile(source.format(body=body), "<program>", "exec"), names)
    found: Callable[..., Any] = names["f"]
    return found


def inputs(seed: int, share: float) -> list[Any]:
    rng = np.random.default_rng(seed)
    x, y, X = rng.standard_normal(9), rng.standard_normal(9), rng.standard_normal((9, 3))
    x[rng.random(9) < 0.2] = y[rng.random(9) < 0.2] = 0.0
    m, k, b = rng.random(9) < share, rng.random(9) < 0.6, rng.random((9, 3)) < share
    return [x, y, X, m, k, rng.integers(0, 9, 9), rng.integers(0, 4, 9), b]


def outcome(fn: Callable[..., Any], arrays: list[Any]) -> Any:
    """Results, or the error and its words."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.filterwarnings("ignore", "Mean of empty|Degrees of freedom", RuntimeWarning)  # by NumPy's arrays
            leaves = hm.tree_leaves(fn(*map(hm.tensor, arrays)))
            return [np.asarray(t.detach() if isinstance(t, hm.Tensor) else t) for t in leaves]
    except Exception as error:
        return type(error), str(error).splitlines()[0]


def assert_as_eager(fn: Callable[..., Any], arrays: list[Any], traced: Callable[..., Any] | None = None) -> None:
    eager, found = outcome(fn, arrays), outcome(hm.trace(fn) if traced is None else traced, arrays)
    if type(eager) is tuple and eager[0] is hm.GradientError:
        return  # a mask is overwritten that an eager gradient needs; a trace has it as it was
    if type(eager) is tuple or type(found) is tuple:
        assert eager == found
        return
    for one, other in zip(eager, found, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


def slopes(lines: list[str]) -> Callable[..., Any]:
    fn = program(lines)

    def loss(x: Any, y: Any, X: Any, *others: Any) -> Any:
        s, z, X, _, _, _, T, B = fn(x, y, X, *others)
        return s + (z * z).sum() + X.sum() + (T * T).sum() + B.sum()

    return hm.grad(loss, argnums=(0, 1, 2))


@pytest.mark.parametrize("line", STATEMENTS)
def test_one_line_of_arrays(line: str) -> None:
    fn = program([line], ARRAYS)
    traced = hm.trace(fn)
    for seed, share in enumerate((0.5, 0.5, 0.9, 0.0, 1.0)):
        assert_as_eager(fn, inputs(seed, share), traced)


@pytest.mark.parametrize("line", STATEMENTS)
def test_one_line(line: str) -> None:
    fn, gradient = program([line]), slopes([line])
    traced, traced_gradient = hm.trace(fn), hm.trace(gradient)
    for seed, share in enumerate((0.5, 0.5, 0.9, 0.0, 1.0)):
        assert_as_eager(fn, inputs(seed, share), traced)
        if seed != 2:
            assert_as_eager(gradient, inputs(seed, share), traced_gradient)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 30), st.integers(2, 5), st.sampled_from((0.0, 0.3, 0.6, 1.0)))
def test_programs(seed: int, count: int, share: float) -> None:
    lines = random.Random(seed).choices(STATEMENTS, k=count)
    assert_as_eager(program(lines), inputs(seed, share))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 30), st.integers(2, 4), st.sampled_from((0.3, 0.6, 1.0)))
def test_gradients(seed: int, count: int, share: float) -> None:
    lines = random.Random(seed).choices(STATEMENTS, k=count)
    assert_as_eager(slopes(lines), inputs(seed, share))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 30), st.integers(2, 5), st.sampled_from((0.0, 0.3, 0.6, 1.0)))
def test_programs_of_arrays(seed: int, count: int, share: float) -> None:
    lines = random.Random(seed).choices(STATEMENTS, k=count)
    assert_as_eager(program(lines, ARRAYS), inputs(seed, share))
