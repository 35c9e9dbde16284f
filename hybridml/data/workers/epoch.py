"""The batches of an epoch, in order, from the workers of a pool."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any
from weakref import ref

from .pool import Member, Pool, WorkerError
from .process import Job, Result


class Epoch:
    """Iterator over batches: `ahead` jobs are with each worker, which take turns.

    `jobs` are the samples of each batch, or None where each worker has a stream of its own, which begins at one of
    `states` where it knows its place. A worker whose stream has ended gets no more jobs, and its turn passes. Batch
    `number` is that of a turn, and is made with random numbers of its own: `first` is the number of the first one.
    """

    def __init__(
        self,
        pool: Pool,
        jobs: Iterator[Any] | None,
        seed: int,
        ahead: int,
        timeout: float,
        first: int = 0,
        persistent: bool = False,
        states: list[Any] | None = None,
    ) -> None:
        self.pool, self.jobs, self.seed, self.timeout, self.persistent = pool, jobs, seed, timeout, persistent
        self.turn, self.given = first, first  # the next to be sent, and to be given
        self.states = [] if states is None else [*states]
        self.begins = dict(enumerate(self.states))
        self.waiting: deque[int] = deque()
        self.arrived: dict[int, tuple[Member, Result]] = {}
        pool.epochs += 1
        self.number = pool.epochs
        pool.current = ref(self)
        for member in pool.members:
            member.ended = False
        try:
            for _ in range(ahead * len(pool.members)):
                self._send()
        except BaseException:
            pool.stop()
            raise

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Any:
        try:
            while self.waiting:
                member, result = self._result()
                member.ended = result.message is None and result.error is None
                self._send()
                if result.error is not None:
                    raise result.error
                if result.message is not None:
                    if self.states:
                        self.states[member.number] = result.state
                    self.given = result.number + 1
                    return member.reader.read(result.message)
        except BaseException:
            self.waiting.clear()
            self.pool.stop()
            raise
        if not self.persistent:
            self.pool.stop()
        raise StopIteration

    def place(self) -> dict[str, Any]:
        """The states of the workers' streams behind the batches that were given, and whose turn it is."""
        return {"readers": [*self.states], "turn": self.given}

    def _result(self) -> tuple[Member, Result]:
        """The worker and what it made of the next job."""
        deadline = time.monotonic() + self.timeout if self.timeout else None
        while self.waiting[0] not in self.arrived:
            if not self._receive(deadline):
                waiting = ", ".join(f"{m.number} (process {m.process.pid})" for m in self.pool.members if m.jobs)
                raise WorkerError(f"DataLoader: no batch within timeout={self.timeout} s; at work: worker {waiting}")
        return self.arrived.pop(self.waiting.popleft())

    def _receive(self, deadline: float | None) -> bool:
        """Takes what has arrived, and waits for something until the deadline; whether there was anything."""
        found = self.pool.receive(deadline)
        for member, result in found:
            if result.epoch == self.number:
                self.arrived[result.number] = member, result
            elif result.message is not None:  # of an epoch that the program has left
                member.reader.drop(result.message)
        return bool(found)

    def _send(self) -> None:
        """Asks the worker whose turn it is for one more batch.

        A stream's end counts when its turn has come, not when it arrives: the order of batches is the same every time.
        What has arrived is taken first: a worker that waits for room for its results takes no jobs, for whose room this
        process would wait.
        """
        while self._receive(0.0):
            pass
        members = self.pool.members
        turns = range(self.turn, self.turn + len(members))
        turn = next((turn for turn in turns if not members[turn % len(members)].ended), None)
        if turn is None:
            return
        samples = None if self.jobs is None else next(self.jobs, self)
        if samples is not self:
            member = members[turn % len(members)]
            self.pool.send(member, Job(self.number, turn, self.seed, samples, self.begins.pop(member.number, None)))
            self.waiting.append(turn)
            self.turn = turn + 1
