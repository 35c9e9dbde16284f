"""One collective of a group after the other, in the order of the program, some of them while the program goes on.

A collective that the program waits for runs in its thread; those that it only begins run one after the other in a
thread of the group, and what comes behind them waits for them. MPI makes no progress by itself: a thread in a blocking
call, which has given Python's lock away, is what overlaps with compute (25 MB behind 40 ms of work: 40.2 ms, with
`Iallreduce` 51.6 ms).

Where all cores compute, such a thread has none of its own: MPI's looks for messages then take turns with the compute of
all processes (two processes on two cores: 45 KB took 12 ms beside products of matrices, 0.1 ms behind them). There what
was begun runs in the thread that waits for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from hybridml_compiler.errors import CollectiveError

T = TypeVar("T")
IDLE = 10.0  # seconds that the thread of a group waits for work before it ends


class Order:
    """The collectives of a group in their order. After one that has failed or was interrupted, all fail: ranks may
    differ from then on."""

    def __init__(self, overlaps: Callable[[], bool]) -> None:
        self._overlaps = overlaps  # whether a thread beside the program has a core
        self._jobs: deque[tuple[Callable[[], object], Future[object]]] = deque()
        self._changed = threading.Condition()
        self._open = 0  # begun, and not done
        self._thread: threading.Thread | None = None
        self._failed = ""

    def now(self, work: Callable[[], T]) -> T:
        """The result of work that is done behind all that has been begun."""
        self._finish(lambda: not self._open)
        return self._tried(work)

    def result(self, promise: Future[T]) -> T:
        """The result of work that was begun; raises its error."""
        self._finish(promise.done)
        return promise.result()

    def _finish(self, done: Callable[[], bool]) -> None:
        """Waits until it is done; does what was begun, where no thread does."""
        while not done():
            with self._changed:
                while self._thread is not None and not done():
                    self._changed.wait()
            if not done():
                self._run_next()

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """The promise of the result of work that will be done behind all that has been begun."""
        promise: Future[T] = Future()
        with self._changed:
            self._jobs.append((work, promise))  # type: ignore[arg-type]
            self._open += 1
            if self._thread is None and self._overlaps():
                self._thread = threading.Thread(target=self._run, name="collectives", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return promise

    def _tried(self, work: Callable[[], T]) -> T:
        if self._failed:
            raise CollectiveError(f"the group has failed before, and its processes must start again: {self._failed}")
        try:
            return work()
        except BaseException as error:
            self._failed = getattr(error, "text", "") or f"{type(error).__name__}: {error}"
            raise

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._jobs:
                    self._changed.wait(IDLE)
                if not self._jobs:  # the next work makes another thread
                    self._thread = None
                    return
            self._run_next()

    def _run_next(self) -> None:
        work, promise = self._jobs.popleft()
        try:
            promise.set_result(self._tried(work))
        except BaseException as error:
            promise.set_exception(error)
        with self._changed:
            self._open -= 1
            self._changed.notify_all()
