"""A device whose memory NumPy cannot reach: every path through the front end that takes no device.

They are the tests of any target: with another device at the top of the file, whose target is imported there, or by
HYBRIDML_TEST_DEVICE=cuda:sim.
"""

from __future__ import annotations

import copy
import functools
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.core import device_tensor
from hybridml_compiler.errors import ArgumentError, DeviceError
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from tests.support.cases import case
from tests.support.closeness import assert_close
from tests.support.on_devices import results
from tests.support.rows import joined

DEVICE = os.environ.get("HYBRIDML_TEST_DEVICE", "reference")
ROWS = [op for op in OPS.values() if op.inputs and op.kind != "transfer"]  # which only graphs have


@pytest.mark.parametrize("graded", [1, pytest.param(99, marks=pytest.mark.slow)])
@pytest.mark.parametrize("op", ROWS, ids=str)
def test_a_row_and_its_gradients(op: Op, graded: int) -> None:
    """At all of its samples; its gradients at the first ones."""
    for k, sample in enumerate(joined(op, op.samples(np.random.default_rng(0)))):
        with case(f"sample {k}"):
            here, there = (results(op, sample, device, grad=k < graded) for device in ("cpu", DEVICE))
            for a, b in zip(here, there, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
                assert_close(b, a)


@pytest.mark.parametrize("op", ROWS, ids=str)
def test_a_traced_row(op: Op) -> None:
    sample = next(iter(op.samples(np.random.default_rng(0))))
    inputs = [hm.tensor(np.asarray(a)).to(DEVICE) for a in (sample.args[0] if op.variadic else sample.args)]
    call = functools.partial(op.fn, **sample.params)
    eager, again = (call(inputs) if op.variadic else call(*inputs) for _ in range(2))  # the second one is known
    for a, b in zip(eager, again, strict=True) if op.results else [(eager, again)]:
        np.testing.assert_array_equal(a.cpu(), b.cpu())
    traced = hm.trace(call)(inputs) if op.variadic else hm.trace(call)(*inputs)
    for a, b in zip(eager, traced, strict=True) if op.results else [(eager, traced)]:
        assert a.device == b.device == DEVICE and a.dtype is b.dtype
        assert_close(b.cpu().numpy(), a.cpu().numpy())


def trained(device: str, style: Callable[..., Any]) -> tuple[list[float], list[np.ndarray]]:
    """Losses of four steps, and the parameters after them."""
    hm.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).to(device)
    optimizer = hm.optim.AdamW(model.parameters(), lr=0.1)
    draw = np.random.default_rng(0)
    images = hm.asarray(draw.standard_normal((5, 4)).astype("f4"), device=device)
    labels = hm.asarray(draw.integers(0, 3, 5), device=device)

    def step(images: hm.Tensor, labels: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = hm.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    run = style(step)
    losses = [run(images, labels).item() for _ in range(4)]
    assert {t.device.type for t in (*model.parameters(), *(p.grad for p in model.parameters()))} == {device}
    if style is hm.trace:
        assert run.cache_info().compiles == 1
    return losses, [p.detach().cpu().numpy() for p in model.parameters()]


@pytest.mark.parametrize("style", [lambda step: step, hm.trace], ids=["eager", "traced"])
def test_a_model_learns(style: Callable[..., Any]) -> None:
    here, there = trained("cpu", style), trained(DEVICE, style)
    np.testing.assert_allclose(there[0], here[0], rtol=1e-5)
    for a, b in zip(here[1], there[1], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def test_a_traced_function_has_a_program_per_device() -> None:
    f = hm.trace(lambda t: t * 2 + 1)
    assert f(x()).device == f(x()).device == DEVICE and f(x().cpu()).device == "cpu"
    assert f.cache_info().compiles == 2 and f"on {DEVICE}" in str(f.retraces)


def test_traced_programs_do_not_mix_devices_either() -> None:
    def product(t: hm.Tensor, other: hm.Tensor) -> hm.Tensor:
        return t @ other

    with pytest.raises(DeviceError) as eager:
        product(x(), hm.ones((3, 2)))
    with pytest.raises(DeviceError) as traced:
        hm.trace(product)(x(), hm.ones((3, 2)))
    assert str(eager.value) == str(traced.value)
    with pytest.raises(DeviceError):
        hm.trace(lambda t: t + hm.ones(3))(x())


factor = 0.5


def test_a_traced_function_takes_python_numbers() -> None:
    def program(t: hm.Tensor, k: float, n: int) -> Any:
        return (
            t * k + n * factor,
            (t.cpu() * k).to(DEVICE),
            hm.asarray(k, device=DEVICE),
            hm.full((2,), k, device=DEVICE),
        )

    traced = hm.trace(program)
    for k, n in ((7.5, 2), (1.5, 3)):
        for a, b in zip(program(x(), k, n), traced(x(), k, n), strict=True):
            assert a.device == b.device == DEVICE and a.dtype is b.dtype and a.tolist() == b.tolist()


def test_an_array_of_numpy_becomes_a_tensor_where_it_is_asked_for() -> None:
    captured = np.arange(3, dtype="f4")

    def program(t: hm.Tensor, given: np.ndarray) -> Any:
        arrays = (given, captured, given)
        here = [hm.asarray(a) for a in arrays]
        there = [hm.asarray(a, device=DEVICE) + t for a in arrays]
        return [*here, *there, hm.full((3,), hm.tensor(2.0), device=DEVICE), *map(hm.asarray, arrays)]

    for run in (program, hm.trace(program)):
        found = run(x()[0], np.ones(3, "f4"))
        assert [t.device.type for t in found] == ["cpu"] * 3 + [DEVICE] * 4 + ["cpu"] * 3
        assert [t.tolist() for t in found[3:6]] == [[1, 2, 3], [0, 2, 4], [1, 2, 3]]
    for add in (lambda t, a: t + a, hm.trace(lambda t, a: t + a)):
        with pytest.raises(DeviceError, match=f"'{DEVICE}' and on 'cpu'"):
            add(x()[0], captured)


def test_traced_updates_in_place() -> None:
    def program(t: hm.Tensor, count: hm.Tensor) -> hm.Tensor:
        t += 1
        t[0] = 7
        count += 1  # on the CPU
        return t * count.sum()

    eager, traced = (x(), hm.zeros(1)), (x(), hm.zeros(1))
    run = hm.trace(program)
    for _ in range(3):
        assert run(*traced).tolist() == program(*eager).tolist()
        assert traced[0].tolist() == eager[0].tolist() and traced[1].tolist() == eager[1].tolist()
    assert run.cache_info().compiles == 1
    row, other = traced[0][1], eager[0][1]  # from here on somebody looks at it
    assert run(*traced).tolist() == program(*eager).tolist()
    assert traced[0].tolist() == eager[0].tolist() and row.tolist() == other.tolist()


def moved_and_back(t: hm.Tensor, weight: hm.Tensor, mean: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
    there = t.to(DEVICE)
    mean += t.detach().mean()  # where the call has them
    noisy = nn.functional.dropout(there * weight, 0.5)
    noisy += mean.to(DEVICE)
    return noisy, (noisy.cpu() * t.cpu()).sum()


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_a_traced_function_moves_tensors(device: str) -> None:
    found = []
    for run in (moved_and_back, hm.trace(moved_and_back)):
        hm.manual_seed(0)
        weight = hm.full((3,), 2.0, device=DEVICE).requires_grad_()
        t, mean = x().detach().to(device).requires_grad_(), hm.zeros((), device=device)
        for _ in range(2):
            there, here = run(t, weight, mean)
            assert there.device == DEVICE and here.device == "cpu"
            (here + there.cpu().sum()).backward()
            found.append([v.tolist() for v in (there, here, t.grad, weight.grad, mean)])
            assert t.grad is not None and t.grad.device == device
    assert found[:2] == found[2:] and run.cache_info().compiles == 1  # type: ignore[attr-defined]


def test_what_a_traced_function_captures_is_moved_as_it_is_then() -> None:
    captured = hm.ones(3)
    f = hm.trace(lambda t: t.to(DEVICE) + captured.to(DEVICE))
    before = f(hm.zeros(3))
    captured += 1
    assert before.tolist() == [1.0] * 3 and f(hm.zeros(3)).tolist() == [2.0] * 3
    assert f.cache_info().compiles == 1


def test_what_a_traced_function_moves_is_a_copy() -> None:
    @hm.trace
    def f(t: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
        there = t.to(DEVICE)
        t += 1
        there -= 1
        return there, there.cpu()

    t = hm.zeros(2)
    for k in range(2):
        there, here = f(t)
        assert t.tolist() == [k + 1.0] * 2 and there.tolist() == here.tolist() == [k - 1.0] * 2


def test_values_of_a_device_steer_a_traced_function() -> None:
    f = hm.trace(lambda t: t * 2 if t.sum() > 3 else -t)
    assert f(x()).tolist() == (x() * 2).tolist() and f(-x()).tolist() == x().tolist()
    assert f(x()).device == DEVICE


def test_what_is_created_on_it() -> None:
    made = [
        hm.zeros((2,), device=DEVICE), hm.ones(2, device=DEVICE), hm.full((2,), 3.0, device=DEVICE),
        hm.arange(2, device=DEVICE), hm.linspace(0, 1, 2, device=DEVICE), hm.eye(2, device=DEVICE),
        hm.asarray([1, 2], device=DEVICE), hm.tensor([1.0], device=DEVICE, requires_grad=True),
        hm.zeros_like(x()), hm.ones_like(x()), hm.full_like(x(), 2), hm.empty_like(x()),
        hm.fft.fftfreq(3, device=DEVICE),
    ]  # fmt: skip
    assert {t.device.type for t in made} == {DEVICE}
    assert made[7].requires_grad and made[2].tolist() == [3, 3] and hm.zeros_like(x(), device="cpu").device == "cpu"
    assert hm.zeros(2).device == hm.asarray(x().cpu(), device="cpu").device == "cpu"


def x() -> hm.Tensor:
    return hm.asarray(np.arange(6, dtype="f4").reshape(2, 3)).to(DEVICE)


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_what_is_made_like_a_tensor_is_beside_it(style: Callable[..., Any]) -> None:
    def likes(t: hm.Tensor, other: hm.Tensor) -> list[hm.Tensor]:
        return [like(a) for a in (t, other) for like in (hm.zeros_like, hm.ones_like, hm.empty_like, hm.rand_like)]

    assert [t.device.type for t in style(likes)(x(), hm.ones(2))] == [DEVICE] * 4 + ["cpu"] * 4
    assert [t.device.type for t in style(lambda t: likes(t.cpu(), t))(x())] == ["cpu"] * 4 + [DEVICE] * 4


def test_tensors_come_and_go() -> None:
    t = x()
    assert t.device == DEVICE == str(t.device) and t.device == hm.device(DEVICE) and t.device != "cpu"
    assert isinstance(t, hm.Tensor) and t.shape == (2, 3) and t.dtype is hm.float32
    assert t.to(DEVICE) is t and t.cpu().device == "cpu" and t.cpu().cpu().tolist() == t.tolist()
    assert t.to(hm.int32).device == DEVICE and t.to("cpu", hm.int32).dtype is hm.int32
    assert t[1, 2].item() == 5 and float(t.sum()) == 15 and bool((t >= 0).all()) and 5.0 in t
    assert repr(t[0]) == f"Tensor([0., 1., 2.], device='{DEVICE}')" and DEVICE in t._repr_html_()


CALLS: list[Any] = [np.asarray, hm.Tensor.numpy, lambda t: np.exp(t.numpy()), lambda t: t.__dlpack__()]


# Memory of a GPU is for other libraries by DLPack, that of the simulated one too (test_cuda_driver.py).
@pytest.mark.parametrize("call", CALLS[:-1] if DEVICE.startswith("cuda") else CALLS)
def test_numpy_cannot_reach_it(call: Callable[[hm.Tensor], Any]) -> None:
    with pytest.raises(DeviceError, match=rf"'{DEVICE}'.*\.cpu\(\)"):
        call(x())


@pytest.mark.parametrize(
    "call",
    [
        lambda t, other: t + other,
        lambda t, other: other + t,
        lambda t, other: hm.concat([t, other]),
        lambda t, other: hm.where(other > 0, t, 0.0),
        lambda t, other: t.__setitem__(0, other[0]),
        lambda t, other: t.__iadd__(other),
        lambda t, other: t + other.numpy(),
    ],
)
def test_devices_do_not_mix(call: Callable[[hm.Tensor, hm.Tensor], Any]) -> None:
    with pytest.raises(DeviceError, match=rf"(?s)'{DEVICE}'.*'cpu'.*\.to\('{DEVICE}'\).*{__name__.rpartition('.')[2]}"):
        call(x(), hm.ones((2, 3)))


def test_numbers_of_the_cpu_may_meet_it() -> None:
    assert (x() + hm.tensor(1.0)).tolist() == (hm.tensor(1.0) + x()).tolist() == (x() + np.float32(1)).tolist()
    assert (2 - x() * 3.0).device == DEVICE
    t = x()
    t[0] = hm.tensor(2.0)
    t[[1]] = hm.tensor(3.0)
    assert t.tolist() == [[2, 2, 2], [3, 3, 3]]


def test_there_is_no_other() -> None:
    with pytest.raises(ArgumentError, match=r"'mps:0' is not available: choose one of cpu, reference"):
        hm.ones(3).to("mps:0")


def test_indices_may_be_on_the_cpu() -> None:
    for key in ([1, 0], np.array([1, 0]), hm.asarray([1, 0]), hm.asarray([1, 0], device=DEVICE)):
        assert x()[key].tolist() == [[3, 4, 5], [0, 1, 2]] and x()[key].device == DEVICE
        t = x()
        t[key] = 7
        assert t.tolist() == [[7, 7, 7], [7, 7, 7]]
    with pytest.raises(IndexError, match="index 7 is out of range"):
        x()[[7]].tolist()


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_indices_and_numbers_from_the_cpu(style: Callable[..., Any]) -> None:
    @style
    def f(t: hm.Tensor, here: hm.Tensor, number: hm.Tensor) -> Any:
        chosen = t[here > 1]
        t[0] = number
        t[here[:, 0] > 1, 1] = number + 1
        return chosen, hm.nonzero(here)[0], t.to(here.to(hm.float64)), here.to(t)

    t = x()
    chosen, places, back, there = f(t, hm.asarray(np.arange(6).reshape(2, 3)), hm.tensor(9.0))
    assert chosen.device == t.device == there.device == DEVICE and places.device == back.device == "cpu"
    assert chosen.tolist() == [2, 3, 4, 5] and t.tolist() == [[9, 9, 9], [3, 10, 5]]
    assert places.tolist() == [0, 0, 1, 1, 1] and style(lambda t: t.tolist())(x()) == x().tolist()
    assert back.dtype is hm.float64 and there.dtype is hm.float32


def test_a_trace_does_not_reach_it_through_numpy_either() -> None:
    def f(t: hm.Tensor) -> hm.Tensor:
        return t * float(t.numpy().sum())

    with pytest.raises(DeviceError) as eager:
        f(x())
    with pytest.raises(DeviceError) as traced:
        hm.trace(f)(x())
    assert str(eager.value) == str(traced.value)


def test_programs_are_seen() -> None:
    f = hm.trace(lambda t: hm.exp(t).sum(0))
    assert f(x()).device == DEVICE and "exp(" in f.llvm and f"@{DEVICE}" in f.ir
    for report in (hm.compare(f, x()), hm.audit(f, x()), f.explain(x())):
        assert str(report)
    with pytest.raises(FloatingPointError, match="log made nan"), hm.debug_nans():
        hm.log(-x() - 1)
    with pytest.raises(FloatingPointError, match="log made nan"), hm.debug_nans():
        hm.trace(lambda t: hm.log(-t - 1))(x())


def test_updates_in_place_are_seen_by_views() -> None:
    t = x()
    row, turned = t[0], t.T
    row += 1
    assert t.tolist() == [[1, 2, 3], [3, 4, 5]] and turned[:, 0].tolist() == [1, 2, 3]
    t[1] = 0
    t[:, 1] = [7, 8]
    t *= 2
    assert row.tolist() == [2, 14, 6] and turned.tolist() == [[2, 0], [14, 16], [6, 0]]
    t[t > 10] = -1
    assert t.tolist() == [[2, -1, 6], [0, -1, 0]]


def test_history_crosses_devices() -> None:
    w = hm.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (w.to(DEVICE) * x()).sum().cpu().backward()
    assert w.grad is not None and w.grad.device == "cpu" and w.grad.tolist() == [3, 5, 7]
    v = x()[0].requires_grad_()
    (v**3).sum().backward(create_graph=True)
    assert v.grad is not None and v.grad.device == DEVICE and v.grad.tolist() == [0, 3, 12]
    v.grad.sum().backward()
    assert v.grad.tolist() == [0, 9, 24]


def test_threads_may_use_a_device_first_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_tensor, "homes", {})
    find, barrier = device_tensor.registry.find_device, threading.Barrier(2)

    def slow(name: str) -> Any:
        barrier.wait()
        return find(name)

    monkeypatch.setattr(device_tensor.registry, "find_device", slow)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(device_tensor.home_of, [DEVICE] * 2)
    assert one is other


def test_copies_and_pickles() -> None:
    t = x()
    for same in (copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t)), t.clone()):
        same += 1
        assert same.device == DEVICE and t.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert same.tolist() == [[1, 2, 3], [4, 5, 6]]
