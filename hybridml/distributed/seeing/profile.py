"""`profile`: the steps of all processes of a group on one clock, and who lets the others wait."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ...display.reports import Report, duration
from ...display.tables import Table
from ..groups import Group, default
from .clocks import Clock, Reading, read
from .gathering import gathered, told
from .log import Event, Sums, What, now
from .recording import Share, process
from .statistics import Key, Statistics, copied, since, table_of
from .stragglers import Stragglers, meetings, stragglers_of
from .trace import of_ranks


class RankProfile(Report):
    """Profile of what the processes of a group run inside its `with` block, the same in all of them at its end.

    `stragglers` says who lets the others wait, `statistics` what the collectives of this process have cost in it.
    """

    def __init__(self, group: Group, path: str | os.PathLike[str] | None) -> None:
        self.group, self.path = group, None if path is None else Path(path)
        self._first: Reading | None = None  # of the clock, when the block begins
        self._start = 0
        self._share: Share | None = None
        self._before: dict[Key, Sums] = {}
        self._statistics: Statistics | None = None
        self._stragglers: Stragglers | None = None

    def __enter__(self) -> RankProfile:
        if self._first is not None or self.group.log.events is not None:
            raise ArgumentError(
                "distributed.profile: this one has been used, or another is on in this process; make another behind it"
            )
        self._first = read(self.group)
        self._share = None if self.path is None else process.join()
        self._meet()
        self._before, self.group.log.events = copied(self.group.log.sums), []
        self._start = now()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        stop, log = now(), self.group.log
        events, log.events = log.events or [], None
        self._statistics = table_of(since(self._before, log.sums))
        try:
            if kind is None:
                self._meet()  # nobody ends the recording while others are in the block
        finally:
            if self._share is not None:
                process.end(self._share)
        if kind is None:
            self._finish(events, stop)

    def _meet(self) -> None:
        if self.group.size > 1:
            self.group.meet("profile", None, "", lambda transport: None)

    def _finish(self, events: Sequence[Event], stop: int) -> None:
        """Brings everything to rank 0, and what it has found to all."""
        assert self._first is not None, "entered"
        clock = Clock(self._first, read(self.group))
        seen = [event._replace(came=c, met=m, done=d) for event in events for c, m, d in [map(clock.time, event[1:])]]
        mine = {
            "name": f"rank {self.group.rank} of {platform.node()}, {os.getpid()}", "error": clock.error, "events": seen,
            "wall": stop - self._start, "records": [] if self._share is None else self._share.records(clock),
        }  # fmt: skip
        parts = [json.loads(part) for part in gathered(self.group, json.dumps(mine).encode())]
        found = self._whole(parts).to_json(None) if parts else ""
        self._stragglers = Stragglers.from_dict(json.loads(told(self.group, found.encode())))

    def _whole(self, parts: Sequence[dict[str, Any]]) -> Stragglers:
        """Writes the file, and returns the report on all ranks."""
        events = [[Event(What(*what), *times) for what, *times in part["events"]] for part in parts]
        met = meetings(events)
        wall = sum(part["wall"] for part in parts) / len(parts) / 1e6
        found = stragglers_of(met, len(parts), wall, max(part["error"] for part in parts) / 1e6)
        if self.path is not None:
            records = of_ranks([part["records"] for part in parts], [part["name"] for part in parts], events, met)
            trace = {"traceEvents": records, "displayTimeUnit": "ms", "otherData": {"stragglers": found.title}}
            self.path.write_text(json.dumps(trace), encoding="utf-8")
        return found

    @property
    def stragglers(self) -> Stragglers:
        """Report on who lets the others wait."""
        if self._stragglers is None:
            raise ArgumentError("distributed.profile: there is nothing to show before the block has ended")
        return self._stragglers

    @property
    def statistics(self) -> Statistics:
        """Table of what the collectives of this process have cost in the block."""
        if self._statistics is None:
            raise ArgumentError("distributed.profile: there is nothing to show before the block has ended")
        return self._statistics

    @property
    def title(self) -> str:
        """The time in all, and the number of processes."""
        if self._stragglers is None:
            return "profile of a group: use it with `with`"
        return f"profile of {self.group.size} processes: {duration(self._stragglers.wall_ms)}"

    @property
    def remarks(self) -> list[str]:
        """The sentences on collectives, and on who is slow."""
        return [self.stragglers.title, self.statistics.title]

    @property
    def tables(self) -> list[Table]:
        """Tables of ranks and collectives over all, and of the collectives of this process."""
        return [*self.stragglers.tables, *self.statistics.tables]

    def to_text(self) -> str:
        """The report on stragglers, and the statistics."""
        if self._stragglers is None:
            return self.title
        return "\n\n".join([self.title, self.stragglers.to_text(), self.statistics.to_text()])

    def to_dict(self) -> dict[str, Any]:
        """Plain Python data: both reports."""
        return {
            "schema": self.SCHEMA, "size": self.group.size, "stragglers": self.stragglers.to_dict(),
            "statistics": self.statistics.to_dict(),
        }  # fmt: skip


def profile(path: str | os.PathLike[str] | None = None, group: Group | None = None) -> RankProfile:
    """Profiles the steps in its `with` block in all processes of a group: who waits for whom, on one clock.

    path: a file that rank 0 writes, for Perfetto (ui.perfetto.dev): a process a rank, with the operations and kernels
    that `hm.profile` sees, the collectives of each, and arrows from who came last to who waited. Without it, only
    collectives are looked at, which costs 1 us each. group: that of all processes by default; all of its processes must
    enter and leave the block. Clocks of processes are compared before and behind it.

    With a path, the first call of a traced function in the block prepares the program that reads the clock, which takes
    milliseconds. Raises ArgumentError where a profile is on, FileNotFoundError where the file's folder is not there,
    CollectiveError where processes do not come.

    >>> import time
    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def steps():
    ...     with dist.profile() as found:
    ...         for _ in range(3):
    ...             time.sleep(0.02 * dist.get_rank())
    ...             dist.all_reduce(hm.ones((10,)))
    ...     return found.stragglers.slowest
    >>> dist.run_threads(2, steps)
    [1, 1]
    """
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(f"distributed.profile: there is no folder {Path(path).parent} for the file")
    return RankProfile(default(group), path)
