"""Steps of many launches have these in a table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler import pipeline
from hybridml_compiler.graph.ir import Graph, Node, constant, graph_of
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.targets.cpu.llvm.operand_tables import MANY
from hybridml_compiler.targets.cpu.spec import host_spec
from hybridml_compiler.targets.cpu.target import Cpu


def products(count: int, *, constants: bool = False) -> tuple[Graph, list[np.ndarray]]:
    """A chain of products, a launch each; every third with a constant matrix."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((9, 9)).astype("f4") / 3 for _ in range(count + 1)]
    inputs = graph_of(arrays)
    value: Node = inputs[0]
    results: list[Node] = []
    for k, weight in enumerate(inputs[1:]):
        other = constant(arrays[k + 1]) if constants and k % 3 == 0 else weight
        value = make("tanh", make("matmul", value, other))
        results.append(value)
    return Graph(tuple(inputs), (value, *results[::7])), arrays


@pytest.mark.parametrize("count", [MANY - 1, MANY, 2 * MANY + 1])
@pytest.mark.parametrize("constants", [False, True])
def test_steps_of_many_launches_compute_what_numpy_does(count: int, constants: bool) -> None:
    graph, arrays = products(count, constants=constants)
    found = pipeline.compile(graph, target=Cpu(host_spec()))
    assert ("@step.places" in found.llvm) == (count >= MANY) and len(found.launches) >= count
    # A launch with a constant is code between two runs of the table's rows; all others are rows.
    assert found.llvm.count("call void @hml_run_launches") == (count >= MANY) * ((count + 1) // 3 if constants else 1)
    value, results = arrays[0], []
    for weight in arrays[1:]:
        value = np.tanh(value @ weight)
        results.append(value)
    for ours, theirs in zip(found(arrays), (value, *results[::7]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)


def test_bits_are_those_of_eager_code() -> None:
    weights = [hm.full((8, 8), 0.01 * k) for k in range(MANY)]

    def chain(x: hm.Tensor) -> hm.Tensor:
        for weight in weights:
            x = hm.sin(x @ weight) + x
        return x

    x = hm.arange(64.0).reshape(8, 8)
    traced: Callable[[hm.Tensor], hm.Tensor] = hm.trace(chain)
    np.testing.assert_array_equal(traced(x).numpy(), chain(x).numpy())


def test_the_body_of_a_loop_may_have_many_launches() -> None:
    weights = [hm.full((8, 8), 0.01 * k) for k in range(MANY)]

    def loop(x: hm.Tensor) -> hm.Tensor:
        def body(carry: tuple[hm.Tensor, hm.Tensor]) -> tuple[hm.Tensor, hm.Tensor]:
            k, x = carry
            for weight in weights:
                x = hm.sin(x @ weight) + x
            return k + 1, x

        result: hm.Tensor = hm.while_loop(lambda carry: carry[0] < 3, body, (hm.asarray(0), x))[1]
        return result

    x, traced = hm.arange(64.0).reshape(8, 8), hm.trace(loop)
    np.testing.assert_array_equal(traced(x).numpy(), loop(x).numpy())
    assert ".places = internal constant" in traced.llvm
