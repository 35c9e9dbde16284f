"""What runs along an axis, beside NumPy and PyTorch: values, edges, dtypes, both styles, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm

NAN, INF = np.nan, np.inf


def both(fn: Any, *arrays: Any, close: bool = False) -> Any:
    """The eager results, which the traced ones equal."""
    tensors = [hm.asarray(a) for a in arrays]
    eager, traced = fn(*tensors), hm.trace(fn, backend="interpret")(*tensors)
    assert type(eager) is type(traced)
    for a, b in zip(hm.tree_leaves(eager), hm.tree_leaves(traced), strict=True):
        assert a.shape == b.shape and a.dtype is b.dtype
        if close:
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)
        else:
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    return hm.tree_map(np.asarray, eager)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "?"])
@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_sums_and_products(name: str, dtype: str) -> None:
    x = np.array([[1, 2, 0, 3], [2, 1, 2, 1]]).astype(dtype)
    for params in ({"axis": 1}, {"axis": 0, "include_initial": True}, {"axis": -1, "dtype": "float64"}):
        found = both(lambda t, params=params: getattr(hm, name)(t, **params), x)
        expected = getattr(np, name)(x, **params)
        assert found.dtype == (np.uint64 if dtype == "u1" and "dtype" not in params else expected.dtype)
        np.testing.assert_array_equal(found, expected)
    found = both(lambda t: getattr(hm, name)(t, axis=1, reverse=True, include_initial=True), x)
    np.testing.assert_array_equal(found[:, ::-1], getattr(np, name)(x[:, ::-1], axis=1, include_initial=True))
    flat = {"cumulative_sum": "cumsum", "cumulative_prod": "cumprod"}[name]
    np.testing.assert_array_equal(both(getattr(hm, flat), x), getattr(np, flat)(x))
    assert getattr(hm, name)(hm.ones((0,)), include_initial=True).shape == (1,)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_extremes_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    cases = [
        (np.array([[1.0, 3.0, 3.0, 2.0, NAN, 5.0, NAN], [-INF, -INF, 0.0, -0.0, INF, INF, 1.0]]), -1),
        (np.array([[3, 1, 2], [3, 4, 1], [3, 1, 9]]), 0),
        (np.array([True, False, True]), 0),
        (np.zeros((2, 1)), 1),
        (np.zeros((0, 3)), 0),
    ]
    for x, axis in cases:
        found = both(lambda t, axis=axis: getattr(hm, name)(t, axis), x)
        expected = getattr(torch, name)(torch.tensor(x), axis)
        np.testing.assert_array_equal(found.values, expected.values.numpy())
        np.testing.assert_array_equal(found.indices, expected.indices.numpy())


def test_log_sums_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    cases = [rng.uniform(-800, 800, (3, 17)), rng.standard_normal((4, 5)), np.zeros((2, 0))]
    cases += [np.array([[-INF, -INF, 1.0, 2.0], [1.0, INF, 800.0, -INF], [0.0, NAN, 1.0, 2.0], [-INF] * 4])]
    for x in cases:
        found = both(lambda t: hm.logcumsumexp(t, axis=1), x, close=True)
        np.testing.assert_allclose(found, torch.logcumsumexp(torch.tensor(x), 1).numpy(), rtol=1e-13)
    np.testing.assert_allclose(np.asarray(hm.logcumsumexp(hm.arange(3), 0)), [0, 1.3132617, 2.4076059], rtol=1e-6)


def test_differences() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (3, 4, 5))
    for params in ({}, {"n": 2}, {"axis": 0}, {"n": 3, "axis": 1}, {"n": 9, "axis": 1}, {"n": 0}, {"prepend": 1},
                   {"axis": 1, "append": 2, "prepend": x[:, :2]}):  # fmt: skip
        found = both(lambda t, params=params: hm.diff(t, **params), x)
        np.testing.assert_array_equal(found, np.diff(x, **params))
    mask = x[0] > 4
    np.testing.assert_array_equal(both(lambda t: hm.diff(t, n=2), mask), np.diff(mask, n=2))
    assert hm.diff(hm.ones(0)).shape == (0,)


GRADIENTS = {
    "cumprod": (lambda x: hm.cumprod(x, 1), lambda t, x: t.cumprod(x, 1)),
    "cummax": (lambda x: hm.cummax(x, 1).values, lambda t, x: t.cummax(x, 1).values),
    "cummin": (lambda x: hm.cummin(x, 0).values, lambda t, x: t.cummin(x, 0).values),
    "logcumsumexp": (lambda x: hm.logcumsumexp(x, 1), lambda t, x: t.logcumsumexp(x, 1)),
    "diff": (lambda x: hm.diff(x, 2, 1), lambda t, x: t.diff(x, 2, 1)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = GRADIENTS[name]
    x = np.random.default_rng(1).standard_normal((4, 7))
    if name == "cumprod":
        x[0, 2] = x[1, 1] = x[1, 4] = x[2, 0] = 0

    def first(t: Any) -> Any:
        return hm.grad(lambda v: (ours(v) ** 3).sum())(t)

    def second(t: Any) -> Any:
        return hm.grad(lambda v: (first(v) ** 2).sum())(t)

    t = torch.tensor(x, requires_grad=True)
    (one,) = torch.autograd.grad((theirs(torch, t) ** 3).sum(), t, create_graph=True)
    (two,) = torch.autograd.grad((one**2).sum(), t)
    for fn, expected in ((first, one.detach()), (second, two)):
        eager, traced = fn(hm.tensor(x)), hm.trace(fn, backend="interpret")(hm.tensor(x))
        np.testing.assert_allclose(np.asarray(eager), expected.numpy(), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(np.asarray(traced), np.asarray(eager), rtol=1e-8, atol=1e-10)


def test_gradients_of_log_sums_are_finite_at_minus_infinity() -> None:
    x = hm.tensor([-INF, -INF, 1.0, 2.0])
    g = hm.grad(lambda v: hm.logcumsumexp(v)[2:].sum())(x)
    np.testing.assert_allclose(np.asarray(g), [0, 0, 1.268941, 0.731059], rtol=1e-5)


def test_compiled() -> None:
    x = np.random.default_rng(0).standard_normal((5, 33)).astype("f4")
    for fn in (lambda t: hm.cummax(t, 1).indices, lambda t: hm.cumprod(t, 0), lambda t: hm.cummin(t, 0).values):
        np.testing.assert_array_equal(np.asarray(hm.trace(fn)(hm.asarray(x))), np.asarray(fn(hm.asarray(x))))


def test_errors() -> None:
    with pytest.raises(hm.ShapeError, match=r"cumulative_sum: .* has 2 axes, so an axis is needed"):
        hm.cumulative_sum(hm.ones((2, 2)))
    with pytest.raises(hm.ShapeError, match="cummax: axis 1 does not exist"):
        hm.cummax(hm.ones(3), 1)
    with pytest.raises(hm.ArgumentError, match="diff: n must be 0 or more, got -1"):
        hm.diff(hm.ones(3), n=-1)
    with pytest.raises(hm.ShapeError, match="diff: a tensor without axes"):
        hm.diff(hm.tensor(1.0))
