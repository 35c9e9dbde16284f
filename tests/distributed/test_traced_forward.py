"""Gradients behind a traced forward pass that calls collectives: those of the eager one, by as many collectives."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import distributed as dist
from hybridml.autograd import Function
from hybridml_compiler.errors import GradientError, TraceError

X = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)


def exchanged(y: hm.Tensor) -> hm.Tensor:
    """The square of y in the first process; in the others y times what the first one sends."""
    if dist.get_rank() == 0:
        return y * y + sum(dist.send(y, k) for k in range(1, dist.get_world_size()))
    return y * dist.recv(y, 0)


EXCHANGES: dict[str, Callable[[hm.Tensor], hm.Tensor]] = {
    **{op: lambda y, op=op: dist.all_reduce(y, op) for op in ("sum", "mean", "prod", "max", "min")},
    "broadcast": lambda y: dist.broadcast(y, 1) * y,
    "all_gather": dist.all_gather,
    "reduce_scatter": dist.reduce_scatter,
    "all_to_all": dist.all_to_all,
    "twice": lambda y: dist.all_reduce(dist.all_reduce(y) * y),
}  # fmt: skip


def of_all(combine: Callable[[hm.Tensor, hm.Tensor], hm.Tensor]) -> Callable[..., list[hm.Tensor]]:
    return lambda a, b: [combine(a, b)] * 2


ALONE: dict[str, Callable[..., list[hm.Tensor]]] = {  # the results of both processes, from what both give
    "sum": of_all(lambda a, b: a + b),
    "mean": of_all(lambda a, b: (a + b) / 2),
    "prod": of_all(lambda a, b: a * b),
    "max": of_all(hm.maximum),
    "min": of_all(hm.minimum),
    "broadcast": lambda a, b: [b * a, b * b],
    "all_gather": of_all(lambda a, b: hm.concat([a, b])),
    "reduce_scatter": lambda a, b: [(a + b)[:2], (a + b)[2:]],
    "all_to_all": lambda a, b: [hm.concat([a[:2], b[:2]]), hm.concat([a[2:], b[2:]])],
    "twice": lambda a, b: [(a + b) * (a + b)] * 2,
}  # fmt: skip


def gradients(exchange: Callable[[hm.Tensor], hm.Tensor], traced: bool, order: int) -> list[Any]:
    """Losses and gradients of three calls, on each of two processes."""

    def rank() -> list[Any]:
        w = hm.tensor([0.5, -1.5, 2.0, 1.0], dtype=hm.float64, requires_grad=True)

        def loss(x: hm.Tensor) -> hm.Tensor:
            return (exchange(w * x) ** 3).sum()

        call, found = hm.trace(loss) if traced else loss, []
        for k in range(3):
            value = call(hm.tensor(X[2 * k + dist.get_rank()], dtype=hm.float64))
            if order == 2:
                (first,) = hm.autograd.grad(value, [w], create_graph=True)
                value = (first * first).sum()
            value.backward()
            found += [value.item(), *w.grad.tolist()]
            w.grad = None
        return found

    return dist.run_threads(2, rank)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", EXCHANGES)
def test_gradients_are_those_of_the_eager_forward(name: str, order: int) -> None:
    found, expected = (np.array(gradients(EXCHANGES[name], traced, order)) for traced in (True, False))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", EXCHANGES)
def test_gradients_are_those_of_the_sum_over_processes(name: str, order: int) -> None:
    expected: list[list[Any]] = [[], []]
    for k in range(3):
        ws = [hm.tensor([0.5, -1.5, 2.0, 1.0], dtype=hm.float64, requires_grad=True) for _ in range(2)]
        ys = [w * hm.tensor(X[2 * k + rank], dtype=hm.float64) for rank, w in enumerate(ws)]
        losses = [(made**3).sum() for made in ALONE[name](*ys)]
        if order == 2:
            firsts = hm.autograd.grad(losses[0] + losses[1], ws, create_graph=True)
            losses = [(first * first).sum() for first in firsts]
        (losses[0] + losses[1]).backward()
        for found, loss, w in zip(expected, losses, ws, strict=True):
            found += [loss.item(), *w.grad.tolist()]
    np.testing.assert_allclose(gradients(EXCHANGES[name], False, order), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", EXCHANGES)
def test_jacobians_of_traced_functions_are_those_of_eager_ones(name: str) -> None:
    def rank() -> list[Any]:
        def fn(x: hm.Tensor) -> hm.Tensor:
            return EXCHANGES[name](x * x)

        x = hm.tensor(X[dist.get_rank()], dtype=hm.float64)
        ways = (fn, hm.trace(fn), hm.trace(lambda x: hm.trace(fn)(x)))
        return [(hm.jacrev(way)(x).numpy(), hm.hessian(lambda x, way=way: way(x).sum())(x).numpy()) for way in ways]

    for expected, *found in dist.run_threads(2, rank):
        for way in found:
            for a, b in zip(way, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_what_was_received_is_not_received_again() -> None:
    found, expected = (np.array(gradients(exchanged, traced, 1)) for traced in (True, False))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_a_gradient_that_was_sent_has_none(traced: bool) -> None:
    with pytest.raises(GradientError, match="its gradient has no gradient"):
        gradients(exchanged, traced, 2)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_a_gradient_takes_no_second_element_of_a_queue(traced: bool) -> None:
    queue = hm.data.Queue(8, (2,), hm.float32)
    queue.enqueue_many(np.arange(8, dtype=np.float32).reshape(4, 2))
    w = hm.tensor([1.0, 1.0], requires_grad=True)

    def forward() -> hm.Tensor:
        return (w * w * queue.dequeue()).sum()

    call = hm.trace(forward) if traced else forward
    for k in range(4):
        w.grad = None
        call().backward()
        assert (w.grad.tolist(), queue.size()) == ([4.0 * k, 4.0 * k + 2], 3 - k)


def parallel(kind: str) -> Callable[[hm.nn.Module], hm.nn.Module]:
    def made(model: hm.nn.Module) -> hm.nn.Module:
        if kind == "data":
            return dist.DataParallel(model)
        if kind == "normalised":
            model[1] = dist.SyncBatchNorm(8)
            return dist.DataParallel(model)
        if kind == "tensor":
            return dist.parallelize_module(model, None, {"0": dist.ColwiseParallel(), "3": dist.RowwiseParallel()})
        for block in (model[0], model[3], model):
            dist.fully_shard(block, reshard_after_forward=None if kind == "parameters" else False)
        return model

    return made


def trained(kind: str, traced: bool) -> list[Any]:
    """Losses of three steps, of which the forward pass is traced, and the loss eager."""
    hm.manual_seed(0)
    layers = [hm.nn.Linear(4, 8), hm.nn.Identity(), hm.nn.Tanh(), hm.nn.Linear(8, 3)]
    models = [hm.nn.Sequential(*copy.deepcopy(layers)).double() for _ in range(2)]

    def rank() -> list[Any]:
        model = parallel(kind)(models[dist.get_rank()])
        optimizer = hm.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        forward = hm.trace(lambda x: model(x)) if traced else model
        part = X if kind == "tensor" else X[dist.get_rank() :: 2]
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = (forward(hm.tensor(part, dtype=hm.float64)) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    return dist.run_threads(2, rank)


@pytest.mark.parametrize("kind", ["data", "normalised", "tensor", "gradients", "parameters"])
def test_models_train_as_eagerly(kind: str) -> None:
    np.testing.assert_allclose(trained(kind, True), trained(kind, False), rtol=1e-12)


class Counted(Function):
    """Twice the input; its backward counts its calls in a tensor, and multiplies by their number."""

    counter: hm.Tensor

    @staticmethod
    def forward(ctx: Any, x: hm.Tensor) -> hm.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: hm.Tensor) -> hm.Tensor:
        with hm.no_grad():
            Counted.counter.add_(1)
        return g * Counted.counter


@pytest.mark.parametrize("before", [False, True], ids=["of the backward", "of both passes"])
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_state_that_a_backward_updates_is_that_of_then(traced: bool, before: bool) -> None:
    Counted.counter = hm.tensor(0.0)
    w = hm.tensor([1.0, 2.0], requires_grad=True)

    def forward(x: hm.Tensor) -> hm.Tensor:
        if before:
            with hm.no_grad():
                Counted.counter.add_(10)
        return Counted.apply(w * x).sum()

    call = hm.trace(forward) if traced else forward
    first, second = call(hm.ones(2)), call(hm.ones(2))
    for k, loss in enumerate((second, first, call(hm.ones(2))), 1):
        w.grad = None
        loss.backward()
        now = k + 30 * before
        assert (Counted.counter.item(), w.grad.tolist()) == (now, [now, now])


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_numbers_that_a_backward_draws(traced: bool) -> None:
    class Noisy(Function):
        @staticmethod
        def forward(ctx: Any, x: hm.Tensor) -> hm.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: hm.Tensor) -> hm.Tensor:
            return g * hm.rand(g.shape)

    w = hm.tensor([1.0, 2.0], requires_grad=True)

    def forward(x: hm.Tensor) -> hm.Tensor:
        return Noisy.apply(w * x).sum()

    call, found = hm.trace(forward) if traced else forward, []
    hm.manual_seed(3)
    for _ in range(3):
        w.grad = None
        call(hm.ones(2)).backward()
        found += [*w.grad.tolist(), hm.rand(()).item()]
    hm.manual_seed(3)
    expected = []
    for _ in range(3):
        expected += [*hm.rand(2).tolist(), hm.rand(()).item()]
    assert found == expected


def test_an_argument_that_a_backward_updates_is_refused() -> None:
    class Zeroing(Function):
        @staticmethod
        def forward(ctx: Any, x: hm.Tensor, state: hm.Tensor) -> hm.Tensor:
            ctx.state = state
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: hm.Tensor) -> Any:
            with hm.no_grad():
                ctx.state.add_(1)
            return g, None

    w = hm.tensor(1.0, requires_grad=True)
    with pytest.raises(TraceError, match="updates state, an argument"):
        hm.trace(lambda state: Zeroing.apply(w, state))(hm.tensor(0.0)).backward()
