"""The NumPy evaluation of `lower` columns, and the hook through which eager transcendentals run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hybridml_compiler.hooks import hooks
from hybridml_compiler.loops import evaluate as evaluation
from hybridml_compiler.loops.evaluate import evaluate
from hybridml_compiler.ops.table import OPS


def test_a_load_out_of_range_is_an_error() -> None:
    def off_by_one(s: Any, i: Any, x: Any) -> Any:
        return x((s.add(i[0], 1),))

    def negative(s: Any, i: Any, x: Any) -> Any:
        return x((s.sub(i[0], 1),))

    for lower in (off_by_one, negative):
        with pytest.raises(IndexError, match="axis 0"):
            evaluate(lower, [np.arange(3)], (3,))


def test_a_mask_covers_the_loads_inside() -> None:
    def shifted(s: Any, i: Any, x: Any) -> Any:
        return s.masked(s.ge(i[0], 1), lambda: x((s.sub(i[0], 1),)), -7)

    assert evaluate(shifted, [np.array([1, 2, 3])], (3,)).tolist() == [-7, 1, 2]


def test_reductions_nest() -> None:
    def centred_squares(s: Any, i: Any, x: Any) -> Any:
        total = s.reduce("add", (3,), lambda r: x((i[0], r[0])))

        def body(r: Any) -> Any:
            inner = s.reduce("max", (2,), lambda q: s.mul(x((q[0], r[0])), total))
            return s.sub(x((i[0], r[0])), inner)

        return s.reduce("add", (3,), body)

    x = np.arange(6).reshape(2, 3)
    total = x.sum(1, keepdims=True)
    expected = (x - (x[None] * total[:, None]).max(1)).sum(1)
    np.testing.assert_array_equal(evaluate(centred_squares, [x], (2,)), expected)


def test_an_unknown_function_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'nonsense'"):
        evaluate(lambda s, i, x: s.nonsense(x(i)), [np.ones(2)], (2,))


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
