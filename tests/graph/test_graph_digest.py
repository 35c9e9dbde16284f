"""The digest of a graph says all that compiling looks at, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.digest import digest
from hybridml_compiler.graph.ir import Graph, Node, constant, input_node
from hybridml_compiler.graph.rewrite import make


def inputs(*types: str, name: str = "x") -> list[Node]:
    return [input_node(Aval((4, 3), np.dtype(kind)), f"{name}{k}") for k, kind in enumerate(types)]


def test_names_and_lines_do_not_count() -> None:
    made = []
    for name in ("x", "other"):
        x, y = inputs("f4", "f4", name=name)
        made.append(digest(Graph((x, y), (make("add", x, y),), name)))
    assert made[0] == made[1]


def test_everything_else_counts() -> None:
    x, y = inputs("f4", "f4")
    z, w = inputs("f8", "f8")
    large = np.arange(100.0, dtype="f4").reshape(1, 100)[:, :3]
    other = large.copy()
    other[0, 2] = 7
    graphs = [
        Graph((x, y), (make("add", x, y),)),
        Graph((x, y), (make("add", y, x),)),
        Graph((x, y), (make("subtract", x, y),)),
        Graph((x, y), (make("add", x, y), x)),
        Graph((x, y), (x, make("add", x, y))),
        Graph((z, w), (make("add", z, w),)),
        Graph((x,), (make("sum", x, axis=(0,)),)),
        Graph((x,), (make("sum", x, axis=(1,)),)),
        Graph((x, y), (make("sum", x, axis=(1,)),)),
        *(Graph((x,), (make("add", x, constant(np.float32(c))),)) for c in (0.0, -0.0, 1.0, np.nan)),
        *(Graph((x,), (make("add", x, constant(c)),)) for c in (large, other)),
        Graph((), (constant(np.zeros((0, 3), "f4")),)),
        Graph((), ()),
    ]
    assert len({digest(graph) for graph in graphs}) == len(graphs)


def test_it_is_the_same_in_every_process() -> None:
    program = """
import numpy as np
from hybridml_compiler.graph.digest import digest
from hybridml_compiler.graph.ir import Graph, graph_of, constant
from hybridml_compiler.graph.rewrite import make
x, = graph_of([np.zeros((4, 3), "f4")])
y = make("astype", make("multiply", x, constant(np.arange(3, dtype="f4"))), dtype=np.dtype("f8"))
print(digest(Graph((x,), (y, make("sum", y, axis=(0, 1))))))
"""
    runs = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert len(runs) == 1


@pytest.mark.parametrize("depth", [5000])
def test_deep_graphs(depth: int) -> None:
    (x,) = node = inputs("f4")
    for _ in range(depth):
        node = [make("negative", *node)]
    assert len(digest(Graph((x,), (node[0],)))) == 64
