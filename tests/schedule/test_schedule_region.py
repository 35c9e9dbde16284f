"""Kernels that do not need each other are one launch, in any order of their parts, and keep little
alive for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridml_compiler import pipeline
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.loops.parse import parse_kernel
from hybridml_compiler.record import replace
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.fusion.horizontal_fusion import HorizontalFusion, region_of
from hybridml_compiler.schedule.plan import Plan, make_plan
from hybridml_compiler.schedule.text import describe_plan
from hybridml_compiler.targets.cpu import capabilities
from hybridml_compiler.targets.cpu.kernels.loop_schedule import schedule
from hybridml_compiler.targets.cpu.spec import host_spec
from tests.support.examples import examples
from tests.support.random_graphs import same_bits
from tests.support.random_plans import arrays_for, donations, run_compiled
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import Value, array, graph, op


@pytest.fixture
def every_region() -> Iterator[None]:
    """However little is gained."""
    with pytest.MonkeyPatch.context() as patch:
        forced(patch)
        yield


def forced(patch: pytest.MonkeyPatch) -> None:
    for name in ("PARALLEL_THRESHOLD_NS", "FORK_NS", "REGION_WHOLE_NS"):
        patch.setattr(cost, name, 0.0)


def regions(plan: Plan) -> list[int]:
    return [len(launch.spec.kernels) for launch in plan.launches if isinstance(launch.spec, HorizontalFusion)]


def adam(sizes: list[int]) -> tuple[Graph, dict[int, int]]:
    """A step of Adam for parameters of these sizes, in place."""
    inputs, outputs = [], []
    for size in sizes:
        p, g, m, v = (array(size) for _ in range(4))
        first, second = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
        inputs += [p, g, m, v]
        outputs += [p - 0.001 * first / (op("sqrt", second) + 1e-8), first, second]
    places = {3 * k + out: 4 * k + source for k in range(len(sizes)) for out, source in ((0, 0), (1, 2), (2, 3))}
    return graph("adam", inputs, outputs), places


def test_all_updates_of_an_optimizer_are_one_launch() -> None:
    sizes = [64, 1 << 15, 3 << 13, 10, 1 << 14, 4096, 3, 640, 5 << 12]
    program, donate = adam(sizes)
    plan = plan_of(program, donate)
    assert len(plan.launches) == 1 and regions(plan) == [len(sizes)]
    run_compiled(program, donate)


def test_small_updates_alone_are_not_worth_a_fork() -> None:
    plan = plan_of(*adam([64, 100, 3]))
    assert len(plan.launches) == 3 and not regions(plan)


def test_what_needs_a_region_comes_after_it() -> None:
    """Sums of two arrays, both cut into blocks: the blocks are one region. What combines them is too little for one."""
    x, y = array(4096, 512), array(2048, 512)
    program = graph("sums", [x, y], [op("sum", x * x, axis=0), op("sum", y * 2.0, axis=0)])
    plan = plan_of(program)
    assert regions(plan) == [2] and isinstance(plan.launches[0].spec, HorizontalFusion) and len(plan.launches) == 3
    got, expected = pipeline.compile(program)(arrays_for(program)), interpret(program, arrays_for(program))
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-4)


@pytest.mark.parametrize("most", [0, 1 << 30])
def test_what_waits_keeps_little_alive(every_region: None, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Sums could wait for the last of them, if all of their operands did."""
    x, outputs = array(64, 64), []
    value: Value = op("matmul", x, x)
    for _ in range(6):
        outputs.append(op("sum", value, axis=0))
        value = op("matmul", value, x)
    program = graph("sums", [x], [*outputs, value])
    monkeypatch.setattr(cost, "REGION_BYTES", most)
    found = regions(make_plan(program, {}, replace(capabilities.capabilities(host_spec()), cores=2)))
    assert found == ([6] if most else [])


def test_the_plan_of_a_region(every_region: None, golden: Callable[[str, str], None]) -> None:
    target = replace(capabilities.capabilities(host_spec()), cores=2, schedule=lambda s, k: schedule(s, k, lanes=16))
    program, donate = adam([64, 3])
    text = describe_plan(make_plan(program, donate, target))
    golden("plan_region", "\n".join(line.split(" cost ")[0] for line in text.splitlines()) + "\n")


KERNEL = "kernel(b0: f32[%d], b1: f32[%d] out) lanes 4 granule 4 cost %f { for i < %d vector { b1[i] = b0[i] } }"


@given(st.lists(st.tuples(st.integers(1, 100), st.floats(1, 1e6)), min_size=1, max_size=6), st.integers(1, 5))
def test_every_iteration_is_in_one_slot(kernels: list[tuple[int, float]], slots: int) -> None:
    region = region_of([parse_kernel(KERNEL % (n, n, ns, n)) for n, ns in kernels], slots)
    assert region.slots == slots
    for kernel, cuts in zip(region.kernels, region.cuts, strict=True):
        assert list(cuts) == sorted(cuts) and cuts[0] == 0 and cuts[-1] == kernel.total
        assert all(cut % kernel.granule == 0 or cut == kernel.total for cut in cuts)


def test_work_is_dealt_out_evenly() -> None:
    kernels = [parse_kernel(KERNEL % (4, 4, ns, 4)) for ns in (5000.0, 4000.0, 3000.0, 2000.0)]
    cuts = region_of(kernels, 2).cuts
    assert cuts == ((0, 4, 4), (0, 0, 4), (0, 0, 4), (0, 4, 4))


@examples(150)
@given(st.integers(0, 1 << 30))
def test_plans_of_random_graphs_with_every_region_that_can_be(seed: int) -> None:
    graph_, donate = donations(seed, (5, 7))
    with pytest.MonkeyPatch.context() as patch:
        forced(patch)
        check_plan(graph_, donate)


@examples(20)
@given(st.integers(0, 1 << 30))
def test_compiled_random_graphs_with_every_region_that_can_be(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        forced(patch)
        run_compiled(*donations(seed, (17, 39)))


def check_plan(graph_: Graph, donate: Mapping[int, int]) -> None:
    expected = [np.array(a) for a in interpret(graph_, arrays_for(graph_))]
    got = run_plan(plan_of(graph_, donate), arrays_for(graph_), len(expected), donate)
    assert got is not None
    for g, e in zip(got, expected, strict=True):
        assert same_bits(g, e)
