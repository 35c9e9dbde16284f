"""Groups that are alike are lowered once, and those that are not are told apart."""

from __future__ import annotations

import numpy as np

from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node, constant, graph_of
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.loops.ir import Kernel
from tests.support.run_plan import plan_of, run_plan


def layer(x: Node, w: Node, scale: float) -> Node:
    """A reduction over rows and what reads it, between two products."""
    y = make("matmul", x, w)
    total = make("sum", make("exp", y), axis=(1,), keepdims=True)
    return make("multiply", make("divide", make("exp", y), total), constant(np.float32(scale)))


def specs(graph: Graph, arrays: list[np.ndarray], donate: dict[int, int] | None = None) -> list[Kernel]:
    """The kernels of the plan's launches, which compute what the graph says."""
    plan = plan_of(graph, donate)
    given = [a.copy() for a in arrays]
    results = run_plan(plan, given, len(graph.outputs), donate or {})
    assert results is not None
    for got, expected in zip(results, interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(got, expected, 1e-5)
    return [launch.spec for launch in plan.launches if isinstance(launch.spec, Kernel)]


def test_layers_share_their_kernels() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((8, 8), np.float32) for _ in range(5)]
    inputs = graph_of(arrays)
    x, *weights = inputs
    for w in weights:
        x = layer(x, w, 0.5)
    kernels = specs(Graph(tuple(inputs), (x,)), arrays)
    assert len({id(kernel) for kernel in kernels}) < len(kernels)


def test_other_numbers_are_other_kernels() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((8, 8), np.float32) for _ in range(3)]
    x, v, w = graph_of(arrays)
    kernels = specs(Graph((x, v, w), (layer(layer(x, v, 0.5), w, 0.25),)), arrays)
    assert len({id(k) for k in kernels}) == len(kernels)


def test_overwriting_is_not_reading() -> None:
    arrays = [np.arange(12, dtype="f4").reshape(3, 4), np.arange(12, dtype="f4").reshape(3, 4) + 1]
    x, y = graph_of(arrays)
    graph = Graph((x, y), tuple(make("exp", n) for n in (x, y)))
    one, other = specs(graph, arrays, {0: 0})
    assert one is not other
    assert {b.role for b in one.buffers} != {b.role for b in other.buffers}


def test_each_overwrites_its_own_input() -> None:
    """Neither reads what it overwrites: the second once went where nobody looks for it."""
    arrays = [np.arange(12, dtype="f4").reshape(3, 4), np.ones((3, 4), "f4")]
    x, y = graph_of(arrays)
    values = [x]
    for _ in range(2):
        largest = make("reshape", make("max", values[-1], axis=(0,)), shape=(1, 4))
        values.append(make("broadcast_to", largest, shape=(3, 4)))
    specs(Graph((x, y), tuple(values[1:])), arrays, {0: 1, 1: 0})


def scaled(x: Node, w: Node, several: Node, first: int, second: int) -> Node:
    """A product of which rows are scaled by two numbers of an array."""
    y = make("matmul", x, w)
    one, other = (make("slice", several, starts=(n,), stops=(n + 1,), steps=(1,)) for n in (first, second))
    y = make("add", make("multiply", y, one), other)
    return make("divide", y, make("sum", y, axis=(1,), keepdims=True))


def scaled_layers(*places: tuple[int, int]) -> list[Kernel]:
    rng = np.random.default_rng(0)
    arrays = [rng.random((8, 8), np.float32) for _ in range(len(places) + 1)] + [np.arange(1, 10, dtype="f4")]
    x, *weights, several = inputs = graph_of(arrays)
    for w, (first, second) in zip(weights, places, strict=True):
        x = scaled(x, w, several, first, second)
    return specs(Graph(tuple(inputs), (x,)), arrays)


def test_groups_that_read_other_numbers_of_an_array_are_one_kernel() -> None:
    kernels = scaled_layers((5, 7), (0, 2), (6, 8), (3, 5))
    assert len(kernels) == 4 and len({id(kernel) for kernel in kernels}) == 1


def test_numbers_are_told_apart_by_what_is_between_them() -> None:
    assert len({id(kernel) for kernel in scaled_layers((1, 3), (1, 2), (3, 1), (4, 4))}) == 4


def test_an_array_that_is_also_read_whole_is_read_where_it_is() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.random((9, 9), np.float32) for _ in range(3)] + [np.arange(1, 10, dtype="f4")]
    x, *weights, several = inputs = graph_of(arrays)
    for k, w in zip((2, 7), weights, strict=True):
        x = make("multiply", scaled(x, w, several, k, k), several)
    assert len({id(kernel) for kernel in specs(Graph(tuple(inputs), (x,)), arrays)}) == 2
