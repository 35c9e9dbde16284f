"""Arrays that are updated: by slices and rows that are replaced, and by loops that do so with a carry in every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ops.control import LOOP
from .ir import Graph, Node


def is_update(node: Node) -> bool:
    return node.op is not None and node.op.is_update


def is_awaited(node: Node) -> bool:
    """Whether it is the result of an asynchronous operation, which is what its first operand has become."""
    return node.op is not None and node.op.asynchronous == "wait"


def is_updated(start: Node, end: Node) -> bool:
    """Whether one array is another one after updates of it, by slices and by loops."""
    return bool(versions(start, end))


def versions(start: Node, end: Node) -> list[Node]:
    """An array and what it is after each of its updates, from `start` to `end`; nothing, where that is another one."""
    found = [end]
    while found[-1] is not start:
        before = old_of(found[-1])
        if before is None:
            return []
        found.append(before)
    return found[::-1]


def old_of(node: Node) -> Node | None:
    """The array that an update replaces a slice or rows of, or a loop that does so with its carry; or what an
    asynchronous operation was begun with."""
    if is_update(node) or is_awaited(node) or (node.kind == "scatter" and node.inputs[0] not in node.inputs[1:]):
        return node.inputs[0]
    if node.op is LOOP and updates_carry(node.params["body"].graph, node.params, node.params["result"]):
        return node.inputs[carry_position(node)]
    return None


def carry_position(node: Node) -> int:
    """The operand of a loop in which the carry starts that is this result of it."""
    position: int = node.params["counted"] + node.params["consts"] + node.params["result"]
    return position


def updates_carry(body: Graph, params: Mapping[str, Any], k: int) -> bool:
    """Whether a step of a loop only updates carry `k`, so that one memory of it is enough for all steps."""
    if k >= params["carries"]:
        return False
    end, start = body.outputs[k], body.inputs[params["consts"] + k]
    alone = body.outputs.count(end) == 1 and start is not end
    return alone and is_updated(start, end)
