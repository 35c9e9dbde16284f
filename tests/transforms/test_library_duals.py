"""Library functions inside of `jvp`, which are native calls of dual numbers: against the same traced, in compositions,
and what such a call may do beside its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml import nn
from hybridml.core.library import compiled
from hybridml.tracing import library_duals

RNG = np.random.default_rng(0)


def normal(*shape: int) -> hm.Tensor:
    return hm.asarray(RNG.normal(size=shape).astype(np.float32))


X, T, W, B = normal(4, 6), normal(4, 6), normal(6), normal(6)
LABELS = hm.asarray(np.arange(4))
IMAGES, KERNELS = normal(2, 3, 5, 5), normal(4, 3, 3, 3)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[hm.Tensor, ...]]] = {
    "gelu": (F.gelu, (X,)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b, eps=1e-3), (X, W, B)),
    "softmax": (lambda x: F.softmax(x, dim=-1), (X,)),
    "cross_entropy": (lambda x: F.cross_entropy(x, LABELS, label_smoothing=0.1), (X,)),
    "linear": (F.linear, (X, normal(3, 6), normal(3))),
    "attention": (F.scaled_dot_product_attention, (normal(2, 4, 6), normal(2, 5, 6), normal(2, 5, 6))),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), (IMAGES, KERNELS)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (X, W, B)),
    "lists": (lambda x, y: hm.stack([x, y], axis=1), (X, T)),
    "two functions": (lambda x: nn.functional.glu(x) * hm.logsumexp(x, 1, True), (X,)),
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of library functions that have run as functions of dual numbers, a name a call."""
    names: list[str] = []
    call = library_duals.Duals.call

    def counted(self: Any, *args: Any) -> Any:
        found = call(self, *args)
        if found is not library_duals.MISS:
            names.append(self.library.name)
        return found

    monkeypatch.setattr(library_duals.Duals, "call", counted)
    return names


def tangents(primals: tuple[hm.Tensor, ...]) -> tuple[hm.Tensor, ...]:
    return tuple(normal(*x.shape) for x in primals)


def same(a: Any, b: Any) -> None:
    np.testing.assert_array_equal(np.asarray(a.detach()), np.asarray(b.detach()))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_tangents_have_the_bits_of_traced_ones(name: str, made: list[str]) -> None:
    f, primals = FUNCTIONS[name]
    ts = tangents(primals)
    traced = hm.trace(lambda *given: hm.jvp(f, given[: len(primals)], given[len(primals) :]))
    value, moved = traced(*primals, *ts)
    made.clear()
    for _ in range(10):  # some functions run by operation at first
        now, tangent = hm.jvp(f, primals, ts)
        same(now, value)
        same(tangent, moved)
        same(now, f(*primals))
    assert len(made) >= 2
    one = traced(*primals, ts[0], *[hm.zeros_like(t) for t in ts[1:]])[1]  # others are constants
    alone = hm.jvp(lambda x: f(x, *primals[1:]), (primals[0],), (ts[0],))[1]
    np.testing.assert_allclose(np.asarray(alone), np.asarray(one), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["gelu", "layer_norm", "softmax", "linear"])
def test_compositions(name: str, made: list[str]) -> None:
    f, primals = FUNCTIONS[name]
    primals = tuple(x.astype(hm.float64) for x in primals)
    ts = tuple(t.astype(hm.float64) for t in tangents(primals))

    def push(*given: Any) -> Any:
        return hm.jvp(f, given, ts)[1]

    def twice(*given: Any) -> Any:
        return hm.jvp(push, given, ts)[1]

    def close(a: Any, b: Any) -> None:
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-8, atol=1e-8)

    close(twice(*primals), hm.trace(twice)(*primals))
    assert made, "jvp of jvp"
    close(hm.grad(lambda x: push(x, *primals[1:]).sum())(primals[0]), _inner(f, primals, ts))
    total = _total(f, primals)
    close(hm.hvp(total, primals[:1], ts[:1]), hm.trace(lambda x: hm.hvp(total, (x,), ts[:1]))(primals[0]))
    rows = hm.stack([ts[0], 2 * ts[0]])
    each = hm.vmap(lambda t: hm.jvp(lambda x: f(x, *primals[1:]), primals[:1], (t,))[1])(rows)
    close(each[1], 2 * hm.jvp(lambda x: f(x, *primals[1:]), primals[:1], ts[:1])[1])


def _total(f: Any, primals: tuple[Any, ...]) -> Any:
    return lambda x: (f(x, *primals[1:]) ** 2).sum()


def _inner(f: Any, primals: tuple[Any, ...], ts: tuple[Any, ...]) -> hm.Tensor:
    """The gradient of a derivative along tangents, by differences of gradients."""

    def ahead(step: float) -> hm.Tensor:
        moved = [x + step * t for x, t in zip(primals, ts, strict=True)]
        found: hm.Tensor = hm.grad(lambda x: f(x, *moved[1:]).sum())(moved[0])
        return found

    return (ahead(1e-5) - ahead(-1e-5)) / 2e-5


def test_several_results(made: list[str]) -> None:
    def pooled(x: Any) -> Any:
        return F.max_pool2d(x, 2, return_indices=True)

    ts = normal(*IMAGES.shape)
    for _ in range(3):
        (value, places), (moved, still) = hm.jvp(pooled, (IMAGES,), (ts,))
        expected, tangent = hm.jvp(lambda x: F.max_pool2d(x, 2), (IMAGES,), (ts,))
        same(value, expected)
        same(moved, tangent)
        same(places, pooled(IMAGES)[1])
        assert still.dtype == places.dtype and not np.asarray(still).any()
    assert set(made) == {"max_pool2d"}


def test_random_numbers_and_statistics_are_those_of_a_plain_call(made: list[str]) -> None:
    means = [hm.zeros(6) for _ in range(2)]

    def f(x: Any, mean: Any) -> Any:
        return F.dropout(F.batch_norm(x, mean, hm.ones(6), training=True), 0.5)

    for k in range(3):
        hm.manual_seed(k)
        plain = f(X, means[0])
        hm.manual_seed(k)
        value, moved = hm.jvp(lambda x: f(x, means[1]), (X,), (T,))
        same(value, plain)
        same(means[0], means[1])
        assert ((np.asarray(moved) == 0) == (np.asarray(value) == 0)).all()
    assert {"batch_norm", "bernoulli"} <= set(made)


@pytest.mark.parametrize("how", ["as it is", "a view", "updated"])
def test_memory_that_is_shared_with_an_argument(how: str) -> None:
    def of_argument(x: Any) -> Any:
        if how == "updated":
            x *= 2
            return x + 0
        return x if how == "as it is" else x[1:]

    function = compiled(of_argument)

    def f(x: Any) -> Any:
        y = x * 1
        z = function(y)
        z *= 3
        return y

    factors = np.ones(X.shape)
    factors[1 if how == "a view" else 0 :] = 2 if how == "updated" else 3
    for _ in range(3):
        value, moved = hm.jvp(f, (X,), (T,))
        np.testing.assert_allclose(np.asarray(value), factors * np.asarray(X), rtol=1e-6)
        np.testing.assert_allclose(np.asarray(moved), factors * np.asarray(T), rtol=1e-6)


def test_a_gradient_taken_inside_of_what_is_outside(made: list[str]) -> None:
    """It runs the function again, with the same random numbers and nothing updated."""
    w = normal(6, 6).requires_grad_()
    mean = hm.zeros(6)

    def inside(x: Any) -> Any:
        hm.manual_seed(3)
        normed = F.batch_norm(F.linear(x, w), mean, hm.ones(6), training=True)
        mean.zero_()  # its gradient does not keep the statistics
        loss = F.dropout(F.gelu(normed), 0.5).square().sum()
        (g,) = hm.autograd.grad(loss, w, create_graph=True)
        return g

    found = hm.jvp(inside, (X,), (T,))[1]
    np.testing.assert_array_equal(np.asarray(mean), 0)
    assert {"linear", "batch_norm", "gelu", "_masked"} <= set(made)
    high, low = (inside(X + step * T).detach() for step in (1e-3, -1e-3))
    np.testing.assert_allclose(np.asarray(found.detach()), np.asarray(high - low) / 2e-3, rtol=0.05, atol=0.1)

    def bias(x: Any) -> Any:
        loss = F.linear(x, W.reshape((1, 6)), b).square().sum()
        with hm.no_grad():
            b.mul_(2)  # which nothing needs
        return hm.autograd.grad(loss, b, create_graph=True)[0]

    b = hm.ones(1).requires_grad_()
    np.testing.assert_allclose(np.asarray(hm.jvp(bias, (X,), (T,))[1]), np.asarray(2 * (T @ W).sum()), rtol=1e-4)

    def late(x: Any) -> Any:
        loss = F.linear(x, w).square().sum()
        with hm.no_grad():
            w.mul_(2)
        return hm.autograd.grad(loss, w, create_graph=True)[0]

    with pytest.raises(hm.GradientError, match="linear: its argument 1 was overwritten in place"):
        hm.jvp(late, (X,), (T,))
