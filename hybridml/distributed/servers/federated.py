"""`federated`: clients train copies of a model on data of their own, and the model becomes the mean of the copies.

Source: McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017
(FederatedAveraging).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError

from ...core.context import no_grad
from ...nn.module import Module
from .engines import engine_named
from .server import TIMEOUT
from .shards import OptimizerFactory
from .values import Arrays, array_of, write
from .workers import Crew, Restarts, WorkerFunction


class Round(NamedTuple):
    """A round of federated averaging: the clients that took part, in their order, the mean of their losses, weighted
    by their numbers of examples, and the bytes that went to and came from them.

    >>> from hybridml.distributed import servers
    >>> servers.Round(clients=[0, 3], loss=0.25, bytes_moved=96).clients
    [0, 3]
    """

    clients: list[int]
    loss: float
    bytes_moved: int


class Client:
    """An actor that trains for one client after the other; nothing of one is left for the next."""

    def __init__(self, rank: int, model: Module, fn: WorkerFunction, optimizer: OptimizerFactory) -> None:
        self.model, self.fn, self.optimizer = copy.deepcopy(model), fn, optimizer

    def train(self, client: int, start: int, steps: int, values: Arrays) -> tuple[float, Arrays]:
        """The mean loss of some steps that begin with these values, and the values after them."""
        with no_grad():
            write(self.model.state_dict(), values)
        optimizer = self.optimizer([p for p in self.model.parameters() if p.requires_grad])
        losses = []
        for step in range(start, start + steps):
            optimizer.zero_grad()
            loss = self.fn(self.model, step, client)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses), values_of(self.model)


def values_of(model: Module) -> Arrays:
    """Copies of a model's parameters and buffers."""
    return {name: array_of(value).copy() for name, value in model.state_dict().items()}


def weighted_mean(found: Sequence[Mapping[str, np.ndarray]], weights: Sequence[float]) -> Arrays:
    """The mean of each value, in float64 on the way; what is no floating number is that of the first."""
    total = sum(weights)
    means = {}
    for name, first in found[0].items():
        parts = [each[name].astype(np.float64) * (w / total) for each, w in zip(found, weights, strict=True)]
        means[name] = np.sum(parts, axis=0).astype(first.dtype) if dtypes.is_float(first.dtype) else first
    return means


def federated(
    model: Module,
    client_fn: WorkerFunction,
    optimizer: OptimizerFactory,
    *,
    examples: Sequence[int],
    rounds: int,
    fraction: float = 1.0,
    local_steps: int = 1,
    workers: int = 2,
    engine: str = "ray",
    seed: int = 0,
    timeout: float = TIMEOUT,
    max_restarts: int = 3,
) -> list[Round]:
    """Trains a model by federated averaging (McMahan et al. 2017); returns what each round was.

    In each round some clients take the model and make `local_steps` steps on data of their own. The model then becomes
    the mean of their models, weighted by their numbers of examples: parameters, and buffers of floating numbers.

    client_fn: called as ``client_fn(model, step, client)``, returns the loss of a step; steps are counted over all
    rounds. optimizer: makes the optimizer of a list of parameters, for each client in each round. examples: how many
    examples each client has. fraction: the part of the clients that take part in a round, at least one; which ones,
    follows from `seed` and the round. workers: actors of the engine (see `ParameterServer`), which train for one client
    after the other; one that dies is started again, in all at most `max_restarts` times, and trains for its client
    again.

    Raises ArgumentError for numbers that make no sense; ActorError for a worker that dies too often, or needs more than
    `timeout` seconds for a client; what `client_fn` raises.

    >>> import hybridml as hm
    >>> from hybridml.distributed import servers
    >>> model, data = hm.nn.Linear(3, 1), [hm.randn((n, 3)) for n in (8, 2, 5)]
    >>> def loss(model, step, client):
    ...     return ((model(data[client]) - data[client].sum(1, keepdims=True)) ** 2).mean()
    >>> rounds = servers.federated(
    ...     model, loss, lambda params: hm.optim.SGD(params, lr=0.1), examples=[8, 2, 5], rounds=10, fraction=0.67,
    ...     local_steps=3, engine="threads",
    ... )
    >>> [len(found.clients) for found in rounds] == [2] * 10, rounds[-1].loss < rounds[0].loss
    (True, True)
    """
    for name, value in {"examples": min(examples, default=0), "rounds": rounds, "local_steps": local_steps}.items():
        if value < 1:
            raise ArgumentError(f"federated: {name} must be 1 or more, got {examples if name == 'examples' else value}")
    if not 0 < fraction <= 1:
        raise ArgumentError(f"federated: fraction must be above 0 and at most 1, got {fraction}")
    made = (Client, model, client_fn, optimizer)
    crew = Crew(engine_named(engine), workers, timeout, Restarts(max_restarts), *made)
    history = []
    try:
        for number in range(rounds):
            count = max(1, round(fraction * len(examples)))
            drawn = np.random.default_rng((seed, number)).choice(len(examples), count, replace=False)
            clients = sorted(int(k) for k in drawn)
            found = _trained(crew, clients, number * local_steps, local_steps, values_of(model))
            weights = [float(examples[k]) for k in clients]
            mean = weighted_mean([values for _, values in found], weights)
            with no_grad():
                write(model.state_dict(), mean)
            loss = sum(w * loss for w, (loss, _) in zip(weights, found, strict=True)) / sum(weights)
            history.append(Round(clients, loss, 2 * len(clients) * sum(value.nbytes for value in mean.values())))
    finally:
        crew.close()
    return history


def _trained(crew: Crew, clients: Sequence[int], start: int, steps: int, values: Arrays) -> list[tuple[float, Arrays]]:
    """The loss and values of each client after its steps, by workers as they become idle."""
    waiting = list(clients)
    found: dict[int, tuple[float, Arrays]] = {}
    while len(found) < len(clients):
        for rank in crew.idle()[: len(waiting)]:
            client = waiting.pop(0)
            crew.submit(rank, client, 1, "train", client, start, steps, values)
        found |= {task.step: result for task, result in crew.done()}
    return [found[client] for client in clients]
