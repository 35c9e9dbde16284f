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
