"""Loops that carry more than a sum in lanes: positions of extremes, running combinations down columns, indices that are
compared; and powers of two, which some machines have an instruction for."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import pipeline
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, input_node
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.loops.scalar import NumpyBuilder
from hybridml_compiler.loops.transcendental import TABLE
from hybridml_compiler.schedule import cost
from hybridml_compiler.targets.cpu import target
from hybridml_compiler.targets.cpu.target import Cpu
from tests.support import cpus

SHAPES = [((3, 4), 1), ((5, 67), 1), ((67, 5), 0), ((130, 64), 0), ((2, 40, 70), 1), ((2, 3, 300), 2), ((129,), 0)]


@pytest.fixture(autouse=True)
def on_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "PARALLEL_THRESHOLD_NS", 0.0)


@pytest.fixture(params=[512, 256])
def vector_bits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine, and as if it had no vectors wider than 256 bits."""
    monkeypatch.setattr(target, "TARGET", Cpu(cpus.narrowed_host(request.param)))


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


@pytest.mark.usefixtures("vector_bits")
@pytest.mark.parametrize("name", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
@pytest.mark.parametrize(("rows", "columns", "first"), [(40, 70, 0), (5, 33, 9), (70, 40, -20), (3, 257, 1 << 33)])
def test_indices_are_compared_in_lanes(name: str, rows: int, columns: int, first: int) -> None:
    x = np.random.default_rng(4).normal(size=(rows, columns)).astype("f4")

    def masked(x: hm.Tensor) -> tuple[hm.Tensor, ...]:
        down, across = first + hm.arange(rows)[:, None], first + hm.arange(columns)
        compare = getattr(hm, name)
        seen = hm.where(compare(down, across), x, 0)
        return seen, hm.where(compare(across, down), x, 0).max(axis=1), compare(down, 2)

    for got, expected in zip(hm.trace(masked)(hm.asarray(x)), masked(hm.asarray(x)), strict=True):
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


@pytest.mark.usefixtures("vector_bits")
def test_indices_are_compared_where_a_size_comes_with_the_call() -> None:
    """The 32 bits of a lane number may not do for a size that is not known: rows in lanes, and columns."""

    def rows(x: hm.Tensor) -> tuple[hm.Tensor, ...]:
        down, across = hm.arange(x.shape[0])[:, None], 9 + hm.arange(70)
        return hm.where(down >= across, x, 0), hm.where(across < down, x, 0).max(axis=1)

    def columns(x: hm.Tensor) -> tuple[hm.Tensor, ...]:
        down, across = 5 + hm.arange(40)[:, None], hm.arange(x.shape[1])
        return hm.where(down >= across, x, 0), across < 7

    rng = np.random.default_rng(5)
    for masked, shapes in (
        (rows, [(40, 70), (41, 70), (129, 70), (3, 70)]),
        (columns, [(40, 70), (40, 71), (40, 129), (40, 3)]),
    ):
        traced = hm.trace(masked)
        for shape in shapes:
            x = hm.asarray(rng.normal(size=shape).astype("f4"))
            for got, expected in zip(traced(x), masked(x), strict=True):
                np.testing.assert_array_equal(got.numpy(), expected.numpy())
        assert traced.cache_info().compiles == 2, "one for all sizes after the first"


@pytest.mark.usefixtures("vector_bits")
@pytest.mark.parametrize("name", ["exp", "exp2", "sinh", "cosh"])
@pytest.mark.parametrize(("dtype", "ends"), [("f4", (-152, -80, 80, 130)), ("f8", (-1080, -700, 700, 1030))])
def test_powers_of_two_are_applied_with_one_rounding(name: str, dtype: str, ends: tuple[int, ...]) -> None:
    """Where results are subnormal, and where they overflow."""
    low, high = np.linspace(*ends[:2], 20011), np.linspace(*ends[2:], 2011)
    x = np.concatenate([low, high, [np.inf, -np.inf, np.nan]]).astype(dtype)
    with np.errstate(all="ignore"):
        expected = TABLE[name](NumpyBuilder(), x)
    np.testing.assert_array_equal(run(name, x), expected)
    if name in ("sinh", "cosh"):
        assert np.count_nonzero(np.isinf(expected[np.isfinite(x)])) > 100
    else:
        assert np.count_nonzero((np.abs(expected) < np.finfo(dtype).tiny) & (expected != 0)) > 100


@pytest.mark.parametrize("name", ["sin", "pow", "rsqrt"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.usefixtures("vector_bits")
def test_functions_that_a_kernel_uses_often_are_called(name: str, dtype: str) -> None:
    x = np.random.default_rng(0).random((2, 2003)).astype(dtype) * 100
    node = input_node(Aval(x.shape, x.dtype), "x")
    value = node
    for k in range(6):
        other = make("multiply", node, make("full", shape=(), value=k + 0.5, dtype=node.dtype))
        value = make("add", make(name, *([other, node] if name == "pow" else [other])), value)
    compiled = pipeline.compile(Graph((node,), (value,), f"often_{name}"))
    assert (" internal " in compiled.llvm and f"@{name}.float" in compiled.llvm) is (name != "rsqrt")
    expected = interpret(Graph((node,), (value,)), [x])[0]
    assert compiled([x])[0].tobytes() == expected.tobytes()
