"""The target that docs/adding_a_target.md writes: every row of the operation table on it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridml_compiler.ops.table import OPS
from tests.support.cases import case
from tests.support.closeness import assert_close
from tests.support.on_devices import results

PAGE = Path(__file__).parent.parent.parent / "docs" / "adding_a_target.md"


@pytest.fixture
def toy(own_devices: None) -> str:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    assert code.count("\n") < 400
    names: dict[str, Any] = {}
    exec(code, names)
    return str(names["DEVICE"].name)


@pytest.mark.parametrize("most", [1, pytest.param(99, marks=pytest.mark.slow)])
def test_every_row(toy: str, most: int) -> None:
    for op in OPS.values():
        samples = itertools.islice(op.samples(np.random.default_rng(0)), most if op.inputs else 0)
        for k, sample in enumerate(samples):
            with case(f"{op.name}, sample {k}"):
                here, there = (results(op, sample, device, grad=False) for device in ("cpu", toy))
                for a, b in zip(here, there, strict=True):
                    assert a.shape == b.shape and a.dtype == b.dtype
                    assert_close(b, a)
