"""The target that docs/adding_a_target.md writes: every row of the operation table on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets import device as devices
from tests.support.cases import case
from tests.support.closeness import assert_close
from tests.support.on_devices import results

PAGE = Path(__file__).parent.parent.parent / "docs" / "adding_a_target.md"


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(devices, "_DEVICES", dict(devices._DEVICES))
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    assert code.count("\n") < 400
    names: dict[str, Any] = {}
    exec(code, names)
    return str(names["DEVICE"].name)


def test_every_row(toy: str) -> None:
    for op in OPS.values():
        for k, sample in enumerate(op.samples(np.random.default_rng(0)) if op.inputs else ()):
            with case(f"{op.name}, sample {k}"):
                here, there = (results(op, sample, device, grad=False) for device in ("cpu", toy))
                for a, b in zip(here, there, strict=True):
                    assert a.shape == b.shape and a.dtype == b.dtype
                    assert_close(b, a)
