"""The profile of a process, which ranks that are its threads share: only one can be on at a time."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .clocks import Clock

if TYPE_CHECKING:
    from ...profiler.record import Recording


class Share:
    """The part of a rank in the recording of its process: what its own thread does, and in the first of the ranks what
    the threads do that belong to none."""

    def __init__(self, recording: Recording, ranks: list[int]) -> None:
        self.recording, self._ranks, self._own = recording, ranks, threading.get_ident()
        ranks.append(self._own)

    def records(self, clock: Clock) -> list[dict[str, Any]]:
        """The records of the trace, with times in nanoseconds of rank 0's clock."""
        from ...profiler.chrome import trace_events
        from ...profiler.events import events_of
        from ...profiler.timeline import timeline_of

        recording, is_first = self.recording, self._ranks[0] == self._own
        every = events_of(recording)
        events = [e for e in every if e.thread == self._own or (is_first and e.thread not in self._ranks)]
        memory = timeline_of(recording, every)
        memory = memory if is_first else replace(memory, blocks=())
        found: list[dict[str, Any]] = trace_events(events, memory, recording.threads)["traceEvents"]
        return [
            {**one, "ts": clock.time(memory.start + round(one["ts"] * 1e3))} if "ts" in one else one
            for one in found
            if one["name"] != "process_name"
        ]


class _Process:
    """The recording of this process. All ranks have come before the first of them ends it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.recording: Recording | None = None
        self.ranks: list[int] = []

    def join(self) -> Share:
        """Begins the recording, or takes part in it."""
        from ...profiler.record import Recording

        with self.lock:
            if self.recording is None:
                recording = Recording()
                recording.begin()
                self.recording, self.ranks = recording, []
            return Share(self.recording, self.ranks)

    def end(self, share: Share) -> None:
        """Ends the recording, unless another rank has done so."""
        with self.lock:
            if self.recording is share.recording:
                share.recording.end(as_if_unwatched=False)
                self.recording = None


process = _Process()
