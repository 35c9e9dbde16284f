"""Loops whose first and last steps are numbers of the program: every way to run them takes these steps alone."""

from __future__ import annotations

import numpy as np
import pytest

from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.text import parse_graph, print_graph
from hybridml_compiler.pipeline import compile
from tests.support.run_plan import plan_of, run_plan

TEXT = """graph body0(%0: f64[], %1: f64[]) {{
  %2 = const 0.5 : f64[]
  %3 = multiply(%0, %2) : f64[]
  %4 = add(%3, %1) : f64[]
  %5 = multiply(%1, %1) : f64[]
  return %4, %5
}}
graph sums(%0: i64[], %1: i64[], %2: f64[], %3: f64[9]) {{
  %4 = loop(%0, %1, %2, %3) {{body=body0, carries=1, condition=None, consts=0, counted=2, first=2, length=9, \
parallel=False, result=0, reverse={reverse}, step=None}} : f64[]
  %5 = loop(%0, %1, %2, %3) {{body=body0, carries=1, condition=None, consts=0, counted=2, first=2, length=9, \
parallel=False, result=1, reverse={reverse}, step=None}} : f64[9]
  return %4, %5
}}
"""


@pytest.mark.parametrize("reverse", [False, True])
def test_steps_begin_and_end_where_numbers_say(reverse: bool) -> None:
    graph = parse_graph(TEXT.format(reverse=reverse))
    assert print_graph(graph) == TEXT.format(reverse=reverse).rstrip("\n")
    compiled, x = compile(graph), np.random.default_rng(0).random(9)
    for count, begin in ((9, 0), (7, 2), (5, 4), (3, 3), (2, 6), (0, 0), (12, 5), (4, -3), (-2, 0), (20, 12)):
        total, squares = 1.5, np.zeros(9)
        steps = range(max(begin, 0), min(max(count, 0), 9))
        for k in reversed(steps) if reverse else steps:
            total, squares[k] = total * 0.5 + x[k], x[k] * x[k]
        given = [np.array(count), np.array(begin), np.array(1.5), x]
        for found in (interpret(graph, given), compiled(given), run_plan(plan_of(graph), given, 2, {})):
            assert found is not None
            np.testing.assert_array_equal(found[0], total)
            np.testing.assert_array_equal(found[1], squares)
