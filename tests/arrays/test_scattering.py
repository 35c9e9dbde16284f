"""Gathers and scatters beside PyTorch: index shapes, reductions, dtypes, errors, both styles, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm

torch = pytest.importorskip("torch")


def both(fn: Any, *arrays: Any, backend: str = "interpret") -> np.ndarray:
    tensors = [hm.asarray(a) for a in arrays]
    eager, traced = fn(*tensors), hm.trace(fn, backend=backend)(*tensors)
    assert eager.shape == traced.shape and eager.dtype is traced.dtype
    np.testing.assert_array_equal(np.asarray(eager), np.asarray(traced))
    return np.asarray(eager)


def same(ours: Any, theirs: Any, *arrays: np.ndarray) -> None:
    expected = theirs(*map(torch.tensor, arrays)).numpy()
    np.testing.assert_allclose(both(ours, *arrays), expected, rtol=1e-12)


RNG = np.random.default_rng(0)
X = RNG.integers(1, 9, (4, 5, 3)).astype("f8")
SRC = RNG.integers(1, 9, (4, 6, 3)).astype("f8")
INDEX = [RNG.integers(0, X.shape[k], (3, 4, 2)) for k in range(3)]
# Each position once: what PyTorch does with repeated ones is open.
ONCE = [np.argsort(RNG.random((3, 4, 2)), k) for k in range(3)]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_an_index_an_element(axis: int) -> None:
    same(lambda x, i: hm.gather(x, axis, i), lambda x, i: torch.gather(x, axis, i), X, INDEX[axis])
    same(lambda x, i, s: hm.scatter(x, axis, i, s), lambda x, i, s: x.scatter(axis, i, s), X, ONCE[axis], SRC)
    same(lambda x, i: hm.scatter(x, axis, i, 7.0), lambda x, i: x.scatter(axis, i, 7.0), X, INDEX[axis])
    for how, torchs in (("add", "sum"), ("multiply", "prod")):
        same(
            lambda x, i, s, how=how: hm.scatter(x, axis, i, s, reduce=how),
            lambda x, i, s, how=torchs: x.scatter_reduce(axis, i, s, how),
            X, INDEX[axis], SRC,
        )  # fmt: skip


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_reductions(reduce: str, include_self: bool) -> None:
    for dtype in ("f8", "i8"):
        same(
            lambda x, i, s: hm.scatter_reduce(x, 1, i, s, reduce, include_self=include_self),
            lambda x, i, s: x.scatter_reduce(1, i, s, reduce, include_self=include_self),
            X.astype(dtype), INDEX[1], SRC.astype(dtype),
        )  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_an_index_a_slice(axis: int) -> None:
    index = np.array([1, 0, 2])
    part = np.take(X, index, axis) * 10
    same(lambda x, i: hm.index_select(x, axis, i), lambda x, i: x.index_select(axis, i), X, index)
    same(
        lambda x, i, s: hm.index_add(x, axis, i, s, alpha=2),
        lambda x, i, s: x.index_add(axis, i, s, alpha=2),
        X,
        index,
        part,
    )
    same(lambda x, i, s: hm.index_copy(x, axis, i, s), lambda x, i, s: x.index_copy(axis, i, s), X, index, part)
    same(lambda x, i: hm.index_fill(x, axis, i, 3), lambda x, i: x.index_fill(axis, i, 3), X, index)


def test_masks_and_places() -> None:
    mask = X[..., 0] > 4
    same(lambda x, m: hm.masked_fill(x, m[..., None], -1), lambda x, m: x.masked_fill(m[..., None], -1), X, mask)
    same(lambda x, m: hm.masked_select(x, m[..., None]), lambda x, m: x.masked_select(m[..., None]), X, mask)
    same(
        lambda x, m, s: hm.masked_scatter(x, m[..., None], s), lambda x, m, s: x.masked_scatter(m[..., None], s),
        X, mask, SRC,
    )  # fmt: skip
    i, j = np.array([0, 3, 0]), np.array([1, 2, 1])
    values = np.arange(9.0).reshape(3, 3)
    same(
        lambda x, i, j, v: hm.index_put(x, (i, j), v, accumulate=True),
        lambda x, i, j, v: x.index_put((i, j), v, accumulate=True),
        X, i, j, values,
    )  # fmt: skip
    for axis, indices in ((1, np.array([[[1], [-1]]])), (None, np.array([3, -1]))):
        expected = X.copy()
        wide = indices if axis is None else np.broadcast_to(indices, (4, 2, 3))
        np.put_along_axis(expected, wide, 5.0, axis)
        found = both(lambda x, i, axis=axis: hm.put_along_axis(x, i, 5.0, axis), X, wide)
        np.testing.assert_array_equal(found, expected)


FUNCTIONS = {
    "gather": lambda m, x, s: m.gather(x, 1, INDEX[1]),
    "scatter": lambda m, x, s: m.scatter(x, 1, ONCE[1], s[:3, :4, :2]),
    "sum": lambda m, x, s: m.scatter_reduce(x, 1, INDEX[1], s[:3, :4, :2], "sum"),
    "prod": lambda m, x, s: m.scatter_reduce(x, 1, INDEX[1], s[:3, :4, :2], "prod"),
    "mean": lambda m, x, s: m.scatter_reduce(x, 1, INDEX[1], s[:3, :4, :2], "mean", include_self=False),
    "amax": lambda m, x, s: m.scatter_reduce(x, 1, INDEX[1], s[:3, :4, :2], "amax"),
    "index_add": lambda m, x, s: m.index_add(x, 1, np.array([0, 2, 0, 1, 1, 4]), s, alpha=3),
    "masked_scatter": lambda m, x, s: m.masked_scatter(x, X > 4, s),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str) -> None:
    fn = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    x, s = rng.standard_normal(X.shape), rng.standard_normal(SRC.shape)

    class Theirs:
        def __getattr__(self, what: str) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                return getattr(torch, what)(
                    *(torch.tensor(a) if isinstance(a, np.ndarray) else a for a in args), **kwargs
                )

            return call

    def loss(x: Any, s: Any) -> Any:
        return (fn(hm, x, s) ** 3).sum()

    def curved(x: Any, s: Any) -> Any:
        a, b = hm.grad(loss, argnums=(0, 1))(x, s)
        return (a**2).sum() + (b**2).sum()

    t = [torch.tensor(x, requires_grad=True), torch.tensor(s, requires_grad=True)]
    first = torch.autograd.grad((fn(Theirs(), *t) ** 3).sum(), t, create_graph=True, materialize_grads=True)
    expected = [g.detach().numpy() for g in first]
    ours = hm.grad(loss, argnums=(0, 1))(hm.tensor(x), hm.tensor(s))
    traced = hm.trace(hm.grad(loss, argnums=(0, 1)), backend="interpret")(hm.tensor(x), hm.tensor(s))
    for a, b, c in zip(ours, expected, traced, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(np.asarray(c), b, rtol=1e-9, atol=1e-12)
    if name == "prod":
        return  # PyTorch has no second gradient of it
    second = torch.autograd.grad(sum((g**2).sum() for g in first), t, materialize_grads=True)
    for a, b in zip(hm.grad(curved, argnums=(0, 1))(hm.tensor(x), hm.tensor(s)), second, strict=True):
        np.testing.assert_allclose(np.asarray(a), b.numpy(), rtol=1e-9, atol=1e-12)


def test_in_place() -> None:
    index = hm.asarray(ONCE[1])

    def program(x: Any, s: Any) -> Any:
        y = x * 2
        part = y[1:]
        y.scatter_(1, index, s).masked_fill_(y > 9, 0)
        part.index_add_(0, hm.tensor([0, 0]), s[:2, :5], alpha=2)
        return (y**2).sum() + part.sum(), y

    x, s = hm.asarray(X), hm.asarray(SRC)
    _, y = program(x, s)
    expected = (torch.tensor(X) * 2).scatter_(1, torch.tensor(ONCE[1]), torch.tensor(SRC))
    expected.masked_fill_(expected > 9, 0)
    expected[1:].index_add_(0, torch.tensor([0, 0]), torch.tensor(SRC[:2, :5]), alpha=2)
    np.testing.assert_array_equal(np.asarray(y), expected.numpy())
    traced = hm.trace(program, backend="interpret")(x, s)
    np.testing.assert_array_equal(np.asarray(traced[1]), expected.numpy())
    gradient = hm.grad(lambda x, s: program(x, s)[0], argnums=(0, 1))
    for a, b in zip(gradient(x, s), hm.trace(gradient, backend="interpret")(x, s), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b))
        assert np.abs(np.asarray(a)).sum() > 0
    with pytest.raises(hm.GradientError, match="scatter_: in-place update of a leaf"):
        hm.ones((2, 2), requires_grad=True).scatter_(0, hm.tensor([[0]]), 1.0)


def test_compiled() -> None:
    found = both(lambda x, i, s: hm.scatter(x * 2, 1, i, s * 3), X, ONCE[1], SRC, backend="llvm")
    assert found.shape == X.shape
    both(lambda x, i: hm.gather(x + 1, 1, i) * 2, X, INDEX[1], backend="llvm")


def test_errors() -> None:
    x, i = hm.ones((2, 3)), hm.tensor([[0, 1]])
    for call, error, match in (
        (lambda: hm.gather(x, 1, hm.tensor([0])), hm.ShapeError, "must have the axes"),
        (lambda: hm.gather(x, 1, hm.tensor([[3]])), hm.OutOfBoundsError, "out of range"),
        (lambda: hm.scatter(x, 1, hm.tensor([[3]]), 1.0), hm.OutOfBoundsError, "index 3 is out of range for axis 1"),
        (lambda: hm.scatter(x, 1, i, hm.ones((1, 1))), hm.ShapeError, "is longer than"),
        (lambda: hm.scatter(x, 1, i, hm.ones((1, 2), dtype=hm.float64)), hm.DTypeError, "cast it with astype"),
        (lambda: hm.scatter(x, 1, i, 1.0, reduce="min"), hm.ArgumentError, "reduce is 'add'"),
        (lambda: hm.scatter_reduce(x, 1, i, x, "min"), hm.ArgumentError, "reduce is one of"),
        (lambda: hm.index_add(x, 0, hm.tensor([0, 1, 1]), x), hm.ShapeError, "must have shape"),
        (lambda: hm.masked_fill(i, i > 0, 0.5), hm.DTypeError, r"masked_fill: 0\.5 does not fit"),
        (lambda: hm.masked_scatter(x, x > 0, hm.ones(2)), hm.OutOfBoundsError, "out of range"),
    ):
        with pytest.raises(error, match=match):
            call()
