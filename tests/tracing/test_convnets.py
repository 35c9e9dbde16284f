"""Networks of convolutions with batches of any size: two programs at most, which are the eager network for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import hybridml as hm
import hybridml.functional as F
from hybridml import nn
from tests.support.closeness import assert_close
from tests.support.examples import every

BATCHES = (2, 3, 7, 8, 16, 32, 33)  # 3, 8, 16 and 32 are numbers of channels as well
ORDERS = {"small first": BATCHES, "large first": BATCHES[::-1]}
Shape = tuple[int, ...]

# The gradient of a bias before a batch norm is nothing but rounding: there is none.
MODELS: dict[str, Callable[[], tuple[Shape, nn.Module]]] = {
    "classifier": lambda: ((3, 12, 12), nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(72, 10),
    )),
    "one axis": lambda: ((4, 30), nn.Sequential(
        nn.Conv1d(4, 16, 5, padding=2, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(16, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(56, 10),
    )),
    "three axes": lambda: ((2, 5, 6, 4), nn.Sequential(
        nn.Conv3d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 4, 2, stride=2), nn.Flatten(), nn.Linear(48, 10),
    )),
    "stride and dilation": lambda: ((3, 15, 14), nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, dilation=2, padding=(2, 1)), nn.ReLU(),
        nn.Conv2d(16, 10, 3, stride=(2, 3)), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )),
    "groups": lambda: ((4, 9, 9), nn.Sequential(
        nn.Conv2d(4, 24, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.ReLU(),
        nn.Conv2d(24, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2, groups=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )),
    "many channels": lambda: ((64, 6, 6), nn.Sequential(
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 32, 6), nn.Flatten(), nn.Linear(32, 10),
    )),
    "there and back": lambda: ((3, 8, 8), nn.Sequential(
        nn.Conv2d(3, 16, 4, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, stride=2, padding=1),
        nn.Flatten(), nn.Linear(192, 10),
    )),
}  # fmt: skip


def batch(rng: np.random.Generator, n: int, shape: Shape) -> tuple[hm.Tensor, hm.Tensor]:
    return hm.tensor(rng.standard_normal((n, *shape)).astype("f4")), hm.tensor(rng.integers(0, 10, n))


def gradients(model: nn.Module) -> Callable[..., list[hm.Tensor]]:
    """The loss of a batch, and its gradient for the input and for each parameter."""

    def step(x: hm.Tensor, y: hm.Tensor) -> list[hm.Tensor]:
        x = x.detach().requires_grad_()
        loss = F.cross_entropy(model(x), y)
        return [loss, *hm.autograd.grad(loss, [x, *model.parameters()])]

    return step


def compare(found: Sequence[Any], expected: Sequence[Any], what: str) -> None:
    for k, (got, wanted) in enumerate(zip(found, expected, strict=True)):
        assert_close(got.detach().numpy(), wanted.detach().numpy(), f"{what}, number {k}", rtol=1e-4, roundings=400)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", every(2, MODELS))
def test_gradients_are_those_of_eager_code(name: str, order: str) -> None:
    shape, model = MODELS[name]()
    eager, rng = gradients(model), np.random.default_rng(3)
    traced = hm.trace(eager)
    for n in ORDERS[order]:
        data = batch(rng, n, shape)
        compare(traced(*data), eager(*data), f"{name}, {n} images")
    assert traced.cache_info().compiles == 2, traced.retraces


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_eager_code(name: str) -> None:
    shape, model = MODELS[name]()
    model.eval()
    traced, rng = hm.trace(lambda x: model(x)), np.random.default_rng(4)
    for n in BATCHES:
        x, _ = batch(rng, n, shape)
        compare([traced(x)], [model(x)], f"{name}, {n} images")
    assert traced.cache_info().compiles == 2, traced.retraces


@pytest.mark.parametrize("name", MODELS)
def test_kernels_are_those_of_convolutions(name: str) -> None:
    shape, model = MODELS[name]()
    traced, rng = hm.trace(gradients(model)), np.random.default_rng(12)
    for n in (4, 9):
        traced(*batch(rng, n, shape))
    found = hm.profile(traced, *batch(rng, 17, shape))
    convolutions = [row.name for row in found.operations if row.name.startswith("convolution")]
    assert convolutions and "convolution" not in convolutions, "a loop nest computes one"
    assert all("n" in name.split(" by ")[0].removeprefix("convolution") for name in convolutions)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_training_is_that_of_eager_code(optimizer: str) -> None:
    shape, model = MODELS["classifier"]()
    _, twin = MODELS["classifier"]()
    twin.load_state_dict(model.state_dict())

    def step_of(model: nn.Module) -> Callable[..., hm.Tensor]:
        updates = getattr(hm.optim, optimizer)(model.parameters(), lr=1e-3)

        def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
            updates.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            updates.step()
            return loss

        return step

    eager, traced, rng = step_of(model), hm.trace(step_of(twin)), np.random.default_rng(5)
    for n in BATCHES:
        data = batch(rng, n, shape)
        compare([traced(*data)], [eager(*data)], f"{n} images")
    assert traced.cache_info().compiles == 2, traced.retraces
    after, expected = twin.state_dict(), model.state_dict()
    for key in after:
        np.testing.assert_allclose(after[key].numpy(), expected[key].numpy(), rtol=1e-3, atol=1e-4, err_msg=key)


def test_a_single_image_has_a_program_of_its_own() -> None:
    shape, model = MODELS["one axis"]()
    model.eval()
    traced, rng = hm.trace(lambda x: model(x)), np.random.default_rng(6)
    for n in (4, 1, 9, 1, 4, 30):
        x, _ = batch(rng, n, shape)
        compare([traced(x)], [model(x)], f"{n} images")
    assert traced.cache_info().compiles == 3, traced.retraces


def test_gradients_from_outside_are_those_of_eager_code() -> None:
    shape, model = MODELS["groups"]()
    traced, rng = hm.trace(lambda x: model(x)), np.random.default_rng(7)
    for n in (5, 32, 9, 2):
        x, _ = batch(rng, n, shape)
        x.requires_grad_()
        found, expected = (hm.autograd.grad(f(x).sum(), [x, *model.parameters()]) for f in (traced, model))
        compare(found, expected, f"{n} images")
    assert traced.cache_info().compiles == 2, traced.retraces


def test_every_second_image() -> None:
    rng = np.random.default_rng(10)
    weight = hm.tensor(rng.standard_normal((4, 3, 3, 3)).astype("f4"))

    def convolved(x: hm.Tensor) -> hm.Tensor:
        return F.conv2d(x[::2], weight)

    traced = hm.trace(convolved)
    for n in (8, 12, 5, 9):
        x = batch(rng, n, (3, 7, 7))[0].requires_grad_()
        compare([traced(x)], [convolved(x)], f"{n} images")
        found, expected = (hm.autograd.grad(f(x).sum(), [x]) for f in (traced, convolved))
        compare(found, expected, f"{n} images")
    assert traced.cache_info().compiles == 2, traced.retraces


@pytest.mark.parametrize("axis", ["image", "channels"])
def test_other_sizes_are_compiled_for_themselves(axis: str) -> None:
    rng = np.random.default_rng(8)

    @hm.trace
    def convolved(x: hm.Tensor, w: hm.Tensor) -> hm.Tensor:
        return F.conv2d(x, w, padding=1)

    def normal(*shape: int) -> hm.Tensor:
        return hm.tensor(rng.standard_normal(shape).astype("f4"))

    for n in (5, 6, 7):
        x, w = (normal(2, 3, n, 9), normal(4, 3, 3, 3)) if axis == "image" else (normal(2, n, 8, 9), normal(4, n, 3, 3))
        compare([convolved(x, w)], [F.conv2d(x, w, padding=1)], f"{axis} {n}")
    assert convolved.cache_info().compiles == 3
    assert "a number is asked for at test_convnets.py" in convolved.retraces[0]


def test_narrow_images_of_any_number() -> None:
    layer = nn.Conv2d(16, 32, 3, padding=1).to(hm.bfloat16)
    traced, rng = hm.trace(lambda x: layer(x)), np.random.default_rng(9)
    for n in (4, 2, 7, 33):
        x = batch(rng, n, (16, 9, 9))[0].astype(hm.bfloat16)
        got, expected = traced(x).astype(hm.float32), layer(x).astype(hm.float32)
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=2e-2, atol=2e-2)
    assert traced.cache_info().compiles == 2, traced.retraces


@pytest.mark.parametrize("before", [F.relu, lambda x: F.conv2d(x, hm.ones((16, 16, 1, 1), dtype=hm.bfloat16))])
def test_a_convolution_reads_what_was_rounded_before_it_was_kept_wide(before: Callable[[hm.Tensor], hm.Tensor]) -> None:
    """Its operand has to be in memory as it was rounded, too, where something else needs it in float32."""

    def both(x: hm.Tensor, w: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
        wide = before(x).to(hm.float32)
        return wide, F.conv2d(wide, w.to(hm.float32))

    rng = np.random.default_rng(0)
    x, w = (hm.asarray(rng.integers(-4, 5, shape)).to(hm.bfloat16) for shape in ((2, 16, 30, 30), (16, 16, 3, 3)))
    for got, expected in zip(hm.trace(both)(x, w), both(x, w), strict=True):
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


def test_mixed_precision_steps_of_two_convolutions() -> None:
    """The gradient of a weight reads in float32 what the convolution before it rounded."""

    def step(x: hm.Tensor) -> list[hm.Tensor]:
        with hm.autocast("cpu", dtype=hm.bfloat16):
            y = model(x)
        model.zero_grad()
        y.square().mean().backward()
        return [y, *(p.grad for p in model.parameters())]

    hm.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    x = hm.rand(4, 1, 44, 44)
    expected = [t.detach().to(hm.float32).numpy().copy() for t in step(x)]
    for got, right in zip(hm.trace(step)(x), expected, strict=True):
        np.testing.assert_allclose(got.detach().to(hm.float32).numpy(), right, rtol=2e-2, atol=2e-2 * abs(right).max())
