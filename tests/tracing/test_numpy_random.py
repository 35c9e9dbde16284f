"""NumPy's generators as a trace looks at them: they are not imported for it, and their first draws are seen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from hybridml.tracing.python_state.numpy_random import UNUSED, is_global_generator

PROGRAM = """
import sys
import numpy as np
import hybridml as hm
double = hm.trace(lambda x: x * 2)
print(double(hm.ones(1)).item(), "numpy.random" in sys.modules)
draw = hm.trace(lambda x: x * np.random.rand(), strict=True)
try:
    draw(hm.ones(1))
except hm.TraceError as error:
    print("changes np.random" in str(error), "numpy.random" in sys.modules)
"""


def test_a_trace_does_not_import_them_and_sees_their_first_draw() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["2.0", "False", "True", "True"], done.stderr


@pytest.fixture
def generator() -> Iterator[np.random.RandomState]:
    """The global generator, as new; it gets its state back afterwards."""
    made = np.random.mtrand._rand
    bits, state = made._bit_generator, made.get_state(legacy=False)
    np.random.set_bit_generator(np.random.MT19937())  # type: ignore[attr-defined]
    yield np.random.mtrand._rand
    np.random.set_bit_generator(bits)  # type: ignore[attr-defined]
    np.random.mtrand._rand.set_state(state)


@pytest.mark.parametrize("count", [1, 312])  # 312 numbers take all 624 words: the generator stands where it did
def test_draws_are_seen_and_undone(generator: np.random.RandomState, count: int) -> None:
    assert UNUSED.state() is None
    drawn = generator.random_sample(count)
    assert UNUSED.state() is not None
    UNUSED.set_back()
    assert UNUSED.state() is None
    assert (generator.random_sample(count) == drawn).all()


def test_half_of_a_pair_of_normal_numbers_is_seen(generator: np.random.RandomState) -> None:
    generator.standard_normal()
    assert UNUSED.state() is not None


def test_a_seed_is_seen_and_stays(generator: np.random.RandomState) -> None:
    generator.seed(0)
    assert UNUSED.state() is not None
    UNUSED.set_back()
    assert UNUSED.state() is not None


def test_it_is_known_by_both_names() -> None:
    assert is_global_generator(UNUSED) and is_global_generator(np.random.mtrand._rand)
    assert not is_global_generator(np.random.default_rng(0)) and not is_global_generator(os)
