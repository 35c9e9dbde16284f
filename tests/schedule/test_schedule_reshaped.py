"""Loops over the shape from before a reshape: the same elements, and indices without divisions."""

from __future__ import annotations

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.ir import Node, apply, constant, input_node
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.schedule.lowering.iteration_shape import in_shape_of_source

F4 = np.dtype("f4")


def given(node: Node) -> bool:
    return node.op is None


def reshape(node: Node, *shape: int) -> Node:
    return apply(OPS["reshape"], [node], {"shape": shape})


def tiled(x: Node) -> Node:
    """(4, 3) -> (8, 3) by way of (2, 4, 3)."""
    return reshape(apply(OPS["broadcast_to"], [x], {"shape": (2, *x.shape)}), 2 * x.shape[0], x.shape[1])


@pytest.fixture
def x() -> Node:
    return input_node(Aval((4, 3), F4), "x")


def test_a_reshape_of_what_is_computed_is_undone(x: Node) -> None:
    assert in_shape_of_source(tiled(x), given).shape == (2, 4, 3)
    assert in_shape_of_source(reshape(tiled(x), 6, 4), given).shape == (2, 4, 3)


def test_elementwise_work_goes_along(x: Node) -> None:
    whole = input_node(Aval((8, 3), F4), "y")
    root = apply(OPS["add"], [apply(OPS["multiply"], [tiled(x), constant(2.0, F4)]), whole])
    found = in_shape_of_source(root, given)
    assert found.shape == (2, 4, 3) and found.op is OPS["add"]
    assert found.inputs[1] is reshape(whole, 2, 4, 3)


def test_what_does_not_fit_stays(x: Node) -> None:
    row = input_node(Aval((3,), F4), "row")
    for root in (
        apply(OPS["exp"], [x]),  # no reshape
        reshape(x, 12),  # of what lies in memory
        apply(OPS["add"], [tiled(x), row]),  # an operand of another size
    ):
        assert in_shape_of_source(root, given) is root


def test_shared_values_are_moved_once(x: Node) -> None:
    node = tiled(x)
    for _ in range(60):  # 2**60 ways to the reshape
        node = apply(OPS["add"], [node, node])
    assert in_shape_of_source(node, given).shape == (2, 4, 3)


def test_programs() -> None:
    a = hm.asarray(np.random.default_rng(0).random((6, 4), dtype="f4"))
    for program in (
        lambda t: hm.tile(t, (3, 2)) * 2 + 1,
        lambda t: hm.kron(t, t[:2]),
        lambda t: hm.repeat(t, 3, axis=1).sin(),
        lambda t: hm.tile(t, (2, 1)).sum(axis=0),
        lambda t: hm.reshape(t.T + 1, (3, 8)) + hm.reshape(t, (3, 8)),
        lambda t: hm.functional.unfold(t[None, None], 3),
        lambda t: hm.reshape(hm.broadcast_to(t[:, None], (6, 1, 4)), (24,)) - hm.arange(24.0),
    ):
        for dtype in ("float32", "float64"):
            given_ = a.astype(dtype)
            np.testing.assert_allclose(np.asarray(hm.trace(program)(given_)), np.asarray(program(given_)), rtol=1e-6)


def test_a_token_has_one_element_in_any_shape(x: Node) -> None:
    """A value that is computed after a token may run over another shape, and the token with it."""
    one, token = (
        apply(OPS["slice"], [x], {"starts": (k, k), "stops": (k + 1, k + 1), "steps": (1, 1)}) for k in (0, 1)
    )
    tied = apply(OPS["after"], [reshape(apply(OPS["exp"], [one])), reshape(token)])
    assert in_shape_of_source(apply(OPS["sin"], [tied]), given).shape == (1, 1)
