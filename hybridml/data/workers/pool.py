"""The workers of a loader, as its process sees them: their start, their jobs, their deaths and their end."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import selectors
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any
from weakref import WeakSet

from hybridml_compiler.errors import ArgumentError, HybridmlError
from hybridml_compiler.locks import rlock

from ...arrays.data_types import get_default_dtype
from ..fetching import Fetcher
from .process import SIGNALS, Job, Result, Worker
from .shared_memory import Reader, SharedFile

GRACE = 0.5  # seconds that a worker has to end by itself


class WorkerError(HybridmlError, RuntimeError):
    """A worker process of a `DataLoader` that has died, or gave no batch within `timeout`.

    >>> issubclass(WorkerError, RuntimeError)
    True
    """


@dataclass
class Member:
    """A worker: its process, the way to it, its memory, and how many jobs it has."""

    number: int
    process: Any
    pipe: Connection
    reader: Reader
    jobs: int = 0
    ended: bool = False  # its stream, in the present epoch


class Pool:
    """Processes that make batches. They end with `stop`, with the pool itself, and with the process that has it."""

    def __init__(
        self, fetcher: Fetcher, count: int, seed: int, init: Callable[[int], object] | None = None, context: Any = None
    ) -> None:
        self.members: list[Member] = []
        self.ways: list[Connection] = []  # to the members, for their children to close
        self.selector = selectors.DefaultSelector()
        self.epochs = 0
        self.current: Any = lambda: None  # a weak reference to the epoch that uses the pool
        self.end = Finalize(self, _stop, args=(self.members, self.ways, self.selector), exitpriority=20)
        _pools.add(self)
        context = chosen_context(context)
        try:
            with _starting, undisturbed():
                for number in range(count):
                    self._start(context, partial(Worker, number, count, fetcher, init, seed))
        except BaseException:
            self.stop()
            raise

    def _start(self, context: Any, described: Callable[..., Worker]) -> None:
        here, there = context.Pipe()
        worker = described(SharedFile(), get_default_dtype())
        self.ways.append(here)  # before the fork, whose child closes its copy
        process = context.Process(
            target=worker.run, args=(there,), name=f"DataLoader worker {worker.number}", daemon=True
        )
        try:
            process.start()
        except BaseException:
            here.close()
            worker.file.close()
            raise
        finally:
            there.close()
        self.members.append(Member(worker.number, process, here, Reader(worker.file)))
        self.selector.register(here, selectors.EVENT_READ, self.members[-1])

    def send(self, member: Member, job: Job) -> None:
        """Gives a worker one more job."""
        try:
            member.pipe.send(job._replace(free=member.reader.released()))
        except OSError:
            raise self._dead(member) from None
        member.jobs += 1

    def receive(self, deadline: float | None) -> list[tuple[Member, Result]]:
        """The results that have arrived; waits for one until the deadline."""
        if not self.members:
            raise WorkerError("DataLoader: workers are those of the process that has begun the loop; begin one here")
        patience = None if deadline is None else max(0.0, deadline - time.monotonic())
        found = []
        for key, _ in self.selector.select(patience):
            member: Member = key.data
            try:
                data = member.pipe.recv_bytes()
            except (EOFError, OSError):
                raise self._dead(member) from None
            member.jobs -= 1
            found.append((member, pickle.loads(data)))
        return found

    def _dead(self, member: Member) -> WorkerError:
        process = member.process
        process.join(GRACE)
        code = process.exitcode
        how = "has ended" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was killed by signal {-code} ({signal.Signals(-code).name})"
        hint = "; the system does so where memory is short" if code == -9 else ""
        return WorkerError(f"DataLoader: worker {member.number} (process {process.pid}) {how}{hint}")

    def is_idle(self) -> bool:
        """Whether it has workers, and no epoch of which batches are left uses them."""
        epoch = self.current()
        return bool(self.members) and (epoch is None or not epoch.waiting)

    def stop(self) -> None:
        """Ends the workers: those that wait at once, the others where they are, within a second in any case."""
        self.end()


def _stop(members: list[Member], ways: list[Connection], selector: selectors.BaseSelector) -> None:
    while members:
        taken = list(members)
        # Not for ever: a start waits for threads that compile, and one of these may be what collects this as garbage.
        alone = _starting.acquire(timeout=GRACE)
        try:
            ways.clear()
            for member in taken:
                with suppress(OSError):
                    member.pipe.close()  # whoever waits for a job ends
        finally:
            if alone:
                _starting.release()
        for member in taken:
            if member.jobs:
                member.process.terminate()
        deadline = time.monotonic() + GRACE
        for member in taken:
            member.process.join(max(0.0, deadline - time.monotonic()))
            if member.process.exitcode is None:
                member.process.kill()
                member.process.join()
            member.process.close()
            member.reader.file.close()
            members.remove(member)
    selector.close()


def chosen_context(given: Any) -> Any:
    """The way to start processes: the program's choice, or `fork` on Linux: in milliseconds, with the data set as it is
    and whatever the program has defined. hybridml's own threads and locks are made for it (docs/threads.md)."""
    if given is None:
        given = multiprocessing.get_start_method(allow_none=True) or ("fork" if sys.platform == "linux" else None)
    if given is not None and not isinstance(given, str):
        return given
    try:
        context = multiprocessing.get_context(given)
    except ValueError:
        known = ", ".join(multiprocessing.get_all_start_methods())
        raise ArgumentError(f"DataLoader: multiprocessing_context {given!r} is not known here: {known}") from None
    if context.get_start_method() == "forkserver":  # its children find the package imported
        context.set_forkserver_preload(["__main__", "hybridml.data.workers.process"])
    return context


# One start at a time, and no pipe is closed beside it: a worker inherits no far end of another one's pipe, which would
# hide that one's death, and no pipe that is half closed, whose number is that of its own by then.
_starting = rlock()


@contextmanager
def undisturbed() -> Iterator[None]:
    """A start of processes that Ctrl-C does not split, and of whose threads Python does not warn."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if SIGNALS else None
    try:
        with warnings.catch_warnings():  # since Python 3.12
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


_pools: WeakSet[Pool] = WeakSet()


def _after_fork() -> None:
    """Closes what the child has of other workers: these end when their loader's process does, and their memory with
    them."""
    for pool in list(_pools):
        for way in pool.ways:
            with suppress(OSError):
                way.close()
        for member in pool.members:  # the worker that starts is not among them yet
            member.reader.maps.clear()
            member.reader.file.close()
        pool.members.clear()  # a loop in the child starts workers of its own
        pool.selector.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
