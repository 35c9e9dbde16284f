"""The definition of the graph dialect by an interpreter: NumPy computes every node, in order.

Any other stage is right when its results agree with this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from .. import aval as avals
from ..errors import LOCATION, ArgumentError, CompileError, DTypeError, HybridmlError, ShapeError
from ..sizes.values import bindings, substitute
from .ir import Graph, Node

NO_SIZES: Mapping[str, int] = MappingProxyType({})
Visit = Callable[[Node, list[np.ndarray], np.ndarray], object]  # an application, its operands and its value


def interpret(
    graph: Graph, arrays: Sequence[Any], visit: Visit | None = None, sizes: Mapping[str, int] = NO_SIZES
) -> list[np.ndarray]:
    """The outputs of `graph` for these inputs, by the `eager` column of each row. `visit` sees every application;
    `sizes`: of the symbols that no input has, those of the steps of loops around.

    `arrays`: one array per input, of exactly its shape and dtype (`ArgumentError` for their number, `ShapeError`,
    `DTypeError`). A value is released after its last use. Outputs may share memory with inputs and each other.

    >>> from .text import parse_graph
    >>> double = parse_graph("graph double(%0: f32[2]) {\\n %1 = add(%0, %0) : f32[2]\\n return %1\\n}")
    >>> interpret(double, [np.array([1, 2], "f4")])
    [array([2., 4.], dtype=float32)]
    """
    sizes = {**sizes, **bindings([node.aval.shape for node in graph.inputs], [np.shape(a) for a in arrays])}
    values = _inputs(graph, arrays, sizes)
    nodes = graph.nodes()
    runs: dict[Any, list[np.ndarray]] = {}  # of operations that are several nodes each
    last_use: dict[Node, int] = dict.fromkeys(graph.outputs, len(nodes))  # that of a check is none
    for k in range(len(nodes) - 1, -1, -1):
        for operand in nodes[k].inputs:
            last_use.setdefault(operand, k)
    with np.errstate(all="ignore"):  # inf and nan are values here, as in compiled code
        for k, node in enumerate(nodes):
            if node.op is not None:
                operands = [values[n] for n in node.inputs]
                values[node] = _run(node, operands, runs, sizes)
                if visit is not None:
                    visit(node, operands, values[node])
                for operand in node.inputs:
                    if last_use[operand] == k:
                        values.pop(operand, None)
            elif node.value is not None:
                values[node] = node.value
    return [values[node] for node in graph.outputs]


def _inputs(graph: Graph, arrays: Sequence[Any], sizes: Mapping[str, int]) -> dict[Node, np.ndarray]:
    if len(arrays) != len(graph.inputs):
        raise ArgumentError(
            f"interpret: graph {graph.name!r} takes {len(graph.inputs)} arrays, got {len(arrays)}; pass one an input"
        )
    values: dict[Node, np.ndarray] = {}
    for k, (node, given) in enumerate(zip(graph.inputs, arrays, strict=True)):
        array = np.asarray(given)
        what = f"interpret: graph {graph.name!r} needs {node.aval} as input {k}{f' ({node.name})' if node.name else ''}"
        if array.dtype != node.dtype:
            raise DTypeError(f"{what}, got an array of {array.dtype}; cast it with astype")
        if array.shape != substitute(node.shape, sizes):
            raise ShapeError(f"{what}, got an array of shape {array.shape}")
        values[node] = array
    return values


def _run(
    node: Node, operands: list[np.ndarray], runs: dict[Any, list[np.ndarray]], sizes: Mapping[str, int]
) -> np.ndarray:
    op = node.op
    assert op is not None
    params = {name: substitute(value, sizes) for name, value in node.params.items()} if sizes else node.params
    try:
        if op.kind == "control" or op.results:
            params = {**params, "result": None}
            key = op, node.inputs, tuple(params.items())
            if key not in runs:
                if sizes and op.kind == "control":
                    params |= {name: value.at(sizes) for name, value in params.items() if hasattr(value, "at")}
                runs[key] = op.run(operands, params)
            result = runs[key][node.params["result"]]
        else:
            result = op.run(operands, params)
    except HybridmlError as error:  # the line that made the node, not the one that runs the graph
        if not node.where:
            raise
        raise type(error)(f"{str(error).partition(LOCATION)[0]}{LOCATION}{node.where}") from None
    value = np.asarray(result)
    if value.shape != (substitute(node.shape, sizes) if sizes else node.shape) or value.dtype != node.dtype:
        raise CompileError(f"interpret: {op.name} was inferred as {node.aval}, its eager meaning is {avals.of(value)}")
    return value
