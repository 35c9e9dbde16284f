"""`jacrev`, `jacfwd`, `hessian`, `hvp` and `linearize`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml import nn

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def close(a: Any, b: Any, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(np.asarray(a.detach()), np.asarray(b.detach()), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("way", [hm.jacrev, hm.jacfwd])
def test_jacobians(way: Callable[..., Any]) -> None:
    at = hm.tensor([1.0, 2.0, 3.0])
    found = way(lambda d, k: {"a": d["x"] * d["y"] * k, "b": d["x"].sum()})({"x": at, "y": at * 2}, 3)
    close(found["a"]["x"], hm.diag(at * 6))
    close(found["a"]["y"], hm.diag(at * 3))
    assert found["b"]["x"].tolist() == [1, 1, 1] and found["b"]["y"].tolist() == [0, 0, 0]
    both, aux = way(lambda a, b: (a * b, "aux"[0:0] or a.sum()), argnums=(0, 1), has_aux=True)(at, at)
    close(both[0], hm.diag(at))
    assert aux.item() == 6.0
    close(way(hm.sin, chunk_size=2)(at), hm.diag(hm.cos(at)))
    close(hm.vmap(way(hm.sin))(hm.asarray(X)), hm.stack([hm.diag(hm.cos(row)) for row in hm.asarray(X)]))
    close(hm.trace(way(lambda a: a * a.sum()))(at), hm.eye(3) * 6 + at[:, None])
    with pytest.raises(hm.ArgumentError, match="argnums 1 but 1 positional"):
        way(hm.sin, argnums=1)(at)


def test_second_derivatives_and_their_products() -> None:
    at, v = hm.tensor([1.0, 2.0, 3.0]), hm.tensor([1.0, 0.0, -1.0])

    def f(x: Any) -> Any:
        return (x**3).sum() * x[0]

    exact = hm.stack([hm.grad(lambda x, k=k: hm.grad(f)(x)[k])(at) for k in range(3)])
    for fn in (f, hm.trace(f)):
        close(hm.hessian(fn)(at), exact, 1e-5)
    close(hm.trace(hm.hessian(f))(at), exact, 1e-5)
    close(hm.hvp(f, (at,), (v,)), exact @ v, 1e-5)
    value, push = hm.linearize(f, at)
    close(push(v), hm.grad(f)(at) @ v, 1e-5)
    assert value.item() == f(at).item() and not push(v).requires_grad


def test_a_linear_function_computes_nothing_of_the_primal_again() -> None:
    calls: list[str] = []

    class Sine(hm.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: hm.Tensor) -> hm.Tensor:
            calls.append("forward")
            ctx.save_for_backward(x)
            return hm.sin(x)

        @staticmethod
        def backward(ctx: Any, g: hm.Tensor) -> hm.Tensor:
            calls.append("backward")
            return g * hm.cos(ctx.saved_tensors[0])

    x, t = hm.asarray(X), hm.ones((3, 4))
    value, push = hm.linearize(lambda x: Sine.apply(Sine.apply(x)), x)
    assert calls == ["forward", "forward", "backward", "backward"]
    slope = hm.cos(hm.sin(x)) * hm.cos(x)
    close(value, hm.sin(hm.sin(x)))
    close(push(t), slope)
    close(push(2 * t), 2 * slope)
    assert len(calls) == 4

    def thrice(x: Any) -> Any:
        value, push = hm.linearize(lambda x: hm.tanh(x @ hm.ones((4, 4))), x)
        return value, push(t), push(2 * t), push(3 * t)

    traced = hm.trace(thrice)
    close(traced(x)[3], 3 * traced(x)[1], 1e-5)
    assert traced.ir.count("= matmul(") == 4
    with pytest.raises(hm.ShapeError, match=r"linearize: tangents must have the shape of primals, \(3, 4\), got \(\)"):
        push(hm.tensor(1.0))


@pytest.mark.parametrize("prepare", [lambda fn: fn, hm.trace])
@pytest.mark.parametrize("name", ["layers", "loop"])
def test_jacobians_pull_through_what_ran_compiled_outside(name: str, prepare: Callable[..., Any]) -> None:
    hm.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 3))
    steps = hm.arange(20.0).reshape(5, 4) * 0.1
    functions = {
        "layers": lambda v: F.softmax(model(v), -1),
        "loop": lambda v: hm.scan(lambda c, row: (hm.tanh(c + row * v), None), hm.zeros(4), steps)[0],
    }
    fn, at = functions[name], hm.asarray(X)[0]
    rows = [hm.grad(lambda v, k=k: fn(v)[k])(at) for k in range(fn(at).shape[0])]
    call = prepare(fn)
    for _ in range(3):  # native calls begin after some
        close(hm.jacrev(call)(at), hm.stack(rows), 1e-5)
    close(hm.vmap(hm.jacrev(call))(hm.asarray(X))[0], hm.stack(rows), 1e-5)
    if (name, prepare is hm.trace) != ("loop", True):
        square = hm.hessian(lambda v: (call(v) ** 2).sum())(at)
        close(
            square,
            hm.stack([hm.grad(lambda v, k=k: hm.grad(lambda u: (fn(u) ** 2).sum())(v)[k])(at) for k in range(4)]),
            1e-4,
        )
