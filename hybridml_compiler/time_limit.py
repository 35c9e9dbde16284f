"""A limit on the time of compiling, for whoever has another way to go on: stages ask between parts of their work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import TIMEOUT_MAX

clock: Callable[[], float] = time.perf_counter  # tests have their own

_end: ContextVar[float | None] = ContextVar("hybridml_time_limit", default=None)


class TimeIsUp(Exception):
    """A compilation has taken longer than whoever asked for it can wait."""


@contextmanager
def until(end: float | None) -> Iterator[None]:
    """A context in which `check` raises `TimeIsUp` once `clock` is past the end.

    >>> with until(clock() + 60.0):
    ...     check()
    """
    token = _end.set(end)
    try:
        yield
    finally:
        _end.reset(token)


def check() -> None:
    """Raises `TimeIsUp` where the limit is past."""
    end = _end.get()
    if end is not None and clock() > end:
        raise TimeIsUp


def left() -> float:
    """Seconds until the limit, for a wait with a timeout: -1 where there is none."""
    end = _end.get()
    return -1.0 if end is None else min(max(end - clock(), 0.0), TIMEOUT_MAX)
