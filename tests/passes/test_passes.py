"""The pipeline of passes: the same bits on random graphs, golden results, and what it promises about graphs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given

from hybridml_compiler.errors import CompileError
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node, constant, topological
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.graph.text import parse_graph, print_graph
from hybridml_compiler.graph.verify import verify
from hybridml_compiler.passes import FIRST, PASSES, run_passes
from hybridml_compiler.passes.patterns import sample
from tests.support.random_graphs import data, graphs, same_bits


@given(graphs())
def test_passes_keep_every_bit_of_random_graphs(graph: Graph) -> None:
    after, steps = run_passes(graph)
    assert len(after.nodes()) == steps[-1].nodes_after
    for seed in range(2):
        rng = np.random.default_rng(seed)
        arrays = [data(node.aval, rng) for node in graph.inputs]
        for k, (old, new) in enumerate(zip(interpret(graph, arrays), interpret(after, arrays), strict=True)):
            assert same_bits(old, new), f"output {k}: {old}\n{new}\n{print_graph(graph)}\n{print_graph(after)}"


@given(graphs())
def test_passes_settle(graph: Graph) -> None:
    once, _ = run_passes(graph)
    twice, steps = run_passes(once)
    assert twice is once, f"{print_graph(graph)}\n{print_graph(once)}\n{print_graph(twice)}"
    assert [step.name for step in steps] == [name for name, _, _ in (*FIRST, *PASSES)]


@given(graphs())
def test_random_graphs_round_trip_as_text(graph: Graph) -> None:
    text = print_graph(graph)
    parsed = parse_graph(text)
    assert print_graph(parsed) == text
    assert [node.aval for node in parsed.nodes()] == [node.aval for node in graph.nodes()]
    verify(parsed)


MLP_STEP = """
graph step(%0 "x": f32[8,4], %1 "w": f32[2,4], %2 "b": f32[2], %3 "lr": f32[]) {
  %4 = permute_dims(%1) {axes=(1, 0)} : f32[4,2]
  %5 = permute_dims(%4) {axes=(0, 1)} : f32[4,2]
  %6 = matmul(%0, %5) : f32[8,2]
  %7 = reshape(%2) {shape=(1, 2)} : f32[1,2]
  %8 = broadcast_to(%7) {shape=(8, 2)} : f32[8,2]
  %9 = add(%6, %8) : f32[8,2]
  %10 = full() {dtype=f32, shape=(8, 2), value=0.0} : f32[8,2]
  %11 = maximum(%9, %10) : f32[8,2]
  %12 = const 16.0 : f32[]
  %13 = full() {dtype=f32, shape=(8, 2), value=1.0} : f32[8,2]
  %14 = divide(%13, %12) : f32[8,2]
  %15 = greater(%9, %10) : bool[8,2]
  %16 = logical_not(%15) : bool[8,2]
  %17 = where(%16, %10, %14) : f32[8,2]
  %18 = const 1.0 : f32[]
  %19 = multiply(%18, %17) : f32[8,2]
  %20 = sum(%19) {axis=(0,), dtype=f32, keepdims=True} : f32[1,2]
  %21 = reshape(%20) {shape=(2,)} : f32[2]
  %22 = permute_dims(%0) {axes=(1, 0)} : f32[4,8]
  %23 = matmul(%22, %19) : f32[4,2]
  %24 = permute_dims(%23) {axes=(1, 0)} : f32[2,4]
  %25 = negative(%3) : f32[]
  %26 = multiply(%25, %24) : f32[2,4]
  %27 = add(%1, %26) : f32[2,4]
  %28 = multiply(%25, %21) : f32[2]
  %29 = add(%2, %28) : f32[2]
  %30 = sum(%11) {axis=(0, 1), dtype=f32, keepdims=False} : f32[]
  %31 = divide(%30, %12) : f32[]
  return %31, %27, %29
}
"""


def test_golden(golden: Callable[[str, str], None]) -> None:
    graph = parse_graph(MLP_STEP)
    after, _ = run_passes(graph)
    golden("passes_mlp_step", print_graph(after))


def x(*shape: int) -> Node:
    return sample("f4", *shape)


def passed(*outputs: Node) -> tuple[Node, ...]:
    inputs = tuple(node for node in topological(outputs) if node.is_input)
    return run_passes(Graph(inputs, outputs))[0].outputs


def test_equal_expressions_are_one_node_without_a_pass() -> None:
    a, b = x(3), x(3)
    assert make("add", a, b) is make("add", a, b)
    assert make("add", a, b) is not make("add", b, a)
    assert constant(np.float32(0.0)) is not constant(np.float32(-0.0))
    # what becomes equal in a pass becomes one node there
    first, second = passed(make("abs", make("negative", a)), make("abs", make("positive", a)))
    assert first is second


@pytest.mark.parametrize(("row", "column"), [((5,), (5,)), ((1, 5), (5, 1)), ((3, 1, 5), (5,))])
def test_a_product_of_a_row_and_a_column_is_a_sum(row: tuple[int, ...], column: tuple[int, ...]) -> None:
    (total,) = passed(make("matmul", x(*row), x(*column)))
    names = [node.op.name for node in Graph((), (total,)).nodes() if node.op]
    assert "matmul" not in names
    assert names.count("sum") == 1


def test_what_nothing_needs_is_gone_without_a_pass_and_inputs_stay() -> None:
    a, unused = x(3), x(3)
    graph = Graph((a, unused), (make("where", constant(np.bool_(True)), a, make("abs", a)),))
    after, steps = run_passes(graph)
    assert after.nodes() == [a, unused]
    assert after.inputs == graph.inputs
    assert (steps[0].nodes_before, steps[-1].nodes_after) == (5, 2)


def test_only_small_results_that_do_not_grow_are_folded() -> None:
    small, large = constant(np.arange(63, dtype="f4")), constant(np.arange(64, dtype="f4"))
    folded, kept, stretched = passed(
        make("negative", small), make("negative", large), make("add", constant(np.zeros((3, 1))), constant(np.ones(4)))
    )
    assert folded.is_constant
    assert not kept.is_constant
    assert not stretched.is_constant or stretched.aval.size == 1
    assert not passed(make("arange", start=0, stop=5))[0].is_constant


def test_an_error_of_a_value_is_left_to_the_run() -> None:
    taken = make("take", constant(np.arange(3.0)), constant(np.array([5])), axis=0)
    assert passed(taken) == (taken,)


def test_inexact_rewrites_are_not_made() -> None:
    a = x(3)
    zero, nan = constant(np.float32(0.0)), constant(np.float32("nan"))
    for kept in (
        make("add", a, zero),  # -0.0 + 0.0 is 0.0
        make("multiply", a, zero),  # nan, inf
        make("subtract", a, a),  # nan, inf
        make("divide", a, constant(np.float32(3.0))),
        make("divide", a, constant(np.float32(2.0**-149))),
        make("logical_not", make("less", a, a)),  # nan
        make("astype", make("astype", a, dtype="i4"), dtype="f4"),
        make("multiply", a, nan),
    ):
        assert passed(kept) == (kept,)


def test_a_transposed_operand_stays_on_the_product() -> None:
    a, b = x(8, 3), x(8, 5)
    product = make("matmul", make("permute_dims", a, axes=(1, 0)), b)
    assert passed(product) == (product,)
    twice = make("permute_dims", make("permute_dims", make("permute_dims", a)))
    assert passed(make("matmul", twice, b)) == (product,)


def test_weak_types_do_not_change() -> None:
    weak = constant(2.0, np.dtype("f4"), weak=True)
    product = make("multiply", weak, constant(np.float32(1.0)))
    assert not product.aval.weak
    assert passed(make("negative", make("positive", weak)))[0].aval.weak
    assert not passed(product)[0].aval.weak


def test_the_pass_that_breaks_a_graph_is_named() -> None:
    def drop_input(graph: Graph) -> Graph:
        return Graph((), graph.outputs)

    def change_output(graph: Graph) -> Graph:
        return Graph(graph.inputs, (make("astype", graph.outputs[0], dtype="f8"),))

    def change_signature(graph: Graph) -> Graph:
        return Graph((*graph.inputs, x(2)), graph.outputs)

    graph = Graph((inner := x(3),), (make("abs", inner),))
    for broken, message in (
        (drop_input, "after broken is broken: input 'x' is used but not listed"),
        (change_output, r"pass broken: a pass keeps the signature of a graph.* f32\[3\] became .* f64\[3\]"),
        (change_signature, "1 inputs and outputs .* became 2 inputs"),
    ):
        with pytest.raises(CompileError, match=message):
            run_passes(graph, passes=[("broken", broken, "a test")])


def test_stacks_of_consecutive_slices_are_slices(golden: Callable[[str, str], None]) -> None:
    a = x(40, 50)

    def row(k: int, axis: int) -> Node:
        starts, stops = [0, 0], [40, 50]
        starts[axis], stops[axis] = k, k + 1
        cut = make("slice", a, starts=tuple(starts), stops=tuple(stops), steps=(1, 1))
        return make("reshape", cut, shape=(1, 90 - a.shape[axis]))

    stacks = [
        make("concat", *(row(k, 0) for k in range(40)), axis=0),
        make("concat", *(row(k, 0) for k in range(3, 20)), axis=0),
        make("concat", *(row(k, 1) for k in range(50)), axis=0),
        make("concat", *(row(k, 0) for k in (7, 8, 9, 5, 6)), axis=0),
    ]
    golden("passes_stacks", print_graph(run_passes(Graph((a,), tuple(stacks), "stacks"))[0]))
