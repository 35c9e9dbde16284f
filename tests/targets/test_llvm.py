"""Every row and sample of the operation table through the whole compiler, against its eager meaning."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest

from hybridml_compiler import aval as avals
from hybridml_compiler import dtypes, pipeline
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, apply, graph_of
from hybridml_compiler.ops.op import Op, Sample
from hybridml_compiler.ops.promotion import input_dtypes
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.cpu.llvm.types import literal, literals
from tests.support.rows import joined

# Reductions and products run in another order than NumPy's; everything else has the same bits.
_REORDERED = ("reduction", "contraction", "convolution", "scan")


def graph_for(op: Op, sample: Sample) -> tuple[Graph, list[np.ndarray]]:
    given = [np.asarray(a) for a in (sample.args[0] if op.variadic else sample.args)]
    wanted = input_dtypes(op, [avals.of(a) for a in given])
    arrays = [a if a.dtype == d else a.astype(d) for a, d in zip(given, wanted, strict=True)]
    nodes = graph_of(arrays)
    results = [{"result": k} for k in range(len(op.results))] or [{}]
    return Graph(tuple(nodes), tuple(apply(op, nodes, {**sample.params, **r}) for r in results), op.name), arrays


@pytest.mark.parametrize("name", OPS)
def test_compiled_row_equals_eager(name: str) -> None:
    """At its first sample, and at all of them in one program, whose modules LLVM compiles several at a time."""
    op = OPS[name]
    graphs = [graph_for(op, sample) for sample in joined(op, op.samples(np.random.default_rng(0)))]
    check(*graphs[0], exact=op.kind not in _REORDERED, label=f"{name}, its first sample")
    inputs, outputs = zip(*((graph.inputs, graph.outputs) for graph, _ in graphs), strict=True)
    together = Graph(tuple(chain(*inputs)), tuple(chain(*outputs)), name)
    check(together, [*chain(*(arrays for _, arrays in graphs))], exact=op.kind not in _REORDERED, label=name)


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.kind != "c"])  # complex ones are pairs of parts
def test_a_table_has_the_literals_of_its_numbers(dtype: np.dtype) -> None:
    numbers = [0, 1, 0.1, 1e-45, -0.0, np.inf, np.nan, -3] if dtype.kind == "f" and dtype.itemsize > 2 else [0, 1, 2]
    assert literals(numbers, dtype) == [literal(number, dtype) for number in numbers]


def check(graph: Graph, arrays: list[np.ndarray], *, exact: bool, label: str) -> None:
    expected = interpret(graph, arrays)
    got = pipeline.compile(graph)([np.ascontiguousarray(a).reshape(a.shape) for a in arrays])
    for k, (e, g) in enumerate(zip(expected, got, strict=True)):
        assert g.dtype == e.dtype and g.shape == e.shape, f"{label}, output {k}"
        if exact or e.dtype.kind != "f":
            np.testing.assert_array_equal(bits(g), bits(e), err_msg=f"{label}, output {k}")
        else:
            scale = 1e-5 if e.dtype == dtypes.float32 else 1e-12
            np.testing.assert_allclose(g, e, rtol=scale, atol=scale, err_msg=f"{label}, output {k}")


def bits(array: np.ndarray) -> Any:
    """Bit patterns, with every nan the same."""
    if array.dtype.kind != "f":
        return array
    quiet = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return quiet.view(f"u{array.dtype.itemsize}")
