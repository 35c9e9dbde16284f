"""Derivatives through a traced call, taken outside of it: whatever its inputs are and however they lie in memory, to
second order, they are those of the eager call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core import pytree

_WHOLE = np.random.default_rng(0).normal(size=(8, 6, 4))

# Each gives an array of shape (4, 4) or (3, 4, 4) of the same numbers, laid out in its own way.
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "transposed": lambda a: np.ascontiguousarray(np.swapaxes(a, -1, -2)).swapaxes(-1, -2),
    "permuted": lambda a: np.moveaxis(np.ascontiguousarray(np.moveaxis(a, -1, 0)), 0, -1),
    "sliced": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: a[..., ::-1].copy()[..., ::-1],
}
KINDS: dict[str, Callable[[np.ndarray], Any]] = {"array": lambda a: a, "tensor": hm.asarray}
DERIVATIVES: dict[str, Callable[..., Any]] = {
    "gradient": lambda f, x, t: hm.grad(lambda x: f(x).sum())(x),
    "second": lambda f, x, t: hm.grad(lambda x: (hm.grad(lambda x: f(x).sum())(x) ** 2).sum())(x),
    "hvp": lambda f, x, t: hm.grad(lambda x: (hm.grad(lambda x: (f(x) ** 2).sum())(x) * t).sum())(x),
    "jvp": lambda f, x, t: hm.jvp(f, (x,), (t,)),
    "hvp by jvp": lambda f, x, t: hm.jvp(hm.grad(lambda x: (f(x) ** 2).sum()), (x,), (t,)),
    "gradient of jvp": lambda f, x, t: hm.grad(lambda x: hm.jvp(f, (x,), (t,))[1].sum())(x),
}


def _same(traced: Any, eager: Any) -> None:
    got, want = pytree.tree_leaves(traced), pytree.tree_leaves(eager)
    assert len(got) == len(want) > 0
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize(("ndim", "kind"), [(2, "tensor"), (3, "array")])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, kind: str, ndim: int, derivative: str) -> None:
    numbers = np.random.default_rng(1).normal(size=(3, 4, 4)[3 - ndim :])
    s = KINDS[kind](LAYOUTS[layout](numbers))
    x, t = (hm.tensor(np.random.default_rng(k).normal(size=numbers.shape)) for k in (2, 3))

    def captured(x: Any) -> Any:
        return hm.tanh(x @ s) * x + s

    def passed(x: Any, s: Any) -> Any:
        return hm.tanh(x @ s) * x + s

    take, two = DERIVATIVES[derivative], hm.trace(passed)
    want = take(captured, x, t)
    _same(take(hm.trace(captured), x, t), want)
    _same(take(lambda x: two(x, s), x, t), want)


# First derivatives that are the cotangent itself, a part of it, or do not read x: a second one goes on through them.
PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "x + c": lambda x, y: x + 1.5,
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "clone": lambda x, y: x.clone(),
    "remainder": lambda x, y: x % 1.5,
    "several": lambda x, y: (x + 1, x * y)[0],
    "view": lambda x, y: (x + y)[1:],
    "sum": lambda x, y: x.sum() + y,
    "identity": lambda x, y: x,
    "detached": lambda x, y: x.detach() + y,
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("name", PLAIN)
def test_linear_programs(name: str, derivative: str) -> None:
    f, take = PLAIN[name], DERIVATIVES[derivative]
    traced = hm.trace(f)
    x, t = hm.tensor([0.5, -1.25, 2.0], dtype=hm.float64), hm.tensor([1.0, 2.0, -3.0], dtype=hm.float64)

    def composed(call: Any) -> Any:
        return lambda x: call(x, x * x) ** 3 * 2

    _same(take(composed(traced), x, t), take(composed(f), x, t))


def test_what_a_gradient_alone_reads_has_derivatives() -> None:
    w = hm.tensor(3.0, requires_grad=True)

    class Scaled(hm.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: hm.Tensor) -> hm.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: hm.Tensor) -> hm.Tensor:
            (x,) = ctx.saved_tensors
            return g * 2 * x * w

    for f in (Scaled.apply, hm.trace(lambda x: Scaled.apply(x))):
        x = hm.tensor(2.0, requires_grad=True)
        (g,) = hm.autograd.grad(f(x), x, create_graph=True)
        assert [t.item() for t in hm.autograd.grad(g, [x, w])] == [6.0, 4.0]


def test_gradient_penalty_through_a_traced_call() -> None:
    x = hm.tensor([1.0, 2.0], requires_grad=True)
    y = (hm.trace(lambda a, b: a + b)(x, x) ** 3).sum()
    (g,) = hm.autograd.grad(y, x, create_graph=True)
    (g * g).sum().backward()
    assert x.grad.tolist() == [2 * 24 * 48, 2 * 96 * 96]  # of (24 x**2)**2
