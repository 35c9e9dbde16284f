"""The tests that `make test-near` runs for a change."""

from __future__ import annotations

import networkx as nx
import pytest

from docs.house import COMPILER, FRONT, modules
from tests.near import ALWAYS, ROOT, near


@pytest.fixture(scope="module")
def graph() -> nx.DiGraph:
    return modules(ROOT, FRONT, COMPILER, "tests")


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("hybridml/nn/dropout.py", {"nn", "optim/test_optim.py"}),  # a room, and a test that takes it from its package
        ("hybridml/nn/linear.py", {"test_docstrings.py", "test_docs.py::test_docstring_examples[hybridml.nn.linear]"}),
        ("hybridml_compiler/ops/cumulative.py", {"ops", "tracing/test_trace_rows.py"}),  # which name no module of rows
        ("hybridml/fft.py", {"test_fft.py"}),  # a room of one file
        ("hybridml/control_flow/branches.py", {"control_flow", "linalg", "random"}),  # one that a few others import
        ("hybridml_compiler/ops/gone.py", {"ops"}),  # a module that was deleted
        ("hybridml_compiler/schedule/text.py", {"schedule", "targets"}),
        ("tests/support/markup.py", {"display/test_display.py", "inspect/test_reports.py"}),
        ("tests/nn/test_nn.py", {"nn/test_nn.py"}),
        ("hybridml/display/templates/base.jinja", {"display"}),  # data of a room
        ("hybridml/core/tensor_methods.pyi", {"core"}),
        ("tests/golden/graph_text.txt", {"graph"}),
        ("docs/tutorial.md", {"test_docs.py"}),
        ("LICENSE", set()),
    ],
)
def test_tests_of_a_change(path: str, tests: set[str], graph: nx.DiGraph) -> None:
    found, notes = near([path], graph)
    assert found >= {*ALWAYS, *tests} and not notes
    assert len(found) < 60  # of 384


@pytest.mark.parametrize("path", ["pyproject.toml", "Makefile", "tests/conftest.py"])
def test_what_all_tests_are_run_by_is_said_to_be(path: str, graph: nx.DiGraph) -> None:
    found, notes = near([path], graph)
    assert found >= {*ALWAYS} and len(notes) == 1 and path in notes[0] and "`make test`" in notes[0]


def test_a_module_that_all_use_is_said_to_be_one(graph: nx.DiGraph) -> None:
    found, notes = near(["hybridml_compiler/dtypes.py"], graph)
    assert "nn" not in found and len(notes) == 1 and "`make test`" in notes[0]
