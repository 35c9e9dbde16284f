"""A weight that many products read transposed is turned once; one that few read, or so few rows, is not."""

from __future__ import annotations

import numpy as np
import pytest

from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from hybridml_compiler.schedule import cost
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.schedule.kernels.gemm import Product
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import array, graph, op

MANY = cost.TURN_PACKINGS


def steps(count: int, rows: int) -> Graph:
    """A state goes through one weight, and back through its transposed, again and again."""
    x, weight = array(rows, 192), array(192, 96)
    state = x
    for _ in range(count):
        state = op("tanh", (state @ weight) @ op("permute_dims", weight, axes=(1, 0)))
    return graph("steps", [x, weight], [state])


def matrices() -> Graph:
    """Rows of one matrix are apart in memory: no product of all of them."""
    x, weight = array(32, MANY, 96), array(192, 96)
    turned = op("permute_dims", weight, axes=(1, 0))
    return graph("matrices", [x, weight], [op("permute_dims", x, axes=(1, 0, 2)) @ turned])


@pytest.mark.parametrize(
    ("built", "turned"),
    [(steps(MANY, 32), True), (steps(MANY - 1, 32), False), (steps(MANY, 16), False), (matrices(), True)],
)
def test_what_is_turned(built: Graph, turned: bool) -> None:
    plan = plan_of(built)
    calls = [launch.spec.call if isinstance(launch.spec, Fused) else launch.spec for launch in plan.launches]
    transposed = [call.b.transposed for call in calls if isinstance(call, Product)]
    assert any(transposed) != turned and len(calls) == len(transposed) + turned
    arrays = [np.random.default_rng(0).standard_normal(n.shape).astype(n.dtype) / 16 for n in built.inputs]
    found = run_plan(plan, arrays, 1, {})
    assert found is not None
    np.testing.assert_allclose(found[0], interpret(built, arrays)[0], rtol=1e-4, atol=1e-5)
