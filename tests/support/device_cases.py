"""Functions and layers with recorded values of PyTorch, for tests of where they create."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import hybridml as hm
from tests.support import torch_cases, torch_layers, torch_names
from tests.support.torch_cases import recorded
from tests.support.torch_checks import firsts


class Torch:
    """hybridml under the names of `torch`."""

    nn = SimpleNamespace(functional=hm.functional)

    def __getattr__(self, name: str) -> Any:
        return getattr(hm, name)


TORCH = Torch()
ON_CPU = ("window", "bartlett_window", "kaiser_window", "logspace")  # they are made from numbers, and not of tensors
NAMES = [name for name in torch_names.FUNCTIONS if not name.startswith(ON_CPU)]


def of_two_dimensions(names: Iterable[str]) -> list[str]:
    """All but the members of a family (`conv1d conv2d conv3d`) that have another number of dimensions."""
    return [name for name in names if not name.split()[0].endswith(("1d", "3d"))]


_records: dict[Any, Any] = {}


def record_of(table: Any) -> Any:
    if table not in _records:
        _records[table] = recorded(table.RECORDED)
    return _records[table]


def with_state(table: Any, names: Iterable[str]) -> dict[str, Any]:
    """Layers that have parameters or buffers; the others are their functions."""
    keys = record_of(table)[1]
    return {name: (table, table.MODULES[name]) for name in names if keys[name]}


LAYERS = {
    **with_state(torch_cases, torch_cases.MODULES),
    **with_state(torch_names, torch_names.MODULES),
    **with_state(torch_layers, of_two_dimensions(firsts(torch_layers.MODULES))),
}
