"""Arrays whose axes are permuted in memory: captured as their memory, updated there, with the gradients beside them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml import nn, optim
from hybridml.tracing.capture.memory_order import as_seen, in_memory, memory_order


def permuted(*shape: int, order: tuple[int, ...] = (2, 0, 1)) -> np.ndarray:
    """Numbers of that shape whose memory has the axes in `order`."""
    values = np.random.default_rng(0).standard_normal(shape).astype("f4")
    return np.ascontiguousarray(values.transpose(order)).transpose(np.argsort(order))


def test_order_of_memory() -> None:
    x = permuted(2, 3, 4)
    assert memory_order(x) == (2, 0, 1)
    assert in_memory(x, (2, 0, 1)).flags.c_contiguous and as_seen(in_memory(x, (2, 0, 1)), (2, 0, 1)).base is not None
    assert (as_seen(in_memory(x, (2, 0, 1)), (2, 0, 1)) == x).all()
    for other in (np.ones((2, 3)), np.ones((4, 4))[:, ::2], np.broadcast_to(1.0, (3, 2)), np.ones((3, 2))[::-1]):
        assert memory_order(other) is None


@pytest.mark.parametrize("backend", ["llvm", "interpret"])
def test_state_is_read_and_updated_where_it_lies(backend: str) -> None:
    state, other = hm.asarray(permuted(2, 3, 4)), hm.asarray(permuted(2, 3, 4, order=(0, 2, 1)))
    array, expected = state._array, state.numpy().copy()

    def step(x: hm.Tensor) -> hm.Tensor:
        with hm.no_grad():
            state.mul_(2.0)
            state.add_(other * x)
        return state.sum(axis=(1, 2))

    traced = hm.trace(step, backend=backend)
    for k in range(4):  # the third call and later ones are native
        out = traced(hm.ones((4,)) * k)
        expected = expected * 2 + np.asarray(other) * k
        np.testing.assert_allclose(np.asarray(out), expected.sum((1, 2)), rtol=1e-5)
        np.testing.assert_allclose(np.asarray(state), expected, rtol=1e-6)
    assert state._array is array
    assert "permute_dims(%1)" in traced.ir  # the memory is the input
    state._array = expected.copy()  # memory in another order is still right
    np.testing.assert_allclose(np.asarray(traced(hm.zeros((4,)))), 2 * expected.sum((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(state), 2 * expected, rtol=1e-6)


def test_arguments_of_another_order_are_another_signature() -> None:
    @hm.trace
    def double(x: hm.Tensor) -> hm.Tensor:
        return x * 2

    values = permuted(2, 3, 4)
    for given in (values, np.ascontiguousarray(values), values):
        np.testing.assert_array_equal(np.asarray(double(hm.asarray(given))), values * 2)
    assert double.cache_info().compiles == 2


def test_gradients_of_arguments_have_their_shape() -> None:
    x = hm.tensor(np.ones((3, 2, 4), "f4"))
    w = hm.asarray(permuted(3, 2, 4)).requires_grad_()

    @hm.trace
    def weighted(x: hm.Tensor, w: hm.Tensor) -> hm.Tensor:
        return (x * w * w).sum(axis=1)

    weighted(x, w).sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(np.asarray(w.grad), 2 * np.asarray(w.detach()), rtol=1e-6)


def test_an_update_that_is_part_of_the_history() -> None:
    def run(call: Any) -> tuple[np.ndarray, np.ndarray]:
        w = hm.asarray(permuted(2, 3, 4)).requires_grad_()
        state = hm.asarray(permuted(2, 3, 4))

        def update() -> None:
            state.add_(w * w)

        call(update)()
        (state * state).sum().backward()
        assert w.grad is not None
        return np.asarray(state.detach()), np.asarray(w.grad)

    for eager, traced in zip(run(lambda fn: fn), run(hm.trace), strict=True):
        np.testing.assert_allclose(traced, eager, rtol=1e-5)


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam])
def test_a_training_step_keeps_the_layout_of_the_weights(make: Any) -> None:
    x = hm.asarray(np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype("f4"))
    weights = []
    for traced in (False, True):
        hm.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2), nn.ConvTranspose2d(6, 2, 2, 2))
        optimizer = make(net.parameters(), lr=0.01, **({"momentum": 0.9} if make is optim.SGD else {}))

        def step(x: hm.Tensor, net: nn.Module = net, optimizer: Any = optimizer) -> hm.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), hm.ones((2, 2, 8, 8)))
            loss.backward()
            optimizer.step()
            return loss

        run = hm.trace(step) if traced else step
        for _ in range(4):
            run(x)
        for p in net.parameters():
            if p.ndim == 4:
                assert memory_order(p._array) == (2, 3, 1, 0)
                assert memory_order(optimizer.state[p][optimizer.state_names(optimizer.param_groups[0])[0]]._array) == (
                    2,
                    3,
                    1,
                    0,
                )
                assert p.grad is not None and (not traced or memory_order(p.grad._array) == (2, 3, 1, 0))
        weights.append([np.asarray(p.detach()) for p in net.parameters()])
    for eager, compiled in zip(*weights, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=1e-4, atol=1e-6)


def test_copies_of_modules_and_their_state_lie_alike(tmp_path: Path) -> None:
    net = nn.Conv2d(3, 4, 3)
    file = tmp_path / "net.safetensors"
    hm.save(net.state_dict(), file)
    other = nn.Conv2d(3, 4, 3)
    other.load_state_dict(hm.load(file))
    for copied in (copy.deepcopy(net), other, copy.deepcopy(net).to(hm.float64)):
        assert memory_order(copied.weight._array) == (2, 3, 1, 0)
        np.testing.assert_array_equal(np.asarray(copied.weight.detach()), np.asarray(net.weight.detach()))
