"""Row fusion: which products read their matrix together, and that they have the bits of launches of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridml as hm
from hybridml_compiler import pipeline
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.record import replace
from hybridml_compiler.schedule import plan as planner
from hybridml_compiler.schedule.fusion.row_fusion import RowFusion
from hybridml_compiler.schedule.launch import Plan
from hybridml_compiler.schedule.plan import make_plan
from hybridml_compiler.schedule.text import describe_plan
from hybridml_compiler.targets.cpu.capabilities import capabilities
from hybridml_compiler.targets.cpu.kernels import gemv as limits
from hybridml_compiler.targets.cpu.kernels.loop_schedule import schedule, schedule_matrix
from hybridml_compiler.targets.cpu.runtime import threads
from hybridml_compiler.targets.cpu.spec import host_spec
from hybridml_compiler.targets.cpu.target import Cpu
from tests.support.examples import examples
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import Value, array, graph, op

pytestmark = pytest.mark.skipif(host_spec().vector_bits < 256, reason="without fused multiply-add BLAS multiplies")

M, N = 301, 260  # of which no part is a multiple of a vector, or of the others


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Matrices of a test come from memory; a few rows of them fill a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "FAR_BYTES", 1 << 16)
        patch.setattr(limits, "LEAST_ROWS", 64)
        patch.setattr(limits, "ROW_BYTES", 1 << 15)
        patch.setattr(Cpu, "find", lambda self, key: None)  # programs of other limits
        yield


def matrix(dtype: str = "f8") -> tuple[Value, Value, Value]:
    return tuple(array(*shape, name=name, dtype=dtype) for shape, name in (((M, N), "a"), ((N,), "x"), ((M,), "w")))


def fused(plan: Plan) -> list[RowFusion]:
    return [launch.spec for launch in plan.launches if isinstance(launch.spec, RowFusion)]


def arrays_of(built: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(n.shape).astype(n.dtype) for n in built.inputs]


def check(built: Graph, donate: dict[int, int] | None = None) -> Plan:
    """Plan and compiled program against the interpreter, and the program, bit by bit, against one without pairs."""
    donate = donate or {}
    plan, expected = plan_of(built, donate), interpret(built, arrays_of(built))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "form_rows", lambda tasks, steps, target: steps)
        apart = pipeline.compile(built, donate)
    assert not fused(apart)
    alone = with_donations(apart(given := arrays_of(built)), given, donate)
    together = with_donations(pipeline.compile(built, donate)(given := arrays_of(built)), given, donate)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one, other)
    for got in (together, run_plan(plan, arrays_of(built), len(expected), donate)):
        assert got is not None
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_allclose(g, e, *([1e-11] * 2 if e.dtype == "f8" else [1e-3] * 2))
    return plan


def with_donations(results: Sequence[Any], given: Sequence[np.ndarray], donate: dict[int, int]) -> list[Any]:
    fresh = iter(results)
    count = len(results) if len(results) else len(donate)
    return [given[donate[k]] if k in donate else next(fresh) for k in range(count)]


Make = Callable[[Value, Value, Value], list[Value]]
TOGETHER: dict[str, Make] = {
    "both": lambda a, x, w: [w @ a, a @ x],
    "one after the other": lambda a, x, w: [(a @ x) @ a],
    "residual": lambda a, x, w: [a.T @ (a @ x - w)],
    "epilogues": lambda a, x, w: [op("tanh", a @ x) * 2.0, op("exp", (w @ a) * 0.01)],
    "of what is made of both": lambda a, x, w: [(op("tanh", a @ x) * w) @ a, a @ x],
    "beside others": lambda a, x, w: [op("tanh", w) @ a, a @ op("tanh", x), w + 1.0],
}
APART: dict[str, Make] = {
    "all of the row before the column": lambda a, x, w: [a @ (w @ a)],
    "a sum between": lambda a, x, w: [(a @ x + (a @ x).sum(0)) @ a],
    "other rows": lambda a, x, w: [w @ a, (a * 2.0) @ x],
    "backwards": lambda a, x, w: [op("flip", a @ x, axis=0) @ a],
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", TOGETHER)
def test_a_matrix_is_read_once(name: str, dtype: str) -> None:
    a, x, w = matrix(dtype)
    plan = check(graph("program", [a, x, w], TOGETHER[name](a, x, w)))
    (found,) = fused(plan)
    assert found.updates.blocks == limits.SUM_BLOCKS and "row by row" in describe_plan(plan)


@pytest.mark.parametrize("name", APART)
def test_what_needs_all_of_the_other_is_apart(name: str) -> None:
    a, x, w = matrix()
    assert not fused(check(graph("program", [a, x, w], APART[name](a, x, w))))


def test_updates_of_the_arguments_in_place() -> None:
    a, x, w = matrix()
    built = graph("mvt", [a, x, w], [w + a @ x, x + w @ a])
    assert not fused(check(built, {0: 2, 1: 1}))  # w is overwritten by what the other product reads
    y, z = array(N, name="y", dtype="f8"), array(M, name="z", dtype="f8")
    assert len(fused(check(graph("mvt", [a, x, w, y, z], [z + a @ x, y + w @ a]), {0: 4, 1: 3}))) == 1


@pytest.mark.parametrize("shape", [(64, 513), (65, 500), (1000, 17), (130, 513), (2049, 64)])
def test_sizes_with_rows_left_over_on_any_number_of_threads(shape: tuple[int, int]) -> None:
    m, n = shape
    a, x, w = array(m, n, dtype="f8"), array(n, dtype="f8"), array(m, dtype="f8")
    built = graph("sizes", [a, x, w], [w @ a, (a @ x + w) @ a])
    check(built)
    count, executable, found = threads.get_num_threads(), pipeline.compile(built), []
    try:
        for number in (1, 2, 3):
            threads.set_num_threads(number)
            found.append([np.array(y) for y in executable(arrays_of(built))])
    finally:
        threads.set_num_threads(count)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@examples(40)
@given(st.integers(0, 1 << 30))
def test_random_programs(seed: int) -> None:
    """Columns and rows, of each other and of elementwise work, by the matrix and by a part of it."""
    random = Random(seed)
    a, x, w = matrix()
    columns, rows = [w], [x]  # as long as a column of the matrix, and as a row
    for _ in range(random.randint(2, 6)):
        kind, column, row = random.randrange(6), random.choice(columns), random.choice(rows)
        if kind < 2:
            columns.append((a @ row) * 0.05)
        elif kind < 4:
            rows.append((column @ a) * 0.05)
        elif kind == 4:
            columns.append(op("tanh", column) + random.choice(columns))
        else:
            rows.append(op("tanh", row) * random.choice(rows))
    check(
        graph("random", [a, x, w], list({id(v.node): v for v in (columns[-1], rows[-1], random.choice(rows))}.values()))
    )


def test_a_matrix_in_a_cache_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FAR_BYTES", M * N * 8 + 1)
    a, x, w = matrix()
    plan = check(graph("near", [a, x, w], [w @ a, a @ x]))
    assert not fused(plan) and len(plan.launches) == 2


def test_the_plan_of_a_residual(golden: Callable[[str, str], None]) -> None:
    a, x, w = matrix()
    schedules = {"schedule": lambda s, k: schedule(s, k, 16), "schedule_matrix": lambda s, k: schedule_matrix(k, 16)}
    target = replace(capabilities(host_spec()), cores=2, **schedules)
    plan = make_plan(graph("residual", [a, x, w], [a.T @ (a @ x - w)]), {}, target)
    golden("plan_rows", "\n".join(line.split(" cost ")[0] for line in describe_plan(plan).splitlines()) + "\n")


def test_a_traced_step_of_least_squares() -> None:
    def step(a: Any, x: Any, w: Any) -> Any:
        return x - 0.001 * (a.T @ (a @ x - w))

    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape) for shape in ((M, N), (N,), (M,))]
    traced = hm.trace(step)
    found = traced(*map(hm.asarray, given))
    np.testing.assert_allclose(found.numpy(), step(*given), 1e-12, 1e-12)
    product, rest, *_ = traced.explain().kernels
    assert product.flops > 4 * M * N and rest.flops < M * N  # each is counted once
