"""`simulate`: what a step takes with more processes than there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ...display.reports import Report, duration
from ...display.tables import SIZES, TIMES, Column, Table, numbers
from ..transport import is_whole
from .links import Link
from .replay import Times, replayed
from .tape import Entry, taped

_SHOWN = 12  # parts that are printed
_LINK = Link(10e-6, 1e9)


@dataclass(frozen=True)
class Part:
    """Communication of a step by collective and label."""

    name: str
    label: str
    calls: int
    bytes: int
    ms: float


@dataclass(frozen=True)
class Prediction:
    """A step of one of `ranks` processes: milliseconds of work and of communication, of which the program stands still
    for `blocked_ms`, and that add up to the step: `step_ms` is work and blocked."""

    ranks: int
    step_ms: float
    work_ms: float
    communication_ms: float
    blocked_ms: float
    parts: tuple[Part, ...]

    @property
    def efficiency(self) -> float:
        """The part of the step that is work."""
        return self.work_ms / self.step_ms if self.step_ms else 1.0

    @property
    def hidden_ms(self) -> float:
        """Milliseconds of communication behind which work goes on."""
        return self.communication_ms - self.blocked_ms


@dataclass(frozen=True, repr=False)
class Simulation(Report):
    """Report on a step with several numbers of processes: `predictions`, in the order that was asked for."""

    predictions: tuple[Prediction, ...]
    latency: float
    bandwidth: float
    overlap: bool

    @property
    def title(self) -> str:
        """The first and the last prediction."""
        first, last = self.predictions[0], self.predictions[-1]
        return (
            f"simulated step: {duration(first.step_ms)} on {first.ranks:,}, {duration(last.step_ms)} on {last.ranks:,} "
            f"ranks, of which {last.efficiency:.0%} is work"
        )

    @property
    def remarks(self) -> list[str]:
        """A sentence on the link."""
        beside = "beside work" if self.overlap else "not beside work"
        link = f"{duration(self.latency * 1e3)} and {self.bandwidth / 1e9:.3g} GB/s"
        return [f"messages take {link}; what is begun moves {beside}"]

    @property
    def tables(self) -> list[Table]:
        """Steps by the number of processes, and the communication of the last one."""
        found, parts = self.predictions, self.predictions[-1].parts
        largest = max(max(p.step_ms, p.communication_ms) for p in found)
        times = [
            numbers(name, [getattr(p, f"{name}_ms") for p in found], TIMES, largest)
            for name in ("step", "work", "communication", "hidden", "blocked")
        ]
        return [
            Table("by ranks", [
                Column("ranks", [f"{p.ranks:,}" for p in found], "number"), *times,
                Column("work/step", [f"{p.efficiency:.1%}" for p in found], "number"),
            ]),
            Table(f"communication of {found[-1].ranks:,} ranks", [
                Column("collective", [p.name for p in parts], "code"),
                Column("calls", [f"{p.calls:,}" for p in parts], "number"),
                numbers("given", [p.bytes for p in parts], SIZES), numbers("time", [p.ms for p in parts], TIMES),
                Column("label", [p.label for p in parts]),
            ]),
        ]  # fmt: skip

    def to_text(self) -> str:
        """The sentences, and both tables."""
        lines = [line for table in self.tables if table.rows for line in ("", *table.lines(_SHOWN))]
        return "\n".join([self.title, *self.remarks, *lines])


def simulate(
    make: Callable[[], Callable[[], Any]],
    ranks: Sequence[int] = (1, 2, 4, 8),
    link: Link = _LINK,
    *,
    algorithm: str = "best",
    overlap: bool = True,
    repeats: int = 5,
) -> Simulation:
    """Predicts the time of a training step with any number of processes, from one of them, which runs here.

    make: makes a model and returns its step, a function without arguments, as a process of the job would: with
    `DataParallel`, `fully_shard`, or collectives of its own, eager or traced. It is called once for each number, where
    `get_world_size()` is that number and this process is rank 0; the others are not there, and values are wrong. Its
    work is measured, as that of the median of `repeats` steps; collectives then cost what the link says, and those of a
    backward go on beside it, unless `overlap` is False. algorithm: see `Link.seconds`.

    Raises ArgumentError for numbers below 1, and for steps that send messages or split groups.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def make():
    ...     model = dist.DataParallel(hm.nn.Linear(1000, 100))
    ...     return lambda: model(hm.ones((1, 1000))).sum().backward()
    >>> found = dist.simulate(make, ranks=(1, 4096), link=dist.Link(latency=5e-6, bandwidth=10e9))
    >>> alone, many = found.predictions
    >>> alone.communication_ms, many.parts[0].bytes
    (0.0, 400400)
    """
    if not ranks or not all(is_whole(size) and size > 0 for size in ranks):
        raise ArgumentError(f"simulate: ranks are numbers of processes, 1 or more, got {ranks!r}")
    if not is_whole(repeats) or repeats < 1:
        raise ArgumentError(f"simulate: repeats is a number of steps, 1 or more, got {repeats!r}")
    found = []
    tapes: dict[Any, list[Entry]] = {}
    for size in ranks:
        tape = taped(make, size, repeats)
        # Programs that differ in the number alone have one tape: what they differ in would be noise of measurements.
        tape = tapes.setdefault(tuple(entry[1:] for entry in tape), tape)
        cost = partial(_seconds, link, size, algorithm)
        found.append(_prediction(size, replayed(tape, cost, overlap)))
    return Simulation(tuple(found), link.latency, link.bandwidth, overlap)


def _seconds(link: Link, size: int, algorithm: str, name: str, nbytes: int) -> float:
    return link.seconds(name, nbytes, size, algorithm)


def _prediction(size: int, times: Times) -> Prediction:
    parts = [Part(*key, calls, nbytes, 1e3 * s) for key, (calls, nbytes, s) in times.parts.items() if size > 1]
    parts.sort(key=lambda part: -part.ms)
    step, work, communication, blocked = (1e3 * s for s in (times.step, times.work, times.communication, times.blocked))
    return Prediction(size, step, work, communication, blocked, tuple(parts))
