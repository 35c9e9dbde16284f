"""The public surface: what `dir(hm)` offers, and nothing else."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import arrays
from hybridml_compiler.ops.table import OPS

MODULES = {
    "autograd", "data", "distributions", "errors", "fft", "functional", "io", "linalg", "nn", "optim", "random",
    "signal", "special", "testing",
}  # fmt: skip
CONSTANTS = {"__array_api_version__", "__version__", "e", "inf", "nan", "newaxis", "pi"}
INTERNAL = [op for op in OPS.values() if not op.public]


def kind(name: str, value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return "public module" if name in MODULES else "internal module"
    if isinstance(value, np.dtype):
        return "dtype"
    return "callable" if callable(value) else "constant" if name in CONSTANTS else "unknown"


def test_every_public_name_is_for_users() -> None:
    kinds = {name: kind(name, getattr(hm, name)) for name in dir(hm)}
    assert not {name for name, found in kinds.items() if found in ("internal module", "unknown")}
    assert {name for name, found in kinds.items() if found == "public module"} == MODULES
    assert sorted({*hm.__all__, "__version__"}) == dir(hm)
    assert len(set(hm.__all__)) == len(hm.__all__)
    private = {"__array_api_version__", "__array_namespace_info__", "__version__"}
    assert not {name for name in dir(hm) if name.startswith("_")} - private


@pytest.mark.parametrize("op", INTERNAL, ids=lambda op: op.name)
def test_rows_that_serve_others_have_no_public_name(op: Any) -> None:
    assert op.name not in dir(hm)
    assert not hasattr(hm, op.name) or getattr(hm, op.name) is not op.fn
    assert getattr(arrays, op.name) is op.fn  # inside, they are called by name
    assert op.method is None and op.operator is None
