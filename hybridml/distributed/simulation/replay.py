"""The time of a tape, of which each collective takes what a link says: discrete events of two clocks, that of the
program and that of the collectives that go on beside it, one after the other.

All processes run the same program, so that one of them stands for all.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .tape import Entry


@dataclass(frozen=True)
class Times:
    """Seconds of a step: work and what the program stood still for make up the step; the other part of the
    communication is hidden behind work. `parts`: of the communication, by collective and label."""

    work: float
    communication: float
    blocked: float
    parts: dict[tuple[str, str], tuple[int, int, float]]  # calls, bytes, seconds

    @property
    def step(self) -> float:
        """Seconds of the whole step."""
        return self.work + self.blocked

    @property
    def hidden(self) -> float:
        """Seconds of communication behind which work went on."""
        return self.communication - self.blocked


def replayed(tape: Sequence[Entry], cost: Callable[[str, int], float], overlap: bool) -> Times:
    """The times of a tape whose collectives cost so much. Without `overlap` what was begun is done when it is waited
    for, as it is where no core is free for it."""
    at = free = 0.0  # the program, and the end of the last collective
    ends: dict[int, float] = {}
    queue: deque[int] = deque()
    parts: dict[tuple[str, str], tuple[int, int, float]] = defaultdict(lambda: (0, 0, 0.0))

    def moved(entry: Entry) -> float:
        """The end of a collective that may begin now."""
        seconds = cost(entry.name, entry.nbytes)
        calls, nbytes, before = parts[entry.name, entry.detail]
        parts[entry.name, entry.detail] = calls + 1, nbytes + entry.nbytes, before + seconds
        return max(at, free) + seconds

    for k, entry in enumerate(tape):
        at += entry.seconds
        if entry.kind == "begin":
            if overlap:
                ends[k] = free = moved(entry)
            else:
                queue.append(k)
        elif entry.kind == "wait":
            while entry.number not in ends:
                begun = queue.popleft()
                ends[begun] = free = moved(tape[begun])
            at = max(at, ends[entry.number])
        elif entry.kind == "meet":
            while queue:  # it comes behind what was begun
                begun = queue.popleft()
                ends[begun] = free = moved(tape[begun])
            at = free = moved(entry)
    work = sum(entry.seconds for entry in tape)
    return Times(work, sum(seconds for *_, seconds in parts.values()), at - work, dict(parts))
