"""Stages of a pipeline, each on a process of its own, and the batch in parts that follow each other through them.

GPipe (Huang et al., 2019) runs all forwards and then all backwards; one forward, one backward (Narayanan et al.,
PipeDream, 2019) begins a backward as soon as there is one, so that a stage keeps the activations of fewer parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hybridml_compiler.errors import ArgumentError

from ..pipelining.actions import actions, ends
from .links import Link

# Schedules: micro-batches of which a stage keeps the activations, by the stage, the stages and the micro-batches.
SCHEDULES: Mapping[str, Callable[[int, int, int], int]] = {
    "gpipe": lambda stage, stages, n: n,
    "1f1b": lambda stage, stages, n: min(stages - stage, n),
}


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
    kept = tuple(SCHEDULES[schedule](stage, stages, microbatches) for stage in range(stages))
    durations = {"F": forward_ms, "B": backward_ms}
    found = ends(
        [actions(microbatches, n) for n in kept], lambda stage, action: durations[action.kind][stage],
        1e3 * link.message(nbytes),
    )  # fmt: skip
    work = [microbatches * (f + b) for f, b in zip(forward_ms, backward_ms, strict=True)]
    return PipelineTimes(max(max(stage.values()) for stage in found), tuple(work), kept)
