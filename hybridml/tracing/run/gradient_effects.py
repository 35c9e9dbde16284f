"""Effects of a program's gradient: the state that it updates, and the results that it may not compute again.

A backward reads state that it updates, such as the token of a group's collectives, as it is by then. It takes results
of collectives from the call that it is the gradient of: to call them again, all processes would have to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hybridml_compiler.errors import TraceError
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.movement import inverse
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import replace

from ..capture.tracer import Input, Tracer

T = TypeVar("T")
Update = tuple[Input, ir.Node]  # the state before the gradient runs, and after it


def is_called_once(node: ir.Node) -> bool:
    """Whether a node's result depends on what other processes do, so that it is not computed again."""
    return node.op is not None and node.op.kind == "effect"


def with_updates(tracer: Tracer, derive: Callable[[], T], forward: set[ir.Node], name: str) -> tuple[T, list[Update]]:
    """The result of `derive`, which is traced, and its updates of tensors that it captures. Shadows are as before.

    `forward`: the inputs of the program that is differentiated. Where the gradient updates a tensor among these, it is
    derived a second time, from an input of its own: it starts from the state when it runs, and not from that when the
    program ran. Raises TraceError where it updates an argument.
    """
    before = {id(i): (i, i.shadow._array) for i in tracer.inputs}
    present: dict[int, Input] = {}
    while True:
        for key, now in present.items():
            before[key][0].shadow._array = now.start
        try:
            found = tracer.run(derive)
            sources = [present.get(id(i), i) for i in tracer.inputs]
            updates = [(i, i.shadow._array) for i in sources if i.shadow._array is not _start(i, before)]
        finally:
            for i in tracer.inputs:
                i.shadow._array = before[id(i)][1] if id(i) in before else i.start
        again = [i for i, _ in updates if id(i) in before and (i.node in forward or before[id(i)][1] is not i.start)]
        if not again:
            return found, updates
        for i in again:
            if i.kind != "held":
                raise TraceError(
                    f"the backward of {name} updates {i.node.name}, an argument of {name}, when the call is over; "
                    "update a captured tensor, or call backward() inside the traced function"
                )
            present[id(i)] = _as_it_is_then(i)


def _start(i: Input, before: dict[int, tuple[Input, ir.Node]]) -> ir.Node:
    return before[id(i)][1] if id(i) in before else i.start


def _as_it_is_then(i: Input) -> Input:
    """An input of its own for the same tensor."""
    node = ir.input_node(i.node.aval, i.node.name, i.node.where)
    start = node if i.order is None else ir.apply(OPS["permute_dims"], [node], {"axes": inverse(i.order)})
    return replace(i, node=node, start=start, leaf=None)
