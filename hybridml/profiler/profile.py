"""`hybridml.profile`: time and memory by operation, by kernel and by source line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.once import lazy

from ..display.reports import Report, duration, size
from ..display.tables import SIZES, TIMES, Bar, Column, Figure, Table, numbers
from .chrome import trace_events
from .events import Event, Row, by_line, by_name, events_of
from .record import Recording
from .timeline import Timeline, timeline_of

_SHOWN = 20  # rows of a table that is printed
_MOST = 100  # rows of a table of a page
_COUNTED = (
    ("eager operation", "eager operations", ("operation",)), ("traced call", "traced calls", ("call", "compile")),
    ("launch", "launches", ("launch",)),
)  # fmt: skip
_STYLES = {"operation": "eager", "compile": "traced", "call": "traced", "launch": "traced"}
_KINDS = {"compile": "call that compiles", "operation": "eager operation", "call": "traced call", "launch": "kernel"}


class Profile(Report):
    """Profile of everything run inside its `with` block. `print` shows tables, notebooks HTML, `save` a trace file."""

    TEMPLATE = "profile.html.jinja"

    def __init__(self) -> None:
        self.result: Any = None  # of the function, where one was given
        self._recording: Recording | None = None
        self._open: Recording | None = None

    def __enter__(self) -> Profile:
        if self._open is not None or self._recording is not None:
            raise ArgumentError("profile: this one has been used; make another with hm.profile()")
        self._open = Recording()
        try:
            self._open.begin()
        except BaseException:
            self._open = None
            raise
        return self

    def __exit__(self, *error: object) -> None:
        assert self._open is not None, "entered"
        self._open.end()
        self._recording, self._open = self._open, None

    @property
    def recording(self) -> Recording:
        """Record of the events of this profile."""
        if self._recording is None:
            state = "is still on" if self._open is not None else "has not begun; use it with `with`"
            raise ArgumentError(f"profile: this one {state}: there is nothing to show yet")
        return self._recording

    @lazy
    def events(self) -> list[Event]:
        """Everything that ran, in order: operations, traced calls, launches and the parts of them that threads ran."""
        return events_of(self.recording)

    @lazy
    def operations(self) -> list[Row]:
        """Sums by eager operation, traced function and kernel; the most of its own time first."""
        return by_name(self.events)

    @lazy
    def lines(self) -> list[Row]:
        """Sums by source line; the most of its own time first."""
        return by_line(self.events)

    @lazy
    def memory(self) -> Timeline:
        """Arrays alive over time."""
        return timeline_of(self.recording, self.events)

    @property
    def wall_ms(self) -> float:
        """Time from begin to end, without what the profile itself has prepared."""
        return (self.recording.stop - self.recording.start) / 1e6

    @property
    def inside_ms(self) -> float:
        """Time within operations and traced calls; the rest of `wall_ms` is Python, NumPy and waiting."""
        return sum(row.self_ms for row in self.operations)

    @property
    def lost(self) -> int:
        """Launches (and parts) that were not recorded: a program has room for 262,144 of them."""
        return sum(lost for *_, lost in self.recording.launches)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for Perfetto (ui.perfetto.dev) or chrome://tracing."""
        found = trace_events(self.events, self.memory, self.recording.threads)
        Path(path).write_text(json.dumps(found), encoding="utf-8")

    # -- what it shows

    @property
    def title(self) -> str:
        """The time that it took, and the numbers of operations, calls and launches."""
        if self._recording is None:
            return "profile: on" if self._open is not None else "profile: use it with `with`"
        text = f"profile: {duration(self.wall_ms)}, of which {duration(self.inside_ms)} in hybridml"
        return text + (f" ({self._counts})" if self._counts else "") + self._missing

    @property
    def _counts(self) -> str:
        counts = [
            f"{count:,} {what if count == 1 else many}"
            for what, many, kinds in _COUNTED
            if (count := sum(row.count for row in self.operations if row.kind in kinds))
        ]
        return ", ".join(counts)

    @property
    def _missing(self) -> str:
        return f"; {self.lost:,} launches were not recorded" if self.lost else ""

    @property
    def heading(self) -> str:
        """The title of the page, with the time in all."""
        return self.title if self._recording is None else f"Profile of {duration(self.wall_ms)}"

    @property
    def figures(self) -> list[Figure]:
        """Time in all, in hybridml and outside; the peak of memory."""
        if self._recording is None:
            return []
        outside = max(self.wall_ms - self.inside_ms, 0.0)
        return [
            Figure(duration(self.wall_ms), "in all"), Figure(duration(self.inside_ms), "in hybridml"),
            Figure(duration(outside), "in Python, NumPy and waiting"), Figure(size(self.memory.peak), "peak memory"),
        ]  # fmt: skip

    @property
    def remarks(self) -> list[str]:
        """A sentence on the numbers of operations, calls and launches."""
        found = "" if self._recording is None else f"{self._counts}{self._missing}".lstrip("; ")
        return [found] if found else []

    @property
    def tables(self) -> list[Table]:
        """The sums by source line, and by operation and kernel."""
        if self._recording is None:
            return []
        kinds = Column("kind", [_KINDS.get(row.kind, row.kind) for row in self.operations])
        return [_table("by line", self.lines, []), _table("by operation and kernel", self.operations, [kinds])]

    def to_text(self) -> str:
        """Tables of the first rows, most time first, and the memory."""
        lines, operations = ("\n".join([t.caption, *t.lines(_SHOWN, name_last=True)]) for t in self.tables)
        return "\n\n".join([self.title, operations, lines, self.memory.to_text()])

    def to_dict(self) -> dict[str, Any]:
        """Plain Python data: milliseconds, rows of the tables, bytes alive at the peak by line."""
        memory = {"peak": self.memory.peak, "at_peak": self.memory.at_peak, "arenas": self.memory.arenas}
        return {
            "schema": self.SCHEMA, "wall_ms": self.wall_ms, "inside_ms": self.inside_ms, "lost": self.lost,
            "operations": [asdict(row) for row in self.operations], "lines": [asdict(row) for row in self.lines],
            "memory": memory,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<{self.title}>"


def _table(caption: str, rows: Sequence[Row], more: Sequence[Column]) -> Table:
    """The rows with most time of their own, and the sum of all others."""
    shown, rest = list(rows[:_MOST]), rows[_MOST:]
    if rest:
        others = Row(f"{len(rest):,} others", "", sum(row.count for row in rest))
        others.self_ms = sum(row.self_ms for row in rest)
        shown.append(others)
        more = [Column(column.head, [*column.cells[:_MOST], ""]) for column in more]
    longest = max((row.self_ms for row in shown), default=0.0) or 1.0
    largest = max((row.total_ms for row in shown), default=0.0)
    rates = [row.flops / row.self_ms / 1e6 if row.flops and row.self_ms > 0 else None for row in shown]
    return Table(
        caption,
        [
            Column(caption[3:], [row.name or "(no line)" for row in shown], "code"),
            Column("count", [f"{row.count:,}" for row in shown], "number"),
            numbers("total", [max(row.total_ms, 0.0) if row.kind else None for row in shown], TIMES),
            numbers("self", [max(row.self_ms, 0.0) for row in shown], TIMES, largest),
            numbers("moved", [row.bytes or None for row in shown], SIZES),
            Column("Gflop/s", ["" if rate is None else f"{rate:.1f}" for rate in rates], "number"), *more,
        ],
        [Bar(max(row.self_ms, 0.0) / longest, _STYLES.get(row.kind, "")) for row in shown],
    )  # fmt: skip


def profile(fn: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Profile:
    """Profiles time and memory: every eager operation and every kernel of traced functions, by source line.

    A context manager, or with a function: `profile(fn, *args)` runs `fn(*args)` and keeps what it returns in `result`.
    Results are what they are without: traced programs run the same kernels, with looks at the clock in between. The
    first profile of a program prepares that, which takes milliseconds that are not counted; an eager operation takes
    about 6 us longer, 0.1 us of that within what is timed. While no profile is on, nothing of it is there.

    One profile can be on at a time; it sees the operations of all threads. Raises ArgumentError for a second one.

    >>> import hybridml as hm
    >>> with hm.profile() as found:
    ...     y = hm.exp(hm.ones((1000,))) * 2
    >>> sorted(row.name for row in found.operations)
    ['exp', 'full', 'multiply']
    """
    found = Profile()
    if fn is None:
        return found
    if not callable(fn):
        raise ArgumentError(f"profile: takes a function, got {type(fn).__name__}")
    with found:
        found.result = fn(*args, **kwargs)
    return found


def memory_timeline(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Timeline:
    """The memory of `fn(*args, **kwargs)` over time, by source line: see `Timeline`. `profile(...).memory` is the same.

    >>> import hybridml as hm
    >>> step = hm.trace(lambda x: (x @ x) @ (x + 1))
    >>> found = hm.memory_timeline(step, hm.ones((64, 64)))
    >>> {block.kind for block in found.blocks} >= {"traced"}
    True
    """
    return profile(fn, *args, **kwargs).memory
