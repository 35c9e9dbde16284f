"""Large draws of eager code are compiled calls, with the bits and the state of small ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hybridml as hm
from hybridml import random
from tests.support.by_operation import by_operation


@pytest.mark.parametrize("draw", [random.normal, random.uniform], ids=["normal", "uniform"])
def test_bits_and_state_are_those_of_operations(
    draw: Callable[..., hm.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> tuple[list[np.ndarray], list[int]]:
        hm.manual_seed(5)
        own = random.Generator(7)
        drawn = [
            draw((300, 200)),
            draw(shape=(70000,), dtype=hm.float64),
            draw((300, 200), 1.0, 3.0, generator=own),
            draw((300, 200), dtype=hm.bfloat16, generator=own),
            draw((2,)),
        ]
        return [x.numpy() for x in drawn], [*random.default_generator.state.tolist(), *own.state.tolist()]

    arrays, state = run()
    expected, end = by_operation(run)
    assert state == end
    for a, b in zip(arrays, expected, strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def test_a_large_draw_inside_of_a_trace_is_part_of_it() -> None:
    hm.manual_seed(1)
    eager = random.normal((40000,)) + 1
    hm.manual_seed(1)
    assert hm.trace(lambda: random.normal((40000,)) + 1)().numpy().tobytes() == eager.numpy().tobytes()
