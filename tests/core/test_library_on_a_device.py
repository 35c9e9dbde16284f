"""Functions and layers on the reference device, against recorded values of PyTorch: what they create is beside what
they are given, in either style.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from tests.support import torch_layers, torch_names
from tests.support.device_cases import LAYERS, NAMES, TORCH, of_two_dimensions, record_of
from tests.support.examples import every
from tests.support.torch_checks import close_to_record, firsts, inputs_of, module_close_to_record

DEVICE = "reference"


@pytest.mark.parametrize("name", every(2, NAMES))
def test_values_and_gradients(name: str) -> None:
    close_to_record(name, torch_names.FUNCTIONS[name], TORCH, record_of(torch_names)[0], DEVICE)


@pytest.mark.parametrize("name", of_two_dimensions(firsts(torch_layers.FUNCTIONS)))
def test_values_and_gradients_of_layers(name: str) -> None:
    close_to_record(name, torch_layers.FUNCTIONS[name], hm.functional, record_of(torch_layers)[0], DEVICE)


@pytest.mark.parametrize("name", every(3, LAYERS))
def test_modules(name: str) -> None:
    table, case = LAYERS[name]
    module_close_to_record(name, case, *record_of(table), DEVICE)


@pytest.mark.parametrize("name", every(2, of_two_dimensions(firsts(torch_layers.FUNCTIONS))))
def test_traced_is_eager(name: str) -> None:
    case = torch_layers.FUNCTIONS[name]
    t = {key: x.detach() for key, x in vars(inputs_of(name, case.inputs, DEVICE)).items()}
    traced = hm.trace(lambda **tensors: case.run(hm.functional, SimpleNamespace(**tensors)))(**t)
    assert traced.device == DEVICE
    eager = case.run(hm.functional, SimpleNamespace(**t))
    np.testing.assert_allclose(traced.cpu().numpy(), eager.cpu().numpy(), rtol=1e-5, atol=1e-5, strict=True)


V = np.asarray([0.5, -1.0, 2.0, 0.0, 1.5], "f4")
M = np.random.default_rng(0).standard_normal((3, 4)).astype("f4")
PLACES = np.asarray([2, 0, 1])

# Programs whose results or tables have sizes that depend on values, that index with lists, or loop.
PROGRAMS: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
    "nonzero": (hm.nonzero, (V,)),
    "argwhere": (hm.argwhere, (M,)),
    "mask": (lambda x: x[x > 0], (M,)),
    "unique": (lambda x: hm.unique(x, return_inverse=True, return_counts=True), (PLACES,)),
    "union1d": (hm.union1d, (PLACES, PLACES)),
    "isin": (hm.isin, (V, V[:2])),
    "repeat": (lambda x, n: hm.repeat(x, n, axis=0), (M, PLACES)),
    "one_hot": (hm.functional.one_hot, (PLACES,)),
    "list index": (lambda x: x[[0, 2]], (M,)),
    "array index": (lambda x: x[PLACES], (M,)),
    "update": (lambda x, i: x.at[i].add(1.0), (M, PLACES)),
    "update by list": (lambda x: x.at[[0, 2]].set(1.0), (M,)),
    "insert": (lambda x, i: hm.insert(x, i, 5.0), (V, PLACES)),
    "delete": (lambda x, i: hm.delete(x, i), (V, PLACES)),
    "quantile": (lambda x: hm.quantile(x, [0.3, 0.5]), (V,)),
    "histogram": (lambda x: hm.histogram(x, 3)[0], (V,)),
    "bincount": (hm.bincount, (PLACES,)),
    "pad": (lambda x: hm.pad(x, ((1, 1), (2, 0)), mode="linear_ramp"), (M,)),
    "gradient": (lambda x: hm.gradient(x), (M,)),
    "spectrogram": (lambda x: hm.stft(x, 4, return_complex=True), (V,)),
    "matrix_power": (lambda x: hm.linalg.matrix_power(x, 0), (M[:, :3],)),
    "tril": (hm.tril, (M,)),
    "cond": (lambda x: hm.cond(x.sum() > 0, lambda t: t * 2, lambda t: -t, x), (M,)),
    "while_loop": (lambda x: hm.while_loop(lambda t: t.sum() < 100, lambda t: t * 2 + 1, x), (V,)),
    "scan": (lambda x: hm.scan(lambda c, row: (c + row, c * row), x[0], x), (M,)),
    "scan back": (lambda x: hm.scan(lambda c, row: (c + row, c * row), x[0], x, reverse=True), (M,)),
    "scan of nothing": (lambda x: hm.scan(lambda c, row: (c + row, c * row), x[0], x[:0]), (M,)),
    "fori_loop": (lambda x: hm.fori_loop(0, 3, lambda k, t: t * 2 + k, x), (V,)),
    "gradient of a scan": (lambda x: hm.grad(lambda t: hm.scan(lambda c, r: (c * r, c), t[0], t)[0].sum())(x), (M,)),
    "made from a list": (lambda x: x * hm.asarray([1.0, 2.0, 3.0, 4.0], device=x.device), (M,)),
}


def leaves(found: Any) -> list[hm.Tensor]:
    return [found] if isinstance(found, hm.Tensor) else [t for part in found for t in leaves(part)]


@pytest.mark.parametrize("style", [lambda fn: fn, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, style: Any) -> None:
    program, given = PROGRAMS[name]
    here = leaves(program(*(hm.tensor(x) for x in given)))
    there = leaves(style(program)(*(hm.tensor(x, device=DEVICE) for x in given)))
    for a, b in zip(here, there, strict=True):
        assert b.device == DEVICE
        np.testing.assert_allclose(b.cpu().numpy(), a.numpy(), rtol=1e-5, atol=1e-5, strict=True)


def model(device: str = DEVICE) -> nn.Module:
    hm.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.BatchNorm1d(5), nn.Linear(5, 2)).to(device)


def devices(tensors: Any) -> set[str]:
    return {t.device.type for t in tensors}


def test_states_go_from_one_device_to_another(tmp_path: Path) -> None:
    here, there = model("cpu"), model()
    with hm.no_grad():
        for p in there.parameters():
            p += 1
    here.load_state_dict(there.state_dict())
    assert devices(here.state_dict().values()) == {"cpu"}
    hm.save(there.state_dict(), tmp_path / "model")
    for _, t in there.named_parameters():
        t.detach().zero_()
    there.load_state_dict(hm.load(tmp_path / "model"))
    assert devices(there.state_dict().values()) == {DEVICE}
    for name, t in there.state_dict().items():
        assert t.tolist() == here.state_dict()[name].tolist()
    twin = hm.zeros((2, 3), device=DEVICE).copy_(hm.ones(3))
    assert twin.device == DEVICE and hm.zeros((2, 3)).copy_(twin).tolist() == [[1, 1, 1], [1, 1, 1]]


def trained(device: str, path: Path) -> list[list[float]]:
    """The parameters after steps with dropout, clipping and a schedule, half of them after a restart."""
    net = model(device)
    optimizer = hm.optim.AdamW(net.parameters(), lr=0.1)
    schedule = hm.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    data = hm.data.TensorDataset(hm.asarray(np.random.default_rng(0).standard_normal((12, 4)).astype("f4")))
    for number, (x,) in enumerate(hm.data.DataLoader(data, batch_size=3)):
        optimizer.zero_grad()
        (net(x.to(device)) ** 2).mean().backward()
        assert nn.utils.clip_grad_norm_(net.parameters(), 0.5).device == device
        nn.utils.clip_grad_value_(net.parameters(), 0.2)
        optimizer.step()
        schedule.step()
        if number == 1:
            hm.save(optimizer.state_dict(), path / device)
            optimizer.load_state_dict(hm.load(path / device))
    assert devices(net.parameters()) == {device}
    return [p.detach().cpu().reshape(-1).tolist() for p in net.parameters()]


def test_training_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    for here, there in zip(trained("cpu", tmp_path), trained(DEVICE, tmp_path), strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-4)


def test_random_numbers_are_those_of_the_cpu() -> None:
    x = hm.asarray(np.abs(M) / 4)
    draws: list[Any] = [
        lambda d: hm.random.rand(2, 3, device=d),
        lambda d: hm.random.randn(2, device=d),
        lambda d: hm.random.randint(0, 9, (4,), device=d),
        lambda d: hm.random.randperm(5, device=d),
        lambda d: hm.random.rand_like(x.to(d)),
        lambda d: hm.random.randn_like(x, device=d),
        lambda d: hm.random.bernoulli(x.to(d)),
        lambda d: hm.random.multinomial(x.to(d), 2),
        lambda d: hm.random.permutation(x.to(d)),
        lambda d: nn.init.normal_(hm.zeros(4, device=d)),
        lambda d: hm.functional.dropout(x.to(d)),
    ]
    for draw in draws:
        hm.manual_seed(1)
        here = draw("cpu")
        hm.manual_seed(1)
        there = draw(DEVICE)
        assert here.device == "cpu" and there.device == DEVICE and there.tolist() == here.tolist()


def test_windows_are_made_on_a_device() -> None:
    for name in hm.signal.windows.__all__:
        options = {"a": (0.5, 0.5)} if name == "general_cosine" else {}
        for n in (1, 5):
            here, there = (getattr(hm.signal.windows, name)(n, device=device, **options) for device in ("cpu", DEVICE))
            assert there.device == DEVICE and there.tolist() == here.tolist()
    for name in ("bartlett", "blackman", "hamming", "hann", "kaiser"):
        window = getattr(hm, f"{name}_window")
        assert window(4, device=DEVICE).device == DEVICE and window(4, device=DEVICE).tolist() == window(4).tolist()


def test_a_worker_process_makes_batches_on_the_cpu() -> None:
    data = hm.data.TensorDataset(hm.arange(4.0, device=DEVICE))
    with pytest.raises(hm.ArgumentError, match=r'make batches on the CPU .* workers="thread"'):
        list(hm.data.DataLoader(data, batch_size=2, num_workers=1))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_gives_batches_of_tensors_where_they_are(workers: int) -> None:
    data = hm.data.TensorDataset(hm.arange(6.0, device=DEVICE).reshape(3, 2), hm.arange(3))
    batches = list(hm.data.DataLoader(data, batch_size=2, num_workers=workers, workers="thread"))
    assert [[t.device.type for t in batch] for batch in batches] == [[DEVICE, "cpu"]] * 2
    assert batches[1][0].tolist() == [[4, 5]]


def test_gradients_are_checked_on_a_device() -> None:
    point = hm.tensor([0.5, 1.5], dtype="float64", device=DEVICE)
    assert hm.testing.gradcheck(lambda a: hm.exp(a) * a, point)
    assert hm.testing.gradcheck(lambda a, b: (a.cpu() ** 3 * b).sum(), point, [1.0, 2.0])

    class Wrong(hm.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: hm.Tensor) -> hm.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: hm.Tensor) -> hm.Tensor:
            return g * 3

    with pytest.raises(hm.GradientError, match="a rule is wrong"):
        hm.testing.gradcheck(Wrong.apply, point)


def test_files_are_loaded_to_a_device(tmp_path: Path) -> None:
    tree = {"weights": [hm.ones(2, device=DEVICE), hm.zeros(3)], "step": 3}
    hm.save(tree, tmp_path / "tree")
    hm.save({"w": hm.ones(2, device=DEVICE)}, tmp_path / "plain")
    for place in (None, "cpu", DEVICE, hm.device(DEVICE)):
        found = hm.load(tmp_path / "tree", map_location=place)
        plain = hm.load(tmp_path / "plain", map_location=place)
        tensors = [*found["weights"], plain["w"]]
        assert {t.device for t in tensors} == {hm.device("cpu" if place is None else place)} and found["step"] == 3
        assert [t.tolist() for t in tensors] == [[1, 1], [0, 0, 0], [1, 1]]
    with pytest.raises(hm.ArgumentError, match="'tpu' is not available"):
        hm.load(tmp_path / "tree", map_location="tpu")
