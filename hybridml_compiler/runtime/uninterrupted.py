"""Work that Ctrl-C does not split: it runs in threads beside the main one, where alone interrupts arrive.

A lock is taken in Python code. An interrupt between the acquisition and the end of `__enter__` leaves it held for good:
random interrupts met that after 223 of them, in llvmlite's own, and every later call of LLVM waited. `threading.Thread`
and `concurrent.futures` have such moments too: an interrupt within `Thread.start`, and another while it unwinds, is a
`RuntimeError: release unlocked lock`. So threads are started by one call of C here, and waited for by another.
"""

from __future__ import annotations

import _thread
import atexit
import os
import threading
from collections.abc import Callable
from traceback import clear_frames
from typing import TypeVar

from hybridml_compiler.locks import lock
from hybridml_compiler.runtime import stacks

T = TypeVar("T")

_turn = lock()  # one step at a time: after an interrupt the step before may still be at work
_running: set[threading.Lock] = set()
_state = threading.local()


def start(work: Callable[[], object]) -> threading.Lock:
    """Starts a thread for work that raises nothing; returns a lock that is free once it has ended.

    The process ends after those that have reached their first line. Raises RuntimeError where no thread can be started.
    """
    ended = threading.Lock()
    ended.acquire()

    def run() -> None:
        _running.add(ended)  # here: an interrupt before the start must not leave it there for good
        try:
            work()
        finally:
            _running.discard(ended)
            ended.release()

    with stacks.roomy():
        _thread.start_new_thread(run, ())
    return ended


def wait(ended: threading.Lock) -> None:
    """Waits until the work of `start` has ended."""
    with ended:
        pass


def uninterrupted(step: Callable[[], T]) -> T:
    """The result of a step, or its exception. It goes on to its end where an interrupt ends the wait for it. In threads
    other than the main one it is just called."""
    if threading.get_ident() != threading.main_thread().ident:
        return step()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        with _turn:
            _state.stepping = True
            try:
                results.append(step())
            except BaseException as error:
                _clear(error)
                errors.append(error)

    wait(start(run))
    if errors:
        raise errors.pop()
    return results.pop()


def stepping() -> bool:
    """Whether this thread runs an uninterrupted step of the main one: there is one of these at any time."""
    return getattr(_state, "stepping", False)


def running() -> int:
    """Number of threads that `start` has begun and that have not ended."""
    return len(_running)


def _clear(error: BaseException | None) -> None:
    """Drop the variables of the frames that an error has left: objects of LLVM end here, and not where it is caught."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _wait_for_all() -> None:
    for ended in _running.copy():
        wait(ended)


atexit.register(_wait_for_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)
