"""The program of a worker process: one batch after the other, as the loader asks for them."""

from __future__ import annotations

import contextvars
import gc
import os
import pickle
import random
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from ...arrays.data_types import set_default_dtype
from ...core.tracebacks import shortened
from ...random import manual_seed
from ..fetching import Fetcher
from .shared_memory import Message, SharedFile, Writer

SIGNALS = hasattr(signal, "pthread_sigmask")


@dataclass(frozen=True)
class WorkerInfo:
    """A worker process, as `get_worker_info` describes it: its number `id`, of `num_workers`, its `seed` in the present
    epoch (the epoch's plus its number) and its copy of the `dataset`.

    >>> WorkerInfo(id=0, num_workers=2, seed=7, dataset=[1, 2]).num_workers
    2
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_present: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The worker process that this code runs in; None in the loader's process and in threads.

    An `IterableDataset` divides its samples with it: each worker has a copy of the data set, and iterates over it.

    >>> get_worker_info() is None
    True
    """
    return _present


class Job(NamedTuple):
    """A batch to make: its epoch and number, its samples (None: the next of a stream), where the worker's stream begins
    in this epoch (None where it does not know its place), blocks that are free again."""

    epoch: int
    number: int
    seed: int
    samples: Any
    state: Any = None
    free: tuple[int, ...] = ()


class Result(NamedTuple):
    """The outcome of a job: a message, an error, or nothing at the end of a stream; and the state of the stream."""

    epoch: int
    number: int
    message: Message | None = None
    error: Exception | None = None
    state: Any = None


@dataclass
class Worker:
    """All that a worker is started with: pickled where it is not forked."""

    number: int
    count: int
    fetcher: Fetcher
    init: Callable[[int], object] | None
    seed: int
    file: SharedFile
    dtype: np.dtype

    def run(self, jobs: Connection) -> None:
        """Works until the loader hangs up."""
        _leave_the_terminal()
        gc.freeze()  # collections would write to pages that the loader's process shares
        use_one_thread()
        set_default_dtype(self.dtype)
        # Without the traces and modes of the thread that has forked.
        contextvars.Context().run(self._work, jobs)

    def _work(self, jobs: Connection) -> None:
        writer, failed = Writer(self.file), self._begin()
        epoch, run, samples = -1, None, iter(())
        with suppress(EOFError, OSError):  # the loader has hung up, or its process has ended
            while True:
                job: Job = jobs.recv()
                writer.release(job.free)
                if job.epoch != epoch:
                    self._introduce(job.seed)
                    epoch, run = job.epoch, job.state and self.fetcher.dataset.run(job.state)
                    samples = self.fetcher.stream(run)  # iterated over only where jobs name no samples
                error = failed and Result(job.epoch, job.number, error=failed)
                result = error or self._done(job, samples, writer)
                jobs.send(result._replace(state=run.state_dict()) if run and result.message else result)

    def _begin(self) -> Exception | None:
        """Calls the user's `worker_init_fn`; the error of it is what becomes of every job."""
        self._introduce(self.seed)
        seed_all(self.seed + self.number)
        try:
            if self.init is not None:
                self.init(self.number)
        except Exception as error:
            return self._described(error, "worker_init_fn")
        return None

    def _introduce(self, seed: int) -> None:
        global _present
        _present = WorkerInfo(self.number, self.count, seed + self.number, self.fetcher.dataset)

    def _done(self, job: Job, stream: Iterator[Any], writer: Writer) -> Result:
        seed_all(job.seed, job.number)
        try:
            if job.samples is not None:
                return Result(job.epoch, job.number, writer.write(self.fetcher.batch(job.samples)))
            for batch in stream:
                return Result(job.epoch, job.number, writer.write(batch))
            return Result(job.epoch, job.number)
        except Exception as error:
            which = "" if job.samples is None else f", samples {_few(job.samples)}"
            return Result(job.epoch, job.number, error=self._described(error, f"batch {job.number}{which}"))

    def _described(self, error: Exception, doing: str) -> Exception:
        """The error with the worker's traceback as its cause, as it arrives in the loader's process."""
        with shortened(error):
            text = "".join(traceback.format_exception(error))
        error.add_note(f"In DataLoader worker {self.number} (process {os.getpid()}): {doing}")
        error.__cause__ = error.__context__ = None
        if isinstance(error, StopIteration) or not can_be_sent(error):  # which would end the loop over batches
            told = RuntimeError(f"{type(error).__name__}: {error}")
            told.add_note(error.__notes__[-1])
            return Failure(told, text)
        return Failure(error, text)


def can_be_sent(error: Exception) -> bool:
    """Whether an error is unpickled as what it is; classes of programs raise anything there."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


class RemoteTraceback(Exception):
    """The traceback of an error in a worker, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class Failure(Exception):
    """An error on its way: unpickled, it is the error itself, caused by the text of its traceback in the worker."""

    def __init__(self, error: Exception, text: str) -> None:
        super().__init__(error, text)

    def __reduce__(self) -> Any:
        error, text = self.args
        return _raised, (error, text, error.__notes__)


def _raised(error: Exception, text: str, notes: list[str]) -> Exception:
    error.__notes__ = notes
    error.__cause__ = RemoteTraceback(text)
    return error


_bits: np.random.Generator | None = None


def batch_bits() -> np.random.Generator | None:
    """Random numbers of the present batch, for transforms; None where no worker process makes one."""
    return _bits


def seed_all(*numbers: int) -> None:
    """Seeds Python's, NumPy's and the default generator of this process, each with words of its own."""
    global _bits
    words = np.random.SeedSequence(numbers).generate_state(4, np.uint64).tolist()
    _bits = np.random.Generator(np.random.Philox(key=words[3]))
    random.seed(words[0])
    np.random.seed(words[1] % 2**32)
    manual_seed(words[2])


def _leave_the_terminal() -> None:
    """Leaves Ctrl-C to the loader's process, which ends its workers: SIGTERM unwinds what they are doing."""
    signal.set_wakeup_fd(-1)  # an event loop of the parent reads what is written there
    signal.signal(signal.SIGTERM, _end)
    sys.unraisablehook = partial(_unraisable, sys.unraisablehook)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if SIGNALS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


class Ended(SystemExit):
    """The end of a worker, as SIGTERM raises it."""


def _end(*_: object) -> None:
    raise Ended(0)


def _unraisable(before: Callable[[Any], Any], report: Any) -> None:
    """Ends the worker where its end was raised in a callback that can raise nothing (of a weak reference, in
    `__del__`): Python would print it and go on. There is nothing to unwind to."""
    if isinstance(report.exc_value, Ended):
        os._exit(0)
    before(report)


def use_one_thread() -> None:
    """Workers share the cores among themselves, and with the loader's process."""
    os.environ["HYBRIDML_NUM_THREADS"] = "1"
    threads = sys.modules.get("hybridml_compiler.targets.cpu.runtime.threads")
    if threads is not None:
        threads.set_num_threads(1)


def _few(samples: Any) -> str:
    listed = list(samples) if hasattr(samples, "__iter__") else [samples]
    return f"{listed[:8]}"[:-1] + ", ...]" if len(listed) > 8 else str(listed)
