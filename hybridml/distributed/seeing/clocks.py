"""The clock of rank 0, as each process of a group reads it on its own: Cristian, Probabilistic clock synchronization,
Distributed Computing 3, 1989.

A process asks rank 0 for its time, several times. The answer that has come back fastest was given half of that way ago,
to half of that way: it cannot have been given before the question or after the answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..groups import Group
from ..transport import OWN_TAG, Transport

TRIPS = 16  # between two idle processes over MPI the fastest of 16 takes 15 to 30 us, as that of 200 does
_now = time.perf_counter_ns


class Trip(NamedTuple):
    """A question to rank 0 and its answer, in nanoseconds: of this clock, of rank 0's, of this one."""

    asked: int
    told: int
    heard: int


class Reading(NamedTuple):
    """The offset of rank 0's clock from this one, at a time of this one, and how wrong it is at most."""

    at: int
    offset: int
    error: int


class Clock(NamedTuple):
    """The clock of rank 0 between two readings: clocks drift apart, by microseconds a second, and do so evenly."""

    first: Reading
    last: Reading

    @property
    def error(self) -> int:
        """Nanoseconds by which a time is wrong at most."""
        return max(self.first.error, self.last.error)

    def time(self, at: int) -> int:
        """The time of rank 0 at a time of this process."""
        first, last = self.first, self.last
        part = (at - first.at) / max(last.at - first.at, 1)
        return at + first.offset + round((last.offset - first.offset) * part)


def estimated(trips: Sequence[Trip]) -> Reading:
    """The reading by the fastest of the answers."""
    best = min(trips, key=lambda trip: trip.heard - trip.asked)
    middle = (best.asked + best.heard) // 2
    return Reading(middle, best.told - middle, (best.heard - best.asked + 1) // 2)


def read(group: Group) -> Reading:
    """Reads the clock of rank 0. All processes of the group must call it."""
    if group.rank:
        return group.unseen(_asked)
    if group.size > 1:
        group.unseen(_answer)
    return Reading(_now(), 0, 0)


def _asked(transport: Transport) -> Reading:
    """The reading of a process that asks."""
    trips = []
    word, answer = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for _ in range(TRIPS):
        asked = _now()
        transport.send(word, 0, OWN_TAG)
        transport.receive(answer, 0, OWN_TAG)
        trips.append(Trip(asked, int(answer[0]), _now()))
    return estimated(trips)


def _answer(transport: Transport) -> None:
    """Answers the others, one after the other."""
    word = np.zeros(1, np.int64)
    for rank in range(1, transport.size):
        for _ in range(TRIPS):
            transport.receive(word, rank, OWN_TAG)
            transport.send(np.asarray([_now()]), rank, OWN_TAG)
