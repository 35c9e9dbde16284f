"""Loops that carry more than a sum in lanes: positions of extremes, and running combinations down columns."""

from __future__ import annotations

import numpy as np
import pytest

from hybridml_compiler import pipeline
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.ir import Graph, input_node
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.schedule import cost

SHAPES = [((3, 4), 1), ((5, 67), 1), ((67, 5), 0), ((130, 64), 0), ((2, 40, 70), 1), ((2, 3, 300), 2), ((129,), 0)]


@pytest.fixture(autouse=True)
def on_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "PARALLEL_THRESHOLD_NS", 0.0)


def run(name: str, x: np.ndarray, **params: object) -> np.ndarray:
    node = input_node(Aval(x.shape, x.dtype), "x")
    (found,) = pipeline.compile(Graph((node,), (make(name, node, **params),), name))([x])
    return found


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "bool"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_the_first_extreme(name: str, dtype: str, shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(0)
    few = rng.integers(0, 3, shape).astype(dtype)  # many equal ones
    for x in (few, np.zeros(shape, dtype), rng.permutation(few.size).reshape(shape).astype(dtype)):
        expected = getattr(np, name)(x, axis=axis)
        np.testing.assert_array_equal(run(name, x, axis=axis), expected)
    np.testing.assert_array_equal(run(name, few, axis=None), getattr(np, name)(few))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_nan_is_the_extreme_and_the_first_one_counts(name: str, shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(1)
    for share in (0.02, 0.5, 1.0):
        x = rng.choice(np.array([np.inf, -np.inf, 0.0, -0.0, 1.0], "f4"), shape)
        x = np.where(rng.random(shape) < share, np.float32(np.nan), x)
        np.testing.assert_array_equal(run(name, x, axis=axis), getattr(np, name)(x, axis=axis))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "bool"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_running_sums_have_the_order_of_the_elements(
    shape: tuple[int, ...], axis: int, dtype: str, reverse: bool
) -> None:
    x = np.random.default_rng(2).normal(size=shape).astype(dtype)
    ordered = np.flip(x, axis) if reverse else x
    wide = x.dtype if x.dtype.kind == "f" else np.dtype("i8")
    expected = np.cumsum(ordered, axis=axis, dtype=wide)
    expected = np.flip(expected, axis) if reverse else expected
    np.testing.assert_array_equal(run("cumulative_sum", x, axis=axis, reverse=reverse), expected)


@pytest.mark.parametrize("rows", [2, 4, 40])
def test_what_all_rows_share_may_follow_a_branch(rows: int) -> None:
    """A logarithm branches for subnormal numbers; the factor after it is loaded once for rows that are written out."""
    x, y = (input_node(Aval(s, np.dtype("f4")), n) for s, n in (((rows, 40), "x"), ((40,), "y")))
    scaled = make("multiply", make("log", x), make("exp", y))
    built = Graph((x, y), (make("sum", scaled, axis=0, keepdims=False),), "rows")
    rng = np.random.default_rng(3)
    a, b = rng.uniform(0.5, 2, (rows, 40)).astype("f4"), rng.normal(size=40).astype("f4")
    a[0, 3] = 1e-40
    np.testing.assert_allclose(pipeline.compile(built)([a, b])[0], (np.log(a) * np.exp(b)).sum(0), rtol=2e-5, atol=1e-5)
