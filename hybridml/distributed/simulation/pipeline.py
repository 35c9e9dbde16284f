"""Stages of a pipeline, each on a process of its own, and the batch in parts that follow each other through them.

GPipe (Huang et al., 2019) runs all forwards and then all backwards; one forward, one backward (Narayanan et al.,
PipeDream, 2019) begins a backward as soon as there is one, so that a stage keeps the activations of fewer parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hybridml_compiler.errors import ArgumentError

from .links import Link

Task = tuple[str, int]  # "forward" or "backward", of a part of the batch


def _gpipe(stage: int, stages: int, parts: int) -> list[Task]:
    return [("forward", k) for k in range(parts)] + [("backward", k) for k in reversed(range(parts))]


def _alternating(stage: int, stages: int, parts: int) -> list[Task]:
    ahead = min(stages - stage, parts)  # forwards before the first backward
    order: list[Task] = [("forward", k) for k in range(ahead)]
    for k in range(parts):
        order.append(("backward", k))
        if k + ahead < parts:
            order.append(("forward", k + ahead))
    return order


SCHEDULES: Mapping[str, Callable[[int, int, int], list[Task]]] = {"gpipe": _gpipe, "1f1b": _alternating}


@dataclass(frozen=True)
class PipelineTimes:
    """A step of a pipeline: its milliseconds, those that each stage works, and how many parts of the batch a stage has
    activations of at most."""

    step_ms: float
    work_ms: tuple[float, ...]
    kept: tuple[int, ...]

    @property
    def bubble(self) -> float:
        """The part of the step in which a stage waits, in the mean of the stages."""
        return 1 - sum(self.work_ms) / (len(self.work_ms) * self.step_ms)


def simulate_pipeline(
    forward_ms: Sequence[float],
    backward_ms: Sequence[float],
    nbytes: float,
    microbatches: int,
    link: Link,
    *,
    schedule: str = "1f1b",
) -> PipelineTimes:
    """Predicts the step of a pipeline: each stage on a process, which sends activations on and gradients back.

    forward_ms, backward_ms: milliseconds of each stage for one of the `microbatches` parts of the batch. nbytes: of
    what a stage sends to the next one, which goes on beside its work. schedule: "gpipe" or "1f1b". Raises ArgumentError
    for another, for lists of different lengths, and without a stage or a part.

    >>> from hybridml import distributed as dist
    >>> free = dist.Link(latency=0.0, bandwidth=1e18)
    >>> found = dist.simulate_pipeline([1.0] * 4, [2.0] * 4, 1e6, 12, free)
    >>> round(found.step_ms, 6), round(found.bubble, 6), found.kept
    (45.0, 0.2, (4, 3, 2, 1))
    """
    stages = len(forward_ms)
    if schedule not in SCHEDULES:
        raise ArgumentError(f"simulate_pipeline: schedule is {' or '.join(map(repr, SCHEDULES))}, got {schedule!r}")
    if not stages or stages != len(backward_ms) or microbatches < 1:
        raise ArgumentError(
            "simulate_pipeline: needs a forward and a backward time for each stage, and one part of the batch, got "
            f"{stages} and {len(backward_ms)} times and {microbatches} parts"
        )
    orders = [SCHEDULES[schedule](s, stages, microbatches) for s in range(stages)]
    ends = _ends(orders, {"forward": forward_ms, "backward": backward_ms}, 1e3 * link.message(nbytes))
    work = [microbatches * (f + b) for f, b in zip(forward_ms, backward_ms, strict=True)]
    return PipelineTimes(max(ends.values()), tuple(work), tuple(map(_kept, orders)))


def _ends(
    orders: Sequence[Sequence[Task]], durations: Mapping[str, Sequence[float]], message: float
) -> dict[tuple[int, str, int], float]:
    """When each task ends: a stage does one after the other, each once what it needs of its neighbour has come."""
    stages = len(orders)
    ends: dict[tuple[int, str, int], float] = {}
    waits: dict[tuple[int, str, int], int] = {}  # a task that is needed: the stage that waits for it
    at, free = [0] * stages, [0.0] * stages
    ready = deque(range(stages))
    while ready:
        stage = ready.popleft()
        while at[stage] < len(orders[stage]):
            kind, part = orders[stage][at[stage]]
            source = stage - 1 if kind == "forward" else stage + 1
            came = 0.0
            if 0 <= source < stages:
                if (source, kind, part) not in ends:
                    waits[source, kind, part] = stage
                    break
                came = ends[source, kind, part] + message
            free[stage] = ends[stage, kind, part] = max(free[stage], came) + durations[kind][stage]
            at[stage] += 1
            if (waiting := waits.pop((stage, kind, part), None)) is not None:
                ready.append(waiting)
    return ends


def _kept(order: Sequence[Task]) -> int:
    """The most parts of which a stage has run the forward, and not yet the backward."""
    most = open_ = 0
    for kind, _ in order:
        open_ += 1 if kind == "forward" else -1
        most = max(most, open_)
    return most
