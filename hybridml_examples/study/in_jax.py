"""The networks in JAX: functions of weights by name, under `jax.jit` as one training step and as inference.

A step donates its state, and updates the running statistics of normalisation as the layers of the others do.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .candidates import Candidate
from .in_one_text import SHOWN
from .jax_networks import LOSSES, NETWORKS, Weights
from .networks import OPTIMIZERS


def prepare(candidate: Candidate, threads: int) -> None:
    """XLA takes as many threads as the process has CPUs, which the worker has limited."""


def _adam(count: jax.Array, p: jax.Array, g: jax.Array, mean: jax.Array, square: jax.Array) -> tuple[jax.Array, ...]:
    mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
    root = jnp.sqrt(square) / jnp.sqrt(1 - 0.999**count)
    return p - OPTIMIZERS["adam"]["lr"] / (1 - 0.9**count) * mean / (root + 1e-8), mean, square


def _sgd(count: jax.Array, p: jax.Array, g: jax.Array, velocity: jax.Array) -> tuple[jax.Array, ...]:
    velocity = OPTIMIZERS["sgd"]["momentum"] * velocity + g
    return p - OPTIMIZERS["sgd"]["lr"] * velocity, velocity


UPDATES = {"adam": (_adam, 2), "sgd": (_sgd, 1)}  # and how many arrays each keeps of a parameter


class Program:
    """A network on a batch: one training step, and inference, as calls without arguments."""

    def __init__(self, candidate: Candidate, spec: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        if spec["name"] not in NETWORKS:
            raise NotImplementedError(f"{spec['name']} is not written in JAX here")
        network, loss_of = NETWORKS[spec["name"]], LOSSES[spec["loss"]]
        options, self.inputs = spec["options"], spec["inputs"]
        update, self.slots = UPDATES[spec["optimizer"]]
        self.weights = {key[2:]: array for key, array in arrays.items() if key.startswith("w:")}
        self.trained, self.kept = spec["parameters"], spec["buffers"]
        self.feed([arrays[f"b:{k}"] for k in range(spec["arrays"])])

        def step(state: Any, batch: list[jax.Array]) -> Any:
            count, parameters, statistics, held = state

            def value(parameters: dict[str, jax.Array]) -> Any:
                weights = Weights({**parameters, **statistics}, training=True)
                outputs = network(weights, options, *batch[: self.inputs])
                return loss_of(outputs, *batch), weights.updated

            (loss, updated), grads = jax.value_and_grad(value, has_aux=True)(parameters)
            new = {name: update(count + 1, p, grads[name], *held[name]) for name, p in parameters.items()}
            kept = {name: u[1:] for name, u in new.items()}
            return loss, (count + 1, {n: u[0] for n, u in new.items()}, {**statistics, **updated}, kept)

        def forward(parameters: Any, statistics: Any, inputs: list[jax.Array]) -> Any:
            return network(Weights({**parameters, **statistics}, training=False), options, *inputs)

        self._step, self._forward = jax.jit(step, donate_argnums=0), jax.jit(forward)
        self.state: Any = None
        self.last: Any = None
        self.reset()

    def feed(self, batch: list[np.ndarray]) -> None:
        """Takes another batch, of the same shapes."""
        self.batch = [jnp.asarray(array) for array in batch]

    def reset(self) -> None:
        """Goes back to the first weights."""
        parameters = {name: jnp.array(self.weights[name]) for name in self.trained}
        statistics = {name: jnp.array(self.weights[name]) for name in self.kept if name in self.weights}
        held = {name: tuple(jnp.zeros_like(p) for _ in range(self.slots)) for name, p in parameters.items()}
        self.state = jax.block_until_ready((jnp.zeros((), jnp.int32), parameters, statistics, held))

    def step(self) -> None:
        """One training step."""
        self.last, self.state = jax.block_until_ready(self._step(self.state, self.batch))

    def infer(self) -> None:
        """The model's output as it is after training."""
        _, parameters, statistics, _ = self.state
        self.last = jax.block_until_ready(self._forward(parameters, statistics, self.batch[: self.inputs]))

    def loss(self) -> float:
        """The loss of the last step."""
        return float(self.last)

    def output(self) -> np.ndarray:
        """The beginning of the first array of the last output."""
        return np.asarray(jax.tree.leaves(self.last)[0], np.float32).ravel()[:SHOWN]

    def device_memory(self) -> int:
        """Bytes of a GPU at their most; JAX runs on the CPU here."""
        return 0
