"""Stragglers: who comes last to collectives, how often and how late, and how long the others wait for it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...display.reports import Report, duration
from ...display.tables import TIMES, Column, Table, numbers
from .log import Event

_SHOWN = 16  # ranks, and collectives, that are printed
_SMALL = 0.02  # of the others' time, below which nobody is called slow
MESSAGES = ("send", "recv")  # between two processes: nobody comes last

Met = Mapping[int, Event]  # a collective as each rank has seen it, on one clock


@dataclass(frozen=True)
class Rank:
    """A process among the others. Times are milliseconds."""

    rank: int
    last: int  # collectives to which it came last
    late_ms: float  # after the others, in the mean of these
    caused_ms: float  # that all others waited for it, added up
    waited_ms: float  # that it waited for others


@dataclass(frozen=True)
class Collective:
    """A collective with one label, in all processes: the milliseconds from the first to come to the last, in the mean,
    and who was last most often."""

    group: str
    name: str
    label: str
    calls: int
    spread_ms: float
    last: int
    times: int


@dataclass(frozen=True, repr=False)
class Stragglers(Report):
    """Report on who lets the others wait: `ranks`, who costs most first, `collectives`, and the slow one in a sentence.

    meetings: the collectives that all of their processes have come to. wall_ms: the time that is looked at. error_ms:
    by which the clocks of the processes may differ.
    """

    ranks: tuple[Rank, ...]
    collectives: tuple[Collective, ...]
    meetings: int
    wall_ms: float
    error_ms: float

    @property
    def slowest(self) -> int | None:
        """The rank for which the others wait most; None where that is less than 2 % of their time."""
        first = self.ranks[0] if self.ranks else None
        return first.rank if first is not None and self._share(first) > _SMALL else None

    def _share(self, rank: Rank) -> float:
        """The part of the others' time that they wait for a rank."""
        return rank.caused_ms / (self.wall_ms * max(len(self.ranks) - 1, 1)) if self.wall_ms else 0.0

    @property
    def title(self) -> str:
        """The slow rank, and what it costs."""
        if not self.meetings:
            return "stragglers: no collective of several processes was called"
        first = self.ranks[0]
        if self.slowest is None:
            return f"stragglers: none; the others wait {self._share(first):.1%} of their time for rank {first.rank}"
        return (
            f"stragglers: rank {first.rank} comes last to {first.last:,} of {self.meetings:,} collectives, "
            f"{duration(first.late_ms)} after the others; they wait {self._share(first):.0%} of their time for it"
        )

    @property
    def remarks(self) -> list[str]:
        """A sentence on the clocks of the processes."""
        return [f"clocks of processes are known to {duration(self.error_ms)}"] if self.error_ms else []

    @property
    def tables(self) -> list[Table]:
        """Ranks, and collectives."""
        ranks, calls = self.ranks, self.collectives
        shares = [f"{self._share(r):.1%}" for r in ranks]
        return [
            Table("by rank", [
                Column("rank", [str(r.rank) for r in ranks], "number"),
                Column("last", [f"{r.last:,}" for r in ranks], "number"),
                numbers("late by", [r.late_ms for r in ranks], TIMES),
                numbers("others waited", [r.caused_ms for r in ranks], TIMES),
                Column("of their time", shares, "number"), numbers("waited", [r.waited_ms for r in ranks], TIMES),
            ]),
            Table("by collective", [
                Column("collective", [c.name for c in calls], "code"),
                Column("calls", [f"{c.calls:,}" for c in calls], "number"),
                numbers("first to last", [c.spread_ms for c in calls], TIMES),
                Column("last most often", [f"rank {c.last} ({c.times:,})" for c in calls]),
                Column("label", [c.label for c in calls]),
            ]),
        ]  # fmt: skip

    def to_text(self) -> str:
        """The sentence, and both tables."""
        tables = [line for table in self.tables for line in ("", *table.lines(_SHOWN))] if self.meetings else []
        return "\n".join([self.title, *self.remarks, *tables])

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> Stragglers:
        """The report of which this is the `to_dict()`."""
        ranks, collectives = [Rank(**r) for r in found["ranks"]], [Collective(**c) for c in found["collectives"]]
        return Stragglers(
            tuple(ranks), tuple(collectives), found["meetings"], found["wall_ms"], found["error_ms"]
        )  # fmt: skip


def meetings(events: Sequence[Sequence[Event]]) -> list[Met]:
    """The collectives and messages of which all processes that take part are here, of the events of each rank."""
    found: dict[tuple[str, str, int], dict[int, Event]] = defaultdict(dict)
    for rank, seen in enumerate(events):
        for event in seen:
            found[event.what.group, event.what.detail, event.what.number][rank] = event
    return [met for met in found.values() if len(met) == next(iter(met.values())).what.members]


def last_of(met: Met) -> int:
    """The rank that has come last."""
    return max(met, key=lambda rank: met[rank].came)


def stragglers_of(met: Iterable[Met], size: int, wall_ms: float, error_ms: float) -> Stragglers:
    """The report on collectives of `size` ranks."""
    last, late, caused, waited = Counter[int](), Counter[int](), Counter[int](), Counter[int]()
    by_label: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
    count = 0
    for one in met:
        rank = last_of(one)
        what, came = one[rank].what, one[rank].came
        if what.name in MESSAGES:
            continue
        waits = {other: came - event.came for other, event in one.items()}
        count += 1
        last[rank] += 1
        late[rank] += sum(waits.values()) // max(len(one) - 1, 1)
        caused[rank] += sum(waits.values())
        waited.update(waits)
        by_label[what.group, what.name, what.detail].append((max(waits.values()), rank))
    ranks = [
        Rank(r, last[r], late[r] / max(last[r], 1) / 1e6, caused[r] / 1e6, waited[r] / 1e6)
        for r in sorted(range(size), key=lambda r: -caused[r])
    ]
    collectives = [_collective(key, found) for key, found in by_label.items()]
    collectives.sort(key=lambda c: -c.spread_ms * c.calls)
    return Stragglers(tuple(ranks), tuple(collectives), count, wall_ms, error_ms)


def _collective(key: tuple[str, str, str], found: Sequence[tuple[int, int]]) -> Collective:
    """The sums of spreads and last ranks of a collective."""
    ((rank, times),) = Counter(rank for _, rank in found).most_common(1)
    return Collective(*key, len(found), sum(spread for spread, _ in found) / len(found) / 1e6, rank, times)
