"""The `cost` column of rows that are polynomials, against the instructions that they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hybridml_compiler.loops.scalar import NumpyBuilder
from hybridml_compiler.loops.transcendental import TABLE
from hybridml_compiler.ops.table import OPS

INSTRUCTION = 0.3 / 16  # nanoseconds per element of a float32 vector
FACTOR = 4.0


class Counting:
    """A builder that counts the instructions it is asked for."""

    def __init__(self) -> None:
        self.builder, self.count = NumpyBuilder(), 0

    def __getattr__(self, name: str) -> Any:
        instruction = getattr(self.builder, name)
        self.count += name not in ("const", "dtype")
        return instruction


@pytest.mark.parametrize("name", TABLE)
def test_a_polynomial_costs_what_its_instructions_do(name: str) -> None:
    counting = Counting()
    with np.errstate(all="ignore"):
        TABLE[name](counting, *[np.full(4, 0.5, np.float32)] * len(OPS[name].inputs))
    found = counting.count * INSTRUCTION
    assert found / FACTOR < OPS[name].cost < found * FACTOR, f"{name}: {counting.count} instructions, {found:.2f} ns"
