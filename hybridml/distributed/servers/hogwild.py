"""`hogwild`: processes of this machine that update parameters in shared memory, without locks.

Source: Niu et al., "Hogwild!: a lock-free approach to parallelizing stochastic gradient descent", NIPS 2011.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ...core.aliasing import stamp
from ...core.context import no_grad
from ...core.shared.memory import share
from ...core.tensor import Tensor
from ...data.workers.pool import chosen_context, undisturbed
from ...data.workers.process import can_be_sent, use_one_thread
from ...nn.module import Module
from .engines import has_died, is_late
from .server import TIMEOUT
from .shards import OptimizerFactory
from .values import write
from .workers import WorkerFunction


def move_to(tensors: Sequence[Tensor], shared: Sequence[Tensor]) -> None:
    """Gives tensors the values of others, and has them in the memory of these from now on."""
    for t, other in zip(tensors, shared, strict=True):
        t._array = other._array
        stamp(t)


def _run(
    rank: int, model: Module, fn: WorkerFunction, optimizer: OptimizerFactory, steps: int, shared: Sequence[Tensor],
    way: Connection,
) -> None:  # fmt: skip
    """All that a process does: it sends its losses, or its error."""
    use_one_thread()
    try:
        move_to(_trained(model), shared)
        updates, losses = optimizer(_trained(model)), []
        for step in range(steps):
            updates.zero_grad()
            loss = fn(model, step, rank)
            loss.backward()
            updates.step()
            losses.append(loss.item())
        way.send(losses)
    except Exception as error:
        way.send(error if can_be_sent(error) else RuntimeError(f"{type(error).__name__}: {error}"))


def _trained(model: Module) -> list[Tensor]:
    return [p for p in model.parameters() if p.requires_grad]


def hogwild(
    model: Module,
    worker_fn: WorkerFunction,
    optimizer: OptimizerFactory,
    *,
    processes: int,
    steps: int,
    timeout: float = TIMEOUT,
) -> list[list[float]]:
    """Trains a model by processes of this machine that share its parameters; returns the losses of each process.

    Each process makes `steps` steps and writes its updates to the shared parameters when it has them, without a lock:
    an update of the same elements by two processes at a time may be lost, which is rare where gradients are sparse
    (Niu et al. 2011). The state of the optimizer, and buffers, are each process's own; the model has the buffers that
    it had. The parameters must be on the CPU.

    worker_fn: called as ``worker_fn(model, step, rank)``, returns the loss. optimizer: makes the optimizer of a list of
    parameters, in each process. timeout: seconds for all steps. Processes are started as those of `DataLoader` are, by
    `fork` on Linux; elsewhere the arguments must be picklable. Raises ArgumentError for numbers below 1, and parameters
    that are not on the CPU; ActorError for a process that dies or needs longer; what `worker_fn` raises.

    >>> import hybridml as hm
    >>> from hybridml.distributed import servers
    >>> model, x = hm.nn.Linear(3, 1), hm.randn((2, 8, 3))
    >>> def loss(model, step, rank):
    ...     return ((model(x[rank]) - x[rank].sum(1, keepdims=True)) ** 2).mean()
    >>> losses = servers.hogwild(model, loss, lambda params: hm.optim.SGD(params, lr=0.1), processes=2, steps=50)
    >>> [len(found) for found in losses], losses[0][-1] < losses[0][0]
    ([50, 50], True)
    """
    for name, value in {"processes": processes, "steps": steps}.items():
        if value < 1:
            raise ArgumentError(f"hogwild: {name} must be 1 or more, got {value}")
    tensors = _trained(model)
    if elsewhere := [str(t.device) for t in tensors if t.device.type != "cpu"]:
        raise ArgumentError(
            f"hogwild: parameters must be on the CPU, got one on {elsewhere[0]}; call model.cpu() before"
        )
    shared = [t.detach().clone() for t in tensors]
    share("hogwild", shared)
    context, end = chosen_context(None), time.monotonic() + timeout
    workers: list[tuple[Any, Connection]] = []
    try:
        for rank in range(processes):
            here, there = context.Pipe(duplex=False)
            given = (rank, model, worker_fn, optimizer, steps, shared, there)
            process = context.Process(target=_run, args=given, name=f"worker {rank}", daemon=True)
            with undisturbed():
                process.start()
            there.close()  # the end of the process is then the end of what it sends
            workers.append((process, here))
        losses = [_result(process.name, way, end, timeout) for process, way in workers]
        with no_grad():
            write(dict(enumerate(tensors)), dict(enumerate(shared)))
    finally:
        for process, way in workers:
            process.terminate()
            process.join()
            way.close()
    return losses


def _result(who: str, way: Connection, end: float, timeout: float) -> list[float]:
    if not way.poll(max(0.0, end - time.monotonic())):
        raise is_late(who, timeout)
    try:
        found = way.recv()
    except EOFError:
        raise has_died(who) from None
    if isinstance(found, Exception):
        raise found
    losses: list[float] = found
    return losses
