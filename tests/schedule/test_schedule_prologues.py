"""A left operand that a product computes while it packs: what does, what does not and why, and the bits of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from hybridml_compiler import pipeline
from hybridml_compiler.errors import OutOfBoundsError
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, constant
from hybridml_compiler.passes import run_passes
from hybridml_compiler.record import replace
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.fusion import prologue
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.schedule.kernels.gemm import Product
from hybridml_compiler.schedule.plan import Launch, Plan, make_plan
from hybridml_compiler.schedule.text import describe_plan
from hybridml_compiler.targets.cpu import capabilities
from hybridml_compiler.targets.cpu.llvm.gemm.product import own_blocking
from hybridml_compiler.targets.cpu.spec import host_spec
from hybridml_compiler.targets.registry import find_target
from tests.support.closeness import assert_close
from tests.support.examples import every
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import Value, array, graph, op

ZERO = Value(constant(np.float32(0)))


def normalised(x: Value) -> Value:
    centred = x - op("mean", x, axis=-1, keepdims=True)
    return centred * op("rsqrt", op("mean", centred * centred, axis=-1, keepdims=True) + 1e-5)


Made = tuple[list[Value], Value]  # inputs, and A from them


def layer_norm(m: int, k: int) -> Made:
    x, scale, shift = array(m, k), array(k), array(k)
    return [x, scale, shift], normalised(x) * scale + shift


def dropout(m: int, k: int) -> Made:
    x, keep = array(m, k), array(m, k, dtype="?")
    return [x, keep], op("where", keep, x * 1.25, ZERO)


def gathered(m: int, k: int) -> Made:
    table, rows = array(50, k), array(m, dtype="i8")
    return [table, rows], op("take", table, rows, axis=0)


def transposed(m: int, k: int) -> Made:
    x, keep = array(k, m), array(k, m, dtype="?")
    return [x, keep], op("permute_dims", op("where", keep, x * 1.25, ZERO), axes=(1, 0))


def reshaped(m: int, k: int) -> Made:
    x, scale = array(m, 2, k // 2), array(2, k // 2)
    return [x, scale], op("reshape", x * scale, shape=(m, k))


# Rows, columns and depth: edges of tiles and vectors, several blocks of k, several units and panels, B packed.
SIZES = [(64, 96, 272), (129, 200, 136), (100, 70, 1100), (300, 530, 40), (1030, 96, 1200), (600, 2100, 260)]
PROGRAMS: list[Callable[[int, int], Made]] = [layer_norm, dropout, gathered, transposed, reshaped]


def data(program: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made: Mapping[str, Callable[[tuple[int, ...]], np.ndarray]] = {
        "b": lambda shape: rng.standard_normal(shape) > -0.5,
        "i": lambda shape: rng.integers(-50, 50, shape),
        "f": rng.standard_normal,
    }
    return [np.asarray(made[n.dtype.kind](n.shape), n.dtype) for n in program.inputs]


def planned(program: Graph) -> Plan:
    return make_plan(run_passes(program)[0], {}, capabilities.capabilities(host_spec()))


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever can be computed while it is packed is, with vectors of any width."""
    host = capabilities.capabilities(host_spec())
    target = replace(host, computes_left=lambda product: min(host.computes_left(product), 1))
    monkeypatch.setattr(capabilities, "capabilities", lambda cpu: target)
    monkeypatch.setitem(vars(find_target()), "capabilities", target)  # kept there by whoever has compiled before
    monkeypatch.setattr(prologue, "_once", lambda *_: 0.0)
    monkeypatch.setattr(cost, "OWN_PRODUCT_BYTES", 0)
    own_blocking.cache_clear()
    yield
    own_blocking.cache_clear()


def products(plan: Plan) -> list[Launch]:
    return [x for x in plan.launches if isinstance(x.spec, Product | Fused)]


def computes(plan: Plan) -> bool:
    return any(isinstance(x.spec, Fused) and x.spec.prologue is not None for x in plan.launches)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("program", every(2, PROGRAMS))
def test_bits_are_those_of_separate_kernels(
    program: Callable[[int, int], Made], size: tuple[int, int, int], cheap: None
) -> None:
    m, n, k = size
    inputs, a = program(m, k)
    w, bias = array(k, n), array(n)
    fused = graph("fused", [*inputs, w, bias], [op("maximum", a @ w + bias, ZERO)])
    plan = planned(fused)
    assert computes(plan)
    assert len(plan.launches) == (2 if program is layer_norm else 1)
    arrays = data(fused)
    (got,) = pipeline.compile(fused)(arrays)
    (middle,) = pipeline.compile(graph("alone", inputs, [a]))(arrays[:-2])
    left = array(m, k)
    product = graph("product", [left, w, bias], [op("maximum", left @ w + bias, ZERO)])
    (want,) = pipeline.compile(product)([middle, *arrays[-2:]])
    if program is not transposed:  # else the product alone would read A along its rows, in blocks of k of another size
        np.testing.assert_array_equal(got, want)
    assert_close(got, want)
    interpreted = run_plan(plan, arrays, 1, {})
    assert interpreted is not None
    assert_close(interpreted[0], interpret(fused, arrays)[0])


def test_bits_of_a_transposed_operand(cheap: None) -> None:
    inputs, a = transposed(200, 1100)
    w = array(1100, 300)
    fused = graph("fused", [*inputs, w], [a @ w])
    kept = graph("kept", [*inputs, w], [a @ w, op("permute_dims", a, axes=(1, 0))])
    assert (computes(planned(fused)), computes(planned(kept))) == (True, False)
    arrays = data(fused)
    np.testing.assert_array_equal(pipeline.compile(fused)(arrays)[0], pipeline.compile(kept)(arrays)[0])


def test_every_launch_says_why() -> None:
    inputs, a = layer_norm(1024, 256)
    w = array(256, 256)
    (product,) = products(planned(graph("g", [*inputs, w], [a @ w])))
    assert "ns an element to compute while packing" in product.reasons[-1]
    weights = array(64, 1024)
    both = planned(graph("both", [*inputs, w, weights], [a @ w, weights @ a]))
    assert not computes(both)
    assert any("which is read elsewhere as well" in reason for launch in both.launches for reason in launch.reasons)


def test_what_costs_more_to_compute_again_is_kept() -> None:
    """tanh in every block of columns; and the result of a product, which would have to be written instead."""
    x, w = array(512, 512), array(512, 2048)
    slow = planned(graph("slow", [x, w], [op("tanh", x) @ w]))
    assert not computes(slow)
    assert any("while packing" in reason for launch in slow.launches for reason in launch.reasons)
    square = array(512, 512)
    after = planned(graph("after", [x, square, w], [(x @ square) * 0.5 @ w]))
    assert not computes(after)
    assert len(after.launches) == 2


def test_an_index_out_of_range_is_found() -> None:
    inputs, a = gathered(64, 272)
    w = array(272, 96)
    program = graph("gathered", [*inputs, w], [a @ w])
    assert computes(planned(program))
    arrays = data(program)
    arrays[1][63] = 50
    with pytest.raises(OutOfBoundsError, match="index 50 is out of range"):
        pipeline.compile(program)(arrays)
    assert run_plan(planned(program), arrays, 1, {}) is None
    arrays[1][63] = -50
    assert_close(pipeline.compile(program)(arrays)[0], interpret(program, arrays)[0])


def test_a_table_that_is_overwritten_is_gathered_before() -> None:
    """A product late in the program must not hold back the update of its table."""
    table, rows, w = array(400, 64), array(512, dtype="i8"), array(64, 128)
    program = graph("update", [table, rows, w], [table * 0.5, op("take", table, rows, axis=0) @ w])
    plan = plan_of(run_passes(program)[0], {0: 0})
    assert not computes(plan)
    arrays = [np.asarray(x) for x in data(program)]
    want = interpret(program, [x.copy() for x in arrays])
    given = [x.copy() for x in arrays]
    got = run_plan(plan, given, 2, {0: 0})
    assert got is not None
    for a, b in zip(got, want, strict=True):
        assert_close(a, b, rtol=1e-5)


def test_the_text_shows_both_loop_nests(cheap: None) -> None:
    inputs, a = dropout(256, 256)
    w, bias = array(256, 256), array(256)
    text = describe_plan(planned(graph("g", [*inputs, w, bias], [op("maximum", a @ w + bias, ZERO)])))
    assert "b1 of a = input 1, b2 of a = input 0, b = input 2, b0 = output 0, b1 = input 3" in text
    assert text.count("kernel(") == 2
