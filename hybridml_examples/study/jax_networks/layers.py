"""Layers in JAX that read their weights by name, and what networks have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Pair = tuple[int, int]
_LAYOUT = ("NCHW", "OIHW", "NCHW")


class Weights:
    """Arrays by name, layers that read them by the beginning of it, and the statistics that training updates."""

    def __init__(self, arrays: dict[str, jax.Array], training: bool) -> None:
        self.arrays, self.training = arrays, training
        self.updated: dict[str, jax.Array] = {}

    def __getitem__(self, name: str) -> jax.Array:
        return self.arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def linear(self, name: str, x: jax.Array) -> jax.Array:
        y = x @ self[f"{name}.weight"].T
        return y + self[f"{name}.bias"] if f"{name}.bias" in self else y

    def conv(
        self, name: str, x: jax.Array, stride: int | Pair = 1, padding: int | Pair = 0, groups: int = 1
    ) -> jax.Array:
        strides, edges = (k if isinstance(k, tuple) else (k, k) for k in (stride, padding))
        y = jax.lax.conv_general_dilated(
            x, self[f"{name}.weight"], strides, [(k, k) for k in edges], dimension_numbers=_LAYOUT,
            feature_group_count=groups,
        )  # fmt: skip
        return y + self[f"{name}.bias"][:, None, None] if f"{name}.bias" in self else y

    def layer_norm(self, name: str, x: jax.Array, eps: float = 1e-5) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + eps)
        return scaled * self[f"{name}.weight"] + self[f"{name}.bias"]

    def batch_norm(self, name: str, x: jax.Array, eps: float = 1e-5) -> jax.Array:
        """Normalises images (n, c, h, w), or rows (n, c)."""
        mean, variance = self[f"{name}.running_mean"], self[f"{name}.running_var"]
        axes, place = ((0, 2, 3), (slice(None), None, None)) if x.ndim == 4 else ((0,), (slice(None),))
        if self.training:
            count, old = x.size // x.shape[1], (mean, variance)
            mean, variance = x.mean(axes), x.var(axes)
            unbiased = variance * (count / (count - 1))
            self.updated[f"{name}.running_mean"] = 0.9 * old[0] + 0.1 * jax.lax.stop_gradient(mean)
            self.updated[f"{name}.running_var"] = 0.9 * old[1] + 0.1 * jax.lax.stop_gradient(unbiased)
        scale = self[f"{name}.weight"] * jax.lax.rsqrt(variance + eps)
        shift = self[f"{name}.bias"] - mean * scale
        return x * scale[place] + shift[place]

    def lstm(self, name: str, x: jax.Array) -> jax.Array:
        """Runs a layer over (n, t, inputs), from zeros: (n, t, width)."""

        def step(state: Any, given: jax.Array) -> Any:
            h, c = state
            i, f, g, o = jnp.split(given + h @ recurrent, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        recurrent = self[f"{name}.weight_hh_l0"].T
        given = x @ self[f"{name}.weight_ih_l0"].T + (self[f"{name}.bias_ih_l0"] + self[f"{name}.bias_hh_l0"])
        zeros = jnp.zeros((x.shape[0], recurrent.shape[0]), x.dtype)
        return jax.lax.scan(step, (zeros, zeros), given.swapaxes(0, 1))[1].swapaxes(0, 1)

    def gru(self, name: str, x: jax.Array) -> jax.Array:
        """Runs a layer of GRUs over (n, t, inputs), from zeros: (n, t, width)."""

        def step(h: jax.Array, given: jax.Array) -> Any:
            held = h @ recurrent + self[f"{name}.bias_hh_l0"]
            (r, z, n), (hr, hz, hn) = jnp.split(given, 3, -1), jnp.split(held, 3, -1)
            r, z = jax.nn.sigmoid(r + hr), jax.nn.sigmoid(z + hz)
            h = (1 - z) * jnp.tanh(n + r * hn) + z * h
            return h, h

        recurrent = self[f"{name}.weight_hh_l0"].T
        given = x @ self[f"{name}.weight_ih_l0"].T + self[f"{name}.bias_ih_l0"]
        zeros = jnp.zeros((x.shape[0], recurrent.shape[0]), x.dtype)
        return jax.lax.scan(step, zeros, given.swapaxes(0, 1))[1].swapaxes(0, 1)

    def both_ways(
        self, kind: Callable[[str, jax.Array], jax.Array], name: str, x: jax.Array, lengths: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Runs a layer from the start and one from the end of each sentence."""
        t = x.shape[1]
        turned = ((lengths[:, None] - 1 - jnp.arange(t)) % t)[:, :, None]
        y = kind(f"{name}.backward", jnp.take_along_axis(x, turned, 1))
        return kind(f"{name}.onward", x), jnp.take_along_axis(y, turned, 1)


def attention(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Attends with queries, keys and values (n, t, heads, width of one), where the mask is true: (n, t, width)."""
    scores = jnp.einsum("nlhd,nshd->nhls", q * q.shape[-1] ** -0.5, k)
    weights = jax.nn.softmax(scores if mask is None else jnp.where(mask, scores, -jnp.inf), -1)
    return jnp.einsum("nhls,nshd->nlhd", weights, v).reshape(*q.shape[:2], -1)


def cross_entropy(logits: jax.Array, labels: jax.Array, ignored: int = -100, smoothing: float = 0.0) -> jax.Array:
    """The mean over labels (...) that are not ignored, of logits (..., classes)."""
    asked, scores = labels != ignored, jax.nn.log_softmax(logits, -1)
    picked = jnp.take_along_axis(scores, jnp.where(asked, labels, 0)[..., None], -1)[..., 0]
    if smoothing:
        picked = (1 - smoothing) * picked + smoothing * scores.mean(-1)
    return -jnp.sum(jnp.where(asked, picked, 0)) / jnp.sum(asked)
