"""A crew: workers that each have a copy of the model and compute what they are given."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...core.context import no_grad
from ...core.tensor import Tensor
from ...nn.module import Module
from .compression import Compression, ErrorFeedback, as_it_is
from .embedding import Lookup, tables_of
from .engines import Actor, ActorError, Engine, Promise, is_alive, is_late
from .gradients import Encode, bytes_of, collect
from .values import Arrays, array_of, write

WorkerFunction = Callable[[Module, int, int], Tensor]  # (model, step, rank) -> loss


class Report(NamedTuple):
    """A worker's report of a step: the loss, and the bytes that came from the shards and went to them."""

    loss: float
    pulled: int
    pushed: int


class Worker:
    """One worker's copy of the model, and its part of each step."""

    def __init__(
        self, rank: int, model: Module, fn: WorkerFunction, placement: Sequence[Sequence[str]],
        compression: Compression | None,
    ) -> None:  # fmt: skip
        self.rank, self.model, self.fn, self.placement = rank, copy.deepcopy(model), fn, placement
        self.encode: Encode = as_it_is if compression is None else ErrorFeedback(compression)
        self.parameters, self.tables = dict(self.model.named_parameters()), tables_of(self.model)

    def step(self, step: int, lookup: Lookup, *values: Arrays) -> list[Any]:
        """A report, and for each shard the gradients of the loss at these values."""
        with no_grad():
            for part in values:
                write(self.parameters, part)
        before = self._rows_pulled()
        for name, table in self.tables.items():
            table.attach(name, lookup)
        self.model.zero_grad()
        loss = self.fn(self.model, step, self.rank)
        loss.backward()
        grads = collect(self.model, self.placement, self.encode)
        pulled = bytes_of(values) + self._rows_pulled() - before
        return [Report(loss.item(), pulled, bytes_of(grads)), *grads]

    def _rows_pulled(self) -> int:
        return sum(table.bytes_pulled for table in self.tables.values())

    def buffers(self) -> Arrays:
        """The buffers of this worker's copy, such as statistics of batch normalisation."""
        return {name: array_of(b).copy() for name, b in self.model.named_buffers()}


class Task(NamedTuple):
    """A call that a worker is busy with."""

    rank: int
    step: int
    call: tuple[Any, ...]  # the method's name and arguments, to make it again
    parts: list[Promise]  # the report, and what else it returns


class Restarts:
    """A count of the actors that were started again, which are at most `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit, self.count = limit, 0

    def take(self, error: ActorError) -> None:
        """Counts one; raises the error where none is left."""
        if self.count >= self.limit:
            raise ActorError(f"{error}; it is not started again, as max_restarts={self.limit}") from error
        self.count += 1


class Crew:
    """Workers as actors. One that dies is started again and gets the call again that it was busy with.

    That is not so where it had to wait for what a dead shard should have computed: the error of that is raised.
    """

    def __init__(
        self, engine: Engine, size: int, timeout: float, restarts: Restarts, make: Callable[..., Any], *args: Any
    ) -> None:
        self.engine, self.timeout, self.restarts = engine, timeout, restarts
        self.workers: list[Actor] = [engine.actor(f"worker {rank}", make, rank, *args) for rank in range(size)]
        self.busy: dict[int, Task] = {}  # by rank

    def idle(self) -> list[int]:
        """The workers that have nothing to do."""
        return [rank for rank in range(len(self.workers)) if rank not in self.busy]

    def submit(self, rank: int, step: int, returns: int, *call: Any) -> None:
        """Lets a worker make a call: a method, and its arguments."""
        self.busy[rank] = Task(rank, step, call, self.workers[rank].call(*call, returns=returns))

    def done(self) -> list[tuple[Task, Any]]:
        """Tasks that are done, once there are some, with the first part of what they return. Raises ActorError if time
        is up. Empty where all that were done have to be done again."""
        ready = self.engine.wait([task.parts[0] for task in self.busy.values()], self.timeout)
        if not ready:
            names = ", ".join(self.workers[rank].name for rank in self.busy)
            raise is_late(names, self.timeout)
        found = []
        for task in [task for task in self.busy.values() if task.parts[0] in ready]:
            del self.busy[task.rank]
            try:
                found.append((task, self.ask(task.rank, task.parts[0])))
            except ActorError as error:
                self._again(task, error)
        return found

    def _again(self, task: Task, error: ActorError) -> None:
        worker = self.workers[task.rank]
        if is_alive(self.engine, worker, self.timeout):
            raise error
        self.restarts.take(error)
        worker.start()
        self.submit(task.rank, task.step, len(task.parts), *task.call)

    def ask(self, rank: int, promise: Promise) -> Any:
        """The result of a worker's call. Raises ActorError with its name."""
        return self.engine.result(promise, self.workers[rank].name, self.timeout)

    def buffers(self) -> Arrays:
        """The buffers of the first worker that has nothing to do."""
        rank = self.idle()[0]
        found: Arrays = self.ask(rank, self.workers[rank].call("buffers")[0])
        return found

    def forget(self) -> None:
        """Makes all idle: nobody wants what they are busy with."""
        self.busy.clear()

    def close(self) -> None:
        """Ends the actors of all workers."""
        for worker in self.workers:
            worker.kill()
