"""Plans of typical graphs: their text is golden, their kernels are counted, and they compute what the graph means."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from hybridml_compiler import pipeline
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.loops.ir import Kernel
from hybridml_compiler.passes import run_passes
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.schedule.kernels.gemm import Product
from hybridml_compiler.schedule.kernels.library import Capabilities
from hybridml_compiler.schedule.plan import make_plan
from hybridml_compiler.schedule.text import describe_plan
from hybridml_compiler.targets.cpu.kernels.loop_schedule import schedule, schedule_matrix
from hybridml_compiler.targets.cpu.llvm.modules import PlanModules, modules_of
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.closeness import assert_close
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import GRAPHS, array, gelu_chain, graph, op

# kernels and copies, matrix products (their epilogues are no launches)
COUNTS = {
    "gelu_chain": (1, 0),
    "softmax": (1, 0),
    "layer_norm": (1, 0),
    "mlp_step": (4, 5),
    "adam_update": (1, 0),
    "embedding": (1, 0),
    "scatter": (2, 0),
    "convolution": (2, 1),
    "complex_chain": (1, 0),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_plan_is_as_expected(name: str, golden: Callable[[str, str], None]) -> None:
    """Structure is pinned; the estimate that decides about threads is left free to be tuned."""
    build, donate = GRAPHS[name]
    target = Capabilities(
        lambda call: isinstance(call, Product),
        lambda _: True,
        2,
        lambda s, kernel: schedule(s, kernel, lanes=16),  # not this machine's
        lambda s, kernel: schedule_matrix(kernel, lanes=16),
    )
    plan = make_plan(run_passes(build())[0], donate, target)
    golden(f"plan_{name}", re.sub(r" cost [\d.]+", "", describe_plan(plan)))


@pytest.mark.parametrize("name", GRAPHS)
def test_kernels_are_counted(name: str) -> None:
    build, donate = GRAPHS[name]
    launches = plan_of(run_passes(build())[0], donate).launches
    products = sum(isinstance(launch.spec, Product | Fused) for launch in launches)
    assert (len(launches) - products, products) == COUNTS[name]


def inputs(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        np.asarray(rng.integers(0, 5, n.shape) if n.dtype.kind == "i" else rng.uniform(0.1, 2, n.shape), n.dtype)
        for n in graph.inputs
    ]


@pytest.mark.parametrize("name", GRAPHS)
def test_plans_mean_what_the_graph_means(name: str) -> None:
    build, donate = GRAPHS[name]
    before = build()
    expected = interpret(before, inputs(before))
    plan = plan_of(run_passes(before)[0], donate)
    interpreted = run_plan(plan, inputs(before), len(expected), donate)
    compiled = pipeline.compile(before, donate)(inputs(before))
    assert interpreted is not None
    for e, p, c in zip(expected, interpreted, compiled, strict=True):
        assert_close(p, e)
        assert_close(c, e)


def test_every_launch_has_a_reason() -> None:
    for build, donate in GRAPHS.values():
        for launch in plan_of(run_passes(build())[0], donate).launches:
            assert launch.reasons


def test_a_chain_of_many_operations_is_cut_into_kernels_of_bounded_size() -> None:
    """Compile time and recursion stay bounded, and the cuts are few."""
    x = array(64)
    y = x
    for _ in range(500):
        y = y * 0.5 + x
    long = graph("long", [x], [y])
    plan = plan_of(long)
    assert 500 * 2 / 96 / 2 <= len(plan.launches) <= 500 * 2 / 96 * 2
    data = [np.linspace(-1, 1, 64, dtype="f4")]
    np.testing.assert_array_equal(pipeline.compile(long)(data)[0], interpret(long, data)[0])


def test_a_value_used_twice_at_every_step_does_not_explode() -> None:
    """y + y doubles the tree at every step; the graph stays a chain."""
    x = array(8)
    y = x
    for _ in range(100):
        y = y + y * 0.25
    plan = plan_of(graph("doubling", [x], [y]))
    assert len(plan.launches) <= 6


def test_ten_thousand_nodes_are_scheduled() -> None:
    x, w = array(4), array(4)
    y = x
    for k in range(2500):
        y = op("sum", y * w, axis=0) + x * float(k)
    plan = plan_of(graph("deep", [x, w], [y]))
    assert len(plan.launches) > 2000


def test_many_arrays_are_joined() -> None:
    xs = [array(3) for _ in range(300)]
    joined = op("concat", *xs, axis=0)
    big = graph("concat", xs, [joined * 2.0])
    data = [np.full(3, float(k), "f4") for k in range(300)]
    np.testing.assert_array_equal(pipeline.compile(big)(data)[0], interpret(big, data)[0])


def test_repeated_blocks_share_kernels() -> None:
    """Kernels are keyed by their text: ten equal layers compile once."""
    x, ws = array(8, 8), [array(8, 8) for _ in range(10)]
    y = x
    for w in ws:
        y = op("tanh", y @ w)
    plan = plan_of(graph("layers", [x, *ws], [y]))
    assert len(plan.launches) == 10
    modules = modules_of(plan, PlanModules(host_spec()))
    assert len(modules) - 1 == 1


def test_the_plan_names_the_launches_kernels() -> None:
    plan = plan_of(gelu_chain())
    (launch,) = plan.launches
    assert isinstance(launch.spec, Kernel)
    text = describe_plan(plan)
    assert "b0 = input 0, b1 = input 1, b2 = output 0" in text
    assert "tanh(" in text and " vector {" in text


def test_a_loss_reads_its_logits_once_and_writes_no_probabilities() -> None:
    """Of a log-softmax a cross entropy wants one element a row: it is computed there, from the extreme and the sum."""
    x, at = array(64, 1000), array(64, 1, dtype="i8")
    shifted = x - op("max", x, axis=-1, keepdims=True)
    rows = shifted - op("log", op("exp", shifted).sum(-1, keepdims=True))
    plan = plan_of(graph("loss", [x, at], [op("take_along_axis", rows, at, axis=-1).sum((0, 1))]))
    assert plan.arena_bytes < x.node.aval.nbytes // 8


def test_a_row_is_loaded_again_rather_than_what_is_computed_from_it_kept() -> None:
    """The gradient of a layer normalisation: its columns are summed in a kernel of their own, from the means."""
    x, g = array(64, 4096), array(64, 4096)
    centred = x - op("mean", x, axis=-1, keepdims=True)
    plan = plan_of(graph("gradient", [x, g], [centred * g, (centred * g).sum(0)]))
    assert plan.arena_bytes < x.node.aval.nbytes // 8
