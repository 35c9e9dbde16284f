"""Random programs are the same in both styles. `python -m tests.fuzz programs` runs as many as one likes."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.fuzz.programs import difference, program
from tests.fuzz.random_programs import write
from tests.support.examples import every, examples

BLOCK = 6


@pytest.mark.parametrize("block", every(2, range(5)))
def test_compiled_programs(block: int) -> None:
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        found = difference(program(seed), f"<program {seed}>")
        assert found is None, f"{program(seed).split('def program')[1]}\n{found}"


@examples(50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.data())
def test_interpreted_programs(data: st.DataObject) -> None:
    """By hypothesis, which looks for the shortest program that differs."""
    text = write(lambda options: data.draw(st.sampled_from(options)))
    found = difference(text, f"<program {random.Random(text).random()}>", "interpret")
    assert found is None, f"{text.split('def program')[1]}\n{found}"
