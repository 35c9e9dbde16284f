"""Segments beside JAX, and counts beside NumPy: numbers left out, empty segments, both styles, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm

IDS = np.array([2, 0, 2, 5, -1, 0, 1, 9])


def both(fn: Any, *arrays: Any, backend: str = "interpret") -> np.ndarray:
    tensors = [hm.asarray(a) for a in arrays]
    eager, traced = fn(*tensors), hm.trace(fn, backend=backend)(*tensors)
    assert eager.shape == traced.shape and eager.dtype is traced.dtype
    np.testing.assert_array_equal(np.asarray(eager), np.asarray(traced))
    return np.asarray(eager)


def reference(name: str, data: np.ndarray, ids: np.ndarray, n: int) -> np.ndarray:
    how = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[name]
    whole = data.dtype.kind == "f"
    least, most = (-np.inf, np.inf) if whole else (np.iinfo(data.dtype).min, np.iinfo(data.dtype).max)
    empty = {"sum": 0, "prod": 1, "max": least, "min": most}[name]
    out = np.full((n, *data.shape[ids.ndim :]), empty, data.dtype)
    inside = (ids >= 0) & (ids < n)
    how.at(out, ids[inside], data[inside])
    return out


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1"])
def test_reductions(name: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    segment = getattr(hm, f"segment_{name}")
    for shape, n in (((8,), 4), ((8, 3), 6), ((8, 2, 2), 0)):
        data = rng.integers(1, 5, shape).astype(dtype)
        np.testing.assert_array_equal(
            both(lambda d, i, n=n: segment(d, i, n), data, IDS), reference(name, data, IDS, n)
        )
        np.testing.assert_array_equal(both(lambda d, i: segment(d, i), data, IDS), reference(name, data, IDS, 10))
    square = rng.integers(1, 5, (4, 2, 3)).astype(dtype)
    ids = IDS.reshape(4, 2)
    np.testing.assert_array_equal(both(lambda d, i: segment(d, i, 6), square, ids), reference(name, square, ids, 6))
    assert segment(hm.zeros((0, 2)), hm.zeros(0, dtype=hm.int64)).shape == (0, 2)


def test_means() -> None:
    data = np.arange(16.0).reshape(8, 2)
    total = reference("sum", data, IDS, 6)
    number = np.maximum(reference("sum", np.ones((8, 1)), IDS, 6), 1)
    np.testing.assert_allclose(both(lambda d, i: hm.segment_mean(d, i, 6), data, IDS), total / number)
    assert hm.segment_mean(hm.arange(8), hm.asarray(IDS), 3).dtype is hm.float32


def test_are_jaxs() -> None:
    jax = pytest.importorskip("jax")
    data = np.random.default_rng(0).standard_normal((8, 3)).astype("f4")
    for name in ("sum", "prod", "max", "min"):
        theirs = getattr(jax.ops, f"segment_{name}")(data, IDS, 4)
        ours = getattr(hm, f"segment_{name}")(hm.asarray(data), hm.asarray(IDS), 4)
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-6)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
def test_gradients(name: str) -> None:
    rng = np.random.default_rng(0)
    x, u, h = rng.standard_normal((8, 2)), rng.standard_normal((8, 2)), 1e-6
    if name == "prod":
        x[0] = 0
    ids = hm.asarray(IDS)

    def loss(t: Any) -> Any:
        found = getattr(hm, f"segment_{name}")(t, ids, 3)
        return (found**3).sum()

    def slope(t: Any) -> Any:
        return (hm.grad(loss)(t) * u).sum()

    for f, g in ((loss, hm.grad(loss)), (slope, hm.grad(slope))):
        numeric = (f(hm.tensor(x + h * u)).item() - f(hm.tensor(x - h * u)).item()) / (2 * h)
        analytic = g(hm.tensor(x))
        assert (np.asarray(analytic) * u).sum() == pytest.approx(numeric, rel=1e-5, abs=1e-6)
        np.testing.assert_allclose(np.asarray(hm.trace(g, backend="interpret")(hm.tensor(x))), np.asarray(analytic))


def test_counts() -> None:
    x = np.array([[0, 3, 3], [1, 0, 0]])
    w = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(both(hm.bincount, x), np.bincount(x.ravel()))
    np.testing.assert_array_equal(both(lambda t: hm.bincount(t, minlength=6), x), np.bincount(x.ravel(), minlength=6))
    np.testing.assert_array_equal(both(hm.bincount, x.astype("u1"), w), np.bincount(x.ravel(), w.ravel()))
    np.testing.assert_array_equal(both(lambda t: hm.bincount(t, length=2), x), [3, 1])
    assert hm.bincount(hm.zeros(0, dtype=hm.int64), minlength=2).tolist() == [0, 0]
    assert both(lambda t: hm.bincount(t * 1, length=4), x, backend="llvm").tolist() == [3, 1, 0, 2]


def test_errors() -> None:
    x, ids = hm.ones((4, 2)), hm.zeros(4, dtype=hm.int64)
    for call, error, match in (
        (lambda: hm.segment_sum(x, x[:, 0]), hm.DTypeError, "segment_ids must be integers"),
        (lambda: hm.segment_sum(x, ids[:3]), hm.ShapeError, "must have the first axes"),
        (lambda: hm.segment_sum(x, ids, -1), hm.ArgumentError, "num_segments must be 0 or more"),
        (lambda: hm.bincount(x), hm.DTypeError, "bincount: counts integers"),
        (lambda: hm.bincount(ids - 1), hm.OutOfBoundsError, "out of range"),
    ):
        with pytest.raises(error, match=match):
            call()
