"""The workloads in JAX, each one function under `jax.jit`; training steps donate their state and hold the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .workloads import Arrays, Case


def set_threads(count: int) -> None:
    """XLA takes as many threads as the process has CPUs, which the worker has limited."""


def _case(fn: Callable[..., Any], *args: Any) -> Case:
    run = jax.jit(fn)
    last: list[Any] = [None]

    def call() -> None:
        last[0] = jax.block_until_ready(run(*args))

    return Case(call, lambda: [np.asarray(last[0])])


def _tensors(arrays: Arrays) -> list[jax.Array]:
    return [jnp.asarray(array) for array in arrays.values()]


def gelu_chain(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, y: jax.nn.gelu(x * 1.5 + y, approximate=True) * jax.nn.sigmoid(y) + x, *_tensors(arrays))


def tiny_call(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: x * 2 + 1, *_tensors(arrays))


first_tiny, first_gelu = tiny_call, gelu_chain


def softmax(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: jax.nn.softmax(x, -1), *_tensors(arrays))


def layer_norm(arrays: Arrays, style: str) -> Case:
    def norm(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b

    return _case(norm, *_tensors(arrays))


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), labels[:, None], 1).mean()


def _training(model: Callable[..., jax.Array], update: Callable[..., Any], slots: int, arrays: Arrays) -> Case:
    """`update(step, parameter, gradient, *slots)` gives the new parameter and its new slots."""
    x, labels = jnp.asarray(arrays["x"]), jnp.asarray(arrays["labels"])
    names = [name for name in arrays if name not in ("x", "labels")]

    def step(state: Any, x: jax.Array, labels: jax.Array) -> Any:
        count, parameters, held = state
        loss, grads = jax.value_and_grad(lambda p: _cross_entropy(model(p, x), labels))(parameters)
        new = {name: update(count + 1, parameters[name], grads[name], *held[name]) for name in parameters}
        return loss, (count + 1, {n: u[0] for n, u in new.items()}, {n: u[1:] for n, u in new.items()})

    run = jax.jit(step, donate_argnums=0)
    last: list[Any] = [None, None]

    def reset() -> None:
        parameters = {name: jnp.array(arrays[name]) for name in names}
        held = {name: tuple(jnp.zeros_like(p) for _ in range(slots)) for name, p in parameters.items()}
        last[1] = jax.block_until_ready((jnp.zeros((), jnp.int32), parameters, held))

    def call() -> None:
        last[:] = jax.block_until_ready(run(last[1], x, labels))

    reset()
    return Case(call, lambda: [np.asarray(last[0])], reset)


def _adam(step: Any, p: jax.Array, g: jax.Array, mean: jax.Array, square: jax.Array) -> tuple[jax.Array, ...]:
    mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
    root = jnp.sqrt(square) / jnp.sqrt(1 - 0.999**step)
    return p - 1e-3 / (1 - 0.9**step) * mean / (root + 1e-8), mean, square


def _sgd(step: Any, p: jax.Array, g: jax.Array, velocity: jax.Array) -> tuple[jax.Array, ...]:
    velocity = 0.9 * velocity + g
    return p - 0.01 * velocity, velocity


def mlp_step(arrays: Arrays, style: str) -> Case:
    def model(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        x = jax.nn.relu(x @ p["w0"].T + p["b0"])
        x = jax.nn.relu(x @ p["w1"].T + p["b1"])
        return x @ p["w2"].T + p["b2"]

    return _training(model, _adam, 2, arrays)


def convnet_step(arrays: Arrays, style: str) -> Case:
    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
        x = jax.nn.relu(x + b[:, None, None])
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def model(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        x = layer(layer(x, p["w0"], p["b0"]), p["w1"], p["b1"])
        return x.reshape(x.shape[0], -1) @ p["w2"].T + p["b2"]

    return _training(model, _sgd, 1, arrays)
