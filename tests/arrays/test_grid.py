"""Indices as data, and reductions made of others, beside NumPy, SciPy's definitions and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm

INF, NAN = np.inf, np.nan


def both(fn: Any, *arrays: Any, close: bool = False) -> Any:
    tensors = [hm.asarray(a) for a in arrays]
    eager, traced = fn(*tensors), hm.trace(fn, backend="interpret")(*tensors)
    for a, b in zip(hm.tree_leaves(eager), hm.tree_leaves(traced), strict=True):
        assert a.shape == b.shape and a.dtype is b.dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12 if close else 0)
    return hm.tree_map(np.asarray, eager)


@pytest.mark.parametrize("args", [(4,), (3, 1), (3, -1, 5), (2, 0, 4), (0,)])
def test_triangles(args: Any) -> None:
    for name in ("tril_indices", "triu_indices"):
        for a, b in zip(getattr(hm, name)(*args), getattr(np, name)(*args), strict=True):
            assert a.dtype is hm.int64
            np.testing.assert_array_equal(np.asarray(a), b)
    x = np.arange(16.0).reshape(4, 4)
    np.testing.assert_array_equal(both(lambda t: t[hm.tril_indices(4)], x), x[np.tril_indices(4)])


def test_flattened_positions() -> None:
    at = np.array([[0, 23], [7, 11]])
    found = both(lambda t: hm.unravel_index(t, (2, 3, 4)), at)
    for a, b in zip(found, np.unravel_index(at, (2, 3, 4)), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(both(lambda *ts: hm.ravel_multi_index(ts, (2, 3, 4)), *found), at)
    i, j = np.array([-1, 2, 5]), np.array([1, 4, -6])
    for mode in ("wrap", "clip"):
        ours = both(lambda i, j, mode=mode: hm.ravel_multi_index((i, j), (3, 4), mode), i, j)
        np.testing.assert_array_equal(ours, np.ravel_multi_index((i, j), (3, 4), mode))
    for call, error in (
        (lambda: hm.unravel_index(hm.tensor([24]), (2, 3, 4)), hm.OutOfBoundsError),
        (lambda: hm.ravel_multi_index((hm.tensor([-1]), hm.tensor([0])), (2, 3)), hm.OutOfBoundsError),
        (lambda: hm.ravel_multi_index((hm.tensor([0]),), (2, 3)), hm.ArgumentError),
        (lambda: hm.ravel_multi_index((hm.tensor([0]),), (2,), "no"), hm.ArgumentError),
    ):
        with pytest.raises(error):
            call()


def test_select_and_choose() -> None:
    x = np.arange(12.0).reshape(3, 4)
    found = both(lambda t: hm.select([t < 3, t < 7], [t * 10, -t], 0.5), x)
    np.testing.assert_array_equal(found, np.select([x < 3, x < 7], [x * 10, -x], 0.5))
    a, choices = np.array([[0, 2], [1, 0]]), np.arange(12.0).reshape(3, 2, 2)
    np.testing.assert_array_equal(both(lambda a, c: hm.choose(a, list(c)), a, choices), np.choose(a, choices))
    for mode in ("wrap", "clip"):
        ours = both(lambda a, c, mode=mode: hm.choose(a, list(c), mode), a * 3 - 2, choices)
        np.testing.assert_array_equal(ours, np.choose(a * 3 - 2, choices, mode=mode))
    g = hm.grad(lambda t: hm.select([t < 3], [t**2]).sum())(hm.asarray(x))
    np.testing.assert_array_equal(np.asarray(g), np.where(x < 3, 2 * x, 0))
    for call, error in (
        (lambda: hm.select([], []), hm.ArgumentError),
        (lambda: hm.choose(hm.tensor([3]), [hm.ones(1)]), hm.OutOfBoundsError),
        (lambda: hm.choose(hm.tensor([0]), [hm.ones(1)], "no"), hm.ArgumentError),
    ):
        with pytest.raises(error):
            call()


def test_logsumexp() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    edges = np.array([[-INF, -INF, -INF], [INF, 1.0, -INF], [NAN, 0.0, 1.0], [1000.0, 1000.0, -1000.0]])
    for x in (rng.standard_normal((4, 3)) * 300, edges, np.zeros((0, 3)), np.array([[2.0]])):
        for axis, keepdims in ((0, False), (1, True), ((0, 1), False)):
            found = both(lambda t, a=axis, k=keepdims: hm.logsumexp(t, a, k), x, close=True)
            np.testing.assert_allclose(found, torch.logsumexp(torch.tensor(x), axis, keepdims).numpy(), rtol=1e-13)
    assert hm.logsumexp(hm.arange(3)).dtype is hm.float32
    assert hm.tensor(2.0).logsumexp().item() == 2
    x = rng.standard_normal((3, 4))
    t = torch.tensor(x, requires_grad=True)
    (first,) = torch.autograd.grad((torch.logsumexp(t, 1) ** 2).sum(), t, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum(), t)

    def gradient(t: Any) -> Any:
        return hm.grad(lambda v: (hm.logsumexp(v, 1) ** 2).sum())(t)

    np.testing.assert_allclose(np.asarray(gradient(hm.tensor(x))), first.detach().numpy(), rtol=1e-12)
    twice = hm.grad(lambda v: (gradient(v) ** 2).sum())(hm.tensor(x))
    np.testing.assert_allclose(np.asarray(twice), second.numpy(), rtol=1e-10)
    g = hm.grad(lambda v: hm.logsumexp(v, 1)[:2].sum())(hm.asarray(np.array([[-INF, -INF], [-INF, 1.0]])))
    np.testing.assert_array_equal(np.asarray(g), [[0, 0], [0, 1]])


def test_bounds() -> None:
    x = np.array([[3, 1, 2], [0, 9, 4]])
    found = both(lambda t: hm.aminmax(t, axis=1, keepdims=True), x)
    np.testing.assert_array_equal(found.min, [[1], [0]])
    np.testing.assert_array_equal(found.max, [[3], [9]])
    with pytest.raises(hm.ShapeError, match="no elements"):
        hm.aminmax(hm.zeros(0))
