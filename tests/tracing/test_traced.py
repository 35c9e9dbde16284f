"""The library inside traced functions: one compile for a whole run, nothing stale, and the same numbers as eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn, optim

F = hm.functional
X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, 8)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 3))


OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "Adam": lambda p: optim.Adam(p, lr=0.05, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.05),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
}


def session(make: Callable[[Any], optim.Optimizer], traced: bool) -> tuple[list[float], nn.Module, Any]:
    """Ten steps with clipping and a schedule inside the step; the losses, the model and the step function."""
    hm.manual_seed(0)
    model = network()
    optimizer = make(model.parameters())
    schedule = optim.CosineAnnealingLR(optimizer, T_max=10)

    def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss

    call: Any = hm.trace(step) if traced else step
    losses = [call(hm.asarray(X), hm.asarray(Y)).item() for _ in range(10)]
    assert schedule.last_epoch == 10 and optimizer.lr.item() == pytest.approx(0, abs=1e-12)
    return losses, model, call


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_training_step_compiles_once_and_gives_the_eager_numbers(name: str) -> None:
    eager, eager_model, _ = session(OPTIMIZERS[name], traced=False)
    traced, traced_model, step = session(OPTIMIZERS[name], traced=True)
    np.testing.assert_allclose(traced, eager, rtol=1e-5)
    for one, other in zip(eager_model.state_dict().values(), traced_model.state_dict().values(), strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-4, atol=1e-6)
    assert step.cache_info().compiles == 1


def test_a_changed_hyper_parameter_is_data() -> None:
    w = hm.tensor([1.0], requires_grad=True)
    optimizer = optim.Adam([w], lr=0.5)

    @hm.trace
    def step() -> None:
        w.grad = hm.ones((1,))
        optimizer.step()

    expected = hm.tensor([1.0], requires_grad=True)
    eager = optim.Adam([expected], lr=0.5)
    for lr, betas in ((0.5, (0.9, 0.999)), (0.25, (0.9, 0.999)), (0.125, (0.5, 0.9))):
        for each in (optimizer, eager):
            each.lr = lr
            each.param_groups[0]["betas"] = betas
        expected.grad = hm.ones((1,))
        step()
        eager.step()
        assert w.item() == pytest.approx(expected.item(), rel=1e-6)
    assert step.cache_info().compiles == 1


def test_a_switched_hyper_parameter_is_noticed() -> None:
    w = hm.tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=1.0)

    @hm.trace
    def step() -> None:
        w.grad = hm.ones((1,))
        optimizer.step()

    step()
    step()
    assert w.item() == -1
    optimizer.param_groups[0]["weight_decay"] = 0.5
    optimizer.param_groups[0]["momentum"] = 0.5
    step()  # velocity 1 - 0.5
    assert w.item() == -1.5
    step()  # velocity 0.5 * 0.5 + 1 - 0.75
    assert w.item() == -2
    optimizer.param_groups[0]["weight_decay"] = 0
    step()  # velocity 0.5 * 0.5 + 1
    assert w.item() == -3.25


def test_train_and_eval_are_never_stale() -> None:
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5))

    @hm.trace
    def forward(x: hm.Tensor) -> hm.Tensor:
        return model(x)

    x = hm.asarray(X)
    training = [forward(x).detach().numpy() for _ in range(2)]
    assert (training[0] != training[1]).any() and model[0].num_batches_tracked.item() == 2
    model.eval()
    for _ in range(2):
        np.testing.assert_allclose(forward(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-6, atol=1e-7)
    assert model[0].num_batches_tracked.item() == 2
    model.train()
    forward(x)
    assert model[0].num_batches_tracked.item() == 3
    assert forward.cache_info().compiles == 2


def test_replaced_parameters_and_modules_are_never_stale() -> None:
    layer = nn.Linear(2, 2, bias=False)
    model = nn.Sequential(layer, nn.Identity())

    @hm.trace
    def forward(x: hm.Tensor) -> hm.Tensor:
        return model(x)

    x = hm.ones((1, 2))
    forward(x)
    layer.weight = nn.Parameter(hm.full((2, 2), 3.0))
    assert forward(x).tolist() == [[6, 6]]
    model[1] = nn.Flatten(0)
    assert forward(x).tolist() == [6, 6]
    model.append(nn.Linear(2, 1, bias=False))
    model[2].load_state_dict({"weight": np.full((1, 2), 2.0, np.float32)})
    assert forward(x).tolist() == [24]
    del model[2]
    model.load_state_dict({"0.weight": np.ones((2, 2), np.float32)})
    assert forward(x).tolist() == [2, 2]
    hook = model.register_forward_hook(lambda module, args, result: result + 1)
    assert forward(x).tolist() == [3, 3]
    hook.remove()
    assert forward(x).tolist() == [2, 2]
    layer.requires_grad_(False)
    assert not forward(x).requires_grad
    layer.requires_grad_()
    assert forward(x).requires_grad


def test_dropout_has_the_same_bits_in_both_styles() -> None:
    x = hm.ones((64,))
    hm.manual_seed(5)
    eager = [F.dropout(x, 0.3).numpy() for _ in range(3)]
    hm.manual_seed(5)
    call = hm.trace(lambda x: F.dropout(x, 0.3))
    traced = [call(x).numpy() for _ in range(3)]
    assert all((a == b).all() for a, b in zip(eager, traced, strict=True))


def test_gradients_that_come_later() -> None:
    one, other = hm.ones((2,)).requires_grad_(), hm.ones((2,)).requires_grad_()
    optimizer = optim.Adam([one, other], lr=0.5)

    @hm.trace
    def step(both: bool) -> None:
        optimizer.zero_grad()
        loss = (one * one).sum() + ((other * other).sum() if both else 0)
        loss.backward()
        optimizer.step()

    step(False)
    assert other.tolist() == [1, 1] and one.tolist() == pytest.approx([0.5, 0.5])
    step(True)
    assert other.tolist() == pytest.approx([0.5, 0.5])
    assert [entry["step"].item() for entry in optimizer.state_dict()["state"].values()] == [2, 1]


@pytest.mark.parametrize(
    "module", [nn.Conv2d(2, 4, 3, padding=1), nn.MaxPool2d(2), nn.AvgPool2d(3, 2, 1), nn.Flatten()]
)
def test_layers_give_the_eager_values_and_gradients(module: nn.Module) -> None:
    images = np.random.default_rng(0).normal(size=(2, 2, 8, 8)).astype(np.float32)

    def gradients(x: hm.Tensor) -> tuple[hm.Tensor, ...]:
        out = module(x)
        return out.detach(), *hm.autograd.grad((out * out).sum(), [x, *module.parameters()])

    x = hm.tensor(images, requires_grad=True)
    for one, other in zip(gradients(x), hm.trace(gradients)(x), strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-4, atol=1e-5)


def test_attention_gives_the_eager_values() -> None:
    hm.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = hm.asarray(np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32))
    traced = hm.trace(lambda x: layer(x, is_causal=True))
    np.testing.assert_allclose(
        traced(x).detach().numpy(), layer(x, is_causal=True).detach().numpy(), rtol=1e-4, atol=1e-6
    )


def test_a_convolution_of_one_tap_reads_images_where_they_are() -> None:
    """With channels first, image by image as a transposed operand; only the weights are turned."""
    x, w = (hm.asarray(np.ones(shape, np.float32)) for shape in ((2, 64, 20, 20), (96, 64, 1, 1)))
    run = hm.trace(hm.functional.conv2d)
    np.testing.assert_array_equal(run(x, w).numpy(), np.full((2, 96, 20, 20), 64, np.float32))
    result = 4 * 2 * 96 * 400
    assert run.stats.bytes <= x.nbytes + result + 4 * w.nbytes
