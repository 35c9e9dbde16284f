"""Times of the collectives of a process: sums by collective and label, always, and each one while a profile is on.

They cost a call 1.1 us, where the shortest all-reduce of two processes takes 77: so they are always on, and there when
somebody wonders why a job that has run for hours is slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import NamedTuple, TypeVar

from ..transport import Call, Transport

T = TypeVar("T")
now = time.perf_counter_ns  # the clock of profiles


@dataclass(slots=True)
class Sums:
    """Calls, the bytes that this process gave to them, and nanoseconds."""

    calls: int = 0
    nbytes: int = 0
    waiting: int = 0  # until all processes had come
    moving: int = 0  # from then on
    blocked: int = 0  # in which the program stood still; less than the two where it went on beside them

    def without(self, others: Sums) -> Sums:
        """These sums without others that are part of them."""
        return Sums(*(a - b for a, b in zip(astuple(self), astuple(others), strict=True)))


Work = tuple[Callable[[], T], Sums]  # to be done once, and where its times go


class What(NamedTuple):
    """A collective, or a message between two: equal in all processes that take part, but for name and bytes."""

    group: str
    members: int  # processes that take part
    detail: str  # the reduction and the label, or the route
    number: int  # of the collectives of the group, or of the messages of the route
    name: str
    nbytes: int


class Event(NamedTuple):
    """A collective as one process has seen it: it came, all had come (`met`), it was done."""

    what: What
    came: int
    met: int
    done: int


class Log:
    """The collectives of the groups of a process."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, str, str], Sums] = {}  # by group, name and detail
        self.events: list[Event] | None = None  # of a profile that is on

    def timed(
        self, group: str, call: Call, nbytes: int, transport: Transport, work: Callable[[Transport], T], meets: bool
    ) -> Work[T]:
        """The work of a call, behind the meeting of all processes where it `meets`, with its times in this log."""
        key = group, call.name, call.detail
        sums = self.sums.get(key)
        if sums is None:
            sums = self.sums[key] = Sums()

        def run() -> T:
            came = met = now()
            if meets:
                transport.meet(call)
                met = now()
            result = work(transport)
            done = now()
            sums.calls += 1
            sums.nbytes += nbytes
            sums.waiting += met - came
            sums.moving += done - met
            if self.events is not None:
                what = What(group, transport.size if meets else 2, call.detail, call.number, call.name, nbytes)
                self.events.append(Event(what, came, met, done))
            return result

        return run, sums
