"""Functions and layers on the reference device, against recorded values of PyTorch: what they create is beside what
they are given, in either style.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support import torch_cases, torch_layers, torch_names
from tests.support.torch_cases import recorded
from tests.support.torch_checks import close_to_record, inputs_of, module_close_to_record

DEVICE = "reference"


class Torch:
    """hybridml under the names of `torch`."""

    nn = SimpleNamespace(functional=hm.functional)

    def __getattr__(self, name: str) -> Any:
        return getattr(hm, name)


TORCH = Torch()
ON_CPU = ("window", "bartlett_window", "kaiser_window", "logspace")  # they are made from numbers, and not of tensors
NAMES = [name for name in torch_names.FUNCTIONS if not name.startswith(ON_CPU)]
LAYERS: dict[str, Any] = {
    **{name: (torch_cases, case) for name, case in torch_cases.MODULES.items()},
    **{name: (torch_names, case) for name, case in torch_names.MODULES.items()},
    **{name: (torch_layers, case) for name, case in torch_layers.MODULES.items()},
}
_records: dict[Any, Any] = {}


def record_of(table: Any) -> Any:
    if table not in _records:
        _records[table] = recorded(table.RECORDED)
    return _records[table]


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name: str) -> None:
    close_to_record(name, torch_names.FUNCTIONS[name], TORCH, record_of(torch_names)[0], DEVICE)


@pytest.mark.parametrize("name", torch_layers.FUNCTIONS)
def test_values_and_gradients_of_layers(name: str) -> None:
    close_to_record(name, torch_layers.FUNCTIONS[name], hm.functional, record_of(torch_layers)[0], DEVICE)


@pytest.mark.parametrize("name", LAYERS)
def test_modules(name: str) -> None:
    table, case = LAYERS[name]
    module_close_to_record(name, case, *record_of(table), DEVICE)


FIRST = {name.split()[0]: name for name in reversed([*torch_layers.FUNCTIONS])}  # the first case of each function


@pytest.mark.parametrize("name", FIRST)
def test_traced_is_eager(name: str) -> None:
    case = torch_layers.FUNCTIONS[FIRST[name]]
    t = {key: x.detach() for key, x in vars(inputs_of(FIRST[name], case.inputs, DEVICE)).items()}
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
