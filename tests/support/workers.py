"""Models and losses for tests of workers that train together, and what one process makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hybridml as hm
from hybridml.distributed import servers

Killing = Callable[[dict[int, str]], None]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((48, 5)).astype(np.float32)
Y = np.tanh(X @ RNG.standard_normal((5, 3))).astype(np.float32)
BATCH = 4
Loss = Callable[[Any, int, int], Any]


def net() -> Any:
    hm.manual_seed(0)
    return hm.nn.Sequential(hm.nn.Linear(5, 8), hm.nn.Tanh(), hm.nn.Linear(8, 3))


def adam(params: Any) -> Any:
    return hm.optim.Adam(params, lr=0.05)


def sgd(params: Any) -> Any:
    return hm.optim.SGD(params, lr=0.2)


def loss_of(traced: bool) -> Loss:
    """The loss of a worker's rows of each step: each step and worker has others."""

    def program(model: Any, x: Any, y: Any) -> Any:
        return (
            (model(x) - y) ** 2
        ).mean()  # operations alone: functions of the library may be compiled when they come often

    run = hm.trace(program) if traced else program

    def loss(model: Any, step: int, rank: int) -> Any:
        k = (3 * step + rank) * BATCH % len(X)
        return run(model, hm.asarray(X[k : k + BATCH]), hm.asarray(Y[k : k + BATCH]))

    return loss


def weights(model: Any) -> list[np.ndarray]:
    return [p.detach().numpy() for p in model.parameters()]


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def alone(loss: Loss, optimizer: Any, steps: int, ranks: int = 1) -> Any:
    """A model that one process has trained, by the mean of the workers' losses."""
    model = net()
    updates = optimizer(list(model.parameters()))
    for step in range(steps):
        updates.zero_grad()
        (sum(loss(model, step, rank) for rank in range(ranks)) / ranks).backward()
        updates.step()
    return model


def together(loss: Loss, optimizer: Any = adam, shards: int = 2, **options: Any) -> tuple[Any, servers.Training]:
    """A model that workers have trained, and what happened."""
    model = net()
    with servers.ParameterServer(model, optimizer, shards=shards, engine="threads") as server:
        return model, servers.train(server, loss, **{"workers": 2, "steps": 12, **options})
