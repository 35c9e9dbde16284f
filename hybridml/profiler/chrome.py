"""A profile in the trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing read.

Rows are threads. A traced call holds its launches; of a launch that threads share, each thread's row has its part. The
counter `memory` has the bytes that eager arrays and compiled programs keep alive.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .events import Event
from .timeline import Timeline

# What colours stand for in chrome://tracing; Perfetto has colours of its own.
_COLOURS = {"operation": "good", "call": "thread_state_running", "launch": "rail_response", "compile": "terrible"}


def trace_events(events: Iterable[Event], memory: Timeline, threads: Mapping[int, str]) -> dict[str, Any]:
    """The object whose JSON is the file. Times are microseconds from the start of the profile."""
    events = list(events)
    process = os.getpid()
    numbers = {thread: k + 1 for k, thread in enumerate(dict.fromkeys(event.thread for event in events))}
    found: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": "hybridml"}}
    ]
    for thread, number in numbers.items():
        name = threads.get(thread, f"worker {number}")
        found.append({"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": name}})
    found += [_event(event, process, numbers[event.thread], memory.start) for event in events]
    found += _counters(memory, process)
    return {"traceEvents": found, "displayTimeUnit": "ms", "otherData": {"peak memory in bytes": memory.peak}}


def _event(event: Event, process: int, thread: int, zero: int) -> dict[str, Any]:
    details = {"bytes": event.bytes, "flops": event.flops, "lines": list(event.lines), **event.details}
    found = {
        "ph": "X", "name": event.name, "cat": event.kind, "pid": process, "tid": thread,
        "ts": (event.start - zero) / 1e3, "dur": (event.end - event.start) / 1e3,
        "args": {key: value for key, value in details.items() if value not in (0, [], [""])},
    }  # fmt: skip
    if event.kind in _COLOURS:
        found["cname"] = _COLOURS[event.kind]
    return found


def _counters(memory: Timeline, process: int) -> Iterator[dict[str, Any]]:
    alive = {"eager": 0, "traced": 0}
    for time, change, block in memory.changes:
        alive[block.kind] += change
        at = (time - memory.start) / 1e3
        yield {"ph": "C", "name": "memory", "pid": process, "tid": 0, "ts": at, "args": alive.copy()}
