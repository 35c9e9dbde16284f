"""The parts of a loop, as pairs of what is outside and what stands for it in the body: passes change them, and make
nodes of the loop again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..graph.body import Body, body_of
from ..graph.ir import Graph, Node, apply, topological, with_inputs
from ..ops.control import LOOP
from ..record import record
from ..sizes.dims import Size

Results = dict[int, Node]  # of a run: by number, those that are read
Optimize = Callable[[Body], Body]


@record(frozen=False)
class Loop:
    """A loop over nodes of one region: pairs of an operand and the input that it is bound to."""

    count: Node | None
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

    @staticmethod
    def of(node: Node, operands: Sequence[Node]) -> Loop:
        """The loop that a node is a result of, with other operands."""
        p = node.params
        body: Graph = p["body"].graph
        count, rest = (operands[0], operands[1:]) if p["counted"] else (None, operands)
        n, m = p["consts"], p["consts"] + p["carries"]
        go = None
        if p["condition"] is not None:
            own: Graph = p["condition"].graph
            (go,) = substitute(own.outputs, dict(zip(own.inputs, body.inputs, strict=False)))
        return Loop(
            count, list(zip(rest[:n], body.inputs, strict=False)),
            list(zip(rest[n:m], body.inputs[n:m], body.outputs, strict=False)),
            list(zip(rest[m:], body.inputs[m:], strict=True)), list(body.outputs[p["carries"] :]),
            list(body.checks), go,
            p["length"], p["reverse"], p["step"], p["first"],
        )  # fmt: skip

    def nodes(self, wanted: Iterable[int], optimized: Optimize) -> Results:
        """Its results as nodes of the graph."""
        kept = [*(c for _, c in self.consts), *(c for _, c, _ in self.carries)]
        outputs = (*(c for *_, c in self.carries), *self.ys)
        body = Graph((*kept, *(x for _, x in self.xs)), outputs, "body", tuple(self.checks))
        condition = None if self.go is None else optimized(body_of(Graph(tuple(kept), (self.go,), "condition")))
        params: dict[str, Any] = {
            "body": optimized(body_of(body)), "condition": condition, "consts": len(self.consts),
            "carries": len(self.carries), "length": self.length, "counted": self.count is not None,
            "reverse": self.reverse, "step": self.step, "first": self.first,
        }  # fmt: skip
        operands = [start for start, *_ in (*self.consts, *self.carries, *self.xs)]
        operands = operands if self.count is None else [self.count, *operands]
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
