"""The models as JAX functions of their weights by name, the arguments of the class, and the inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Weights = dict[str, jax.Array]


def _linear(p: Weights, name: str, x: jax.Array) -> jax.Array:
    y = x @ p[f"{name}.weight"].T
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def _norm(p: Weights, name: str, x: jax.Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> jax.Array:
    centred = x - x.mean(axes, keepdims=True)
    scaled = centred * jax.lax.rsqrt((centred * centred).mean(axes, keepdims=True) + 1e-5)
    return scaled * p[f"{name}.weight"].reshape(shape) + p[f"{name}.bias"].reshape(shape)


def _conv(p: Weights, name: str, x: jax.Array, stride: int, padding: int) -> jax.Array:
    layout = ("NCHW", "OIHW", "NCHW")
    y = jax.lax.conv_general_dilated(
        x, p[f"{name}.weight"], (stride, stride), [(padding, padding)] * 2, dimension_numbers=layout
    )
    return y + p[f"{name}.bias"][:, None, None] if f"{name}.bias" in p else y


def _max_pool(x: jax.Array, size: int, stride: int, padding: int = 0) -> jax.Array:
    edges = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, size, size), (1, 1, stride, stride), edges)


def mlp(p: Weights, sizes: dict[str, Any], x: jax.Array) -> jax.Array:
    last = len(sizes["widths"]) - 2
    for k in range(last):
        x = jax.nn.relu(_linear(p, f"layers.{k}", x))
    return _linear(p, f"layers.{last}", x)


def gpt(p: Weights, sizes: dict[str, Any], tokens: jax.Array) -> jax.Array:
    n, t = tokens.shape
    width, heads = sizes["width"], sizes["heads"]
    causal = jnp.tril(jnp.ones((t, t), bool))
    x = p["tokens.weight"][tokens] + p["positions.weight"][:t]
    for k in range(sizes["layers"]):
        name = f"blocks.{k}"
        y = _linear(p, f"{name}.qkv", _norm(p, f"{name}.norm1", x, (-1,), (width,)))
        q, key, v = y.reshape(n, t, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
        scores = jnp.einsum("nhld,nhsd->nhls", q * (width // heads) ** -0.5, key)
        weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), -1)
        y = jnp.einsum("nhls,nhsd->nhld", weights, v).transpose(0, 2, 1, 3).reshape(n, t, width)
        x = x + _linear(p, f"{name}.out", y)
        y = _linear(p, f"{name}.up", _norm(p, f"{name}.norm2", x, (-1,), (width,)))
        x = x + _linear(p, f"{name}.down", jax.nn.gelu(y, approximate=True))
    return _linear(p, "head", _norm(p, "norm", x, (-1,), (width,)))


def lstm(p: Weights, sizes: dict[str, Any], x: jax.Array) -> jax.Array:
    inputs = x @ p["lstm.weight_ih_l0"].T + (p["lstm.bias_ih_l0"] + p["lstm.bias_hh_l0"])
    recurrent = p["lstm.weight_hh_l0"].T

    def step(state: tuple[jax.Array, jax.Array], gates: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        h, c = state
        i, f, g, o = jnp.split(gates + h @ recurrent, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zeros = jnp.zeros((x.shape[0], sizes["hidden"]), x.dtype)
    (h, _), _ = jax.lax.scan(step, (zeros, zeros), inputs.swapaxes(0, 1))
    return _linear(p, "head", h)


def resnet(p: Weights, sizes: dict[str, Any], x: jax.Array) -> jax.Array:
    def norm(name: str, x: jax.Array) -> jax.Array:
        return _norm(p, name, x, (0, 2, 3), (-1, 1, 1))

    def block(name: str, x: jax.Array, stride: int) -> jax.Array:
        y = jax.nn.relu(norm(f"{name}.bn1", _conv(p, f"{name}.conv1", x, stride, 1)))
        y = norm(f"{name}.bn2", _conv(p, f"{name}.conv2", y, 1, 1))
        if f"{name}.downsample.0.weight" in p:
            x = norm(f"{name}.downsample.1", _conv(p, f"{name}.downsample.0", x, stride, 0))
        return jax.nn.relu(y + x)

    x = _max_pool(jax.nn.relu(norm("bn1", _conv(p, "conv1", x, 2, 3))), 3, 2, 1)
    for layer in (1, 2, 3, 4):
        x = block(f"layer{layer}.0", x, 1 if layer == 1 else 2)
        x = block(f"layer{layer}.1", x, 1)
    return _linear(p, "fc", x.mean((2, 3)))


def alexnet(p: Weights, sizes: dict[str, Any], x: jax.Array) -> jax.Array:
    x = _max_pool(jax.nn.relu(_conv(p, "features.0", x, 4, 2)), 3, 2)
    x = _max_pool(jax.nn.relu(_conv(p, "features.3", x, 1, 2)), 3, 2)
    for k in (6, 8, 10):
        x = jax.nn.relu(_conv(p, f"features.{k}", x, 1, 1))
    x = _max_pool(x, 3, 2).reshape(x.shape[0], -1)
    for k in (1, 4):
        x = jax.nn.relu(_linear(p, f"classifier.{k}", x))
    return _linear(p, "classifier.6", x)


def ncf(p: Weights, sizes: dict[str, Any], users: jax.Array, items: jax.Array) -> jax.Array:
    u, i = p["users.weight"][users], p["items.weight"][items]
    x = jax.nn.relu(_linear(p, "layer1", jnp.concatenate([u, i], -1)))
    x = jax.nn.relu(_linear(p, "layer2", x))
    return _linear(p, "head", jnp.concatenate([u * i, x], -1)).reshape(-1)


MODELS: dict[str, Callable[..., jax.Array]] = {f.__name__: f for f in (mlp, gpt, lstm, resnet, alexnet, ncf)}
