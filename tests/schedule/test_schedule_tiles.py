"""Transposed reads in tiles: permuted operands of every kind beside ordinary ones, against the interpreter."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridml_compiler import pipeline
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.loops.ir import Kernel
from hybridml_compiler.loops.text import parse_kernel, print_kernel
from hybridml_compiler.loops.verify import verify_kernel
from hybridml_compiler.schedule import cost
from hybridml_compiler.targets.cpu.kernels import loop_tiles
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.examples import examples
from tests.support.random_graphs import same_bits
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import array, graph, op

# Sizes that are whole tiles, whole vectors, that leave a rest of either, and that are shorter than a vector.
SHAPES = [(64, 64), (16, 17), (33, 70), (2, 32, 16), (19, 3, 40), (2, 17, 3, 20), (5, 18), (65, 64), (130, 20)]


@pytest.fixture(autouse=True)
def small_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_tiles, "_MIN_SPACE", 1)
    monkeypatch.setattr(cost, "PARALLEL_THRESHOLD_NS", 0.0)


def program(seed: int) -> Graph:
    random = Random(seed)
    shape = random.choice(SHAPES)
    rank = len(shape)
    dtype = random.choice(("f4", "f8", "i4", "i8", "u1", "i2", "bool"))
    inputs, values = [array(*shape, dtype=dtype)], []
    for _ in range(1 + random.randrange(3)):
        order = random.sample(range(rank), rank)
        source = array(*(shape[order.index(k)] for k in range(rank)), dtype=dtype)
        inputs.append(source)
        x = op("permute_dims", source, axes=tuple(order))
        if random.randrange(4) == 0:
            x = op("flip", x, axis=random.randrange(rank))
        values.append(x)
    combine = ("logical_and", "logical_or") if dtype == "bool" else ("add", "multiply", "maximum")
    total = values[0]
    for value in [*values[1:], *inputs[: random.randrange(2)]]:
        total = op(random.choice(combine), total, value)
    outputs = [op("where", op("equal", total, values[0]), values[0], total)]
    if random.randrange(2):
        outputs.append(op(random.choice(combine), values[-1], values[0]))
    return graph(f"tiles {seed}", inputs, outputs)


def data(program: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.asarray(rng.integers(0, 9, n.shape)).astype(n.dtype) for n in program.inputs]


def check(program: Graph, got: list[np.ndarray] | None) -> None:
    assert got is not None
    for k, (g, e) in enumerate(zip(got, interpret(program, data(program)), strict=True)):
        assert same_bits(g, e), f"{program.name}: output {k} is\n{g}\nexpected\n{e}"


@examples(60)
@given(st.integers(0, 1 << 30))
def test_plans_of_transposed_reads(seed: int) -> None:
    built = program(seed)
    plan = plan_of(built)
    for launch in plan.launches:
        assert isinstance(launch.spec, Kernel)
        verify_kernel(launch.spec)
        assert print_kernel(parse_kernel(print_kernel(launch.spec))) == print_kernel(launch.spec)
    check(built, run_plan(plan, data(built), len(built.outputs), {}))


@examples(40)
@given(st.integers(0, 1 << 30))
def test_compiled_transposed_reads(seed: int) -> None:
    built = program(seed)
    check(built, pipeline.compile(built)(data(built)))


def the_kernel(program: Graph, donate: dict[int, int] | None = None) -> Kernel:
    (launch,) = plan_of(program, donate).launches
    assert isinstance(launch.spec, Kernel)
    return launch.spec


def test_a_transpose_goes_through_a_tile() -> None:
    x = array(256, 128)
    kernel = the_kernel(graph("transpose", [x], [x.T + 1.0]))
    assert [b.role for b in kernel.buffers] == ["in", "out", "scratch"]


def test_threads_share_the_longer_side() -> None:
    x = array(5000, 64)
    side = 4 * host_spec().vector_bits // 32
    assert the_kernel(graph("wide", [x], [x.T + 1.0])).total == -(-5000 // side)


def test_what_is_overwritten_is_not_tiled() -> None:
    """A tile that is moved back over another would update some elements twice."""
    x, y = array(70, 70), array(70, 70)
    built = graph("update", [x, y], [x - y.T])
    assert not the_kernel(built, {0: 0}).scratch
    values = data(built)
    expected = interpret(built, data(built))[0]
    assert same_bits(pipeline.compile(built, {0: 0})(values)[0], expected)


def test_channels_last_and_back() -> None:
    images = array(2, 20, 9, 11)
    last = op("permute_dims", images, axes=(0, 2, 3, 1))
    for built in (graph("last", [images], [last * 2.0]), graph("first", [images], [op("exp", last)])):
        assert len(the_kernel(built).scratch) == 1
        check(built, pipeline.compile(built)(data(built)))
