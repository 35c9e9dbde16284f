"""`autocast` and `GradScaler`: the dtypes of operations, gradients, and both inside and around traced functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml import nn

X = hm.asarray(np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32))
NARROW = hm.bfloat16


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: x @ x, "bfloat16"),
        (lambda x: F.linear(x, x, x[0]), "bfloat16"),
        (lambda x: F.conv1d(x[None], x[:, :, None]), "bfloat16"),
        (lambda x: F.scaled_dot_product_attention(x, x, x), "bfloat16"),
        (lambda x: F.relu(x @ x), "bfloat16"),
        (lambda x: (x @ x) + (x @ x), "bfloat16"),
        (lambda x: (x @ x) + x, "float32"),
        (lambda x: x + x, "float32"),
        (lambda x: hm.softmax(x @ x, -1), "float32"),
        (lambda x: F.layer_norm(x @ x, (8,)), "float32"),
        (lambda x: (x @ x).sum(), "float32"),
        (lambda x: hm.exp(x @ x), "float32"),
        (lambda x: F.mse_loss(x @ x, x), "float32"),
        (lambda x: x.astype(hm.float64) @ x.astype(hm.float64), "float64"),
        (lambda x: hm.max(x @ x), "bfloat16"),
    ],
)
def test_dtypes_of_results(call: Callable[[Any], Any], expected: str) -> None:
    with hm.autocast(dtype=NARROW):
        assert call(X).dtype.name == expected
        assert hm.trace(call)(X).dtype.name == expected
    assert hm.trace(lambda x: under(call, x))(X).dtype.name == expected


def under(call: Callable[[Any], Any], x: Any) -> Any:
    with hm.autocast(dtype=NARROW):
        return call(x)


def test_blocks_nest_and_end() -> None:
    with hm.autocast("cpu", dtype=NARROW):
        with hm.autocast(enabled=False):
            assert (X @ X).dtype == hm.float32
        with hm.autocast(hm.float16):
            assert (X @ X).dtype == hm.float16
        assert (X @ X).dtype == NARROW
    with pytest.raises(ZeroDivisionError), hm.autocast(dtype=NARROW):
        raise ZeroDivisionError
    assert (X @ X).dtype == hm.float32
    assert hm.autocast(dtype=NARROW)(lambda: X @ X)().dtype == NARROW
    with pytest.raises(hm.DTypeError, match="bfloat16 or float16, got float32"):
        hm.autocast(dtype=hm.float32)


def model() -> Any:
    hm.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def test_gradients_come_back_in_float32_and_are_near_those_of_float32() -> None:
    net, target = model(), hm.arange(8) % 4
    with hm.autocast(dtype=NARROW):
        loss = F.cross_entropy(net(X), target)
    loss.backward()
    narrow = {name: p.grad for name, p in net.named_parameters()}
    net.zero_grad()
    F.cross_entropy(net(X), target).backward()
    for name, p in net.named_parameters():
        assert narrow[name].dtype == hm.float32
        scale = float(p.grad.abs().max())
        assert float((narrow[name] - p.grad).abs().max()) < 0.05 * scale, name
        assert float((narrow[name] - p.grad).abs().max()) > 0, "in float32 after all"


def test_a_traced_function_has_programs_for_each_dtype() -> None:
    net = model()
    traced = hm.trace(lambda x: net(x))
    wide = traced(X)
    for _ in range(2):
        with hm.autocast(dtype=NARROW):
            narrow, eager = traced(X), net(X)
        assert narrow.dtype == NARROW
        assert np.array_equal(narrow.astype(hm.float32), eager.astype(hm.float32))
    assert np.array_equal(traced(X), wide)
    assert traced.cache_info().compiles == 1 and traced.twins[NARROW].cache_info().compiles == 1
    traced.clear()
    assert not traced.twins


def test_vmap_and_transforms_inside() -> None:
    net = model()
    with hm.autocast(dtype=NARROW):
        rows, whole = hm.vmap(lambda x: net(x))(X), net(X)
        g = hm.grad(lambda x: net(x).sum())(X)
    assert float((rows.astype(hm.float32) - whole.astype(hm.float32)).abs().max()) < 0.05
    assert g.dtype == hm.float32


def trained(scaler: Any, step: Callable[..., Any], steps: int = 4) -> Any:
    return [float(step(scaler)) for _ in range(steps)]


def make_step() -> tuple[Any, Any, Callable[..., Any]]:
    net, target = model(), hm.arange(8) % 4
    optimizer = hm.optim.SGD(net.parameters(), lr=0.1)

    def step(scaler: Any, factor: float = 1.0) -> Any:
        optimizer.zero_grad()
        with hm.autocast(dtype=hm.float16):
            loss = F.cross_entropy(net(X), target) * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return net, optimizer, step


@pytest.mark.parametrize("style", [lambda fn: fn, hm.trace])
def test_the_scaler_grows_skips_and_backs_off(style: Callable[..., Any]) -> None:
    net, _, step = make_step()
    call, scaler = style(step), hm.amp.GradScaler(init_scale=1024.0, growth_interval=3)
    losses = trained(scaler, call)
    assert losses[-1] < losses[0] and scaler.get_scale() == 2048.0
    before = [p.detach().clone() for p in net.parameters()]
    call(scaler, float("inf"))
    assert scaler.get_scale() == 1024.0 and int(scaler.state_dict()["_growth_tracker"]) == 0
    for p, was in zip(net.parameters(), before, strict=True):
        np.testing.assert_array_equal(np.asarray(p.detach()), np.asarray(was))
    plain = [float(v) for v in trained(hm.amp.GradScaler(enabled=False), make_step()[2])]
    np.testing.assert_allclose(losses, plain, rtol=2e-2)


def test_the_state_of_a_scaler() -> None:
    scaler, other = hm.amp.GradScaler(init_scale=8.0), hm.amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 8.0 and other.state_dict() == scaler.state_dict()
    with pytest.raises(hm.ArgumentError, match="lacks _growth_tracker"):
        other.load_state_dict({k: v for k, v in scaler.state_dict().items() if k[0] != "_"})
    with pytest.raises(hm.ArgumentError, match="growth_factor is above 1"):
        hm.amp.GradScaler(growth_factor=1.0)
    w = hm.ones(2, requires_grad=True)
    optimizer = hm.optim.SGD([w], lr=1.0)
    scaler.scale((w * 3).sum()).backward()
    scaler.unscale_(optimizer)
    assert w.grad is not None and w.grad.tolist() == [3.0, 3.0]
    with pytest.raises(hm.ArgumentError, match="unscale_ has been called"):
        scaler.unscale_(optimizer)


def test_a_checkpoint_computes_again_in_the_same_dtypes() -> None:
    net, target = model(), hm.arange(8) % 4

    def gradients(hidden: Callable[[Any], Any]) -> list[np.ndarray]:
        net.zero_grad()
        with hm.autocast(dtype=NARROW):
            loss = F.cross_entropy(net[3](hidden(X)), target)
        loss.backward()
        return [np.array(p.grad) for p in net.parameters()]

    plain, again = gradients(net[:3]), gradients(lambda x: hm.checkpoint(net[:3], x))
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_whole_step_inside_and_the_options_of_a_trace() -> None:
    net, target = model(), hm.arange(8) % 4
    optimizer, losses = hm.optim.AdamW(net.parameters(), lr=0.05), []
    for _ in range(4):
        with hm.autocast(dtype=NARROW):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(X), target)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and {p.grad.dtype.name for p in net.parameters()} == {"float32"}
    traced = hm.trace(lambda x: x @ x, dynamic=False, check="always")
    with hm.autocast(dtype=NARROW):
        for rows in (8, 4):
            traced(X[:rows, :rows])
    assert traced.twins[NARROW].cache_info().compiles == 2, "the sizes are fixed"


def test_jacobians_of_layers_inside() -> None:
    net = model()
    with hm.autocast(dtype=NARROW):
        found = hm.jacrev(lambda x: net(x))(X[0])
    wide = hm.jacrev(lambda x: net(x))(X[0])
    assert 0 < float((found - wide).abs().max()) < 0.05 * float(wide.abs().max()) + 0.01
