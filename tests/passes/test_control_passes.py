"""Loops that are rolled, merged and simplified: fewer nodes, the same values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.errors import CompileWarning
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node
from hybridml_compiler.graph.text import parse_graph, print_graph
from hybridml_compiler.graph.verify import verify
from hybridml_compiler.passes import control_flow, patterns, roll, run_passes
from tests.support.closeness import assert_close

SUM = """
graph body(%0: f32[3], %1: i64[], %2: f32[3], %3: f32[3]) {
  %4 = add(%2, %0) : f32[3]
  %5 = multiply(%3, %0) : f32[3]
  %6 = const 1 : i64[]
  %7 = add(%1, %6) : i64[]
  return %0, %7, %4, %5, %2
}
graph main(%0: f32[3], %1: f32[3], %2: f32[4,3]) {
  %3 = const 0 : i64[]
  %4 = loop(%0, %3, %1, %2) {body=body, carries=3, consts=0, length=4, result=RESULT} : TYPE
  return %4
}
"""


def looped(result: int, kind: str) -> Graph:
    return parse_graph(SUM.replace("RESULT", str(result)).replace("TYPE", kind))


def loops(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes() if node.op is not None and node.op.name == "loop"]


def arrays(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(node.shape).astype(node.dtype) for node in graph.inputs]


def agree(before: Graph, after: Graph) -> None:
    verify(after)
    given = arrays(before)
    for e, f in zip(interpret(before, given), interpret(after, given), strict=True):
        assert_close(f, e, rtol=1e-6)


@pytest.mark.parametrize(
    ("result", "kind", "carries", "outputs"),
    [(2, "f32[3]", 1, 1), (3, "f32[4,3]", 0, 1), (4, "f32[4,3]", 1, 2), (1, "i64[]", 1, 1)],
)
def test_a_loop_computes_what_is_read(result: int, kind: str, carries: int, outputs: int) -> None:
    graph = looped(result, kind)
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    after = control_flow(graph)
    agree(graph, after)
    (loop,) = loops(after)
    assert (loop.params["carries"], len(loop.params["body"].outputs)) == (carries, outputs)
    assert control_flow(after) is after


def test_a_carry_that_stays_is_an_operand() -> None:
    graph = looped(0, "f32[3]")
    assert control_flow(graph).outputs == (graph.inputs[0],)


def test_loops_over_the_same_are_one() -> None:
    w = hm.ones((3, 3), requires_grad=True)

    def program(xs: hm.Tensor) -> Any:
        h, _ = hm.scan(lambda h, x: (hm.tanh(h @ w + x), None), hm.zeros((2, 3)), xs)
        return h, hm.autograd.grad(h.sum(), w)

    traced = hm.trace(program, backend="interpret")
    traced(hm.ones((5, 2, 3)))
    graph = parse_graph(traced.ir)
    after = run_passes(graph)[0]
    agree(graph, after)
    forward = {node.params["body"] for node in loops(after) if not node.params["reverse"]}
    assert len({node.params["body"] for node in loops(graph) if not node.params["reverse"]}) == 2
    assert len(forward) == 1


@pytest.mark.parametrize("turned", [False, True])
def test_products_that_are_added_up_are_one(turned: bool) -> None:
    w = hm.tensor(np.random.default_rng(0).standard_normal((16, 16)) / 4, requires_grad=True)

    def program(xs: hm.Tensor) -> Any:
        def step(h: hm.Tensor, x: hm.Tensor) -> Any:
            return hm.tanh(h @ (w.T if turned else w) + x), None

        return hm.autograd.grad(hm.scan(step, hm.zeros((2, 16), dtype="float64"), xs)[0].sum(), w)

    xs = hm.tensor(np.random.default_rng(1).standard_normal((6, 2, 16)))
    traced = hm.trace(program, backend="interpret")
    expected = traced(xs)
    graph = parse_graph(traced.ir)
    after = run_passes(graph)[0]
    agree(graph, after)
    shapes = {aval.shape for node in loops(after) for aval in node.params["body"].outputs}
    assert (16, 16) in {aval.shape for node in loops(graph) for aval in node.params["body"].outputs} - shapes
    np.testing.assert_allclose(hm.trace(program)(xs)[0].numpy(), expected[0].numpy(), rtol=1e-9)


def rows_on_the_left(h: Any, x: Any, w: Any, u: Any) -> Any:
    return hm.tanh(x @ w + h @ u)


def columns_on_the_right(h: Any, x: Any, w: Any, u: Any) -> Any:
    return hm.tanh(w @ x + u @ h)


def a_weight_twice(h: Any, x: Any, w: Any, u: Any) -> Any:
    return hm.tanh(x @ w + hm.sin(h) @ u + (h * 0.5) @ u)


@pytest.mark.parametrize("step", [rows_on_the_left, columns_on_the_right, a_weight_twice])
@pytest.mark.parametrize("rows", [(), (1,), (3,)])
def test_products_that_loops_over_rows_add_up_are_one(step: Callable[..., Any], rows: tuple[int, ...]) -> None:
    rows = () if step is columns_on_the_right else rows
    r = np.random.default_rng(0)
    xs, w, u = (hm.tensor(r.standard_normal(shape) / 4) for shape in ((22, *rows, 9), (9, 9), (9, 9)))

    def loss(xs: Any, w: Any, u: Any) -> Any:
        h = hm.zeros((*rows, 9), dtype="float64")
        for t in range(2, 20):
            h = step(h, xs[t + 1], w, u)
        return (h * h).sum()

    gradient = hm.grad(loss, argnums=(1, 2))
    traced = hm.trace(gradient, backend="interpret")
    expected = gradient(xs, w, u)
    for style in (traced, hm.trace(gradient)):
        for found, eager in zip(style(xs, w, u), expected, strict=True):
            np.testing.assert_allclose(found.numpy(), eager.numpy(), rtol=1e-11, atol=1e-13)
    graph = parse_graph(traced.ir)
    after = run_passes(graph)[0]
    agree(graph, after)
    assert (9, 9) in {n.shape for n in loops(graph)} - {n.shape for n in loops(after)}


def test_products_that_are_also_read_stay() -> None:
    def sums(xs: Any) -> Any:
        total, seen = hm.zeros((4, 4), dtype="float64"), hm.zeros((), dtype="float64")
        for t in range(20):
            total = total + hm.outer(xs[t], xs[t])
            seen = seen + total[1, 2]  # a sum so far
        return total, seen

    xs = hm.tensor(np.random.default_rng(0).standard_normal((20, 4)))
    traced = hm.trace(sums)
    for found, eager in zip(traced(xs), sums(xs), strict=True):
        np.testing.assert_allclose(found.numpy(), eager.numpy(), rtol=1e-12)
    after = run_passes(parse_graph(traced.ir))[0]
    assert (4, 4) in {n.shape for n in loops(after)}


def test_a_predicate_that_is_known() -> None:
    graph = parse_graph("""
graph yes(%0: f32[3]) {
  %1 = add(%0, %0) : f32[3]
  return %1
}
graph no(%0: f32[3]) {
  return %0
}
graph main(%0: f32[3]) {
  %1 = const True : bool[]
  %2 = cond(%1, %0) {false=no, result=0, true=yes} : f32[3]
  return %2
}
""")
    after = control_flow(graph)
    agree(graph, after)
    assert [node.op.name for node in after.nodes() if node.op is not None] == ["add"]


# -- Python loops


def recurrent(xs: hm.Tensor, w: hm.Tensor) -> Any:
    h, loss, every = hm.zeros((2, 4), dtype="float64"), hm.zeros((), dtype="float64"), []
    for t in [*range(len(xs))]:
        h = hm.tanh(h @ w + xs[t]) * (1 + t)
        every.append(h)
        loss = loss + (h * h).sum()
    return hm.stack(every), hm.autograd.grad(loss, w)


def gates(xs: hm.Tensor, w: hm.Tensor) -> Any:
    h = c = hm.zeros((2, 4), dtype="float64")
    total: Any = 0.0
    for t in reversed(range(len(xs))):
        i, f, g = hm.chunk(hm.concat([h @ w, xs[t], h + 1], axis=1), 3, axis=1)
        c = hm.sigmoid(f) * c + hm.sigmoid(i) * hm.tanh(g)
        h = hm.tanh(c)
        total = total + h.sum()
    return total, h


def columns(xs: hm.Tensor, w: hm.Tensor) -> Any:
    y = xs[0]
    for k in range(xs.shape[0] - 1):
        y = 0.5 * (y + hm.flip(xs, axis=0)[k] / (hm.abs(y) + 1 + k)) @ w
    return y


@pytest.mark.parametrize(
    ("program", "most"), [(recurrent, 150), pytest.param(gates, 60, marks=pytest.mark.slow), (columns, 40)]
)
def test_python_loops_are_rolled(monkeypatch: pytest.MonkeyPatch, program: Callable[..., Any], most: int) -> None:
    monkeypatch.setattr(patterns, "LONG", 100)
    rng = np.random.default_rng(0)
    w = hm.tensor(rng.standard_normal((4, 4)) / 4, requires_grad=True)
    sizes = []
    for steps in (50, 80):
        xs = hm.tensor(rng.standard_normal((steps, 2, 4)))
        traced = hm.trace(program, backend="interpret", dynamic=False)
        expected = traced(xs, w)
        graph = parse_graph(traced.ir)
        after = roll.roll_loops(graph)
        verify(after)
        assert loops(after)
        sizes.append(len(after.nodes()))
        compiled = hm.trace(program, dynamic=False)(xs, w)
        for e, f in zip(hm.tree_leaves(expected), hm.tree_leaves(compiled), strict=True):
            np.testing.assert_allclose(f.detach().numpy(), e.detach().numpy(), rtol=1e-8)
    assert max(sizes) <= most and sizes[0] == sizes[1]


def layers(weights: list[hm.Tensor]) -> Any:
    """The graph of a program whose steps read operands that are neither slices nor numbers."""

    def program(x: hm.Tensor) -> hm.Tensor:
        for w in weights:  # a loop would have to copy them first
            x = hm.tanh(x @ w)
        return x

    traced = hm.trace(program, backend="interpret")
    traced(hm.ones((2, 4)))
    return traced._shown().program.graph


def test_what_does_not_repeat_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "LONG", 10)
    graph = layers([hm.ones((4, 4)) * (k + 1) / 64 for k in range(128)])
    with pytest.warns(CompileWarning, match="a loop of 12. steps is compiled step by step.*\n.*hm.tanh"):
        assert roll.roll_loops(graph) is graph


def test_layers_are_told_from_steps_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    def walked(*_: object) -> Any:
        raise AssertionError("the steps were collected")

    graph = layers([hm.ones((4, 4)) * (k + 1) / 64 for k in range(70)])
    monkeypatch.setattr(roll, "_steps", walked)
    nodes = graph.nodes()
    assert roll._roll(graph, nodes, roll._cuts(nodes), roll._anchors(nodes)) is None


def test_numbers_of_python_are_no_results_of_loops() -> None:
    def infected(beta: float) -> Any:
        s, i = 0.99, 0.01
        for _ in [*range(1000)]:
            new = beta * s * i
            s, i = s - new, i + new
        return s, i

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert hm.trace(infected)(0.1) == infected(0.1)
