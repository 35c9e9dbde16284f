"""Chains: when launches become one, what they leave in cache, and that they compute what the graph means."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridml_compiler import pipeline
from hybridml_compiler.errors import OutOfBoundsError
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.loops.ir import Kernel
from hybridml_compiler.loops.text import parse_kernel
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.fusion.batch_fusion import BatchFusion
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.schedule.lowering.footprint import may_overwrite, splits_evenly
from hybridml_compiler.schedule.plan import Plan
from hybridml_compiler.schedule.text import describe_plan
from tests.support.examples import examples
from tests.support.random_graphs import same_bits
from tests.support.random_plans import arrays_for, donations
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import Value, array, graph, op

HEADS, LENGTH, WIDTH = 8, 48, 16
SCORES = HEADS * LENGTH * LENGTH * 4


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Limits that arrays of a test exceed; a chain that a machine of four cores would run."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"BYTES": SCORES // 4, "SLOT_BYTES": SCORES // 8, "SLOT_LIMIT": SCORES // 2}.items():
            patch.setattr(cost, f"CHAIN_{name}", value)
        patch.setattr(cost, "CHAIN_ROWS", 4)
        yield


def softmax(x: Value, axis: int = -1) -> Value:
    e = op("exp", x - op("max", x, axis=axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def heads(*names: str) -> list[Value]:
    return [array(HEADS, LENGTH, WIDTH, name=name) for name in names]


def mT(x: Value) -> Value:
    axes = (*range(len(x.node.shape) - 2), len(x.node.shape) - 1, len(x.node.shape) - 2)
    return op("permute_dims", x, axes=axes)


def chains(plan: Plan) -> list[BatchFusion]:
    return [launch.spec for launch in plan.launches if isinstance(launch.spec, BatchFusion)]


def check(built: Graph) -> Plan:
    """Plan and compiled program against the interpreter."""
    rng = np.random.default_rng(0)
    plan, arrays = plan_of(built), [rng.standard_normal(n.shape).astype(n.dtype) for n in built.inputs]
    expected = interpret(built, arrays)
    for got in (run_plan(plan, arrays, len(expected), {}), pipeline.compile(built)(arrays)):
        assert got is not None
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_allclose(g, e, 2e-5, 2e-5)
    return plan


def test_attention_is_one_launch_without_the_scores_in_memory() -> None:
    q, k, v = heads("q", "k", "v")
    plan = check(graph("attention", [q, k, v], [softmax(q @ mT(k)) @ v]))
    (chain,) = chains(plan)
    assert len(plan.launches) == 1 and len(chain.stages) == 3 and chain.batch % HEADS == 0
    assert plan.arena_bytes < SCORES / 2
    assert "one after the other" in describe_plan(plan)


def test_what_lies_in_memory_is_fetched_for_the_next_element() -> None:
    q, k, v = heads("q", "k", "v")
    attention = graph("attention", [q, k, v], [softmax(q @ mT(k)) @ v])
    (chain,) = chains(check(attention))
    assert chain.ahead == tuple((k, HEADS * LENGTH * WIDTH * 4 // chain.batch) for k in range(4))
    assert "llvm.prefetch" in pipeline.compile(attention).llvm
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "CHAIN_BYTES", HEADS * LENGTH * WIDTH * 4 + 1)
        assert all(chain.ahead == () for chain in chains(plan_of(attention)))


def test_softmax_is_written_over_the_scores() -> None:
    q, k, v = heads("q", "k", "v")
    (chain,) = chains(plan_of(graph("attention", [q, k, v], [softmax(q @ mT(k)) @ v])))
    scores, weights = chain.scratch
    assert scores.offset == weights.offset and chain.slot_bytes < scores.nbytes + weights.nbytes


def test_what_others_need_has_memory_and_the_rest_is_chained() -> None:
    q, k, v = heads("q", "k", "v")
    weights = softmax(q @ mT(k))
    (chain,) = chains(check(graph("weights", [q, k, v], [weights @ v, weights])))
    assert len(chain.scratch) == 1  # the scores


def test_what_a_product_writes_is_written_also_if_its_epilogue_only_reads_it() -> None:
    q, k, v = heads("q", "k", "v")
    scores = q @ mT(k)
    plan = check(graph("both", [q, k, v], [op("tanh", scores) @ v, softmax(scores) @ v]))
    fused = [stage for chain in chains(plan) for stage in chain.stages if isinstance(stage.spec, Fused)]
    assert any(stage.spec.written(len(stage.operands)) == [False, False, True, True] for stage in fused)


def test_rows_of_one_matrix_are_elements_too() -> None:
    x, w1, w2 = array(512, 32, name="x"), array(32, 96, name="w1"), array(96, 32, name="w2")
    (chain,) = chains(check(graph("rows", [x, w1, w2], [softmax(x @ w1) @ w2])))
    assert chain.batch > 1 and len(chain.stages) == 3


def test_what_crosses_elements_is_not_chained() -> None:
    q, k, v = heads("q", "k", "v")
    plan = check(graph("across", [q, k, v], [softmax(q @ mT(k), axis=0) @ v]))
    assert sum(len(chain.scratch) for chain in chains(plan)) <= 1  # the weights, for the division and the product


def test_keys_made_in_the_chain_are_read_by_all_rows_of_their_head() -> None:
    q, k, v = heads("q", "k", "v")
    keys = softmax(k @ mT(v)) @ v
    for chain in chains(check(graph("keys", [q, k, v], [softmax(q @ mT(keys)) @ v]))):
        assert len(chain.scratch) <= 2 or HEADS % chain.batch == 0


def test_a_launch_between_two_stages_that_needs_one_and_is_needed_by_the_other() -> None:
    q, k, v = heads("q", "k", "v")
    scores = q @ mT(k)
    across = op("cumulative_sum", scores, axis=0, reverse=False)
    check(graph("between", [q, k, v], [softmax(scores + across) @ v]))


def test_launches_that_have_nothing_to_do_with_a_chain_run_before_or_after() -> None:
    q, k, v = heads("q", "k", "v")
    other = op("cumulative_sum", q, axis=1, reverse=False)
    plan = check(graph("beside", [q, k, v], [softmax(q @ mT(k)) @ v, other, other @ mT(k)]))
    assert len(chains(plan)) == 1


KERNEL = """
kernel(b0: f32[64], b1: f32[64] out) lanes 4 {
  for i < 8 parallel {
    s = reduce max over r < 8 of b0[i * 8 + r]
    for j < 8 vector { b1[i * 8 + j] = b0[%s] - s }
  }
}"""


def kernel(position: str) -> Kernel:
    return parse_kernel(KERNEL % position)


@pytest.mark.parametrize(("position", "in_place"), [("i * 8 + j", True), ("i * 8 + (7 - j)", False), ("i * 8", False)])
def test_a_row_may_be_overwritten_where_it_is_read_last(position: str, in_place: bool) -> None:
    row = kernel(position)
    assert may_overwrite(row, *row.buffers) == in_place
    assert splits_evenly(row, row.buffers[0], 8) and splits_evenly(row, row.buffers[0], 4)


def test_another_row_keeps_kernels_apart() -> None:
    row = kernel("(7 - i) * 8 + j")
    assert not splits_evenly(row, row.buffers[0], 8) and not splits_evenly(row, row.buffers[0], 2)
    assert splits_evenly(row, row.buffers[1], 8) and not may_overwrite(row, *row.buffers)


@examples(150)
@given(st.integers(0, 1 << 30), st.booleans())
def test_random_graphs_with_every_chain_that_can_be(seed: int, compiled: bool) -> None:
    graph, donate = donations(seed, (6, 4))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"BYTES": 0, "SLOT_BYTES": 128, "SLOT_LIMIT": 1 << 20, "ROWS": 1, "BALANCE": 8}.items():
            patch.setattr(cost, f"CHAIN_{name}", value)
        try:
            expected = [np.array(a) for a in interpret(graph, arrays_for(graph))]
        except OutOfBoundsError:
            return
        if compiled and seed % 8 == 0:
            got = pipeline.compile(graph, donate)(arrays_for(graph))
        else:
            planned = run_plan(plan_of(graph, donate), arrays_for(graph), len(expected), donate)
            assert planned is not None
            got = planned
    for g, e in zip(got, expected, strict=True):
        assert same_bits(g, e)
