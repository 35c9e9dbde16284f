"""Records of the steps of a profile: one per launch, and where threads share it one for each range that one ran.

words 0..7    the number of records that were wanted, then nothing (a cache line)
then          CAPACITY records of FIELDS words: launch (or ~launch: a part of it), thread, start and end in ns
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import NamedTuple

import numpy as np

from hybridml_compiler.once import once
from hybridml_compiler.targets.cpu.runtime.linking import loader

MEMORY, NOW, THREAD = "hml_spans", "clock_gettime", "pthread_self"  # symbols that a timed step imports
COUNT, HEADER, FIELDS = 0, 8, 4
CAPACITY = 1 << 18  # 8 MB per program; only pages that are written exist
# `perf_counter_ns` and a step must read the same clock: their times are shown side by side.
CLOCK = int(getattr(time, "CLOCK_UPTIME_RAW" if sys.platform == "darwin" else "CLOCK_MONOTONIC", 1))


class Span(NamedTuple):
    """`launch` ran from `start` to `end`, in nanoseconds of `time.perf_counter_ns`; a `part` is a range of it that one
    thread ran, of several perhaps."""

    launch: int
    thread: int
    start: int
    end: int
    part: bool


@once
def clock() -> dict[str, int] | None:
    """Addresses of the functions that a timed step calls; None where the system has no such clock."""
    library = ctypes.CDLL(None) if sys.platform != "win32" else None
    if library is None or not all(hasattr(library, name) for name in (NOW, THREAD)):
        return None
    return {name: loader.address_of(getattr(library, name)) for name in (NOW, THREAD)}


class Recorder:
    """The memory of one program's records."""

    def __init__(self) -> None:
        self.words = np.zeros(HEADER + FIELDS * CAPACITY, np.int64)

    @property
    def imports(self) -> dict[str, int]:
        """Symbols of a timed step that writes here."""
        return {MEMORY: self.words.ctypes.data, **(clock() or {})}

    @property
    def lost(self) -> int:
        """Number of records beyond the capacity."""
        return max(0, int(self.words[COUNT]) - CAPACITY)

    def take(self) -> list[Span]:
        """Returns all records and forgets them."""
        count = min(int(self.words[COUNT]), CAPACITY)
        rows = self.words[HEADER : HEADER + FIELDS * count].reshape(count, FIELDS).tolist()
        self.words[COUNT] = 0
        return [Span(n if n >= 0 else ~n, thread, start, end, n < 0) for n, thread, start, end in rows]
