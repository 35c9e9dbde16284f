"""Clocks that a traced function reads: `start = time.perf_counter()` and `time.perf_counter() - start` in a step.

During the trace a clock gives a stand-in, and each call reads the clock itself: before its program where the function
reads it before its first operation, after it otherwise. What is computed from that in Python's arithmetic (durations,
steps per second) is computed when the call ends; it can be returned, printed, assigned and appended. All else that
needs the number (a branch, a tensor) makes such calls run eagerly.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from hybridml_compiler.errors import TraceError, user_location

from ...core.proxies.late import LateProxy
from ..capture.tracer import current_tracer
from ..specialize.errors import RunEagerly
from .libraries import is_library

CLOCKS: dict[str, Callable[[], float]] = {
    name: getattr(time, name)
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time")
}


class Reading(threading.local):
    """One reading of a clock, with the `value` of this thread's call. `late`: it is read after the program."""

    def __init__(self, read: Callable[[], float], late: bool) -> None:
        self.read, self.late = read, late
        self.value: float = 0

    def take(self) -> None:
        """Sets `value` to what the clock says now."""
        self.value = self.read()


class ClockProxy(LateProxy):
    """The number that a clock gives in each call."""

    __slots__ = ()

    def _concrete(self) -> Any:
        raise RunEagerly(f"computes with the time ({user_location()})")


def _patch(clock: Callable[[], float]) -> Callable[[], Any]:
    """The clock as the thread that traces finds it in the user's code, and everybody else as it is."""

    def read() -> Any:
        tracer = current_tracer()
        if tracer is None or tracer.clocks is None or is_library(sys._getframe(1).f_globals.get("__name__", "")):
            return clock()
        hook = sys.getprofile()
        if tracer.frames and hook is not None:  # of the region, which says what it is (see side_effects.py)
            hook(sys._getframe(1), "c_call", clock)
        what = f"reads a clock ({user_location()})"
        if tracer.strict:
            raise TraceError(f"{tracer.name} {what}; with strict=True that is an error")
        if tracer.frames:
            raise RunEagerly(f"{what} in a loop or branch that is captured")
        reading = Reading(clock, tracer.begun)
        tracer.clocks.append(reading)
        return ClockProxy(type(clock()), partial(getattr, reading, "value"))

    return read


PATCHES = {name: _patch(clock) for name, clock in CLOCKS.items()}
