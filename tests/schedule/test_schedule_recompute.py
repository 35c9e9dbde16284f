"""What is computed again rather than kept, once it is known which kernels read it."""

from __future__ import annotations

import numpy as np

from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph
from tests.support.run_plan import plan_of, run_plan
from tests.support.typical_graphs import Value, array, graph, op


def written(program: Graph) -> int:
    """Arrays that the plan stores to, with those that it reads twice."""
    return sum(b.role != "in" for launch in plan_of(program).launches for k in launch.kernels for b in k.operands)


def agrees(program: Graph) -> None:
    arrays = [np.random.default_rng(k).standard_normal(n.shape).astype(n.dtype) for k, n in enumerate(program.inputs)]
    got = run_plan(plan_of(program), arrays, len(program.outputs), {})
    assert got is not None
    for g, e in zip(got, interpret(program, arrays), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-5)


def two_layers(factor: str) -> tuple[Graph, Value]:
    """Forward and backward of a layer with an activation whose gradient needs tanh(x) and something cheap from it."""
    x, w, v, g = array(64, 32), array(32, 48), array(48, 16), array(64, 16)
    t = op("tanh", x @ w)
    cheap = 1.0 + t if factor == "cheap" else op("exp", t)
    out = (t * cheap) @ v
    back = (g @ v.T) * (cheap + cheap * cheap + t * (1.0 - t * t))
    return graph("two_layers", [x, w, v, g], [out, back @ w.T]), t


def test_a_sum_beside_its_operand_is_not_kept() -> None:
    program, _ = two_layers("cheap")
    assert written(program) == 3  # tanh(x) and its product for the first layer, the gradient
    agrees(program)


def test_an_exponential_is_kept() -> None:
    program, _ = two_layers("expensive")
    assert written(program) == 4
    agrees(program)


def test_a_special_function_is_kept() -> None:
    """A product and sums along both axes read it: it is computed once, not in each of their loops."""
    x = array(64, 32)
    y = op("lgamma", x)
    program = graph("three_readers", [x], [2.0 * y, op("sum", y, axis=0), op("sum", y, axis=1)])
    kernels = [k for launch in plan_of(program).launches for k in launch.kernels]
    assert sum("lgamma" in str(k) for k in kernels) == 1


def test_a_value_is_kept_where_what_it_comes_from_is_not_at_hand() -> None:
    """Nobody else needs x or y later: two arrays would be read in place of one."""
    x, y, w, g = array(64, 32), array(64, 32), array(32, 48), array(48, 32)
    s = x + y
    far = op("tanh", s @ w) @ g
    agrees(graph("far", [x, y, w, g], [far * s * s]))
    assert written(graph("far", [x, y, w, g], [far * s * s])) == 3


def test_one_more_load_instead_of_writing_and_reading_back() -> None:
    """The second kernel loads a, b and c anyway; d is in memory."""
    a, b, c, x = (array(64, 32) for _ in range(4))
    d = op("cumulative_sum", x, axis=1)
    p = a * b + c * d
    program = graph("more", [a, b, c, x], [op("exp", p), op("sum", p * a * b * c, axis=0)])
    assert written(program) == 3  # d and the results
    agrees(program)


def test_two_more_loads_are_not_less() -> None:
    a, b, c, x = (array(64, 32) for _ in range(4))
    d, e = op("cumulative_sum", x, axis=1), op("cumulative_sum", x, axis=0)
    p = a * b + d * e
    program = graph("most", [a, b, c, x], [op("exp", p), op("sum", p * a * b * c, axis=0)])
    assert written(program) == 5
    agrees(program)


def test_a_product_that_only_its_own_kernel_sees_is_not_written_for_it() -> None:
    a, b, c, x, w = array(64, 32), array(64, 32), array(64, 32), array(64, 16), array(16, 32)
    p = a * b + c * (x @ w)
    program = graph("local", [a, b, c, x, w], [op("exp", p), op("sum", p * a * b * c, axis=0)])
    assert written(program) == 3  # p and the results
    agrees(program)


def test_the_reasons_say_what_is_computed_again_and_what_is_kept() -> None:
    for factor, kept, again in (("cheap", "tanh", "add"), ("expensive", "exp", None)):
        launches = plan_of(two_layers(factor)[0]).launches
        reasons = [reason for launch in launches for reason in launch.reasons]
        assert any(reason.startswith(f"{kept}: ") for reason in reasons)
        assert again is None or any(reason.startswith(f"{again}, again: ") for reason in reasons)


def test_what_is_kept_may_lie_below_what_was_shared() -> None:
    """Three kernels share three sums, all of one value: only that is kept."""
    x, w, v, g = array(64, 32), array(32, 48), array(48, 16), array(48, 48)
    t = op("tanh", x @ w)
    shared = [1.0 + t, 2.0 + t * t, 3.0 - t]
    forward = (shared[0] * shared[1] * shared[2]) @ v
    back = op("cumulative_sum", shared[0] + shared[1] * shared[2], axis=1)
    program = graph("below", [x, w, v, g], [forward, back, (shared[0] - shared[1] + shared[2]) @ g])
    assert written(program) == 4  # t, the operands of both products, the sums
    agrees(program)
