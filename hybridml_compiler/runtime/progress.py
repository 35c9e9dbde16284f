"""A line on the terminal, or in the notebook, while something is compiled for longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sized
from contextlib import contextmanager, suppress
from typing import Any

from .. import config
from .uninterrupted import start, wait

AFTER = 1.0  # seconds
EVERY = 0.2
_ERASED = "\r\x1b[K"
_turn = threading.Lock()  # what is compiled within another compilation has no line


def _is_notebook(stream: Any) -> bool:
    return type(stream).__module__.partition(".")[0] == "ipykernel"


@contextmanager
def progress(name: str, kernels: Sized) -> Iterator[None]:
    """Says after a second what is compiled, how many kernels it has so far, and for how long.

    A terminal forgets the line in the end, a notebook keeps it. Files and pipes get none.
    """
    stream, done = sys.stderr, threading.Lock()
    seen = stream is not None and (_is_notebook(stream) or stream.isatty()) and config.field("progress")
    if not seen or not _turn.acquire(blocking=False):
        yield
        return
    began = time.perf_counter()

    def line() -> str:
        return f"\rcompiling {name}: {len(kernels)} kernels, {time.perf_counter() - began:.1f} s"

    def work() -> None:
        if done.acquire(timeout=AFTER):
            return
        with suppress(Exception):  # a stream that was closed meanwhile
            while not done.acquire(timeout=EVERY):
                stream.write(line())
                stream.flush()
            stream.write(f"{line()}\n" if _is_notebook(stream) else _ERASED)
            stream.flush()

    done.acquire()
    ended = None
    try:
        with suppress(RuntimeError):  # no thread can be started
            ended = start(work)
        yield
    finally:
        done.release()
        if ended is not None:
            wait(ended)
        _turn.release()
