"""The rewriting engine: order, fixpoint, locations, statistics, and rules that are wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from hybridml_compiler import aval as avals
from hybridml_compiler.errors import CompileError
from hybridml_compiler.graph.ir import Graph, Node, apply, constant, input_node
from hybridml_compiler.graph.rewrite import CONSTANT, Rule, Rules, make, rewrite
from hybridml_compiler.ops.table import OPS

X = input_node(avals.parse("f32[3]"), "x")


def rule(op: str, match: Callable[[Node], Node | None], name: str = "rule") -> Rule:
    return Rule(name, (op,), match, tuple)


def rules(*found: Rule) -> Rules:
    return Rules(found)


def drop(node: Node) -> Node:
    return node.inputs[0]


def test_an_unchanged_graph_is_the_same_object() -> None:
    graph = Graph((X,), (make("abs", X), X))
    assert rewrite(graph, rules(rule("negative", drop))) is graph
    assert rewrite(graph, rules(rule("abs", lambda node: node))) is graph


def test_operands_come_first_and_replacements_are_rewritten_too() -> None:
    stats: Counter[str] = Counter()
    table = rules(
        rule("negative", lambda n: make("abs", make("square", n.inputs[0])), "negative"),
        rule("square", lambda n: make("multiply", n.inputs[0], n.inputs[0]), "square"),
        rule("abs", lambda n: n.inputs[0] if n.inputs[0].op is OPS["multiply"] else None, "abs"),
    )
    graph = Graph((X,), (make("add", make("negative", X), constant(np.float32(1))), make("abs", X)))
    first, second = rewrite(graph, table, stats).outputs
    assert first is make("add", make("multiply", X, X), constant(np.float32(1)))
    assert second is make("abs", X)
    assert stats == {"negative": 1, "square": 1, "abs": 1}


def test_the_first_rule_that_fits_wins() -> None:
    table = rules(rule("abs", lambda n: None, "never"), rule("abs", drop, "first"), rule("abs", drop, "second"))
    stats: Counter[str] = Counter()
    rewrite(Graph((X,), (make("abs", X),)), table, stats)
    assert stats == {"first": 1}


def test_a_shared_node_is_rewritten_once() -> None:
    stats: Counter[str] = Counter()
    y = make("negative", X)
    for _ in range(50):  # 2**50 paths
        y = make("add", y, y)
    rewrite(Graph((X,), (y, y)), rules(rule("negative", drop)), stats)
    assert stats == {"rule": 1}


def test_deep_graphs_need_no_recursion() -> None:
    y = X
    for _ in range(20_000):
        y = make("negative", make("abs", y))
    (out,) = rewrite(Graph((X,), (y,)), rules(rule("negative", drop), rule("abs", drop))).outputs
    assert out is X


def test_replacements_carry_the_line_of_what_they_replace() -> None:
    x = input_node(avals.parse("f32[3]"), "x")
    y = apply(OPS["floor"], [apply(OPS["tanh"], [x], where="a.py:1")], where="a.py:2")
    graph = Graph((x,), (apply(OPS["ceil"], [y], where="a.py:3"),))
    table = rules(rule("floor", lambda n: make("trunc", make("square", n.inputs[0]))))
    (ceil,) = rewrite(graph, table).outputs
    (trunc,) = ceil.inputs
    (square,) = trunc.inputs
    assert [n.where for n in (ceil, trunc, square, square.inputs[0], x)] == ["a.py:3", "a.py:2", "a.py:2", "a.py:1", ""]


def test_a_rule_that_changes_the_type_is_refused() -> None:
    graph = Graph((X,), (make("abs", X),))
    for wrong in (lambda n: make("isnan", n.inputs[0]), lambda n: make("sum", n.inputs[0])):
        with pytest.raises(CompileError, match="rule 'wrong' turned <abs: f32"):
            rewrite(graph, rules(rule("abs", wrong, "wrong")))


@pytest.mark.parametrize(
    "endless",
    [
        rules(rule("abs", lambda n: make("square", *n.inputs)), rule("square", lambda n: make("abs", *n.inputs))),
        rules(rule("abs", lambda n: make("abs", make("floor", *n.inputs)))),
        rules(rule("abs", lambda n: make("floor", make("abs", make("floor", *n.inputs))))),
    ],
    ids=["circle", "growth", "growth inside"],
)
def test_rules_that_do_not_end_are_stopped(endless: Rules) -> None:
    with pytest.raises(CompileError, match="the rules do not end"):
        rewrite(Graph((X,), (make("abs", X),)), endless)


def test_a_rule_is_tried_where_an_operand_is_what_it_needs() -> None:
    tried: list[Node] = []

    def match(node: Node) -> None:
        tried.append(node)

    beside = Rule("rule", ("multiply",), match, tuple, ("exp", CONSTANT))
    of_exp, of_number = make("multiply", X, make("exp", X)), make("multiply", X, constant(np.float32(2)))
    graph = Graph((X,), (make("multiply", X, X), of_exp, of_number, make("multiply", X, make("abs", X))))
    assert rewrite(graph, rules(beside)) is graph
    assert tried == [of_exp, of_number]
    tried.clear()
    rewrite(graph, rules(beside, rule("multiply", lambda node: None, "of any operands")))
    assert len(tried) == 4


def test_a_lasting_table_looks_once_at_a_node_that_no_rule_fits() -> None:
    tried: list[Node] = []
    table = Rules([rule("abs", lambda node: tried.append(node))], lasting=True)
    graph = Graph((X,), (make("abs", make("sinh", X)),))
    for _ in range(3):
        rewrite(graph, table)
    assert tried == [graph.outputs[0]]
    rewrite(graph, rules(rule("abs", lambda node: tried.append(node))))  # another table has to look
    assert len(tried) == 2
