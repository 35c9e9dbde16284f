"""Updates of parameters are few operations of a traced step, with the bits of the formulas operation by operation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hybridml as hm
from hybridml.optim import formulas
from hybridml.tracing.capture.composite import Composite
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.graph.body import body_of
from hybridml_compiler.graph.facts import element_cost
from hybridml_compiler.graph.flops import node_flops
from hybridml_compiler.graph.flops import operations as flop_operations
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, apply, constant, input_node
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.graph.text import parse_graph, print_graph
from hybridml_compiler.graph.verify import verify
from hybridml_compiler.ops.composite import COMPOSITE
from hybridml_compiler.pipeline import compile

F4 = np.dtype("f4")


def half_sum(*shapes: tuple[int, ...]) -> Graph:
    """(x + y) / 2 of operands of these shapes, as one node."""
    x, y = (input_node(Aval((), F4), name) for name in "xy")
    half = make("multiply", make("add", x, y), constant(0.5, F4))
    body = body_of(Graph((x, y), (half,)))
    operands = tuple([input_node(Aval(shape, F4)) for shape in shapes])
    return Graph(operands, (apply(COMPOSITE, operands, {"body": body}),))


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 1), (4,)), ((), (2,)), ((1,), (2, 3)), ((0,), ())])
def test_a_composite_is_its_operations_on_every_element(shapes: tuple[tuple[int, ...], ...]) -> None:
    graph, rng = half_sum(*shapes), np.random.default_rng(0)
    verify(graph)
    arrays = [rng.standard_normal(shape).astype(F4) for shape in shapes]
    wanted = (arrays[0] + arrays[1]) * F4.type(0.5)
    for found in (interpret(graph, arrays)[0], compile(graph)(arrays)[0]):
        assert found.shape == wanted.shape and found.tobytes() == wanted.tobytes()


def test_a_composite_costs_what_its_operations_do_and_has_text() -> None:
    graph = half_sum((2,), (2,))
    (node,) = graph.outputs
    assert element_cost(node) == sum(element_cost(n) for n in node.params["body"].graph.nodes())
    assert node_flops(node) == 4 and list(flop_operations([node])) == [(node, 1)]
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)


def test_a_composite_takes_the_types_of_its_function() -> None:
    (node,) = half_sum((2,), (2,)).outputs
    with pytest.raises(ArgumentError, match="float64"):
        apply(COMPOSITE, [input_node(Aval((2,), np.dtype("f8")))] * 2, node.params)


def operations(fn: Callable[..., hm.Tensor], *args: hm.Tensor) -> set[str]:
    traced = hm.trace(fn)
    traced(*args)
    return {node.op for node in traced.graph.nodes} - {"input", "const"}


@Composite
def mixed(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
    return x + (y - x) * y


def test_a_formula_is_one_operation_where_nobody_looks_into_it() -> None:
    x, y = hm.ones((3,)), hm.full((3,), 0.5)

    def silent(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        with hm.no_grad():
            return mixed(x, y)

    def with_history(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        return mixed(x, y)

    each = {"add", "subtract", "multiply"}
    hm.trace(silent)(x, y)
    assert not any(node.where for body in mixed.bodies.values() for node in body.graph.nodes())
    assert operations(silent, x, y) == {"composite"}
    assert operations(with_history, x, y) == each
    assert operations(silent, x, y.astype(hm.float64)) == each | {"astype"}
    assert operations(silent, x.astype(hm.float16), y.astype(hm.float16)) == each | {"astype"}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("optimizer", [hm.optim.Adam, hm.optim.AdamW, hm.optim.RMSprop])
def test_a_traced_step_has_the_bits_of_an_eager_one(optimizer: type[hm.optim.Optimizer], dtype: str) -> None:
    rng = np.random.default_rng(0)
    found = []
    for style in (lambda fn: fn, hm.trace):
        rng = np.random.default_rng(0)
        shapes = [(3, 4), (4,), (), (1,), (2, 1, 3)]
        weights = [hm.tensor(rng.standard_normal(s), dtype=getattr(hm, dtype), requires_grad=True) for s in shapes]
        held = optimizer(weights, lr=0.1, weight_decay=0.01)

        @style
        def step(weights: list[hm.Tensor] = weights, held: hm.optim.Optimizer = held) -> None:
            held.zero_grad()
            sum((w * w).sum() for w in weights).backward()
            held.step()

        for _ in range(3):
            step()
        found.append([w.detach().numpy().tobytes() for w in weights])
    assert found[0] == found[1]


def test_formulas_are_those_of_the_papers() -> None:
    x = hm.tensor([0.5, 2.0])
    assert formulas.moving_mean(x, x + 1, hm.full((), 0.5)).tolist() == [1.0, 2.5]
    assert formulas.moving_square(x, x, hm.full((), 0.5), hm.full((), 0.5)).tolist() == [0.375, 3.0]
    assert formulas.over_root(x, x * x, hm.full((), 0.0)).tolist() == [1.0, 1.0]
