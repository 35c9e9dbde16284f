"""`interpret`: order, inputs and errors, memory. That each row means what NumPy means is tested with the text."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from hybridml_compiler import aval as avals
from hybridml_compiler.errors import ArgumentError, CompileError, DTypeError, OutOfBoundsError, ShapeError
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, apply, input_node
from hybridml_compiler.graph.text import parse_graph
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS

STEP = parse_graph(
    """graph step(%0 "x": f32[4,8], %1 "w": f32[8,2]) {
        %2 = matmul(%0, %1) : f32[4,2]
        %3 = const 1.5 : f32[]
        %4 = add(%2, %3) : f32[4,2]
        %5 = sum(%4) {axis=(0, 1), dtype=f32, keepdims=False} : f32[]
        return %5, %4, %0
    }"""
)


def test_a_graph_runs_as_numpy() -> None:
    x, w = np.arange(32, dtype="f4").reshape(4, 8), np.ones((8, 2), "f4")
    total, y, same = interpret(STEP, [x, w])
    np.testing.assert_array_equal(y, x @ w + np.float32(1.5))
    assert total.shape == () and total.dtype == np.float32 and total == y.sum()
    assert same is x


def test_wrong_inputs_are_named() -> None:
    x, w = np.zeros((4, 8), "f4"), np.zeros((8, 2), "f4")
    with pytest.raises(ArgumentError, match="graph 'step' takes 2 arrays, got 1"):
        interpret(STEP, [x])
    with pytest.raises(ShapeError, match=r"needs f32\[8,2\] as input 1 \(w\), got an array of shape \(2, 8\)"):
        interpret(STEP, [x, w.T])
    with pytest.raises(DTypeError, match=r"needs f32\[4,8\] as input 0 \(x\), got an array of float64"):
        interpret(STEP, [x.astype("f8"), w])


def row(eager: Any) -> Op:
    return Op(
        "probe", "elementwise", inputs=("x",), infer=lambda x: x, eager=eager, lower=eager, samples=lambda rng: ()
    )


def test_values_are_released_after_their_last_use() -> None:
    made: list[weakref.ref[np.ndarray]] = []
    alive = []

    def eager(x: np.ndarray) -> np.ndarray:
        out = x + 1
        made.append(weakref.ref(out))
        alive.append(sum(ref() is not None for ref in made))
        return out

    op = row(eager)
    x = y = input_node(avals.parse("f64[1000]"), "x")
    for _ in range(10):
        y = apply(op, [y])
    (out,) = interpret(Graph((x,), (y,)), [np.zeros(1000)])
    assert out[0] == 10
    assert max(alive) == 2  # the operand and the result


def test_a_row_that_breaks_its_own_inference_is_found() -> None:
    x = input_node(avals.parse("f64[3]"), "x")
    with pytest.raises(CompileError, match=r"probe was inferred as f64\[3\], its eager meaning is f64\[2\]"):
        interpret(Graph((x,), (apply(row(lambda v: v[1:]), [x]),)), [np.zeros(3)])


def test_infinity_is_a_value_and_no_warning() -> None:
    x = input_node(avals.parse("f32[2]"), "x")
    (out,) = interpret(Graph((x,), (apply(OPS["divide"], [x, apply(OPS["subtract"], [x, x])]),)), [np.ones(2, "f4")])
    assert np.isinf(out).all()


@pytest.mark.usefixtures("source_lines")
def test_an_error_of_a_row_names_the_line_that_made_the_node() -> None:
    table, index = input_node(avals.parse("f32[3]"), "table"), input_node(avals.parse("i64[2]"), "index")
    taken = apply(OPS["take"], [table, index], {"axis": 0}, where="model.py:7: table[index]")
    with pytest.raises(OutOfBoundsError, match=r"\n  at model.py:7: table\[index\]$") as caught:
        interpret(Graph((table, index), (taken,)), [np.zeros(3, "f4"), np.array([0, 3])])
    assert str(caught.value).count("\n  at ") == 1
