"""The parts of a loop, as pairs of what is outside and what stands for it in the body: passes change them, and make
nodes of the loop again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..graph.body import Body, body_of, steps_in
from ..graph.ir import Graph, Node, apply, topological, with_inputs
from ..graph.rewrite import make
from ..ops.control import LOOP
from ..record import record
from ..sizes.dims import Size, is_symbolic, steps_of
from ..sizes.steps import linear
from .patterns import is_op

Results = dict[int, Node]  # of a run: by number, those that are read
Optimize = Callable[[Body], Body]


@record(frozen=False)
class Loop:
    """A loop over nodes of one region: pairs of an operand and the input that it is bound to."""

    counts: list[Node]  # where steps end, and where they begin, if data decides that
    consts: list[tuple[Node, Node]]
    carries: list[tuple[Node, Node, Node]]  # start, input, and the value for the next step
    xs: list[tuple[Node, Node]]
    ys: list[Node]
    checks: list[Node]
    go: Node | None  # the condition
    length: int | None
    reverse: bool
    step: str | None
    first: Size
    parallel: bool

    @staticmethod
    def of(node: Node, operands: Sequence[Node]) -> Loop:
        """The loop that a node is a result of, with other operands."""
        p = node.params
        body: Graph = p["body"].graph
        counts, rest = list(operands[: p["counted"]]), operands[p["counted"] :]
        n, m = p["consts"], p["consts"] + p["carries"]
        go = None
        if p["condition"] is not None:
            own: Graph = p["condition"].graph
            (go,) = substitute(own.outputs, dict(zip(own.inputs, body.inputs, strict=False)))
        return Loop(
            counts, list(zip(rest[:n], body.inputs, strict=False)),
            list(zip(rest[n:m], body.inputs[n:m], body.outputs, strict=False)),
            list(zip(rest[m:], body.inputs[m:], strict=True)), list(body.outputs[p["carries"] :]),
            list(body.checks), go,
            p["length"], p["reverse"], p["step"], p["first"], p["parallel"],
        )  # fmt: skip

    def nodes(self, wanted: Iterable[int], optimized: Optimize) -> Results:
        """Its results as nodes of the graph."""
        kept = [*(c for _, c in self.consts), *(c for _, c, _ in self.carries)]
        outputs = (*(c for *_, c in self.carries), *self.ys)
        body = Graph((*kept, *(x for _, x in self.xs)), outputs, "body", tuple(self.checks))
        condition = None if self.go is None else optimized(body_of(Graph(tuple(kept), (self.go,), "condition")))
        params: dict[str, Any] = {
            "body": optimized(body_of(body)), "condition": condition, "consts": len(self.consts),
            "carries": len(self.carries), "length": self.length, "counted": len(self.counts),
            "reverse": self.reverse, "step": self.step, "first": self.first, "parallel": self.parallel,
        }  # fmt: skip
        operands = [*self.counts, *(start for start, *_ in (*self.consts, *self.carries, *self.xs))]
        return {k: apply(LOOP, operands, {**params, "result": k}) for k in wanted}

    def substituted(self, becomes: Mapping[Node, Node]) -> None:
        """Nodes of the body put in place of others."""
        n, m = len(self.carries), len(self.carries) + len(self.ys)
        roots = substitute([*(c for *_, c in self.carries), *self.others], becomes)
        self.carries = [(start, c, after) for (start, c, _), after in zip(self.carries, roots, strict=False)]
        self.ys, self.checks = roots[n:m], roots[m : m + len(self.checks)]
        self.go = None if self.go is None else roots[-1]

    @property
    def others(self) -> list[Node]:
        """The values that the body computes other than its carries."""
        return [*self.ys, *self.checks, *([] if self.go is None else [self.go])]


def substitute(outputs: Sequence[Node], becomes: Mapping[Node, Node]) -> list[Node]:
    """`outputs` with nodes put in place of others."""
    final = dict(becomes)
    for node in topological(outputs, becomes):
        if node not in final:
            operands = tuple([final[n] for n in node.inputs])
            final[node] = node if operands == node.inputs else with_inputs(node, operands)
    return [final[node] for node in outputs]


@record
class Stack:
    """The values of all steps, along the first axis of an array that is in memory before the loop.

    `at` is its place in a step; None where the loop takes slices of the array in their order.
    """

    array: Node
    at: Size | None

    @property
    def in_order(self) -> bool:
        return self.at is None or all(c == 1 for m, c in self.at.terms if m)


def stack_of(loop: Loop, base: Node) -> Stack | None:
    """The stack of what a loop takes slices of, or of parts of an array of which step t reads `x[t]` or `x[:, -t]`."""
    array = next((x for x, own in loop.xs if own is base), None)
    if array is not None:
        return Stack(array, None)
    if not is_op(base, "slice") or type(loop.length) is not int:
        return None
    array = outside(loop, base.inputs[0])
    starts, stops, steps = (base.params[name] for name in ("starts", "stops", "steps"))
    moving = [(k, s) for k, start in enumerate(starts) for s in steps_of(start, stops[k]) if s.name == loop.step]
    if array is None or len({k for k, _ in moving}) != 1 or any(n != 1 for n in steps) or is_symbolic(base.shape):
        return None
    axis, symbol = moving[0]
    factor, rest = linear(starts[axis], symbol)
    turns = any(s.name == loop.step for s in steps_of(rest))  # as in `i + i % 2`
    if base.shape[axis] != 1 or factor not in (1, -1) or turns or type(loop.first) is not int:
        return None
    low = rest + (loop.first if factor == 1 else 1 - loop.first - loop.length)
    starts, stops = ([*of[:axis], n, *of[axis + 1 :]] for of, n in ((starts, low), (stops, low + loop.length)))
    stack = make("slice", array, starts=starts, stops=stops, steps=steps)
    others = [k for k in range(len(starts)) if k != axis]
    stack = make("permute_dims", stack, axes=(axis, *others)) if axis else stack
    return Stack(stack, base.params["starts"][axis] - low)


def outside(loop: Loop, node: Node) -> Node | None:
    """The value before the loop of one that no step changes: what the loop is given, or a view of it."""
    given = {own: start for start, own in loop.consts}
    inside = [n for n in topological([node]) if n not in given]
    if any(n.kind != "movement" or n.op is None or loop.step in steps_in(n) for n in inside):
        return None
    return substitute([node], given)[0]


def base_of(node: Node) -> Node:
    """The value that a node has the elements of, in the same order."""
    while is_op(node, "reshape"):
        node = node.inputs[0]
    return node
