"""Events of a profile, each with the time that is its own, and their sums by name and by source line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .kernels import kernel_name, launch_flops, shares
from .record import Call, Recording, describe


@dataclass(eq=False)
class Event:
    """Something that ran from `start` to `end` (nanoseconds). `lines`: the user's lines, each with its part of it."""

    name: str
    kind: str  # "operation", "call", "compile" (a call that did), "program", "launch", "part"
    thread: int
    start: int
    end: int
    lines: Mapping[str, float]
    bytes: int = 0
    flops: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    inside: Event | None = None
    self_ns: int = 0  # without the events inside
    watching: int = 0  # nanoseconds that its hook took beside it
    watched: int = 0  # the same of all events inside: they are no time of this one
    again: Callable[[], Any] | None = None  # does an eager operation again

    @property
    def total_ns(self) -> int:
        return self.end - self.start - self.watched


@dataclass
class Row:
    """Sums over events: milliseconds, bytes read and written, floating-point operations."""

    name: str
    kind: str
    count: int = 0
    total_ms: float = 0.0
    self_ms: float = 0.0
    bytes: float = 0.0
    flops: float = 0.0
    lines: tuple[str, ...] = ()


def events_of(recording: Recording) -> list[Event]:
    """All events in the order of their starts, nested within their threads."""
    found = [_call(call) for call in recording.calls]
    for executable, spans, _ in recording.launches:
        launches = executable.launches
        names, counts = [kernel_name(launch) for launch in launches], launch_flops(launches)
        # The library compiles once for all lines that use it: those launches belong to the line that calls it now.
        lines = [shares(launch) if executable in recording.own else {} for launch in launches]
        details = [{"program": executable.name, "launch": k, "why": list(x.reasons)} for k, x in enumerate(launches)]
        for span in spans:
            k = span.launch
            moved, worked = (0, 0) if span.part else (launches[k].nbytes, counts[k])
            kind = "part" if span.part else "launch"
            found.append(
                Event(names[k], kind, span.thread, span.start, span.end, lines[k], moved, worked, details[k])
            )  # fmt: skip
    found.sort(key=lambda event: (event.start, -event.end))
    _nest(found)
    return found


def _call(call: Call) -> Event:
    kind = "compile" if call.compiled else call.kind
    lines = {describe(call.place): 1.0}
    return Event(
        call.name, kind, call.thread, call.start, call.end, lines, call.bytes, call.flops,
        watching=call.watching, again=call.again,
    )  # fmt: skip


def _nest(events: Iterable[Event]) -> None:
    """Nests events, and takes inner times off the outer ones. A part is a view of its launch, which is counted."""
    open_: dict[int, list[Event]] = {}
    for event in events:
        event.self_ns = 0 if event.kind == "part" else event.end - event.start
        stack = open_.setdefault(event.thread, [])
        while stack and stack[-1].end < event.end:
            stack.pop()
        event.inside = stack[-1] if stack else None
        if not event.lines:
            event.lines = event.inside.lines if event.inside is not None else {"": 1.0}
        if event.inside is not None:
            event.inside.self_ns -= event.self_ns + event.watching
        for outer in stack if event.watching else ():
            outer.watched += event.watching
        if event.kind != "part":
            stack.append(event)


def by_name(events: Iterable[Event]) -> list[Row]:
    """Sums by operation, traced function or kernel; the most of its own time first."""
    rows: dict[tuple[str, str], Row] = {}
    for event in counted(events):
        row = rows.setdefault((event.kind, event.name), Row(event.name, event.kind))
        row.count += 1
        row.total_ms += event.total_ns / 1e6
        row.self_ms += event.self_ns / 1e6
        row.bytes += event.bytes
        row.flops += event.flops
        row.lines = tuple(dict.fromkeys([*row.lines, *event.lines]))
    return sorted(rows.values(), key=lambda row: -row.self_ms)


def by_line(events: Iterable[Event]) -> list[Row]:
    """Sums by the user's line. A launch that runs several lines counts for each by its floating-point operations; a
    line inside of a call of a traced function counts for itself and, in the total, for the line of the call."""
    rows: dict[str, Row] = {}
    for event in counted(events):
        above: set[str] = set()
        outer = event.inside
        while outer is not None:
            above |= outer.lines.keys()
            outer = outer.inside
        for line, share in event.lines.items():
            row = rows.setdefault(line, Row(line, "line"))
            row.count += 1
            row.total_ms += 0.0 if line in above else share * event.total_ns / 1e6
            row.self_ms += share * event.self_ns / 1e6
            row.bytes += share * event.bytes
            row.flops += share * event.flops
    return sorted(rows.values(), key=lambda row: -row.self_ms)


def counted(events: Iterable[Event]) -> Iterable[Event]:
    """The events to count, each moment once: all but the parts of launches."""
    return (event for event in events if event.kind != "part")
