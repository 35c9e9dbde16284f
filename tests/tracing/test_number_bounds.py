"""Questions that the rows of an integer answer: none is asked of data, and answers are those of eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.capture.number_bounds import answer_of
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from tests.support.loops import both, is_loop

RNG = np.random.default_rng(0)


def counts(x: Any) -> Any:
    cells = x.astype(np.int64) % 10
    return np.bincount(cells, minlength=10)


def of_nearest(x: Any) -> Any:
    nearest = np.argmin((x[:, None] - x[None, :4]) ** 2, axis=1)
    return np.bincount(nearest, weights=x, minlength=4)


def moved(x: Any) -> Any:
    """Particles in cells: sizes are the same in every step."""
    for _ in range(20):
        x = x + 0.1 * np.bincount(x.astype(np.int64) % 8, minlength=8)[x.astype(np.int64) % 8]
    return x


@pytest.mark.parametrize("program", [counts, of_nearest, moved])
def test_counts_of_bounded_integers_ask_nothing(program: Callable[[Any], Any]) -> None:
    traced = hm.trace(program)
    for _ in range(4):
        x = hm.asarray(RNG.random(40) * 30)
        np.testing.assert_allclose(np.asarray(traced(x)), np.asarray(program(x)))
    assert traced.cache_info().compiles == 1 and "paths" not in str(traced.explain())
    assert program is not moved or is_loop(traced)


def test_counts_that_may_be_more_ask_whether_they_are() -> None:
    few, more = (hm.asarray(np.random.default_rng(0).integers(0, most, 20)) for most in (4, 9))

    def count(x: Any) -> Any:
        return hm.bincount(x, minlength=5)

    traced = both(count, few.copy, calls=6)
    assert traced.cache_info().compiles == 1
    assert traced(more).tolist() == count(more).tolist() and len(count(more)) > 5


def _ints(dtype: str) -> tuple[ir.Node, np.ndarray]:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.min + 1, 0, 1, 7, info.max - 1, info.max], dtype)
    return ir.input_node(Aval(values.shape, values.dtype)), values


ROWS: list[Callable[..., Any]] = [
    lambda f, x, c: f("remainder", x, c(7)), lambda f, x, c: f("add", f("remainder", x, c(7)), c(3)),
    lambda f, x, c: f("subtract", c(3), f("remainder", x, c(7))), lambda f, x, c: f("minimum", x, c(5)),
    lambda f, x, c: f("maximum", f("minimum", x, c(5)), c(-2)), lambda f, x, c: f("negative", f("remainder", x, c(9))),
    lambda f, x, c: f("multiply", f("remainder", x, c(90)), f("remainder", x, c(90))),
    lambda f, x, c: f("add", f("remainder", x, c(100)), f("remainder", x, c(100))),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["int8", "int16", "int64"])
@pytest.mark.parametrize("row", range(len(ROWS)))
def test_answers_hold_for_all_data(dtype: str, row: int) -> None:
    node, values = _ints(dtype)
    made = ROWS[row](lambda name, *of: ir.apply(OPS[name], of), node, lambda k: ir.constant(np.array(k, dtype)))
    found = ROWS[row](lambda name, *of: OPS[name].eager(*of), values, lambda k: np.array(k, dtype))
    answered = 0
    for limit in range(-128, 128):
        for name in ("less", "less_equal", "greater", "greater_equal"):
            end = np.array(limit, dtype)
            answer = answer_of(ir.apply(OPS[name], [made, ir.constant(end)]))
            answered += answer is not None
            assert answer is None or (OPS[name].eager(found, end) == answer).all(), (limit, name)
    assert answered
