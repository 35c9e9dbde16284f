"""The workloads in JAX, each one function under `jax.jit`; training steps donate their state and hold the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .models.in_jax import MODELS
from .training import RATES, Arrays, Training, split
from .workloads import Case


def set_threads(count: int) -> None:
    """XLA takes as many threads as the process has CPUs, which the worker has limited."""


def _case(fn: Callable[..., Any], *args: Any) -> Case:
    run = jax.jit(fn)
    last: list[Any] = [None]

    def call() -> None:
        last[0] = jax.block_until_ready(run(*args))

    return Case(call, lambda: [np.asarray(last[0], np.float32)])


def _tensors(arrays: Arrays) -> list[jax.Array]:
    return [jnp.asarray(array) for array in arrays.values()]


def gelu_chain(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, y: jax.nn.gelu(x * 1.5 + y, approximate=True) * jax.nn.sigmoid(y) + x, *_tensors(arrays))


def tiny_call(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: x * 2 + 1, *_tensors(arrays))


first_tiny, first_gelu = tiny_call, gelu_chain


def captured_100(arrays: Arrays, style: str) -> Case:
    """What jit captures is constant for ever, so what is checked elsewhere is an argument here."""
    x, *held = _tensors(arrays)
    return _case(lambda x, held: x * 2 + sum(held, start=1), x, held)


def black_scholes(arrays: Arrays, style: str) -> Case:
    def price(spot: jax.Array, strike: jax.Array, years: jax.Array, rate: jax.Array, vol: jax.Array) -> jax.Array:
        spread = vol * jnp.sqrt(years)
        d1 = (jnp.log(spot / strike) + (rate + vol * vol * 0.5) * years) / spread
        d2 = d1 - spread
        up, down = (jax.lax.erf(d * 0.5**0.5) * 0.5 + 0.5 for d in (d1, d2))
        return spot * up - strike * jnp.exp(-rate * years) * down

    return _case(price, *_tensors(arrays))


def softmax(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: jax.nn.softmax(x / 8, -1), *_tensors(arrays))


def layer_norm(arrays: Arrays, style: str) -> Case:
    def norm(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b

    return _case(norm, *_tensors(arrays))


def sum_squares(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: (x * x).sum(0), *_tensors(arrays))


def linear_gelu(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: jax.nn.gelu(x @ w + b, approximate=False), *_tensors(arrays))


def matmul_bf16(arrays: Arrays, style: str) -> Case:
    return _case(jnp.matmul, *(x.astype(jnp.bfloat16) for x in _tensors(arrays)[:2]))


def matmul_int8(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w: jnp.matmul(x, w, preferred_element_type=jnp.int32), *_tensors(arrays))


def _narrow_convolution(arrays: Arrays, style: str) -> Case:
    def run(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
        return jax.nn.relu(y + b[:, None, None])

    return _case(run, *(x.astype(jnp.bfloat16) for x in _tensors(arrays)))


conv3x3_bf16 = conv1x1_bf16 = _narrow_convolution


def _convolved(activation: Callable[..., jax.Array], padding: str, arrays: Arrays) -> Case:
    def run(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        groups, layout = x.shape[1] // w.shape[1], ("NCHW", "OIHW", "NCHW")
        y = jax.lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=layout, feature_group_count=groups)
        return activation(y + b[:, None, None])

    return _case(run, *_tensors(arrays))


def conv3x3(arrays: Arrays, style: str) -> Case:
    return _convolved(jax.nn.relu, "SAME", arrays)


def conv1x1(arrays: Arrays, style: str) -> Case:
    return _convolved(jax.nn.relu, "VALID", arrays)


def depthwise(arrays: Arrays, style: str) -> Case:
    return _convolved(jax.nn.relu6, "SAME", arrays)


def attention(arrays: Arrays, style: str) -> Case:
    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.einsum("nhld,nhsd->nhls", q * q.shape[-1] ** -0.5, k)
        return jnp.einsum("nhls,nhsd->nhld", jax.nn.softmax(scores, -1), v)

    return _case(attend, *_tensors(arrays))


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), labels[..., None], -1).mean()


def _binary_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return (jnp.maximum(logits, 0) - logits * labels + jnp.log1p(jnp.exp(-jnp.abs(logits)))).mean()


LOSSES = {"cross_entropy": _cross_entropy, "binary_cross_entropy": _binary_cross_entropy}


def _adam(step: Any, p: jax.Array, g: jax.Array, mean: jax.Array, square: jax.Array) -> tuple[jax.Array, ...]:
    mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
    root = jnp.sqrt(square) / jnp.sqrt(1 - 0.999**step)
    return p - RATES["adam"] / (1 - 0.9**step) * mean / (root + 1e-8), mean, square


def _sgd(step: Any, p: jax.Array, g: jax.Array, velocity: jax.Array) -> tuple[jax.Array, ...]:
    velocity = 0.9 * velocity + g
    return p - RATES["sgd"] * velocity, velocity


UPDATES: dict[str, tuple[Callable[..., Any], int]] = {"adam": (_adam, 2), "sgd": (_sgd, 1)}  # and its slots


def training(task: Training, arrays: Arrays, style: str) -> Case:
    inputs, labels, weights = split(arrays)
    model, loss_of = MODELS[task.module], LOSSES[task.loss]
    update, slots = UPDATES[task.optimizer]

    def step(state: Any, labels: jax.Array, *inputs: jax.Array) -> Any:
        count, parameters, held = state
        loss, grads = jax.value_and_grad(lambda p: loss_of(model(p, task.arguments, *inputs), labels))(parameters)
        new = {name: update(count + 1, parameters[name], grads[name], *held[name]) for name in parameters}
        return loss, (count + 1, {n: u[0] for n, u in new.items()}, {n: u[1:] for n, u in new.items()})

    run = jax.jit(step, donate_argnums=0)
    args = [jnp.asarray(a) for a in (labels, *inputs)]
    last: list[Any] = [None, None]

    def reset() -> None:
        parameters = {name: jnp.array(array) for name, array in weights.items()}
        held = {name: tuple(jnp.zeros_like(p) for _ in range(slots)) for name, p in parameters.items()}
        last[1] = jax.block_until_ready((jnp.zeros((), jnp.int32), parameters, held))

    def call() -> None:
        last[:] = jax.block_until_ready(run(last[1], *args))

    reset()
    return Case(call, lambda: [np.asarray(last[0])], reset)
