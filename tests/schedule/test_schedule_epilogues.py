"""Elementwise work on a product is done by the product's own launch: what joins, what does not, and the bits of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hybridml_compiler import pipeline
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, constant
from hybridml_compiler.loops.ir import Kernel
from hybridml_compiler.passes import run_passes
from hybridml_compiler.record import replace
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.fusion.epilogue import Fused, matrices_of, splits
from hybridml_compiler.schedule.kernels.gemm import Product
from hybridml_compiler.schedule.plan import Copy, Plan
from hybridml_compiler.targets.cpu.llvm.modules import PlanModules
from hybridml_compiler.targets.cpu.llvm.registry import callee_of
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.closeness import assert_close
from tests.support.examples import every
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import Value, array, graph, op

ZERO = Value(constant(np.float32(0)))


def gelu(x: Value) -> Value:
    return 0.5 * x * (1.0 + op("erf", x * 0.7071067811865476))


def softmax(x: Value) -> Value:
    e = op("exp", x - op("max", x, axis=-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def planned(program: Graph, donate: dict[int, int] | None = None) -> Plan:
    return plan_of(run_passes(program)[0], donate)


def launches(program: Graph, donate: dict[int, int] | None = None) -> list[str]:
    """What is launched: "matmul", "matmul +" (with an epilogue), "kernel" or "copy"."""
    names = {Kernel: "kernel", Product: "matmul", Fused: "matmul +", Copy: "copy"}
    return [names[type(launch.spec)] for launch in planned(program, donate).launches]


# Rows, columns and depth: one tile, edges, several blocks of k, units and panels (our own products and BLAS); vectors.
SIZES = [(1, 5, 3), (7, 1, 4), (5, 7, 3), (64, 96, 64), (129, 200, 136), (100, 70, 1100), (300, 530, 40), (33, 10, 50)]

Program = Callable[[Value, tuple[int, int]], tuple[list[Value], list[Value]]]


def biased(z: Value, shape: tuple[int, int]) -> tuple[list[Value], list[Value]]:
    b = array(shape[1])
    return [b], [gelu(z + b)]


def residual(z: Value, shape: tuple[int, int]) -> tuple[list[Value], list[Value]]:
    b, r = array(shape[1]), array(*shape)
    return [b, r], [op("maximum", z + b, ZERO) + r]


def dropped(z: Value, shape: tuple[int, int]) -> tuple[list[Value], list[Value]]:
    keep = array(*shape, dtype="?")
    return [keep], [op("where", keep, z * 1.25, ZERO)]


def several(z: Value, shape: tuple[int, int]) -> tuple[list[Value], list[Value]]:
    """The value before the activation, the activation, and the product itself."""
    b = array(shape[1])
    return [b], [z + b, op("tanh", z + b), z]


def gated(z: Value, shape: tuple[int, int]) -> tuple[list[Value], list[Value]]:
    """As in a backward pass: a factor that depends on a row and one that depends on an element."""
    h, scale = array(*shape), array(shape[0], 1)
    return [h, scale], [z * op("astype", h > 0.0, dtype=np.dtype("f4")) * scale]


def reshaped(z: Value, shape: tuple[int, int]) -> tuple[list[Value], list[Value]]:
    b = array(shape[1])
    flat = op("reshape", z + b, shape=(shape[0] * shape[1],))
    return [b], [op("tanh", op("reshape", flat, shape=shape))]


def widened(z: Value, shape: tuple[int, int]) -> tuple[list[Value], list[Value]]:
    """No result of the epilogue has the type of the product."""
    return [], [op("astype", z * 2.0, dtype=np.dtype("f8"))]


def updated(z: Value, shape: tuple[int, int]) -> tuple[list[Value], list[Value]]:
    """As Adam does with the gradient of a weight."""
    w, m = array(*shape), array(*shape)
    mean = m * 0.9 + z * 0.1
    return [w, m], [mean, w - mean * 0.01]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("program", every(2, [biased, residual, dropped, several, gated, reshaped, widened]))
def test_bits_are_those_of_separate_kernels(program: Program, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b, z = array(m, k), array(k, n), array(m, n)
    product = graph("product", [a, b], [a @ b])
    others, results = program(z, (m, n))
    alone = graph("alone", [z, *others], results)
    others, results = program(a @ b, (m, n))
    fused = graph("fused", [a, b, *others], results)
    assert launches(fused) == ["matmul +"]

    rng = np.random.default_rng(size)
    arrays = [
        np.asarray(
            rng.standard_normal(x.shape) > -0.5 if x.dtype.kind == "b" else rng.standard_normal(x.shape), x.dtype
        )
        for x in fused.inputs
    ]
    (middle,) = pipeline.compile(product)(arrays[:2])
    expected = pipeline.compile(alone)([middle, *arrays[2:]])
    for got, want in zip(pipeline.compile(fused)(arrays), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    interpreted = run_plan(planned(fused), arrays, len(results), {})
    assert interpreted is not None
    for got, want in zip(interpreted, interpret(fused, arrays), strict=True):
        assert_close(got, want, rtol=1e-5, terms=np.abs(middle).max(), dtype=middle.dtype)


@pytest.mark.parametrize("size", [(300, 530, 40), (530, 300, 40), (7, 9, 5)])
def test_blas_computes_slabs_of_rows_or_columns(size: tuple[int, int, int]) -> None:
    """Products of float64 are BLAS's: the epilogue follows each slab."""
    m, n, k = size
    a, b, bias, r = (array(*shape, dtype="f8") for shape in ((m, k), (k, n), (n,), (m, n)))
    program = graph("slabs", [a, b, bias, r], [op("tanh", a @ b + bias) * r, a @ b])
    assert launches(program) == ["matmul +"]
    arrays = [np.random.default_rng(0).standard_normal(x.shape) for x in program.inputs]
    for got, want in zip(pipeline.compile(program)(arrays), interpret(program, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_code_in_other_slabs_is_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is kept by the text of its plan: where that did not say whether a product is cut, a network in the suite got
    the code that a test of other limits had left, which wrote half of a result."""
    a, b = array(48, 7), array(4, 7)
    (launch,) = planned(graph("slabs", [a, b], [a @ op("permute_dims", b, axes=(1, 0))])).launches
    symbols = set()
    for whole in (0, cost.WHOLE_PRODUCT):
        monkeypatch.setattr(cost, "WHOLE_PRODUCT", whole)
        symbols.add(PlanModules(replace(host_spec(), cores=2)).modules(launch.spec)[-1].symbol)
    assert len(symbols) == 2


@pytest.mark.parametrize("size", [(4, 3, 5), (48, 40, 32), (64, 64, 64)])
def test_a_batch_with_a_mask_for_all_matrices(size: tuple[int, int, int]) -> None:
    """Scores of attention: scaled, and minus infinity where a mask that all heads share says so."""
    m, n, k = size
    q, keys, mask = array(2, 3, m, k), array(2, 3, n, k), array(m, n, dtype="?")
    scores = op(
        "where", mask, (q @ op("permute_dims", keys, axes=(0, 1, 3, 2))) * 0.125, Value(constant(np.float32(-1e9)))
    )
    program = graph("scores", [q, keys, mask], [scores])
    assert launches(program) == ["matmul +"]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(x.shape).astype("f4") for x in program.inputs[:2]]
    arrays.append(np.tril(np.ones((m, n), bool)))
    expected = interpret(program, arrays)[0]
    interpreted = run_plan(planned(program), arrays, 1, {})
    assert interpreted is not None
    np.testing.assert_allclose(interpreted[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(pipeline.compile(program)(arrays)[0], expected, rtol=1e-5, atol=1e-5)


def test_a_linear_layer_is_one_launch() -> None:
    x, w, b = array(8, 4, 16), array(32, 16), array(32)
    assert launches(graph("layer", [x, w, b], [gelu(x @ w.T + b)])) == ["matmul +"]


def test_the_product_has_no_memory_of_its_own() -> None:
    x, w, b = array(64, 16), array(16, 32), array(32)
    assert planned(graph("layer", [x, w, b], [gelu(x @ w + b)])).arena_bytes == 0


def test_an_update_in_place_keeps_the_product_elsewhere() -> None:
    """It reads the old value, so the product cannot lie there."""
    x, g, w = array(64, 16), array(64, 32), array(16, 32)
    program = graph("update", [x, g, w], [w - (x.T @ g) * 0.1])
    assert launches(program, {0: 2}) == ["matmul +"]
    assert planned(program, {0: 2}).arena_bytes == 16 * 32 * 4


def test_an_operand_of_the_product_is_not_overwritten_while_it_is_read() -> None:
    w, r = array(16, 16), array(16, 16)
    program = graph("update", [w, r], [w - w @ r])
    assert launches(program, {0: 0}) == ["matmul +", "copy"]
    rng = np.random.default_rng(0)
    first, second = (rng.integers(-4, 5, (16, 16)).astype("f4") for _ in range(2))
    expected = first - first @ second
    np.testing.assert_array_equal(pipeline.compile(program, {0: 0})([first, second])[0], expected)


def test_the_later_of_two_products_adds_the_earlier_one() -> None:
    """The gates of a recurrent cell."""
    x, wx, h, wh = array(8, 4), array(4, 6), array(8, 5), array(5, 6)
    assert launches(graph("cell", [x, wx, h, wh], [op("sigmoid", x @ wx + h @ wh)])) == ["matmul", "matmul +"]


def test_a_backward_pass_multiplies_where_it_computes() -> None:
    """dL/dx of relu(x @ w) @ v: the factor of the activation belongs to the product with v transposed."""
    g, v, hidden, w = array(8, 3), array(5, 3), array(8, 5), array(4, 5)
    before = (g @ v.T) * op("astype", hidden > 0.0, dtype=np.dtype("f4"))
    assert launches(graph("backward", [g, v, hidden, w], [before @ w.T])) == ["matmul +", "matmul"]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda z, i, t: softmax(z * 0.5), ["matmul", "kernel"]),  # reads whole rows
        (lambda z, i, t: z + z.T, ["matmul", "kernel"]),  # reads elsewhere
        (lambda z, i, t: op("tanh", op("flip", z, axis=1)), ["matmul", "kernel"]),
        (lambda z, i, t: z + op("take", t, i, axis=0), ["matmul", "kernel"]),  # an index may be out of range
        (lambda z, i, t: op("concat", z, z, axis=0), ["matmul", "kernel"]),  # another number of elements
        (lambda z, i, t: op("broadcast_to", z * 2.0, shape=(2, 6, 6)), ["matmul", "kernel"]),
    ],
)  # fmt: skip
def test_what_does_not_run_in_place_has_a_kernel(build: Callable[..., Value], expected: list[str]) -> None:
    x, w, i, t = array(6, 4), array(4, 6), array(6, dtype="i8"), array(10, 6)
    program = graph("apart", [x, w, i, t], [build(x @ w, i, t)])
    assert launches(program)[: len(expected)] == expected
    arrays = [np.arange(a.aval.size, dtype=a.dtype).reshape(a.shape) % 7 for a in program.inputs]
    interpreted, compiled = run_plan(planned(program), arrays, 1, {}), pipeline.compile(program)(arrays)
    assert interpreted is not None
    for got in (interpreted[0], compiled[0]):
        np.testing.assert_allclose(got, interpret(program, arrays)[0], rtol=1e-6, atol=1e-6)


def test_what_waits_for_a_reader_of_the_product_is_no_epilogue() -> None:
    """The row sums read all of the product, and the quotient reads them."""
    x, w = array(6, 4), array(4, 6)
    z = x @ w
    kinds = launches(graph("normalised", [x, w], [z, z / z.sum(1, keepdims=True)]))
    assert kinds == ["matmul", "kernel"]


def test_which_shapes_are_the_matrix() -> None:
    assert splits((2, 3, 4), 6, 4) and splits((24,), 24, 1) and splits((24,), 1, 24) and splits((), 1, 1)
    assert splits((2, 3, 4), 2, 12) and not splits((3, 8), 6, 4) and not splits((2, 3, 5), 6, 4)


def followed(program: Program, m: int, n: int, k: int) -> Graph:
    """A product with this behind it."""
    a, b = array(m, k), array(k, n)
    others, results = program(a @ b, (m, n))
    return graph("followed", [a, b, *others], results)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (biased, ()),  # a row for all rows
        (residual, (2,)),
        (dropped, ()),  # a byte an element
        (widened, ()),  # eight of them
        (gated, (1,)),  # the other is a column for all columns
        (several, (2, 3)),
        (updated, (1, 2, 3)),
    ],
)
def test_operands_that_lie_as_the_product_does_are_fetched_for_its_tiles(
    program: Program, expected: tuple[int, ...]
) -> None:
    (launch,) = planned(followed(program, 128, 256, 300)).launches
    assert isinstance(launch.spec, Fused) and launch.spec.epilogue is not None
    assert matrices_of(launch.spec.epilogue) == expected
    if callee_of(launch.spec, host_spec()).calls_blas:
        return
    fetches = "llvm.prefetch" in pipeline.compile(followed(program, 128, 256, 300)).llvm
    assert fetches == bool(expected)
    assert "llvm.prefetch" not in pipeline.compile(followed(program, 128, 256, 3000)).llvm, "several blocks of k"


def test_long_launches_have_several_ranges_a_thread() -> None:
    def ranges(m: int, cores: int) -> int:
        (launch,) = planned(followed(updated, m, 256, 512)).launches
        return callee_of(launch.spec, replace(host_spec(), cores=cores)).ranges_a_thread

    found = [ranges(m, 2) for m in (4, 16, 64, 1024)]
    assert found == sorted(found) and (found[0], found[-1]) == (1, cost.RANGES_A_THREAD) and 1 < found[1]
    assert ranges(256, 64) == 1, "of many threads"
