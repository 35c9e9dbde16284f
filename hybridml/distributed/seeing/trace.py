"""Processes and their collectives in the trace event format, for Perfetto: a process a rank, on the clock of rank 0.

A rank has the tracks of its own profile, and one more for each group: its collectives, from when it came until they
were done, with the time inside that it waited. Arrows go from the rank that came last to all that waited for it, and
from who sends a message to who receives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .log import Event
from .stragglers import MESSAGES, Met, last_of

Record = dict[str, Any]
_TRACK = 1000  # the first track of groups, behind those of threads


def of_ranks(
    threads: Sequence[Sequence[Record]], names: Sequence[str], events: Sequence[Sequence[Event]], met: Sequence[Met]
) -> list[Record]:
    """All records of a file. threads: of each rank, those of its own profile, whose times are nanoseconds."""
    starts = [event.came for seen in events for event in seen]
    starts += [record["ts"] for own in threads for record in own if "ts" in record]
    zero = min(starts, default=0)
    groups = {group: _TRACK + k for k, group in enumerate(dict.fromkeys(e.what.group for seen in events for e in seen))}
    found: list[Record] = []
    for rank, (own, name, seen) in enumerate(zip(threads, names, events, strict=True)):
        found.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": name}})
        found.append({"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": {"sort_index": rank}})
        found += [{**record, "pid": rank, **_shown(record, zero)} for record in own]
        for group in dict.fromkeys(event.what.group for event in seen):
            named = {"name": f"collectives of {group}"}
            found.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": groups[group], "args": named})
    found += _collectives(events, groups, zero)
    return [*found, *_arrows(met, groups, zero)]


def _shown(record: Mapping[str, Any], zero: int) -> Record:
    return {"ts": (record["ts"] - zero) / 1e3} if "ts" in record else {}


def _collectives(events: Sequence[Sequence[Event]], groups: Mapping[str, int], zero: int) -> Iterator[Record]:
    for rank, seen in enumerate(events):
        for event in seen:
            what, place = event.what, {"ph": "X", "pid": rank, "tid": groups[event.what.group]}
            args = {
                "label": what.detail, "bytes": what.nbytes, "number": what.number,
                "waiting, us": (event.met - event.came) / 1e3, "moving, us": (event.done - event.met) / 1e3,
            }  # fmt: skip
            span = {"ts": (event.came - zero) / 1e3, "dur": (event.done - event.came) / 1e3}
            yield {**place, **span, "name": what.name, "cat": "collective", "args": args}
            if what.name not in MESSAGES:
                span = {"ts": (event.came - zero) / 1e3, "dur": (event.met - event.came) / 1e3}
                yield {**place, **span, "name": "waiting", "cat": "waiting", "cname": "terrible", "args": {}}


def _arrows(met: Iterable[Met], groups: Mapping[str, int], zero: int) -> Iterator[Record]:
    """An arrow begins, and ends, in the collective that is drawn at its time."""
    number = 0
    for one in met:
        source, is_message = last_of(one), next(iter(one.values())).what.name in MESSAGES
        if is_message:
            source = next(rank for rank, event in one.items() if event.what.name == "send")
        for rank, event in one.items():
            if rank == source:
                continue
            number += 1
            first = one[source].came
            last = max((event.met + event.done) // 2 if is_message else event.met, first)
            for kind, at, end in (("s", first, source), ("f", min(last, event.done), rank)):
                yield {
                    "ph": kind, "bp": "e", "id": number, "name": "message" if is_message else "waited for",
                    "cat": "arrow", "pid": end, "tid": groups[event.what.group], "ts": (at - zero) / 1e3,
                }  # fmt: skip
