"""Functions of scalars as graphs of elementwise rows, which are the bodies of kernels.

The function is run on tensors without axes by an interpreter of its own, which makes a node of each operation. What
the graph computes for scalars it computes for arrays, element by element: eagerly it calls the rows of its nodes, and
lowered it composes theirs, so that one kernel has all of them. A loop is one node, whose parameter is its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import TraceError, user_location
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import Body, body_of
from hybridml_compiler.loops.scalar import NumpyBuilder
from hybridml_compiler.ops.composite import lower_while
from hybridml_compiler.ops.memory_order import order_of, order_of_result
from hybridml_compiler.ops.movement import inverse
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.passes import run_passes
from hybridml_compiler.runtime.host_callback import deadline_var
from hybridml_compiler.walk import postorder

from ..control_flow.containers import flatten
from ..control_flow.duals import while_of_duals
from ..core.context import enable_grad
from ..core.interpreter import Reading, eagerly, interpret, interpreter_stack
from ..core.nested import top_nesting
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
        self.loops: set[ir.Node] = set()  # all that were made

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

    def loop(
        self, cond_fn: Callable[[Any], Any], body_fn: Callable[[Any], Any], init: Sequence[Tensor]
    ) -> list[Tensor]:
        """The carries after a loop. Its body is a graph of its own: what it reads from around it is given to it."""
        start, before = [t._array for t in init], set(self.loops)
        params = [ir.input_node(node.aval) for node in start]
        after = body_fn([self.wrap(node) for node in params])
        results = [self.lift(t)._array for t in (cond_fn(after), *after)]
        inside: dict[ir.Node, ir.Node] = dict(zip(params, params, strict=True))
        given: dict[ir.Node, ir.Node] = {}

        def within(node: ir.Node) -> ir.Node:
            """The node as the body has it."""
            if node in inside or node.value is not None:
                return inside.get(node, node)
            return given.setdefault(node, ir.input_node(node.aval))

        for node in postorder(results, lambda node: node.inputs):
            own = node.op is LOOP and node not in before  # outside of the loop it might not end
            if node.op is not None and (own or not node.inputs or not inside.keys().isdisjoint(node.inputs)):
                inner = tuple(map(within, node.inputs))
                inside[node] = ir.with_inputs(node, inner) if inner else node
        outputs = tuple(map(within, results))
        graph = ir.Graph((*params, *given.values()), outputs, "loop")
        body, operands = body_of(run_passes(graph, verify=False)[0]), [cond_fn(init)._array, *start, *given]
        made = [ir.apply(LOOP, operands, {"body": body, "result": k}, user_location()) for k in range(len(start))]
        self.loops.update(made)
        return [self.wrap(node) for node in made]

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


def capture(what: str, fn: Callable[..., Any], operands: Sequence[np.dtype]) -> Body:
    """The body that `fn(*scalars)` is, of scalars of these dtypes."""
    interpreter = ScalarCapture(what)
    inputs = [ir.input_node(Aval((), dtype)) for dtype in operands]

    def run() -> ir.Node:
        with enable_grad():  # a derivative is taken in any case
            found: Any = fn(*map(interpreter.wrap, inputs))
        if isinstance(found, bool | int | float | complex):
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
    return body_of(graph)


def _settled(t: Tensor, operands: Sequence[np.dtype]) -> Tensor:
    """The result of a kernel: a Python number has the dtype of the operands where that is of its kind."""
    aval = aval_of(t)
    if not aval.weak:
        return t
    common = operands[0]
    wanted = common if common.kind == aval.dtype.kind else dtypes.of_scalar(aval.dtype.type(0).item())
    found: Tensor = _astype.fn(t, wanted)
    return found


def evaluate(body: Body, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The function for every element of arrays, which broadcast against each other; it lies as NumPy's result would."""
    shape, order = np.broadcast_shapes(*[a.shape for a in arrays]), order_of_result(arrays)
    with np.errstate(all="ignore"):
        found = np.asarray(body.over(arrays)[0])
    if found.shape == shape and order_of(found) == order and not any(found is a for a in arrays):
        return found
    axes = order or tuple(range(len(shape)))
    made = np.empty([shape[k] for k in axes], found.dtype).transpose(inverse(axes))
    made[...] = found
    return made


def while_loop(
    cond_fn: Callable[[Any], Any],
    body_fn: Callable[[Any], Any],
    init: Sequence[Tensor],
    *,
    max_steps: int | None = None,
) -> list[Tensor]:
    """`hm.while_loop` of a list of scalars, in a function that is captured; in `jvp` there, one of dual numbers."""
    around = top_nesting()
    if around is not None:
        carry, structure = flatten([*init], "a loop of a kernel")
        found: list[Tensor] = while_of_duals(around, while_loop, cond_fn, body_fn, carry, structure, max_steps)
        return found
    level: Any = interpreter_stack()
    capturing: ScalarCapture = level.interpreter
    return capturing.loop(cond_fn, body_fn, init)


def _loop(arrays: Sequence[np.ndarray], body: Body) -> list[np.ndarray]:
    n = len(body.outputs)

    def step(*values: np.ndarray) -> Sequence[np.ndarray]:
        deadline = deadline_var.get()
        if deadline is not None:
            deadline()
        return body.over(values)

    return NumpyBuilder().while_(arrays[0], arrays[1:n], arrays[n:], step)


# while go: go, *carries = body(*carries, *given). Each element takes its own number of steps.
LOOP = Op(
    "loop", "elementwise", inputs=("operands",), variadic=True, unify=(), params={"body": None}, results=("carries",),
    infer=lambda avals, body: body.outputs[1:], eager=_loop, lower=lower_while, samples=lambda _: (), public=False,
    complex_kernels=True,
)  # fmt: skip
