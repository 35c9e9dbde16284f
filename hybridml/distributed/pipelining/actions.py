"""The order of the forwards (F) and backwards (B) of micro-batches in a stage, and when each of them may happen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
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


def ends(
    orders: Sequence[Sequence[Action]], seconds: Callable[[int, Action], float], message: float = 0.0
) -> list[dict[Action, float]]:
    """The time at which each action of each stage ends: a stage does one after the other, each once what it needs of
    its neighbour has come, for which a message takes so long. `seconds`: of an action of a stage."""
    found: list[dict[Action, float]] = [{} for _ in orders]
    waiting: dict[tuple[int, Action], int] = {}  # an action that is needed: the stage that waits for it
    free, ready = [0.0] * len(orders), deque(range(len(orders)))
    while ready:
        stage = ready.popleft()
        for action in orders[stage][len(found[stage]) :]:
            source = stage - 1 if action.kind == "F" else stage + 1
            came = 0.0
            if 0 <= source < len(orders):
                if action not in found[source]:
                    waiting[source, action] = stage
                    break
                came = found[source][action] + message
            free[stage] = found[stage][action] = max(free[stage], came) + seconds(stage, action)
            if (follower := waiting.pop((stage, action), None)) is not None:
                ready.append(follower)
    return found


def timeline(orders: Sequence[Sequence[Action]]) -> list[list[Action | None]]:
    """The action of each stage at each time, None where it waits, if a forward takes as long as a backward."""
    at = [
        {round(end) - 1: action for action, end in stage.items()} for stage in ends(orders, lambda stage, action: 1.0)
    ]
    length = max(map(max, at)) + 1
    return [[stage.get(k) for k in range(length)] for stage in at]


def grid(orders: Sequence[Sequence[Action]]) -> str:
    """The timeline as text, a line for each stage, and the share of the time in which stages wait."""
    rows = timeline(orders)
    width = max(len(str(action)) for order in orders for action in order)
    cells = [["." if action is None else str(action) for action in row] for row in rows]
    lines = [f"stage {k}  " + " ".join(f"{cell:<{width}}" for cell in row).rstrip() for k, row in enumerate(cells)]
    waits = sum(action is None for row in rows for action in row) / sum(map(len, rows))
    return "\n".join([*lines, f"bubbles: {waits:.0%}"])
