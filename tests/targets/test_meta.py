"""The meta device: shapes and dtypes without values, in both styles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 4))


def test_operations_have_types_and_errors_and_no_values() -> None:
    x = hm.ones((1 << 18, 1 << 18), device="meta")  # 256 GiB
    y = hm.exp(x @ x.T + 1).astype(hm.float64).sum(0)
    assert y.shape == (1 << 18,) and y.dtype == hm.float64 and y.device == "meta"
    with pytest.raises(hm.ShapeError, match="matmul"):
        x @ hm.ones((3, 3), device="meta")
    with pytest.raises(hm.DeviceError, match="move one of them"):
        x + hm.ones(1 << 18)


def test_no_value_can_be_read() -> None:
    x = hm.tensor([1.0, 2.0], device="meta")
    assert str(x) == "Tensor(..., shape=(2,), dtype=float32, device='meta')" and "no values" in x._repr_html_()
    for read in (lambda: x.sum().item(), lambda: x.tolist(), lambda: bool(x[0] > 0), lambda: x.to("cpu"), x.cpu):
        with pytest.raises(hm.DeviceError, match="no values"):
            read()
    with pytest.raises(hm.DeviceError):
        np.asarray(x)


def test_a_network_trains_in_types_in_both_styles() -> None:
    with hm.device("meta"):
        model = network()
        x = hm.randn(8, 10)
    optimizer = hm.optim.Adam(model.parameters())

    def step(x: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    traced = hm.trace(step)
    for loss in (step(x), traced(x), traced(x)):
        assert loss.shape == () and loss.device == "meta"
    assert all(p.grad is not None and p.grad.shape == p.shape and p.device == "meta" for p in model.parameters())
    assert hm.vmap(hm.grad(lambda x: model[0](x).sum()))(x).shape == (8, 10)


@pytest.mark.parametrize("style", [lambda fn: fn, hm.trace])
def test_an_optimizer_may_be_older_than_the_values(style: Any) -> None:
    x = hm.ones((2, 3))
    finals = []
    for late in (False, True):
        with hm.device("meta" if late else "cpu"):
            model = nn.Linear(3, 4)
        optimizer = hm.optim.Adam(model.parameters(), lr=0.1)
        model.to_empty(device="cpu")
        for p in model.parameters():
            nn.init.ones_(p)

        @style
        def step(x: hm.Tensor, model: Any = model, optimizer: Any = optimizer) -> hm.Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        finals.append([step(x).item() for _ in range(3)])
    assert finals[0] == finals[1] and finals[0][2] < finals[0][0]


def test_values_come_with_to_empty_or_with_a_state() -> None:
    hm.manual_seed(0)
    real = network()
    with hm.device("meta"):
        empty = network()
    before = list(empty.parameters())
    assert empty.to_empty(device="cpu") is empty
    assert all(a is b and a.device == "cpu" for a, b in zip(empty.parameters(), before, strict=True))
    with hm.device("meta"):
        loaded = network()
    before = list(loaded.parameters())
    loaded.load_state_dict(real.state_dict())
    x = hm.ones((3, 10))
    assert all(a is b and a.requires_grad for a, b in zip(loaded.parameters(), before, strict=True))
    assert np.array_equal(loaded(x).detach().numpy(), real(x).detach().numpy())
    with hm.device("meta"):
        partly = network()
    partly.load_state_dict({"0.weight": real[0].weight}, strict=False)
    assert partly[0].weight.device == "cpu" and partly[0].bias.device == "meta"
