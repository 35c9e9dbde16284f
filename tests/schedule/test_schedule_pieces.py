"""Concatenations are put together piece by piece."""

from __future__ import annotations

import numpy as np
import pytest

from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node, graph_of
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.loops.text import print_kernel
from hybridml_compiler.pipeline import compile
from hybridml_compiler.schedule import cost
from tests.support.run_plan import plan_of, run_plan

RNG = np.random.default_rng(4)


def check(graph: Graph, arrays: list[np.ndarray], kernels: int) -> list[str]:
    """The texts of a plan's kernels, after its results were compared: by the kernels' interpreter, and compiled."""
    plan, expected = plan_of(graph), interpret(graph, arrays)
    texts = [print_kernel(kernel) for launch in plan.launches for kernel in launch.kernels]
    assert len(texts) == kernels
    for results in (run_plan(plan, arrays, len(expected), {}), compile(graph)(arrays)):
        assert results is not None
        assert all(np.asarray(a).tobytes() == b.tobytes() for a, b in zip(results, expected, strict=True))
    return texts


def normal(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [RNG.standard_normal(shape, np.float32) for shape in shapes]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_equal_pieces_are_stores_of_one_loop(axis: int) -> None:
    arrays = normal((3, 4, 40), (3, 4, 40))
    x, y = graph_of(arrays)
    both = make("multiply", make("exp", x), y)
    joined = make("concat", both, make("add", both, y), make("negative", y), axis=axis)
    (text,) = check(Graph((x, y), (joined,)), arrays, 1)
    assert "select" not in text and text.count("exp") == 1


def test_pieces_of_several_sizes() -> None:
    arrays = normal((2, 30), (2, 1), (2, 30), (2, 0), (2, 200))
    nodes = graph_of(arrays)
    graph = Graph(tuple(nodes), (make("concat", *map(twice, nodes), axis=1),))
    assert all("select" in text for text in check(graph, arrays, 1)), "too small for a loop each"
    arrays = normal((100, 30), (100, 1), (100, 30), (100, 0), (100, 200))
    nodes = graph_of(arrays)
    graph = Graph(tuple(nodes), (make("concat", *map(twice, nodes), axis=1),))
    assert not any("select" in text for text in check(graph, arrays, 4))


def test_many_pieces_are_several_kernels() -> None:
    count = 3 * cost.PIECES_STORES
    arrays = normal((count, 6, 50))
    (x,) = graph_of(arrays)
    parts = [make("slice", x, starts=(k, 0, 0), stops=(k + 1, 6, 50), steps=(1, 1, 1)) for k in range(count)]
    texts = check(Graph((x,), (make("concat", *reversed(parts), axis=0),)), arrays, 3)
    assert not any("select" in text for text in texts)
    assert len(set(texts)) == 1, "other places to read and to write are other addresses"


def test_an_epilogue_that_reads_elsewhere_is_the_same_one() -> None:
    arrays = normal((3, 32, 64), (64, 48), (3, 32, 48))
    x, w, y = graph_of(arrays)

    def rows(source: Node, k: int) -> Node:
        part = make("slice", source, starts=(k, 0, 0), stops=(k + 1, *source.shape[1:]), steps=(1, 1, 1))
        return make("reshape", part, shape=source.shape[1:])

    outputs = [make("tanh", make("add", make("matmul", rows(x, k), w), rows(y, k))) for k in range(3)]
    graph = Graph((x, w, y), tuple(outputs))
    plan = plan_of(graph)
    assert len(plan.launches) == 3
    assert len({print_kernel(kernel) for launch in plan.launches for kernel in launch.kernels}) == 1
    for got, wanted in zip(compile(graph)(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_concatenation_over_its_own_input_and_one_of_itself() -> None:
    arrays = normal((8, 16), (1, 16))
    x, y = graph_of(arrays)
    moved = make("concat", make("slice", x, starts=(1, 0), stops=(8, 16), steps=(1, 1)), y, axis=0)
    again = make("concat", moved, moved, axis=1)
    check(Graph((x, y), (moved, again)), arrays, 2)
    plan = plan_of(Graph((x, y), (moved,)), {0: 0})
    written = [array.copy() for array in arrays]
    results = run_plan(plan, written, 1, {0: 0})
    assert results is not None
    assert results[0].tobytes() == interpret(Graph((x, y), (moved,)), arrays)[0].tobytes()


def twice(x: Node) -> Node:
    return make("add", x, x)
