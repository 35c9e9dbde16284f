"""`train`: workers compute gradients, a parameter server takes them; in step, the first of them, or each when it comes.

One thread, the driver's, says who does what. Gradients and values travel between workers and shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hybridml_compiler.errors import ArgumentError

from ...core.context import no_grad
from ..checkpoints import CheckpointManager
from .compression import Compression
from .engines import ActorError
from .server import ParameterServer
from .values import write
from .workers import Crew, Report, Restarts, Task, Worker, WorkerFunction


class Update(NamedTuple):
    """A gradient that was applied: which step and worker it is of, its loss, the version that it made, and how many
    versions had been made since its worker pulled the parameters.

    >>> from hybridml.distributed import servers
    >>> servers.Update(step=3, rank=0, loss=0.5, version=7, staleness=1).staleness
    1
    """

    step: int
    rank: int
    loss: float
    version: int
    staleness: int


@dataclass
class Training:
    """A record of a training by workers.

    updates: the gradients that were applied, in their order. dropped: gradients that came too late. restarts: how often
    a worker or shard was started again. bytes_pulled, bytes_pushed: to and from the workers. Of a training that goes on
    from a checkpoint, what has happened since.

    >>> from hybridml.distributed import servers
    >>> updates = [servers.Update(0, rank, loss, 1, 0) for rank, loss in enumerate([1.0, 3.0])]
    >>> servers.Training(updates).losses
    [2.0]
    """

    updates: list[Update] = field(default_factory=list)
    dropped: int = 0
    restarts: int = 0
    bytes_pulled: int = 0
    bytes_pushed: int = 0

    @property
    def losses(self) -> list[float]:
        """The mean loss of each step, over the workers whose gradients were applied."""
        by_step: dict[int, list[float]] = {}
        for update in self.updates:
            by_step.setdefault(update.step, []).append(update.loss)
        return [sum(found) / len(found) for _, found in sorted(by_step.items())]

    @property
    def staleness(self) -> Counter[int]:
        """The number of gradients of each staleness."""
        return Counter(update.staleness for update in self.updates)


class Run:
    """A training that is under way. `clocks` has the next step of each worker, and goes into checkpoints."""

    def __init__(self, server: ParameterServer, crew: Crew, steps: int, checkpoints: CheckpointManager | None) -> None:
        self.server, self.crew, self.steps, self.checkpoints = server, crew, steps, checkpoints
        self.progress: dict[str, Any] = {"clocks": [0] * len(crew.workers)}
        self.training = Training()
        self.pulled: dict[int, int] = {}  # the version that each worker has

    @property
    def clocks(self) -> list[int]:
        clocks: list[int] = self.progress["clocks"]
        return clocks

    def submit(self, rank: int, step: int) -> None:
        """Lets a worker compute its gradient of a step at the values of now."""
        self.pulled[rank] = self.server.version
        server = self.server
        self.crew.submit(rank, step, 1 + len(server.shards), "step", step, server.lookup, *server.pulled())

    def done(self) -> list[tuple[Task, Report]]:
        """Steps that workers have done, with their reports."""
        found = self.crew.done()
        self.training.bytes_pulled += sum(report.pulled for _, report in found)
        self.training.bytes_pushed += sum(report.pushed for _, report in found)
        return found

    def apply(self, done: Sequence[tuple[Task, Report]]) -> None:
        """Updates by the mean of workers' gradients, and saves where a checkpoint is due."""
        before = self.server.version
        version = self.server.apply([task.parts[1:] for task, _ in done])
        self.training.updates += [
            Update(task.step, task.rank, report.loss, version, before - self.pulled[task.rank]) for task, report in done
        ]
        self.save()

    def save(self) -> None:
        if self.checkpoints is not None and self.server.version % self.checkpoints.save_interval_steps == 0:
            self.checkpoints.save(self.server.version, {"server": self.server, "progress": self.progress})

    def restore(self) -> bool:
        """Goes back to the last checkpoint, and forgets what came behind it; returns whether there is one."""
        state = {"server": self.server, "progress": self.progress}
        if self.checkpoints is None or self.checkpoints.restore(state) is None:
            return False
        if len(self.clocks) != len(self.crew.workers):
            raise ArgumentError(
                f"train: the checkpoint is of {len(self.clocks)} workers, got workers={len(self.crew.workers)}"
            )
        self.crew.forget()
        self.training.updates = [u for u in self.training.updates if u.version <= self.server.version]
        return True

    def recover(self, error: ActorError) -> None:
        """Starts dead shards again, and lets all go back to the last checkpoint. Raises the error where none died."""
        if not (dead := self.server.restart()):
            raise error
        self.crew.restarts.take(error)
        if not self.restore():
            raise ActorError(
                f"{', '.join(dead)} has died, and no checkpoint has its values: pass checkpoints="
            ) from error


def in_rounds(run: Run, need: int) -> None:
    """Each step takes the gradients of the first `need` workers; what comes later, of this step or one before, is
    dropped. With fewer than there are workers those are the backup workers of Chen et al. (2016)."""
    for step in range(min(run.clocks), run.steps):
        for rank in run.crew.idle():
            run.submit(rank, step)
        arrived: list[tuple[Task, Report]] = []
        while len(arrived) < need:
            for task, report in run.done():
                if task.step == step and len(arrived) < need:
                    arrived.append((task, report))
                    continue
                run.training.dropped += 1
                if task.step < step:
                    run.submit(task.rank, step)
        run.progress["clocks"] = [step + 1] * len(run.clocks)
        run.apply(sorted(arrived, key=lambda found: found[0].rank))
    run.training.dropped += len(run.crew.busy)


def by_clocks(run: Run, staleness: int) -> None:
    """Each gradient is applied when it comes. A worker that is more than `staleness` steps before the last one waits:
    stale synchronous parallel (Ho et al., NIPS 2013), in which a worker sees all updates of steps that are more than
    `staleness` before its own."""
    while True:
        for rank in run.crew.idle():
            step = run.clocks[rank]
            if step < run.steps and step - min(run.clocks) <= staleness:
                run.submit(rank, step)
        if not run.crew.busy:
            return
        for task, report in run.done():
            run.clocks[task.rank] += 1
            run.apply([(task, report)])


def train(
    server: ParameterServer,
    worker_fn: WorkerFunction,
    *,
    workers: int,
    steps: int,
    mode: str = "sync",
    need: int | None = None,
    staleness: int = 1,
    compression: Compression | None = None,
    checkpoints: CheckpointManager | None = None,
    max_restarts: int = 3,
) -> Training:
    """Trains a parameter server's model by workers; the model has the last values when it returns.

    worker_fn: called as ``worker_fn(model, step, rank)`` on a worker's copy of the model, returns the loss of this
    worker's data of the step; the program around it may be traced. With the engine ``"ray"`` it is sent to another
    process, with what it refers to. workers: how many there are; each makes every step from 0 to `steps`.

    mode: ``"sync"`` updates by the mean of all workers' gradients of a step. ``"backup"`` updates by the mean of the
    first `need` of them, and drops what comes later (Chen et al. 2016). ``"async"`` updates by each gradient when it
    comes; a worker that is more than `staleness` steps before the last one waits (Ho et al., NIPS 2013).

    compression: how gradients of parameters travel, `TopK` or `OneBit`; what it leaves out of one, each worker adds to
    its next one (error feedback, Karimireddy et al. 2019). Gradients of tables travel by rows, as they are.

    checkpoints: saves each version that is a multiple of its interval, and is gone on from if it has some. A shard that
    dies is started again, and all go back to the last one. A worker that dies is started again, and makes its step
    again. Such restarts are at most `max_restarts`.

    Buffers belong to each worker's copy; the model has those of the first worker that has nothing to do at the end. A
    worker that is started again begins with the model's. Raises ArgumentError for numbers
    that make no sense; ActorError for a worker or shard that dies too often, or does not answer in the server's
    timeout; what `worker_fn` raises.

    >>> import hybridml as hm
    >>> from hybridml.distributed import servers
    >>> model = hm.nn.Linear(3, 1)
    >>> x = hm.randn((8, 3))
    >>> def loss(model, step, rank):
    ...     mine = x[4 * rank : 4 * rank + 4]
    ...     return ((model(mine) - mine.sum(1, keepdims=True)) ** 2).mean()
    >>> with servers.ParameterServer(model, lambda params: hm.optim.SGD(params, lr=0.1), engine="threads") as server:
    ...     training = servers.train(server, loss, workers=2, steps=50)
    >>> training.losses[-1] < training.losses[0], training.staleness
    (True, Counter({0: 100}))
    """
    loops: dict[str, Callable[[Run], None]] = {
        "sync": lambda run: in_rounds(run, workers),
        "backup": lambda run: in_rounds(run, need or workers),
        "async": lambda run: by_clocks(run, staleness),
    }
    _check(workers, mode, need, staleness, loops)
    made = (Worker, server.model, worker_fn, server.placement, compression)
    crew = Crew(server.engine, workers, server.timeout, Restarts(max_restarts), *made)
    run = Run(server, crew, steps, checkpoints)
    try:
        if not run.restore():
            run.save()
        while True:
            try:
                loops[mode](run)
                server.pull()
                break
            except ActorError as error:
                run.recover(error)
        with no_grad():
            write(dict(server.model.named_buffers()), crew.buffers())
    finally:
        crew.close()
    run.training.restarts = crew.restarts.count
    return run.training


def _check(workers: int, mode: str, need: int | None, staleness: int, modes: dict[str, Any]) -> None:
    if mode not in modes:
        raise ArgumentError(f"train: mode must be one of {', '.join(map(repr, modes))}, got {mode!r}")
    if workers < 1:
        raise ArgumentError(f"train: workers must be 1 or more, got {workers}")
    if (need is not None) != (mode == "backup") or not 1 <= (need or 1) <= workers:
        raise ArgumentError(
            f"train: need is for mode='backup', which must have it, and from 1 to workers={workers}; got {need} with "
            f"mode={mode!r}"
        )
    if staleness < 0:
        raise ArgumentError(f"train: staleness must be 0 or more, got {staleness}")
