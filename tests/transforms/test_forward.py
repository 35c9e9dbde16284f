"""Forward mode of programs: control flow, state, custom functions, and its compositions with the other transforms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml import nn
from tests.support.examples import every

X = np.array([0.5, -1.25, 2.0])
T = np.array([1.0, -2.0, 0.5])
PAIR = np.stack([X, -0.5 * X + 1])
PUSH = np.stack([T, T * T])


def tensor(values: Any) -> hm.Tensor:
    return hm.asarray(np.asarray(values, np.float64))


@hm.custom_jvp
def wave(x: hm.Tensor, options: dict[str, hm.Tensor]) -> hm.Tensor:
    return hm.sin(x) * options["scale"]


@wave.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x, options), (dx, d) = primals, tangents
    value = wave(x, options)
    return value, hm.cos(x) * dx * options["scale"] + hm.sin(x) * d["scale"]


@hm.custom_jvp
def growth(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
    return hm.exp(x) * y.sum()


growth.defjvps(lambda t, value, x, y: t * value, lambda t, value, x, y: hm.exp(x) * t.sum())


@functools.partial(hm.custom_jvp, nondiff_argnums=(1,))
def scaled(x: hm.Tensor, fn: Any, y: float = 2.0) -> hm.Tensor:
    result: hm.Tensor = fn(x) * y
    return result


@scaled.defjvp
def _(fn: Any, primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    value, moved = hm.jvp(fn, (x,), (dx,))
    return value * y, moved * y + value * dy


@functools.partial(hm.custom_vjp, nondiff_argnums=(1,))
def kept(options: dict[str, hm.Tensor], power: int, y: hm.Tensor) -> Any:
    return {"value": options["x"] ** power * y, "flag": y > 0}


def _kept_forward(options: Any, power: int, y: Any) -> Any:
    return kept(options, power, y), (options["x"], {"y": y})


def _kept_backward(power: int, saved: Any, g: Any) -> Any:
    x, y = saved[0], saved[1]["y"]
    return {"x": g["value"] * y * power * x ** (power - 1)}, g["value"] * x**power


kept.defvjp(_kept_forward, _kept_backward)


class Square(hm.autograd.Function):
    """Two results and a `jvp`."""

    @staticmethod
    def forward(ctx: Any, x: hm.Tensor, y: hm.Tensor) -> Any:
        ctx.save_for_backward(x, y)
        return x * x * y, x.sum()

    @staticmethod
    def backward(ctx: Any, g: hm.Tensor, h: hm.Tensor) -> Any:
        x, y = ctx.saved_tensors
        return g * 2 * x * y + h, g * x * x

    @staticmethod
    def jvp(ctx: Any, dx: Any, dy: Any) -> Any:
        x, y = ctx.saved_tensors
        moved = 0 * x if dx is None else 2 * x * y * dx
        return moved if dy is None else moved + x * x * dy, None if dx is None else dx.sum()


class Exp(hm.autograd.Function):
    """A saved result, and no `jvp`."""

    @staticmethod
    def forward(ctx: Any, x: hm.Tensor) -> hm.Tensor:
        y = hm.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: hm.Tensor) -> Any:
        return g * ctx.saved_tensors[0]


def _in_place(x: hm.Tensor) -> hm.Tensor:
    y = x * 2
    row = y[1:]
    row *= x[:2]
    buffer = hm.zeros(3, dtype="float64")
    buffer[0] = y[1]
    return y * x.sum() + buffer


def _no_grad(x: hm.Tensor) -> hm.Tensor:
    with hm.no_grad():
        y = x * x
    return y * x + x.detach()


ZERO = hm.tensor(0)
traced = functools.partial(hm.trace, backend="interpret")  # what is compiled is the same graph
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "scan": lambda x: hm.scan(lambda c, v: (c * v + x.sum(), c**2), x[0], x)[1],
    "unrolled": lambda x: hm.scan(lambda c, v: (c * v + x.sum(), c**2), x[0], x, unroll=2)[1],
    "while": lambda x: hm.while_loop(
        lambda c: hm.abs(c[0]).sum() < 30, lambda c: (c[0] * 2 * x.sum(), c[1] + 1), (x, ZERO), max_steps=9
    )[0],
    "for": lambda x: hm.fori_loop(0, 3, lambda i, c: hm.sin(c) * x, x),
    "cond": lambda x: hm.cond(x.sum() > 0, lambda v: v**2, lambda v: v**3 * x.sum(), x),
    "other branch": lambda x: hm.cond(x.sum() < 0, lambda v: v**2, lambda v: v**3 * x.sum(), x),
    "checkpoint": lambda x: hm.checkpoint(lambda v: hm.exp(v) * x, x),
    "in place": _in_place,
    "no grad": _no_grad,
    "custom": lambda x: wave(x, {"scale": x * x}),
    "custom, one moves": lambda x: wave(x, {"scale": hm.ones(3, dtype="float64")}),
    "rules": lambda x: growth(x, x * 2),
    "fixed": lambda x: scaled(x, hm.sin, y=x),
    "gradient": lambda x: kept({"x": x}, 3, hm.sin(x))["value"],
    "function": lambda x: Square.apply(x, hm.sin(x))[0] * Square.apply(x, x)[1],
    "saved": lambda x: Exp.apply(x) * x,
    "linear": lambda x: F.linear(hm.outer(x, x), hm.outer(x, hm.sin(x))),
    "complex": lambda x: hm.abs(hm.exp(x * 1j) * hm.conj(x + 1j * x[0])) ** 2,
}  # fmt: skip


def jacobian(f: Callable[..., Any], x: hm.Tensor) -> hm.Tensor:
    value, pull = hm.vjp(f, x)
    rows = [pull(hm.asarray(np.eye(value.numel())[k].reshape(value.shape)))[0] for k in range(value.numel())]
    return hm.stack(rows).reshape((*value.shape, 3))


def same(got: Any, want: Any) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(np.asarray(got.detach()), np.asarray(want.detach()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_order(name: str) -> None:
    f, x, t = FUNCTIONS[name], tensor(X), tensor(T)
    want = jacobian(f, x) @ t

    def push(x: Any, t: Any) -> Any:
        return hm.jvp(f, (x,), (t,))[1]

    for way in (push, traced(push), lambda x, t: hm.jvp(traced(f), (x,), (t,))[1]):
        same(way(x, t), want)
    same(hm.linearize(f, x)[1](t), want)
    same(hm.jacfwd(f)(x), jacobian(f, x))
    pairs, pushes = tensor(PAIR), tensor(PUSH)
    both = hm.stack([jacobian(f, x) @ t for x, t in zip(pairs, pushes, strict=True)])

    def over(xs: Any, ts: Any) -> Any:
        return hm.jvp(hm.vmap(f), (xs,), (ts,))[1]

    for batched in (hm.vmap(push), over, traced(hm.vmap(push)), traced(over)):
        same(batched(pairs, pushes), both)


def total(value: hm.Tensor) -> hm.Tensor:
    return (value**2).sum()


@pytest.mark.parametrize("name", every(2, FUNCTIONS))
def test_second_and_third_order(name: str) -> None:
    f, x, t = FUNCTIONS[name], tensor(X), tensor(T)

    def g(x: Any) -> Any:
        return total(f(x))

    slope = hm.grad(g)
    want = hm.stack([hm.grad(lambda x, k=k: slope(x)[k])(x) for k in range(3)]) @ t

    def ahead(x: Any) -> Any:
        return hm.jvp(g, (x,), (t,))[1]

    def twice(x: Any) -> Any:
        return hm.jvp(ahead, (x,), (t,))[1]

    for style in (lambda f: f, traced):
        same(style(lambda x: hm.hvp(g, (x,), (t,)))(x), want)
        same(style(lambda x: hm.grad(lambda x: (slope(x) * t).sum())(x))(x), style(hm.grad(ahead))(x))
        same(style(twice)(x), (hm.grad(ahead)(x) * t).sum())
        same(style(lambda x: hm.jvp(twice, (x,), (t,))[1])(x), (hm.grad(twice)(x) * t).sum())
    same(hm.hvp(traced(g), (x,), (t,)), want)
    if name not in ("no grad",):
        same(hm.grad(ahead)(x), want)


def test_loops_and_branches_of_a_program_stay() -> None:
    for f, op in (
        (lambda x: hm.scan(lambda c, v: (hm.tanh(c + v * x), None), x, x)[0], "loop"),
        (lambda x: hm.while_loop(lambda c: c.sum() < 9, lambda c: c * c + x, x), "loop"),
        (lambda x: hm.cond(x.sum() > 0, hm.sin, hm.cos, x), "cond"),
    ):
        push = traced(lambda x, t, f=f: hm.jvp(f, (x,), (t,))[1])
        same(push(tensor(X), tensor(T)), jacobian(f, tensor(X)) @ tensor(T))
        assert push.ir.count(f"= {op}") == 1


@pytest.mark.parametrize("style", [lambda f: f, traced], ids=["eager", "traced"])
def test_random_numbers_and_buffers(style: Any) -> None:
    def f(x: Any) -> Any:
        return F.dropout(x * x, 0.5) + x * hm.randn(3, dtype="float64")

    x, t = tensor(X), tensor(T)
    hm.manual_seed(0)
    value, moved = style(lambda x: hm.jvp(f, (x,), (t,)))(x)
    hm.manual_seed(0)
    again, pull = hm.vjp(f, x)
    same(value, again)
    assert float((moved * t).sum()) == pytest.approx(float((pull(t)[0] * t).sum()))
    norm = nn.BatchNorm1d(3)
    rows = hm.stack([x, x * 2]).astype("float32")
    style(lambda rows: hm.jvp(norm, (rows,), (rows,)))(rows)
    assert norm.num_batches_tracked.item() == 1 and norm.running_mean.abs().sum().item() > 0
    assert not norm.running_mean.requires_grad


def test_written_values_keep_their_tangents() -> None:
    buffer = hm.zeros(3, dtype="float64")

    def f(x: Any) -> Any:
        buffer[1] = x[0] * x[0]
        return buffer * 3

    value, moved = hm.jvp(f, (tensor(X),), (tensor(T),))
    assert value.tolist() == [0, 0.75, 0] and moved.tolist() == [0, 3, 0]
    assert buffer.tolist() == [0, 0.25, 0] and not buffer.requires_grad


@pytest.mark.parametrize("model", ["perceptron", "convolutions"])
def test_what_it_costs(model: str) -> None:
    """Twice the products, and twice the kernels or one more."""
    hm.manual_seed(0)
    net, x = {
        "perceptron": (nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU()), hm.randn(4, 8)),
        "convolutions": (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 4, 3), nn.Tanh(), nn.Flatten()),
            hm.randn(2, 3, 12, 12),
        ),
    }[model]
    t = hm.randn(*x.shape)
    plain, push = hm.trace(lambda x: net(x)), hm.trace(lambda x, t: hm.jvp(lambda x: net(x), (x,), (t,)))
    with hm.no_grad():
        plain(x), push(x, t)
        for op in ("matmul", "convolution"):
            assert push.ir.count(f"= {op}(") == 2 * plain.ir.count(f"= {op}(")
        assert len(push.explain(x, t).kernels) <= 2 * len(plain.explain(x).kernels) + 1


def test_nothing_is_kept_for_a_backward() -> None:
    seen = []

    def f(x: Any) -> Any:
        y = hm.sin(x) * x
        seen.append((y.requires_grad, y.is_leaf))
        return y

    hm.jvp(f, (tensor(X),), (tensor(T),))
    assert seen == [(True, True)]  # it is differentiated, and has no history


def test_errors() -> None:
    x, t = tensor(X), tensor(T)

    @hm.custom_jvp
    def bare(x: Any) -> Any:
        return x * 2

    @hm.custom_jvp
    def odd(x: Any) -> Any:
        return x * 2

    for rule, words in (
        (lambda p, t: p[0], r"must return \(value, tangent\), got Tensor"),
        (lambda p, t: (p[0], t[0].sum()), r"a value of shape \(3,\) and a tangent of shape \(\)"),
        (lambda p, t: (p[0], {"a": t[0]}), "returns another container than before"),
    ):
        odd.defjvp(rule)
        with pytest.raises(hm.GradientError, match=words):
            hm.jvp(odd, (x,), (t,))
    assert bare(x).tolist() == (x * 2).tolist()

    @hm.custom_vjp
    def wrong(x: Any) -> Any:
        return x * 2

    for fwd, bwd, words in (
        (lambda x: x, lambda kept, g: (g,), r"fwd of wrong must return \(value, kept\), got Tensor"),
        (lambda x: (x, None), lambda kept, g: g, r"a tuple, one gradient an argument \(1\), got Tensor"),
        (lambda x: (x, None), lambda kept, g: ([g],), "that of argument 0 is another container"),
    ):
        wrong.defvjp(fwd, bwd)
        with pytest.raises(hm.GradientError, match=words):
            hm.grad(lambda x: wrong(x).sum())(x)

    class Short(Square):
        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            return tangents[0]

    leaked: list[Any] = []
    for call, error, words in (
        (lambda: hm.jvp(bare, (x,), (t,)), hm.GradientError, "bare has no rule; define one with defjvp"),
        (lambda: hm.grad(lambda x: bare(x).sum())(x), hm.GradientError, "bare has no rule; define one with defjvp"),
        (lambda: hm.custom_jvp(x), hm.ArgumentError, "custom_jvp: takes a function and gives a function, got Tensor"),
        (lambda: bare.defjvp(None), hm.ArgumentError, "defjvp: takes a function of primals and tangents, got NoneType"),
        (lambda: wrong.defvjp(None, None), hm.ArgumentError, "defvjp: takes two functions, fwd and bwd, got NoneType"),
        (lambda: growth.defjvps(1), hm.ArgumentError, "defjvps: takes functions, one an argument, or None"),
        (lambda: scaled.defjvps(None), hm.ArgumentError, "defjvps: takes no nondiff_argnums"),
        (
            lambda: hm.jvp(lambda x: Short.apply(x, x), (x,), (t,)),
            hm.GradientError,
            "returned 1 tangents for 2",
        ),
        (lambda: hm.jvp(lambda x: (x * x).sum().backward(), (x,), (t,)), hm.GradientError, "inside of jvp it reaches"),
        (lambda: hm.jvp(lambda x: hm.autograd.grad(x.sum(), x)[0], (x,), (t,)), hm.GradientError, "use hm.grad, or"),
        (lambda: hm.jvp(lambda x: leaked.append(x) or x, (x,), (t,)) and leaked[0] * 2, hm.TraceError, "under jvp"),
    ):
        with pytest.raises(error, match=words):
            call()

    def loop(x: Any) -> Any:
        y = x * 1
        hm.scan(lambda c, v: (y.add_(v), None)[:0] or (c, None), x, x)
        return y

    with pytest.raises(hm.ArgumentError, match="a loop or branch of a traced function updates a tensor of shape"):
        hm.trace(lambda x: hm.jvp(loop, (x,), (t,)), strict=True)(x)


def test_gradients_inside_of_what_asks_for_them() -> None:
    def f(x: Any) -> Any:
        x = (x * 1).requires_grad_()
        (g,) = hm.autograd.grad((x**3).sum(), x, create_graph=True)
        return g

    x, t = tensor(X), tensor(T)
    same(hm.jvp(f, (x,), (t,))[1], 6 * x * t)
    w = hm.tensor([2.0, 3.0, 4.0], dtype="float64", requires_grad=True)
    value, moved = hm.jvp(lambda x: (x * w).sum(), (x,), (t,))
    (value + 2 * moved).backward()
    same(w.grad, x + 2 * t)


def test_autocast_inside_and_outside() -> None:
    hm.manual_seed(0)
    x, t, w = hm.randn(4, 3), hm.randn(4, 3), hm.randn(3, 5)

    def f(x: Any) -> Any:
        return Exp.apply(x @ w).sum()

    def inside(x: Any) -> Any:
        with hm.autocast("cpu"):
            return f(x)

    exact = hm.jvp(f, (x,), (t,))[1].item()
    for style in (lambda f: f, traced):
        value, moved = style(lambda x: hm.jvp(inside, (x,), (t,)))(x)
        with hm.autocast("cpu"):
            again = style(lambda x: hm.jvp(f, (x,), (t,)))(x)
        assert value.dtype == moved.dtype == again[0].dtype == again[1].dtype == hm.float32
        assert moved.item() != exact and moved.item() == pytest.approx(exact, rel=0.05)
        assert again[1].item() == pytest.approx(exact, rel=0.05)


def test_devices_are_left_and_entered() -> None:
    def f(x: Any) -> Any:
        return (x.to("reference") * hm.arange(3.0, device="reference")).cpu() + x

    x, t = hm.tensor([1.0, 2.0, 3.0]), hm.tensor([1.0, 0.0, 2.0])
    assert hm.jvp(f, (x,), (t,))[1].tolist() == hm.trace(lambda x: hm.jvp(f, (x,), (t,))[1])(x).tolist() == [1, 0, 6]
    seen: list[str] = []
    hm.vmap(lambda x: seen.append(x.to("reference").device.type) or x)(x)
    assert seen == ["reference"]


@pytest.mark.parametrize("transform", ["jvp", "vmap"])
def test_a_float_given_to_a_traced_function_follows_the_tensors(transform: str) -> None:
    """Inside of a transform it stays a Python number, whose dtype is that of what it meets."""
    x = hm.ones((2, 3), dtype="float32")

    def f(x: Any, by: float) -> Any:
        def inside(row: Any) -> Any:
            return hm.add(row * by, by * 2.0)

        return hm.vmap(inside)(x) if transform == "vmap" else hm.jvp(inside, (x,), (x,))[1]

    found, plain = hm.trace(f)(x, 0.5), f(x, 0.5)
    assert found.dtype == plain.dtype == hm.float32
    same(found, plain)
