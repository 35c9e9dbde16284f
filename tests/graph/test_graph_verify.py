"""`verify` finds each way to break a graph, and shows where."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hybridml_compiler import aval as avals
from hybridml_compiler.errors import CompileError
from hybridml_compiler.graph.ir import Graph, Node, apply, constant, input_node, with_inputs
from hybridml_compiler.graph.verify import verify
from hybridml_compiler.ops.table import OPS

X = avals.parse("f32[2,3]")


def node(op: str, *inputs: Node, **params: object) -> Node:
    return apply(OPS[op], inputs, params)


def broken_constant(array: np.ndarray) -> Node:
    made = constant(np.zeros(100, "f4"))
    made.value = array
    made.aval = avals.Aval(array.shape, X.dtype)
    return made


def changed(made: Node, **fields: object) -> Node:
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def aval_of_another_shape(x: Node) -> Node:
    return changed(node("negative", x), aval=avals.parse("f32[3]"))


def operands_of_two_dtypes(x: Node) -> Node:
    made = node("add", x, x)
    return changed(made, inputs=(x, node("astype", x, dtype="f8")))


def writable() -> np.ndarray:
    return np.zeros(3, "f4")


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (aval_of_another_shape, "the node is f32[3], negative makes f32[2,3]"),
        (operands_of_two_dtypes, "add needs inputs of one dtype, got f32[2,3], f64[2,3]"),
        (lambda x: changed(node("negative", x), inputs=(x, x)), "negative takes 1 inputs, got 2"),
        (
            lambda x: changed(node("matmul", x, node("permute_dims", x)), inputs=(x, x)),
            "matmul refuses its inputs: matmul",
        ),
        (
            lambda x: changed(node("sum", x), params={"axis": (-1,), "keepdims": False, "dtype": X.dtype}),
            "canonical is",
        ),
        (lambda x: changed(node("sum", x), params={"axis": [0]}), "parameter axis=[0] is not a plain immutable value"),
        (lambda x: changed(node("flip", x), params={"axis": (np.int64(0),)}), "is not a plain immutable value"),
        (lambda x: broken_constant(writable()), "the array of a constant is writable"),
        (lambda x: broken_constant(read_only(np.zeros((2, 3), "f4").T)), "the array of a constant is not contiguous"),
        (lambda x: broken_constant(read_only(np.zeros(3, "S3"))), "a constant of dtype |S3"),
        (lambda x: changed(broken_constant(read_only(np.zeros(3, "f4"))), aval=X), "the node is f32[2,3]"),
    ],
)
def test_a_broken_node_is_found(make: Callable[[Node], Node], message: str) -> None:
    x = input_node(X, "x")
    bad = make(x)
    with pytest.raises(CompileError) as caught:
        verify(Graph((x,), (node("abs", x), bad)), "fold")
    assert "verify: graph 'graph' after fold is broken: " in str(caught.value)
    assert message in str(caught.value)


def test_broken_signatures_are_found() -> None:
    x, y = input_node(X, "x"), input_node(X, "y")
    total = node("add", x, y)
    with pytest.raises(CompileError, match="input 'y' is used but not listed"):
        verify(Graph((x,), (total,)))
    with pytest.raises(CompileError, match="input 'x' is listed twice"):
        verify(Graph((x, y, x), (total,)))
    with pytest.raises(CompileError, match="a listed input is not an input node"):
        verify(Graph((x, y, node("abs", x)), (total,)))


def test_the_error_shows_the_neighbourhood_alone() -> None:
    x = y = input_node(X, "x")
    for k in range(40):
        y = node("add", y, constant(np.float32(k)))
        if k == 20:
            y = changed(node("negative", y), aval=avals.parse("f32[3,3]"), where="model.py:3: return -y")
            bad = y
            y = node("reshape", node("sum", y), shape=())
    with pytest.raises(CompileError) as caught:
        verify(Graph((x,), (y,)))
    shown = [line for line in str(caught.value).splitlines() if " = " in line]
    assert len(shown) == 11
    assert shown[5].startswith(">") and "= negative(" in shown[5] and "# model.py:3: return -y" in shown[5]
    assert bad.aval == avals.parse("f32[3,3]")


def test_a_whole_graph_passes() -> None:
    x, unused = input_node(X, "x"), input_node(X, "unused")
    verify(Graph((x, unused), (x, node("sum", x), node("sum", x))))
    verify(Graph((), ()))


def test_a_node_with_operands_of_other_types_is_looked_at_again() -> None:
    """A verified node is verified with other operands too, where these have the types of its own."""
    x, y = input_node(X, "x"), input_node(X, "y")
    z = input_node(avals.parse("f32[5]"), "z")
    made = node("multiply", x, node("tanh", x))
    verify(Graph((x,), (made,)))
    verify(Graph((x, y), (with_inputs(made, (y, node("tanh", y))),)))
    with pytest.raises(CompileError, match=r"multiply refuses its inputs|the node is"):
        verify(Graph((x, z), (with_inputs(made, (z, z)),)))
