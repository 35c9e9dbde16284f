"""Groups of threads of one process, for tests and for trying a script out in a notebook: `run_threads(4, fn)`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np

from hybridml_compiler.errors import ArgumentError, CollectiveError

from ..core.shared import given_back
from .groups import WORLD, Group, as_default
from .transport import REDUCTIONS, TIMEOUT, Call, differing, not_received, unlike

T = TypeVar("T")


class Meeting:
    """The memory that the threads of a group share: what each of them brings to the collective that is next."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.calls: list[Call | None] = [None] * size
        self.arrays: list[Any] = [None] * size
        self.taken: list[Any] = []  # what all have brought to the last exchange
        self.round, self.left = 0, 0  # exchanges so far; threads that have come to the next one
        # (from, to, tag): arrays on their way, with what they are part of
        self.mail: dict[tuple[int, int, int], list[tuple[str, np.ndarray]]] = {}
        self.parts: dict[tuple[int, int], Meeting] = {}  # of splits: (round, color)
        self.broken: BaseException | None = None

    def end(self, error: BaseException) -> None:
        """Ends all waiting, here and in the parts."""
        with self.changed:
            self.broken = self.broken or error
            self.changed.notify_all()
        for part in list(self.parts.values()):
            part.end(error)


class ThreadTransport:
    """The transport of one of the threads."""

    overlaps = True  # they wait without looks, each for a condition

    def __init__(self, meeting: Meeting, rank: int, timeout: float = TIMEOUT) -> None:
        self.meeting, self.rank, self.size, self.timeout = meeting, rank, meeting.size, timeout

    def waiting(self) -> AbstractContextManager[None]:
        return given_back()

    def _wait(self, ready: Callable[[], bool]) -> bool:
        """Waits, in the condition, until it is so or time is up."""
        end = time.monotonic() + self.timeout
        while not ready():
            if self.meeting.broken is not None:
                raise CollectiveError(f"rank {self.rank}: another rank has failed: {self.meeting.broken}")
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.meeting.changed.wait(left)
        return True

    def meet(self, call: Call) -> None:
        m = self.meeting
        with m.changed:
            m.calls[self.rank] = call
            m.changed.notify_all()
            in_time = self._wait(lambda: None not in m.calls)
            calls = list(m.calls)
        if not in_time or any(other != call for other in calls):
            raise differing(calls, self.rank, self.timeout)
        self._exchange(None)  # all have compared: the table is free for the next call

    def _exchange(self, array: Any) -> list[Any]:
        """The arrays of all threads, as copies, once all of them have come."""
        m = self.meeting
        with m.changed:
            start = m.round
            m.arrays[self.rank] = None if array is None else array.copy()
            m.left += 1
            if m.left == m.size:
                m.round, m.left, m.calls = start + 1, 0, [None] * m.size
                m.taken, m.arrays = m.arrays, [None] * m.size
                m.changed.notify_all()
            elif not self._wait(lambda: m.round > start):
                raise CollectiveError(f"rank {self.rank}: another rank has left within a collective")
            return m.taken

    def all_reduce(self, out: np.ndarray, array: np.ndarray, reduce: str) -> None:
        first, *others = self._exchange(array)
        out[...] = first
        for other in others:
            REDUCTIONS[reduce](out, other, out=out)

    def broadcast(self, array: np.ndarray, root: int) -> None:
        array[...] = self._exchange(array)[root]

    def all_gather(self, out: np.ndarray, array: np.ndarray) -> None:
        out[...] = np.concatenate(self._exchange(array))

    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, reduce: str) -> None:
        whole = np.empty_like(array)
        self.all_reduce(whole, array, reduce)
        out[...] = whole[self.rank * len(out) : (self.rank + 1) * len(out)]

    def all_to_all(self, out: np.ndarray, array: np.ndarray) -> None:
        rows = len(array) // self.size
        own = slice(self.rank * rows, (self.rank + 1) * rows)
        out[...] = np.concatenate([other[own] for other in self._exchange(array)])

    def send(self, array: np.ndarray, peer: int, tag: int, of: str = "") -> None:
        with self.meeting.changed:
            self.meeting.mail.setdefault((self.rank, peer, tag), []).append((of, array.copy()))
            self.meeting.changed.notify_all()

    def receive(self, array: np.ndarray, peer: int, tag: int, of: str = "") -> None:
        key = (peer, self.rank, tag)
        with self.meeting.changed:
            if not self._wait(lambda: bool(self.meeting.mail.get(key))):
                raise not_received(self.rank, self.size, array, peer, tag, of, self.timeout)
            other, found = self.meeting.mail[key].pop(0)
        if found.shape != array.shape or found.dtype != array.dtype or other != of:
            raise unlike(self.rank, array, peer, tag, of, (found.shape, str(found.dtype), other))
        array[...] = found

    def split(self, color: int, key: int) -> ThreadTransport:
        said = self._exchange(np.array([color, key, self.rank]))
        ranks = [rank for _, rank in sorted((int(k), int(r)) for c, k, r in said if c == color)]
        m = self.meeting
        with m.changed:  # nobody exchanges again before all have come here: `meet` is next
            part = m.parts.setdefault((m.round, color), Meeting(len(ranks)))
        return ThreadTransport(part, ranks.index(self.rank), self.timeout)


def run_threads(size: int, fn: Callable[[], T], *, timeout: float = 60.0) -> list[T]:
    """Runs `fn` in `size` threads, each of them one rank of the default group; returns what each has returned.

    timeout: seconds that a collective waits for the other threads. Models and traced functions are to be made inside of
    `fn`, one for each rank. Raises the first error of a rank, and ends the waiting of the others; ArgumentError for a
    size below 1.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> dist.run_threads(3, lambda: dist.all_reduce(hm.ones((2,)) * dist.get_rank()).tolist())
    [[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]
    """
    if size < 1:
        raise ArgumentError(f"run_threads: size must be 1 or more, got {size}")
    meeting = Meeting(size)
    found: list[Any] = [None] * size
    errors: list[BaseException] = []

    def rank(k: int) -> None:
        group = Group(WORLD, ThreadTransport(meeting, k, timeout) if size > 1 else None)
        try:
            with as_default(group):
                found[k] = fn()
        except BaseException as error:
            errors.append(error)
            meeting.end(error)

    threads = [threading.Thread(target=rank, args=(k,), name=f"rank {k}", daemon=True) for k in range(size)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # Ctrl-C
        meeting.end(error)
        raise
    if errors:
        raise errors[0]
    return found
