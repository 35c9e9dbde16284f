"""Order along an axis, beside NumPy and PyTorch: nan and ties, edges, dtypes, both styles, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import hybridml as hm

NAN, INF = np.nan, np.inf
EDGES = np.array([[NAN, 1.0, -INF, INF, NAN, 0.0, 1.0, -2.0], [INF, NAN, -1.0, 5.0, -INF, 2.0, 5.0, -1.0]])


def both(fn: Any, *arrays: Any, backend: str = "interpret") -> Any:
    """The eager results, which the traced ones equal."""
    tensors = [hm.asarray(a) for a in arrays]
    eager, traced = fn(*tensors), hm.trace(fn, backend=backend)(*tensors)
    for a, b in zip(hm.tree_leaves(eager), hm.tree_leaves(traced), strict=True):
        assert a.shape == b.shape and a.dtype is b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    return hm.tree_map(np.asarray, eager)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i1", "u1", "u8", "?"])
def test_sort_and_argsort(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 6, (4, 9)).astype(dtype)
    for axis in (-1, 0):
        np.testing.assert_array_equal(
            both(lambda t, axis=axis: hm.sort(t, axis=axis, kind="heapsort"), x), np.sort(x, axis)
        )
        for how in (lambda t, axis=axis: hm.argsort(t, axis=axis), lambda t, axis=axis: t.argsort(axis, kind="stable")):
            np.testing.assert_array_equal(both(how, x), np.argsort(x, axis, kind="stable"))
    down = both(lambda t: hm.argsort(t, descending=True), x)
    np.testing.assert_array_equal(np.take_along_axis(x, down, -1), np.asarray(hm.sort(hm.asarray(x), descending=True)))
    ties = np.diff(np.take_along_axis(x, down, -1).astype("i8")) == 0
    assert np.all(np.diff(down)[ties] > 0), "equal elements stay in order"
    assert hm.sort(hm.asarray(x), axis=None).shape == (36,)


@given(hnp.arrays(st.sampled_from(["f4", "f8"]), hnp.array_shapes(max_dims=3, max_side=70)), st.booleans(), st.data())
def test_extreme_elements_are_the_first_in_order(x: np.ndarray, largest: bool, data: Any) -> None:
    k = data.draw(st.integers(1, x.shape[-1]))
    order = np.argsort(x, -1, kind="stable")
    if largest:
        order = x.shape[-1] - 1 - np.flip(np.argsort(np.flip(x, -1), -1, kind="stable"), -1)
    np.testing.assert_array_equal(np.asarray(hm.top_k(hm.asarray(x), k, largest=largest).indices), order[..., :k])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i8", "u4", "u8", "?"])
def test_large_ones_are_stable(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for shape, axis in (((5000,), 0), ((70, 90), 0), ((20, 20, 20), 1)):
        x = (
            (rng.integers(-4, 5, shape) / 2).astype(dtype)
            if dtype[0] == "f"
            else rng.integers(0, 2, shape).astype(dtype)
        )
        if dtype[0] == "f":
            kind = rng.random(shape)
            x[kind < 0.1], x[kind > 0.9], x[(kind > 0.8) & (kind < 0.85)] = NAN, -0.0, -INF
        elif dtype != "?":
            x[rng.random(shape) < 0.1] = np.iinfo(dtype).max
        t = hm.asarray(x)
        np.testing.assert_array_equal(np.asarray(hm.sort(t, axis=axis)), np.sort(x, axis))
        np.testing.assert_array_equal(np.asarray(hm.argsort(t, axis=axis)), np.argsort(x, axis, kind="stable"))
        down = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
        np.testing.assert_array_equal(np.asarray(hm.argsort(t, axis=axis, descending=True)), down)
        first = np.take(down, range(5), axis)
        np.testing.assert_array_equal(np.asarray(hm.top_k(t, 5, axis=axis).indices), first)


def test_nan_is_the_greatest() -> None:
    torch = pytest.importorskip("torch")
    t = torch.tensor(EDGES)
    for descending in (False, True):
        expected = torch.sort(t, stable=True, descending=descending)
        np.testing.assert_array_equal(both(lambda x, d=descending: hm.sort(x, descending=d), EDGES), expected.values)
        np.testing.assert_array_equal(
            both(lambda x, d=descending: hm.argsort(x, descending=d), EDGES), expected.indices
        )


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_top_k(k: int, largest: bool) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(k)
    for x in (EDGES, rng.integers(0, 5, (3, 40)), rng.standard_normal((2, 50)), np.repeat(EDGES, 5, 1)):
        found = both(lambda t: hm.top_k(t, k, largest=largest), x)
        expected = torch.topk(torch.tensor(x), k, largest=largest)
        np.testing.assert_array_equal(found.values, expected.values.numpy())
        np.testing.assert_array_equal(found.values, np.take_along_axis(x, found.indices, -1))
        stable = np.asarray(hm.argsort(hm.asarray(x), descending=largest))[..., :k]
        np.testing.assert_array_equal(found.indices, stable)
    found = hm.topk(hm.asarray(EDGES), min(k, 2), 0, largest)
    np.testing.assert_array_equal(
        np.asarray(found.values), torch.topk(torch.tensor(EDGES), min(k, 2), 0, largest).values
    )


def test_kth_values_and_modes() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).integers(0, 4, (5, 6, 7)).astype("f8")
    for axis in (0, 1, 2):
        for k in (1, 4):
            found = both(lambda t, a=axis, k=k: hm.kthvalue(t, k, a), x)
            np.testing.assert_array_equal(found.values, torch.kthvalue(torch.tensor(x), k, axis).values.numpy())
        found = both(lambda t, a=axis: hm.mode(t, a, keepdims=True), x)
        expected = torch.mode(torch.tensor(x), axis, keepdim=True)
        np.testing.assert_array_equal(found.values, expected.values.numpy())
        np.testing.assert_array_equal(np.take_along_axis(x, found.indices, axis), found.values)
    assert hm.mode(hm.tensor([5.0])).values.item() == 5


def test_lexsort_and_partition() -> None:
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 3, (3, 4, 5))
    np.testing.assert_array_equal(both(hm.lexsort, keys), np.lexsort(keys))
    parts = both(lambda *ks: hm.lexsort(ks, axis=0), *keys)
    np.testing.assert_array_equal(parts, np.lexsort(tuple(keys), axis=0))
    x = rng.standard_normal((3, 9))
    np.testing.assert_array_equal(both(lambda t: hm.partition(t, 4)[:, 4], x), np.partition(x, 4)[:, 4])
    np.testing.assert_array_equal(both(lambda t: hm.argpartition(t, (2, -1), 0), x), np.argsort(x, 0))
    np.testing.assert_array_equal(both(hm.msort, x), np.sort(x, 0))


def test_searches() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    one, many = np.sort(rng.integers(0, 9, 12)).astype("f8"), rng.integers(-1, 11, (3, 5)).astype("f8")
    rows = np.sort(rng.integers(0, 9, (3, 8)), -1).astype("f8")
    for side in ("left", "right"):
        for a, b in ((one, many), (rows, many), (one, many[0, 0])):
            found = both(lambda x, y, side=side: hm.searchsorted(x, y, side=side), a, b)
            expected = torch.searchsorted(torch.tensor(a), torch.tensor(np.asarray(b)), right=side == "right")
            np.testing.assert_array_equal(found, expected.numpy())
        right = side == "right"
        found = both(lambda x, y, r=right: hm.bucketize(x, y, r), many, one)
        np.testing.assert_array_equal(
            found, torch.bucketize(torch.tensor(many), torch.tensor(one), right=right).numpy()
        )
        for bins in (one, one[::-1].copy(), one[:1]):
            found = both(lambda x, y, r=right: hm.digitize(x, y, r), many, bins)
            np.testing.assert_array_equal(found, np.digitize(many, bins, right=right))
        ends = np.array([0.0, NAN]), np.array([NAN, 1.0])
        found = both(lambda x, y, side=side: hm.searchsorted(x, y, side=side), *ends)
        np.testing.assert_array_equal(found, np.searchsorted(*ends, side))
    mixed = rng.permutation(one)
    found = both(lambda x, v, s: hm.searchsorted(x, v, sorter=s), mixed, many, np.argsort(mixed))
    np.testing.assert_array_equal(found, np.searchsorted(one, many))
    assert hm.searchsorted(hm.tensor([0.1], dtype=hm.float64), 0.1, side="right").item() == 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: hm.sort(x, axis=0, descending=True),
        lambda x: hm.top_k(x, 3).values,
        lambda x: hm.kthvalue(x, 2).values,
        lambda x: hm.mode(x, keepdims=True).values,
        lambda x: hm.take_along_axis(x, hm.argsort(x * 2), axis=-1),
    ],
)
def test_gradients(fn: Any) -> None:
    rng = np.random.default_rng(0)
    x, u, h = rng.standard_normal((4, 6)), rng.standard_normal((4, 6)), 1e-6

    def loss(t: Any) -> Any:
        y = fn(t)
        return (hm.arange(1.0, y.size + 1, dtype=hm.float64).reshape(y.shape) * y**3).sum()

    def slope(t: Any) -> Any:
        return (hm.grad(loss)(t) * u).sum()

    for f, g in ((loss, hm.grad(loss)), (slope, hm.grad(slope))):
        numeric = (f(hm.tensor(x + h * u)).item() - f(hm.tensor(x - h * u)).item()) / (2 * h)
        analytic = g(hm.tensor(x))
        assert (np.asarray(analytic) * u).sum() == pytest.approx(numeric, rel=1e-5)
        np.testing.assert_allclose(np.asarray(hm.trace(g, backend="interpret")(hm.tensor(x))), np.asarray(analytic))


def test_compiled() -> None:
    x = np.random.default_rng(0).standard_normal((6, 40)).astype("f4")
    both(lambda t: hm.sort(hm.exp(t), axis=0) * 2, x, backend="llvm")
    both(lambda t: hm.top_k(t + 1, 3), x, backend="llvm")
    both(lambda t: hm.searchsorted(hm.sort(t[0]), t * 2) + 1, x, backend="llvm")


def test_errors() -> None:
    x = hm.ones((2, 3))
    for call, error, match in (
        (lambda: hm.sort(x, axis=2), hm.ShapeError, "sort: axis 2 does not exist"),
        (lambda: hm.top_k(x, 4), hm.ArgumentError, "k must be 0 to 3"),
        (lambda: hm.kthvalue(x, 0), hm.ArgumentError, "kthvalue: k must be 1 to 3"),
        (lambda: hm.partition(x, 3), hm.ShapeError, "kth"),
        (lambda: hm.searchsorted(x, x, side="up"), hm.ArgumentError, "side is 'left' or 'right'"),
        (lambda: hm.searchsorted(x, hm.ones(3)), hm.ShapeError, "sorted rows"),
        (lambda: hm.mode(hm.ones((2, 0))), hm.ArgumentError, "mode: axis -1"),
    ):
        with pytest.raises(error, match=match):
            call()
