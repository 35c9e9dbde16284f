"""The default device: `with hm.device(...)` and `set_default_device`, in either style."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml_compiler.errors import ArgumentError, DeviceError
from tests.support import torch_names
from tests.support.device_cases import LAYERS, NAMES, TORCH, record_of
from tests.support.examples import every
from tests.support.torch_checks import close_to_record, module_close_to_record

DEVICE = "reference"
STYLES = pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])


@pytest.fixture(autouse=True)
def default_is_restored() -> Iterator[None]:
    yield
    hm.set_default_device(None)


def created() -> list[hm.Tensor]:
    """A tensor of each function that makes one of no other."""
    return [
        hm.zeros(2), hm.ones(2), hm.empty(2), hm.full((2,), 3.0), hm.arange(2), hm.linspace(0, 1, 2), hm.eye(2),
        hm.logspace(0, 1, 2), hm.linspace(0, 1j, 2), hm.tensor([1.0, 2.0]), hm.tensor(2.0), hm.asarray([1, 2]),
        hm.asarray(np.ones(2)), hm.tensor(np.float32(2)), hm.rand(2), hm.randn(2), hm.randint(0, 3, (2,)),
        hm.randperm(3), hm.random.uniform((2,)), hm.random.gamma(2.0, shape=(2,)), hm.hann_window(4),
        hm.signal.windows.kaiser(4), hm.fft.fftfreq(4), *hm.tril_indices(2), hm.distributions.Normal(0.0, 1.0).sample(),
    ]  # fmt: skip


@STYLES
def test_what_is_created_is_there(style: Callable[..., Any]) -> None:
    def program() -> Any:
        with hm.device(DEVICE):
            inside = created()
        return inside, created(), hm.zeros(2) + 1

    hm.manual_seed(0)
    inside, outside, after = style(program)()
    assert {t.device.type for t in inside} == {DEVICE} and {t.device.type for t in outside} == {"cpu"}
    assert after.tolist() == [1, 1]
    hm.manual_seed(0)
    assert [t.tolist() for t in inside] == [t.tolist() for t in created()]


def test_what_names_a_device_or_has_one_is_elsewhere(tmp_path: Path) -> None:
    c, memory = hm.ones(2), np.ones(2, "f4")
    hm.save({"c": c}, tmp_path / "c.safetensors")
    with hm.device(DEVICE):
        here = [
            hm.zeros(2, device="cpu"), hm.rand(2, device="cpu"), hm.zeros_like(c), hm.rand_like(c), hm.asarray(c),
            hm.tensor(c), hm.from_numpy(memory), hm.from_dlpack(memory), hm.load(tmp_path / "c.safetensors")["c"],
            c * 2 + 1, c.__add__([1, 2]), c + memory, c[[1, 0]], c[c > 0], nn.Parameter(c),
        ]  # fmt: skip
        c[0], c[[1]] = [5.0], 7
    assert [t.device.type for t in here] == ["cpu"] * len(here) and c.tolist() == [5, 7]
    assert hm.from_numpy(memory).numpy() is not memory and np.shares_memory(here[6].numpy(), memory)


def test_blocks_nest() -> None:
    device = hm.device(DEVICE)
    with device as inner:
        assert inner is device and hm.get_default_device() == DEVICE
        with hm.device("cpu"), hm.device("cuda:sim"), device:
            assert hm.get_default_device() == DEVICE
        with hm.device("cpu"):
            assert hm.zeros(1).device == "cpu"
        with pytest.raises(ZeroDivisionError), hm.device("cuda:sim"):
            1 / 0  # noqa: B018
        assert hm.zeros(1).device == DEVICE
    assert hm.get_default_device() == "cpu" == hm.zeros(1).device


def test_the_default_can_be_set() -> None:
    hm.set_default_device(DEVICE)
    assert hm.get_default_device() == DEVICE == hm.ones(1).device
    with hm.device("cpu"):
        hm.set_default_device("cuda:sim")
        assert hm.ones(1).device == "cuda:sim"
    assert hm.ones(1).device == DEVICE
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(hm.ones(1).device.type))
    thread.start()
    thread.join()
    assert seen == ["cpu"]
    hm.set_default_device(None)
    assert hm.ones(1).device == "cpu"
    with pytest.raises(ArgumentError, match="'mps' is not available"):
        hm.set_default_device("mps")


def test_modules_are_made_and_learn_there() -> None:
    def trained(style: Callable[..., Any]) -> list[float]:
        hm.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(18, 3), nn.Dropout(0.2))
        images, labels = hm.randn(4, 1, 5, 5), hm.randint(0, 3, (4,))
        optimizer = hm.optim.AdamW(model.parameters(), lr=0.1)
        schedule = hm.optim.lr_scheduler.StepLR(optimizer, 1)

        def step() -> hm.Tensor:
            optimizer.zero_grad()
            loss = hm.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            return loss

        run, losses = style(step), []
        for _ in range(3):
            losses.append(run().item())
            schedule.step()
        places = {t.device.type for t in (*model.parameters(), *model.buffers())}
        assert places == {hm.get_default_device().type}
        optimizer.load_state_dict(optimizer.state_dict())
        return losses

    here = trained(lambda f: f)
    for style in (lambda f: f, hm.trace):
        with hm.device(DEVICE):
            np.testing.assert_allclose(trained(style), here, rtol=1e-4)


def updated(device: str, style: Callable[..., Any]) -> list[float]:
    """A parameter of the CPU after three steps inside a block."""
    w, x = hm.ones(3).requires_grad_(), hm.arange(3.0)
    with hm.device(device):
        optimizer = hm.optim.Adam([w], lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            (hm.functional.softmax(w * x, -1) * hm.where(x > 1, 2.0, x)).sum().backward()
            optimizer.step()

        run = style(step)
        for _ in range(3):
            run()
        assert hm.Generator(3).state.device == "cpu"
    found: list[float] = w.tolist()
    return found


@STYLES
def test_tensors_of_the_cpu_are_trained_inside_as_outside(style: Callable[..., Any]) -> None:
    assert updated(DEVICE, style) == updated("cpu", style)


def test_a_default_is_part_of_the_signature_of_a_traced_function() -> None:
    f = hm.trace(lambda: hm.zeros(2) + hm.tensor([1.0, 2.0]))
    for _ in range(3):
        assert f().device == "cpu"
        with hm.device(DEVICE):
            assert f().device == DEVICE
        with hm.device("cpu"):
            assert f().device == "cpu"
    assert f.cache_info().compiles == 2 and f"the default device is '{DEVICE}', not 'cpu'" in str(f.retraces)


def test_functions_of_the_user_that_the_library_calls_see_it() -> None:
    """Hooks, `Function.backward` and what a checkpoint computes again, though a gradient rule calls them."""
    seen: list[str] = []

    def look() -> None:
        seen.append(hm.zeros(1).device.type)

    class Double(hm.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: hm.Tensor) -> hm.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: hm.Tensor) -> hm.Tensor:
            look()
            return g * 2

    def again(t: hm.Tensor) -> hm.Tensor:
        look()
        return t * hm.ones(2).cpu()

    with hm.device(DEVICE):
        x = hm.ones(2, device="cpu").requires_grad_()
        x.register_hook(lambda g: look())
        y = Double.apply(hm.checkpoint(again, x))
        y.sum().backward(retain_graph=True)
    assert seen == [DEVICE] * 4
    y.sum().backward()
    assert seen[4:] == ["cpu", DEVICE, "cpu"]  # a checkpoint computes again what it computed


def test_transforms_follow_their_arguments() -> None:
    """Unit vectors, tangents and numbers in a batch, for tensors of either device."""
    for device in ("cpu", DEVICE):
        t = hm.arange(3.0, device=device) + 1
        with hm.device(DEVICE):
            found = [
                hm.jacrev(lambda r: r**2)(t), hm.jacfwd(lambda r: r**2)(t), hm.hessian(lambda r: (r**3).sum())(t),
                hm.linearize(lambda r: r**2, t)[1](t), hm.vmap(lambda r: r * 2.0 + 1)(t), t.at[0].set(3.0),
            ]  # fmt: skip
        assert {r.device.type for r in found} == {device}
        assert found[2].tolist() == [[6, 0, 0], [0, 12, 0], [0, 0, 18]]


def test_a_product_of_devices_is_an_error_as_ever() -> None:
    with hm.device(DEVICE), pytest.raises(DeviceError, match=f"'{DEVICE}' and on 'cpu'"):
        hm.ones(2) + hm.ones(2, device="cpu")


# What functions and layers create for tensors of the CPU is beside these.


@pytest.mark.parametrize("name", every(3, NAMES))
def test_values_and_gradients_of_functions_of_the_cpu(name: str) -> None:
    with hm.device(DEVICE):
        close_to_record(name, torch_names.FUNCTIONS[name], TORCH, record_of(torch_names)[0], "cpu")


@pytest.mark.parametrize("name", every(3, LAYERS))
def test_modules_of_the_cpu(name: str) -> None:
    table, case = LAYERS[name]
    with hm.device(DEVICE):
        values, keys = record_of(table)
        module_close_to_record(name, case, values, keys, "cpu")
