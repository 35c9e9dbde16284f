"""`jvp` and `vjp`: products with Jacobians, of functions of containers, differentiable to any order in both styles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.pytree import tree_leaves, tree_map
from hybridml.testing import gradcheck


class Pair(NamedTuple):
    left: Any
    right: Any


class Doubled(hm.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: hm.Tensor) -> hm.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: hm.Tensor) -> hm.Tensor:
        (x,) = ctx.saved_tensors
        return g * 2 * x


X = np.array([0.5, -1.25, 2.0])
ZERO = hm.tensor(0)
W = np.random.default_rng(0).normal(size=(3, 3))

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "power": lambda x: x**3,
    "linear": lambda x: x * 2 + 1,
    "identity": lambda x: x,
    "constant": lambda x: hm.asarray(W),
    "product": lambda x: hm.tanh(W @ x) * x,
    "softmax": lambda x: hm.functional.softmax(x, -1),
    "norm": lambda x: hm.linalg.vector_norm(x),
    "sorted": lambda x: hm.sort(x) * x,
    "view": lambda x: x[::2] * x[1],
    "solve": lambda x: hm.linalg.solve(hm.asarray(W) + hm.outer(x, x), x),
    "eigenvalues": lambda x: hm.linalg.eigh(hm.asarray(W + W.T) + hm.outer(x, x)),
    "function": Doubled.apply,
    "checkpoint": lambda x: hm.checkpoint(lambda x: hm.exp(hm.sin(x)), x),
    "in place": lambda x: _updated(x),
    "tuple": lambda x: (x * x, hm.sin(x[0])),
    "containers": lambda x: {"a": [x**2], "b": Pair(hm.exp(x).sum(), x > 0)},
    "scan": lambda x: hm.scan(lambda c, v: (c * v + 1, c**2), x[0], x),
    "while": lambda x: hm.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * x, c[1] + 1), (x, ZERO), max_steps=3),
    "cond": lambda x: hm.cond(x.sum() > 0, lambda v: v**2, lambda v: v**3, x),
    "complex": lambda x: hm.abs(hm.exp(x * 1j) + x) ** 2,
}  # fmt: skip


def _updated(x: hm.Tensor) -> hm.Tensor:
    y = x * 2
    y[1:] += x[:2] * x[0]
    return y


def _tensor(array: Any) -> hm.Tensor:
    return hm.asarray(np.asarray(array, np.float64))


def _floats(value: Any) -> list[hm.Tensor]:
    return [t for t in tree_leaves(value) if t.dtype.kind == "f"]


def _same(got: Any, want: Any) -> None:
    a, b = tree_leaves(got), tree_leaves(want)
    assert len(a) == len(b) > 0
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_products_are_derivatives(name: str) -> None:
    """Against differences of the function, and each other: <w, J t> = <J^T w, t>."""
    f, rng, step = FUNCTIONS[name], np.random.default_rng(1), 1e-6
    x, t = _tensor(X), _tensor(rng.normal(size=3))
    value, product = hm.jvp(f, (x,), (t,))
    again, pull = hm.vjp(f, x)
    _same(value, f(x))
    _same(again, f(x))
    assert [a.dtype for a in tree_leaves(product)] == [a.dtype for a in tree_leaves(value)]
    high, low = f(x + step * t), f(x - step * t)
    for p, a, b in zip(_floats(product), _floats(high), _floats(low), strict=True):
        np.testing.assert_allclose(p.numpy(), ((a - b) / (2 * step)).numpy(), rtol=1e-6, atol=1e-6)
    weights = tree_map(lambda v: _tensor(rng.normal(size=v.shape)).astype(v.dtype), value)
    (pulled,) = pull(weights)
    ahead = sum(float((w * p).sum()) for w, p in zip(_floats(weights), _floats(product), strict=True))
    assert ahead == pytest.approx(float((pulled * t).sum()), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_products_differentiate_to_second_order(name: str) -> None:
    f, rng = FUNCTIONS[name], np.random.default_rng(2)
    t = rng.normal(size=3)
    assert gradcheck(lambda x, t: hm.jvp(f, (x,), (t,)), X, t)
    value = f(_tensor(X))
    assert gradcheck(lambda x: hm.vjp(f, x)[0], X)
    weights = tree_map(lambda v: rng.normal(size=v.shape) if v.dtype.kind == "f" else np.zeros(v.shape), value)
    assert gradcheck(lambda x, w: hm.vjp(f, x)[1](w), X, weights) if isinstance(value, hm.Tensor) else True


@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_styles(name: str) -> None:
    traced = partial(hm.trace, backend="interpret")  # what is compiled is the same graph
    f, x, t = FUNCTIONS[name], _tensor(X), _tensor([1.0, -2.0, 0.5])

    def total(value: Any) -> hm.Tensor:
        return sum(((v**2).sum() for v in _floats(value)), start=hm.asarray(np.float64(0)))

    def forward(x: Any) -> Any:
        return hm.jvp(f, (x,), (t,))

    def back(x: Any) -> Any:
        value, pull = hm.vjp(f, x)
        return value, pull(value)

    for derive in (forward, back):
        _same(traced(derive)(x), derive(x))
        want = hm.grad(lambda x, d=derive: total(d(x)))(x)
        _same(traced(hm.grad(lambda x, d=derive: total(d(x))))(x), want)
        inner = traced(derive)
        _same(hm.grad(lambda x, d=inner: total(d(x)))(x), want)
    _same(hm.jvp(hm.trace(f), (x,), (t,)), forward(x))


def test_products_in_what_is_around_them() -> None:
    x, one = hm.tensor(2.0), hm.tensor(1.0)

    def cube(b: hm.Tensor) -> hm.Tensor:
        return b**3

    for f, want in (
        (lambda a: hm.jvp(cube, (a,), (one,))[1], 12.0),
        (lambda a: hm.vjp(cube, a)[0], 12.0),
        (lambda t: hm.jvp(cube, (x,), (t,))[1], 12.0),
        (lambda a: hm.jvp(lambda b: hm.jvp(cube, (b,), (one,))[1], (a,), (one,))[1], 6.0),  # third derivative
        (lambda a: hm.jvp(lambda b: b * a, (one,), (one,))[1], 1.0),  # of what the function closes over
        (lambda a: hm.vjp(lambda b: b * a, one)[1](one)[0], 1.0),
        (lambda a: hm.vjp(lambda b: b * a, one)[0], 1.0),
        (lambda a: hm.vjp(lambda b: b * b, x)[1](a * a)[0], 16.0),  # of the cotangent
        (lambda a: hm.jvp(lambda b: b * b, (x,), (a * a,))[1], 16.0),
    ):
        g = hm.grad(f)(x)
        assert g.item() == want and not g.requires_grad
        assert hm.grad(hm.trace(f))(x).item() == hm.trace(hm.grad(f))(x).item() == want
        assert hm.jvp(f, (x,), (one,))[1].item() == want
    w = hm.tensor(3.0, requires_grad=True)
    value, product = hm.jvp(lambda b: b * w, (one,), (one,))
    (value * 10 + product).backward()
    assert w.grad.item() == 11


def test_nothing_is_recorded_where_nothing_is_outside() -> None:
    x = hm.tensor([1.0, 2.0])
    value, pull = hm.vjp(lambda a: a * a, x)
    first = hm.jvp(lambda a: a * a, (x,), (x,))
    assert not any(t.requires_grad for t in (value, *pull(x), *first))
    w = hm.tensor([1.0, 2.0], requires_grad=True)
    with hm.no_grad():
        value, pull = hm.vjp(lambda a: a * a, w)
        second = hm.jvp(lambda a: a * a, (w,), (w,))
        assert not any(t.requires_grad for t in (value, *pull(w), *second))
        assert second[1].tolist() == [2, 8] and pull(w)[0].tolist() == [2, 8]
    assert w.grad is None


def test_hooks_are_of_gradients() -> None:
    """Forward mode has none, but those taken inside of it, and of what it has made."""
    seen = []

    def f(a: hm.Tensor) -> hm.Tensor:
        b = a * a
        b.register_hook(lambda g: seen.append(g.item()))
        return b * b

    x, one = hm.tensor(2.0), hm.tensor(1.0)
    assert hm.jvp(f, (x,), (one,))[1].item() == 32 and seen == []
    assert hm.hvp(f, (x,), (one,)).item() == 48 and seen == [8]
    assert hm.grad(lambda a: hm.jvp(f, (a,), (one,))[0])(x).item() == 32 and seen == [8, 8]


def test_containers_and_aux() -> None:
    x, y = hm.tensor(2.0), hm.tensor([1.0, 3.0])
    primals = ({"x": x, "n": 3, "none": None}, [y])

    def f(p: Any, q: Any) -> Any:
        return (p["x"] ** p["n"] * q[0], {"aux": p["n"]})

    value, pull, aux = hm.vjp(f, *primals, has_aux=True)
    assert value.tolist() == [8, 24] and aux == {"aux": 3}
    first, (second,) = pull(hm.ones(2))
    assert first["x"].item() == 48 and first["n"] is None and first["none"] is None and second.tolist() == [8, 8]
    tangents = ({"x": 1.0, "n": None, "none": None}, [np.zeros(2, "f")])
    value, product, aux = hm.jvp(f, primals, tangents, has_aux=True)
    assert value.tolist() == [8, 24] and product.tolist() == [12, 36] and aux == {"aux": 3}
    exact = hm.jvp(lambda a: a, (hm.tensor(1.0, dtype=hm.float64),), (0.1,))[1]
    assert exact.item() == 0.1  # a number takes the dtype of its primal


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_aux_has_no_history_of_the_call(style: Any) -> None:
    def f(a: Any) -> Any:
        return (a * a).sum(), {"argument": a, "square": a * a, "name": "f", "number": 3}

    x, v = hm.tensor([1.0, 2.0]), hm.ones(2)
    for call in (
        lambda x: hm.grad(f, has_aux=True)(x)[1],
        lambda x: hm.value_and_grad(f, has_aux=True)(x)[0][1],
        lambda x: hm.vjp(f, x, has_aux=True)[2],
        lambda x: hm.jvp(f, (x,), (v,), has_aux=True)[2],
    ):
        aux = style(call)(x)
        assert not aux["argument"].requires_grad and not aux["square"].requires_grad
        assert aux["square"].tolist() == [1, 4] and (aux["name"], aux["number"]) == ("f", 3)
        # what has a history outside keeps it: the value may have none there
        assert hm.grad(lambda y, call=call: style(call)(y)["square"].sum())(x).tolist() == [2, 4]
    w = hm.ones(2).requires_grad_()
    hm.grad(style(lambda a: ((a * a).sum(), w * a)), has_aux=True)(x)[1].sum().backward()
    assert w.grad is not None and w.grad.tolist() == [1, 2]


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_stop_gradient(style: Callable[[Any], Any]) -> None:
    def f(x: hm.Tensor) -> hm.Tensor:
        stopped: hm.Tensor = hm.stop_gradient({"a": [x * x], "n": 3})["a"][0]
        return stopped * x

    x, t = hm.tensor([2.0, 3.0]), hm.tensor([1.0, 10.0])
    assert style(hm.grad(lambda x: f(x).sum()))(x).tolist() == [4, 9]
    assert style(lambda x: hm.jvp(f, (x,), (t,))[1])(x).tolist() == [4, 90]
    assert style(hm.vmap(hm.grad(f)))(x).tolist() == [4, 9]
    assert not hm.stop_gradient(hm.ones(2).requires_grad_()).requires_grad
    assert hm.stop_gradient({"a": None, "b": 3}) == {"a": None, "b": 3}


def test_errors() -> None:
    x = hm.tensor([1.0, 2.0])
    _, pull = hm.vjp(lambda a: (a, a.sum()), x)
    for call, error, words in (
        (lambda: pull(x), hm.ArgumentError, "the cotangent must have the structure of the value"),
        (lambda: pull((x, x)), hm.ShapeError, r"must have the shape of the value, \(\), got \(2,\)"),
        (lambda: pull((x, None)), hm.DTypeError, "got None; give zeros"),
        (lambda: pull((x * 1j, hm.tensor(1.0))), hm.DTypeError, "vjp: the result is float32, and its gradient complex"),
        (lambda: hm.vjp(lambda a: 3.0, x), hm.GradientError, "vjp: the function must return a tensor or a container"),
        (lambda: hm.jvp(lambda a: (a, None), (x,), (x,)), hm.GradientError, "got NoneType; .*has_aux=True"),
        (lambda: hm.vjp(lambda a: a, hm.tensor([1])), hm.DTypeError, "vjp: only float and complex tensors"),
        (lambda: hm.jvp(lambda a: a, (x,), (hm.ones(3),)), hm.ShapeError, "tangents must have the shape of primals"),
        (lambda: hm.jvp(lambda a: a, (x,), ()), hm.ArgumentError, "tangents must have the structure of primals"),
        (lambda: hm.jvp(lambda a: a, x, x), hm.ArgumentError, "primals is a tuple, one entry an argument, got Tensor"),
        (lambda: hm.jvp(lambda a: x * a, (2,), (1,)), hm.DTypeError, "primals has 2 there, .*make it a float"),
        (lambda: hm.jvp(lambda a: a, (x,), (x,), has_aux=True), hm.ArgumentError, r"returns \(value, aux\)"),
        (lambda: hm.grad(lambda a: (a, a, a), has_aux=True)(x), hm.ArgumentError, "grad: .*got a tuple of 3"),
        (lambda: hm.grad(lambda a, b: a * b, argnums="b")(x, x), hm.ArgumentError, "counts positional .* got 'b'"),  # type: ignore[arg-type]
        (lambda: hm.vjp(x * 2, x), hm.ArgumentError, "vjp: takes a function"),
        (lambda: hm.jvp(x * 2, (x,), (x,)), hm.ArgumentError, "jvp: takes a function"),
    ):
        with pytest.raises(error, match=words):
            call()
        with pytest.raises(error, match=words):
            hm.trace(call)()
