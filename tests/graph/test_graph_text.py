"""The text of the graph dialect: golden form, exact round trip, errors that name the line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from hybridml_compiler import aval as avals
from hybridml_compiler.errors import ArgumentError, OutOfBoundsError
from hybridml_compiler.graph.digest import digest
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node, apply, constant, graph_of, input_node
from hybridml_compiler.graph.text import parse_graph, print_graph
from hybridml_compiler.graph.verify import verify
from hybridml_compiler.ops.op import Op, Sample
from hybridml_compiler.ops.promotion import input_dtypes
from hybridml_compiler.ops.table import OPS


def node(op: str, *inputs: Node, where: str = "", **params: object) -> Node:
    return apply(OPS[op], inputs, params, where)


def graph() -> Graph:
    x, w = input_node(avals.parse("f32[4,8]"), "x"), input_node(avals.parse("f32[8,2]"), "w")
    y = node("add", node("matmul", x, w), constant(np.float32(0.1)), where="train.py:7: y = x @ w + 0.1")
    table = constant(np.arange(34, dtype="f4").reshape(17, 2))
    both = node("concat", y, table, axis=-2)
    return Graph((x, w), (node("sum", both, where="train.py:9: y.sum()"), y, node("astype", y, dtype="i1"), x), "step")


def test_golden(golden: Callable[[str, str], None]) -> None:
    golden("graph_text", print_graph(graph()))
    golden("graph_text_locations", print_graph(graph(), locations=True))


def test_checks_round_trip() -> None:
    x, i = input_node(avals.parse("f32[3]"), "x"), input_node(avals.parse("i64[2]"), "i")
    found = node("take", x, i, axis=0)
    text = print_graph(Graph((x, i), (x,), "f", (found,)))
    assert "  check %2\n  return %0\n" in text
    parsed = parse_graph(text)
    assert print_graph(parsed) == text and parsed.checks[0].op is OPS["take"]
    assert digest(parsed) != digest(parse_graph(text.replace("  check %2\n", "")))
    with pytest.raises(OutOfBoundsError):
        interpret(parsed, [np.zeros(3, "f4"), np.array([0, 3])])


def test_devices_round_trip() -> None:
    x = input_node(avals.parse("f32[3]@reference"))
    there = apply(OPS["multiply"], [x, constant(np.ones(3, "f4"), device="reference")])
    back = apply(OPS["transfer"], [there], {"device": "cpu"})
    graph = Graph((x,), (there, back), "moved")
    assert "@reference" in print_graph(graph) and print_graph(parse_graph(print_graph(graph))) == print_graph(graph)


def test_locations_are_comments() -> None:
    assert print_graph(parse_graph(print_graph(graph(), locations=True))) == print_graph(graph())


def test_layout_and_order_of_numbers_are_free() -> None:
    loose = (
        '\n# a graph\n graph  f ( %7 "x":f32[2] ){ # with\n\n%3=negative( %7 ):f32[2]#comments\n return  %3 , %7\n}\n\n'
    )
    parsed = parse_graph(loose)
    assert print_graph(parsed) == 'graph f(%0 "x": f32[2]) {\n  %1 = negative(%0) : f32[2]\n  return %1, %0\n}'


def test_parsing_makes_equal_nodes_one() -> None:
    text = "graph f(%0: f32[2]) {\n %1 = negative(%0) : f32[2]\n %2 = negative(%0) : f32[2]\n return %1, %2\n}"
    first, second = parse_graph(text).outputs
    assert first is second


@pytest.mark.parametrize("name", ["step", "", "<lambda>", "Model.forward", 'a "b" # {c}', "naïve\n"])
def test_names_round_trip(name: str) -> None:
    x = input_node(avals.parse("f64[]~"), name)
    parsed = parse_graph(print_graph(Graph((x,), (x,), name)))
    assert (parsed.name, parsed.inputs[0].name, parsed.inputs[0].aval) == (name, name, x.aval)


CONSTANTS = [
    *map(np.float64, ("nan", "-nan", "inf", "-inf", "-0.0", "5e-324", "1.7976931348623157e308", "0.1")),
    *map(np.float32, ("nan", "-inf", "-0.0", "1e-45", "3.4028235e38", "0.1", "16777216")),
    *(np.uint64(2**64 - 1), np.int64(-(2**63)), np.int8(-128), np.bool_(True)),
    *(np.zeros((0, 3), "i4"), np.zeros((2, 0)), np.zeros((3, 0, 2), "f4"), np.array([[True], [False]])),
    *(np.arange(16, dtype="u2").reshape(2, 8), np.arange(17, dtype="u2"), np.array([0.1, -0.0, np.nan], "f4")),
    *(np.float32("nan").view("u4") + np.uint32(7)).reshape(1).view("f4"),
]


@pytest.mark.parametrize("value", CONSTANTS, ids=repr)
def test_constants_round_trip_bit_for_bit(value: np.generic | np.ndarray) -> None:
    for weak in (False, True):
        text = print_graph(Graph((), (constant(np.asarray(value), weak=weak),)))
        (found,) = parse_graph(text).outputs
        assert found.value is not None
        assert found.aval == avals.Aval(np.shape(value), np.dtype(value.dtype), weak)
        assert found.value.tobytes() == value.tobytes()
        assert print_graph(parse_graph(text)) == text


def samples(op: Op) -> Iterator[tuple[Graph, list[np.ndarray], Sample]]:
    for sample in op.samples(np.random.default_rng(0)):
        arrays = list(sample.args[0] if op.variadic else sample.args)
        given = [avals.of(a) for a in arrays]
        arrays = [np.asarray(a, d) for a, d in zip(arrays, input_dtypes(op, given), strict=True)]
        inputs = graph_of(arrays)
        results = [{"result": k} for k in range(len(op.results))] or [{}]
        outputs = tuple(apply(op, inputs, {**sample.params, **r}) for r in results)
        yield Graph(tuple(inputs), outputs, op.name), arrays, sample


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_every_row_is_well_formed_round_trips_and_means_what_eager_means(op: Op) -> None:
    for made, arrays, sample in samples(op):
        verify(made)
        text = print_graph(made)
        parsed = parse_graph(text)
        verify(parsed)
        assert print_graph(parsed) == text
        with np.errstate(all="ignore"):
            expected = op.on_arrays(*([arrays] if op.variadic else arrays), **sample.params)
        for found, result in zip(interpret(parsed, arrays), expected if op.results else (expected,), strict=True):
            assert found.dtype == result.dtype
            np.testing.assert_array_equal(found, result)


def broken(line: str) -> str:
    return f'graph f(%0 "x": f32[3]) {{\n  {line}\n  return %0\n}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected 'graph', got the end of the line"),
        ("step(%0: f32[3]) {", "line 1, column 1: expected 'graph', got 'step"),
        ("graph (%0: f32[3]) {", "line 1, column 7: expected the name of the graph, got '("),
        ("graph f(x: f32[3]) {", "line 1, column 9: expected a value such as %0, got 'x:"),
        ("graph f(%0: f33[3]) {", "line 1, column 13: expected a type such as f32[4,8], got 'f33"),
        ("graph f(%0: f32[3] %1: f32[]) {", "line 1, column 20: expected ',', got '%1"),
        ("graph f(%0: f32[], %0: f32[]) {", "line 1, column 20: expected a value that is not yet defined, got '%0"),
        ("graph f() {\n  return\n", "line 3, column 1: expected '}', got the end of the line"),
        ("graph f() {\n", "line 2, column 1: expected 'return', got the end of the line"),
        ("graph f() {\n  return\n}\ngraph", "line 4, column 6: expected the name of the graph, got the end of"),
        ("graph f() {\n  return %0\n}", "line 2, column 10: expected a value that is defined above, got '%0'"),
        (broken("negative(%0) : f32[3]"), "line 2, column 3: expected a value such as %0, got 'negative"),
        (
            broken("%1 = negate(%0) : f32[3]"),
            "column 8: expected the name of a row of the operation table, got 'negate",
        ),
        (broken("%1 = negative(%2) : f32[3]"), "line 2, column 17: expected a value that is defined above, got '%2"),
        (broken("%1 = negative(%0, %0) : f32[3]"), "line 2, column 8: expected an application that negative accepts"),
        (
            broken("%1 = negative(%0) : f32[4]"),
            "column 23: expected f32[3], which is what negative makes of these inputs",
        ),
        (broken("%1 = negative(%0)"), "line 2, column 20: expected ':', got the end of the line"),
        (broken("%1 = negative(%0) : f32[3] # fine\n  x"), "line 3, column 3: expected a value such as %0, got 'x'"),
        (
            broken("%1 = sum(%0) {axis=3} : f32[]"),
            "expected an application that sum accepts (sum: axis 3 does not exist",
        ),
        (broken("%1 = sum(%0) {axis=} : f32[]"), "line 2, column 16: expected '{name=value, ...}'"),
        (broken("%1 = sum(%0) {axis=f()} : f32[]"), "'f()' is not a value of the graph dialect"),
        (broken("%1 = sum(%0) {0} : f32[]"), "a parameter is name=value"),
        (broken("%1 = const [1, 2] : f32[3]"), "line 2, column 14: expected data of f32[3] (cannot reshape"),
        (broken("%1 = const x : f32[]"), "expected data of f32[] ('x' is not a value of the graph dialect)"),
        (broken('%1 = const base64 "AAA" : f32[]'), "expected data of f32[]"),
        (broken("%1 = const 300 : u8[]"), "expected data of u8[]"),
    ],
)
def test_parse_errors_name_the_line_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_graph(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("parse_graph: line ")


def test_twenty_thousand_nodes_deep() -> None:
    x = y = input_node(avals.parse("f32[2]"), "x")
    for k in range(20_000):
        y = node("add", y, constant(np.float32(k % 50)))
    text = print_graph(Graph((x,), (y,)))
    assert print_graph(parse_graph(text)) == text
