"""Transcendental functions of eager code: their blocks, and the hook through which they run."""

from __future__ import annotations

import numpy as np
import pytest

from hybridml_compiler.hooks import hooks
from hybridml_compiler.loops import evaluate as evaluation
from hybridml_compiler.ops.table import OPS


def test_transcendentals_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(-3, 3, 51, dtype=np.float32).reshape(3, 17).T
    whole = evaluation.transcendental("exp", x)
    monkeypatch.setattr(evaluation, "BLOCK", 4)
    np.testing.assert_array_equal(evaluation.transcendental("exp", x), whole)
    np.testing.assert_array_equal(OPS["exp"].on_arrays(x), whole)  # whoever evaluates: the same bits
    assert whole.shape == x.shape


def test_a_registered_evaluator_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def spy(name: str, *arrays: np.ndarray) -> np.ndarray:
        calls.append(name)
        return arrays[0]

    monkeypatch.setattr(hooks, "transcendental", spy)
    assert OPS["exp"].on_arrays(np.ones(2)).tolist() == [1, 1]
    assert calls == ["exp"]
