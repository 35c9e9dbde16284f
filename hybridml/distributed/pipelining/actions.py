"""The order of the forwards (F) and backwards (B) of micro-batches in a stage, and when each of them may happen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple


class Action(NamedTuple):
    """The forward or the backward of one micro-batch."""

    kind: Literal["F", "B"]
    number: int  # of the micro-batch

    def __str__(self) -> str:
        return f"{self.kind}{self.number}"


def actions(n_microbatches: int, in_flight: int) -> list[Action]:
    """The actions of a stage that keeps the activations of at most `in_flight` micro-batches: the backward of the
    oldest one comes before each further forward."""
    found = []
    for k in range(n_microbatches + in_flight):
        if 0 <= k - in_flight < n_microbatches:
            found.append(Action("B", k - in_flight))
        if k < n_microbatches:
            found.append(Action("F", k))
    return found


def _needed(action: Action, stage: int, stages: int) -> tuple[int, Action] | None:
    """The stage, and its action, from which an action has its operand; None for the first forward, and the last."""
    source = stage - 1 if action.kind == "F" else stage + 1
    return (source, action) if 0 <= source < stages else None


def timeline(orders: Sequence[Sequence[Action]]) -> list[list[Action | None]]:
    """The action of each stage at each time, None where it waits, if a forward takes as long as a backward."""
    found: list[list[Action | None]] = [[] for _ in orders]
    done: set[tuple[int, Action]] = set()
    at = [0] * len(orders)
    while any(k < len(order) for k, order in zip(at, orders, strict=True)):
        now = [
            order[k] if k < len(order) and _needed(order[k], stage, len(orders)) in (None, *done) else None
            for stage, (k, order) in enumerate(zip(at, orders, strict=True))
        ]
        for stage, action in enumerate(now):
            found[stage].append(action)
            if action is not None:
                at[stage] += 1
                done.add((stage, action))
    return found


def grid(orders: Sequence[Sequence[Action]]) -> str:
    """The timeline as text, a line for each stage, and the share of the time in which stages wait."""
    rows = timeline(orders)
    width = max(len(str(action)) for order in orders for action in order)
    cells = [["." if action is None else str(action) for action in row] for row in rows]
    lines = [f"stage {k}  " + " ".join(f"{cell:<{width}}" for cell in row).rstrip() for k, row in enumerate(cells)]
    waits = sum(action is None for row in rows for action in row) / sum(map(len, rows))
    return "\n".join([*lines, f"bubbles: {waits:.0%}"])
