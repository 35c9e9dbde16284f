"""Clocks that a traced function reads: `start = time.perf_counter()` and `time.perf_counter() - start` in a step.

During the trace a clock gives a stand-in, and each call reads the clock itself: before its program where the function
reads it before its first operation, after it otherwise. What is computed from that in Python's arithmetic (durations,
steps per second) is computed when the call ends; it can be returned, printed, assigned and appended. All else that
needs the number (text, a branch, a tensor) makes such calls run eagerly.
"""

from __future__ import annotations

import operator
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from hybridml_compiler.errors import TraceError, user_location

from ...core.proxies.base import NumberProxy
from ...core.proxies.scalar import ScalarProxy
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


class TimeProxy(NumberProxy):
    """A number that is computed from readings: `seen` in the trace, `now()` in each call."""

    __slots__ = ("_seen", "now")

    def __init__(self, seen: Any, now: Callable[[], Any]) -> None:
        self._seen, self.now = seen, now

    @property
    def _kind(self) -> Any:
        return type(self._seen)

    def _concrete(self) -> Any:
        raise RunEagerly(f"computes with the time ({user_location()})")

    def _computed(self, op: Callable[..., Any], *others: Any) -> Any:
        """A number that each call computes, of such numbers, of Python's, and of those that the function updates."""
        found = [other if type(other) is TimeProxy else _given(other) for other in others]
        if any(x is None for x in found):
            return op(self._concrete(), *others)
        operands = [self, *(x for x in found if x is not None)]
        return TimeProxy(op(*[x._seen for x in operands]), lambda: op(*[x.now() for x in operands]))

    def __round__(self, digits: int | None = None) -> Any:
        return self._computed(round) if digits is None else self._computed(round, digits)

    def __neg__(self) -> Any:
        return self._computed(operator.neg)

    def __abs__(self) -> Any:
        return self._computed(abs)

    def __bool__(self) -> bool:
        return bool(self._concrete())

    __int__ = __index__ = __trunc__ = __floor__ = __ceil__ = __bool__


def _given(other: Any) -> TimeProxy | None:
    """A number as Python has it in each call; None for one that only the program knows."""
    if type(other) in (int, float, bool):
        return TimeProxy(other, lambda: other)
    tracer = current_tracer()
    if tracer is None or type(other) is not ScalarProxy or not tracer.has_input(other._tensor._array):
        return None
    source = tracer.input_of(other._tensor._array).scalar
    return TimeProxy(source.read(), source.read) if source is not None and source.updated else None


def _operators() -> None:
    """Adds the methods that Python looks up on the class."""

    def method(op: Callable[[Any, Any], Any], swapped: bool) -> Callable[[TimeProxy, Any], Any]:
        return lambda self, other: self._computed((lambda x, y: op(y, x)) if swapped else op, other)

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
        setattr(TimeProxy, f"__{name}__", method(getattr(operator, name), False))
        setattr(TimeProxy, f"__r{name}__", method(getattr(operator, name), True))
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "pow"):
        setattr(TimeProxy, f"__{name}__", lambda self, other: self._concrete())
    TimeProxy.__hash__ = NumberProxy.__hash__  # type: ignore[method-assign]


_operators()


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
        return TimeProxy(clock(), partial(getattr, reading, "value"))

    return read


PATCHES = {name: _patch(clock) for name, clock in CLOCKS.items()}
