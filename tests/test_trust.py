"""The programs of the page on trust: hybridml's column, run here as the page's script runs it."""

from __future__ import annotations

import pytest

from benchmarks.frameworks import Hybridml
from benchmarks.programs import ROWS, observe

# What is counted.
SAID = {
    "lengths": "2",
    "floats": "1",
    "integers": "2",
    "losses": "1",
    "globals": "1",
    "helpers": "1",
    "attributes": "2",
}


@pytest.mark.parametrize("name", ROWS)
def test_a_traced_program_is_the_eager_one(name: str) -> None:
    assert observe(Hybridml(), ROWS[name]) == SAID.get(name, "same")
