"""Functions of scalars as graphs of elementwise rows, and such a graph as the columns of a row.

The function is run on tensors without axes by an interpreter of its own, which makes a node of each operation. What
the graph computes for scalars it computes for arrays, element by element: `eager` calls the rows of its nodes, and
`lower` composes theirs, so that one kernel has all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import TraceError, user_location
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.indexing import Index, Load, Scalar, at
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.passes import run_passes

from ..core.context import enable_grad
from ..core.interpreter import Reading, eagerly, interpret
from ..core.tensor import StandIn, Tensor, adopt, aval_of, leaked

_KINDS = ("elementwise", "creation")
_astype = OPS["astype"]


class ScalarTensor(StandIn):
    """A scalar of a kernel."""

    __slots__ = ()
    made_by = "a kernel"


class ScalarCapture:
    """The interpreter that makes nodes of operations on scalars (see core/interpreter.py for the members)."""

    def __init__(self, what: str) -> None:
        self.what = what

    def wrap(self, node: ir.Node) -> Tensor:
        """The tensor over a node."""
        t = ScalarTensor()
        t._array, t._node, t._version = node, None, 0
        return t

    def lift(self, value: Tensor | np.ndarray) -> Tensor:
        given: Any = value if isinstance(value, Tensor) else adopt(value)
        if type(given) is ScalarTensor:
            return given
        if given.shape:
            raise TraceError(
                f"{self.what} computes with scalars, and meets a tensor of shape {tuple(given.shape)}; pass what "
                "varies as an argument, of which the kernel is given one element at a time"
            )
        if type(given) is not Tensor:
            raise leaked(given)
        return self.constant(given)

    def constant(self, t: Tensor, weak: bool = False) -> Tensor:
        return t if type(t) is ScalarTensor else self.wrap(ir.constant(t._array, weak=weak))

    def apply(self, op: Op, operands: Sequence[Tensor], params: Mapping[str, Any]) -> tuple[Tensor, ...]:
        nodes, where = [t._array for t in operands], user_location()
        each = [{**params, "result": k} for k in range(len(op.results))] if op.results else [params]
        return tuple([self.wrap(ir.apply(op, nodes, given, where)) for given in each])

    def read(self, t: Tensor, how: Reading, what: str) -> Any:
        if how == "text":
            return None
        raise TraceError(
            f"{what}: {self.what} is compiled for elements that are not known yet; `if`, `and`, `or`, `not`, `min`, "
            "`max` and the functions of math, NumPy and hybridml take them as they are"
        )

    def write(self, t: Tensor, value: Tensor) -> None:
        t._array = value._array

    def layout(self, t: Tensor) -> np.ndarray:
        return np.empty((), t.dtype)

    def trust(self, t: Tensor) -> None:
        """Ignored: scalars are looked up nowhere."""

    def watch(self, tensors: Iterable[Tensor]) -> Callable[[], list[tuple[Tensor, Tensor]]]:
        return list


def capture(what: str, fn: Callable[..., Any], operands: Sequence[np.dtype]) -> ir.Graph:
    """The graph of `fn(*scalars)`, of scalars of these dtypes."""
    interpreter = ScalarCapture(what)
    inputs = [ir.input_node(Aval((), dtype)) for dtype in operands]

    def run() -> ir.Node:
        with enable_grad():  # a derivative is taken in any case
            found: Any = fn(*map(interpreter.wrap, inputs))
        if isinstance(found, bool | int | float):
            found = interpreter.constant(adopt(np.asarray(found)), weak=True)
        if not isinstance(found, Tensor):
            shown = "nothing on some way" if found is None else f"a {type(found).__name__}"
            raise TraceError(f"{what} returns {shown}; return one number")
        node: ir.Node = _settled(interpreter.lift(found), operands)._array
        return node

    graph = ir.Graph(tuple(inputs), (eagerly(lambda: interpret(interpreter, run)),), "kernel")
    graph = run_passes(graph, verify=False)[0]
    for node in graph.nodes():
        if node.op is not None and node.kind not in _KINDS:
            raise TraceError(
                f"{what}: {node.op.name} is no operation of one element, and no kernel can have it"
                + (f"\n  {node.where}" if node.where else "")
            )
    return graph


def _settled(t: Tensor, operands: Sequence[np.dtype]) -> Tensor:
    """The result of a kernel: a Python number has the dtype of the operands where that is of its kind."""
    aval = aval_of(t)
    if not aval.weak:
        return t
    common = operands[0]
    wanted = common if common.kind == aval.dtype.kind else dtypes.of_scalar(aval.dtype.type(0).item())
    found: Tensor = _astype.fn(t, wanted)
    return found


def evaluate(graph: ir.Graph, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The graph for every element of arrays, which broadcast against each other."""
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    values: dict[ir.Node, Any] = dict(zip(graph.inputs, arrays, strict=True))
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            if node.op is not None:
                values[node] = node.op.run([values[n] for n in node.inputs], node.params)
            elif node.value is not None:
                values[node] = node.value
    found = np.asarray(values[graph.outputs[0]])
    if found.shape != shape or any(found is a for a in arrays):
        found = np.array(np.broadcast_to(found, shape))
    return found


def lowered(s: Any, i: Index, graph: ir.Graph, loads: Sequence[Load]) -> Scalar:
    """The graph for element `i`, by the scalar builder `s`."""
    values: dict[ir.Node, Any] = {node: at(load, i) for node, load in zip(graph.inputs, loads, strict=True)}
    for node in graph.nodes():
        if node.op is not None:
            operands = [Known(values[n], n.dtype) for n in node.inputs]
            values[node] = node.op.lower(s, (), *operands, **node.params)
        elif node.value is not None:
            values[node] = s.const(node.value.item(), node.dtype)
    return values[graph.outputs[0]]


class Known:
    """A scalar as an operand that `lower` loads."""

    shape = ()

    def __init__(self, value: Any, dtype: np.dtype) -> None:
        self.value, self.dtype = value, dtype

    def __call__(self, index: Index) -> Any:
        return self.value
