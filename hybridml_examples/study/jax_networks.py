"""Networks as JAX functions of weights, options of the architecture and inputs; losses of outputs and batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

_LAYOUT = ("NCHW", "OIHW", "NCHW")
_VGG = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}


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

    def conv(self, name: str, x: jax.Array, stride: int = 1, padding: int = 0, groups: int = 1) -> jax.Array:
        y = jax.lax.conv_general_dilated(
            x, self[f"{name}.weight"], (stride, stride), [(padding, padding)] * 2, dimension_numbers=_LAYOUT,
            feature_group_count=groups,
        )  # fmt: skip
        return y + self[f"{name}.bias"][:, None, None] if f"{name}.bias" in self else y

    def layer_norm(self, name: str, x: jax.Array, eps: float = 1e-5) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + eps)
        return scaled * self[f"{name}.weight"] + self[f"{name}.bias"]

    def batch_norm(self, name: str, x: jax.Array) -> jax.Array:
        mean, variance = self[f"{name}.running_mean"], self[f"{name}.running_var"]
        if self.training:
            count, old = x.size // x.shape[1], (mean, variance)
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
            unbiased = variance * (count / (count - 1))
            self.updated[f"{name}.running_mean"] = 0.9 * old[0] + 0.1 * jax.lax.stop_gradient(mean)
            self.updated[f"{name}.running_var"] = 0.9 * old[1] + 0.1 * jax.lax.stop_gradient(unbiased)
        scale = self[f"{name}.weight"] * jax.lax.rsqrt(variance + 1e-5)
        shift = self[f"{name}.bias"] - mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


def _max_pool(x: jax.Array, size: int, stride: int, padding: int = 0) -> jax.Array:
    edges = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, size, size), (1, 1, stride, stride), edges)


def _mean_pool(x: jax.Array, size: int) -> jax.Array:
    """Adaptive mean pooling to (size, size), whose windows are those of PyTorch."""

    def weights(n: int) -> jax.Array:
        rows = [(k * n // size, -(-(k + 1) * n // size)) for k in range(size)]
        return jnp.array([[(a <= j < b) / (b - a) for j in range(n)] for a, b in rows], x.dtype)

    if x.shape[2:] == (size, size):
        return x
    return jnp.einsum("nchw,ph,qw->ncpq", x, weights(x.shape[2]), weights(x.shape[3]))


def resnet(layers: tuple[int, ...], bottleneck: bool, w: Weights, options: dict[str, Any], x: jax.Array) -> jax.Array:
    relu = jax.nn.relu

    def block(name: str, x: jax.Array, stride: int) -> jax.Array:
        shapes = ((1, 1), (3, stride), (1, 1)) if bottleneck else ((3, stride), (3, 1))
        y = x
        for k, (size, step) in enumerate(shapes, 1):
            y = w.batch_norm(f"{name}.bn{k}", w.conv(f"{name}.conv{k}", y, step, size // 2))
            y = relu(y) if k < len(shapes) else y
        if f"{name}.downsample.0.weight" in w:
            x = w.batch_norm(f"{name}.downsample.1", w.conv(f"{name}.downsample.0", x, stride))
        return relu(y + x)

    x = _max_pool(relu(w.batch_norm("bn1", w.conv("conv1", x, 2, 3))), 3, 2, 1)
    for stage, count in enumerate(layers, 1):
        for k in range(count):
            x = block(f"layer{stage}.{k}", x, 2 if stage > 1 and k == 0 else 1)
    return w.linear("fc", x.mean((2, 3)))


def _classifier(w: Weights, x: jax.Array, places: tuple[int, ...]) -> jax.Array:
    for place in places[:-1]:
        x = jax.nn.relu(w.linear(f"classifier.{place}", x))
    return w.linear(f"classifier.{places[-1]}", x)


def alexnet(w: Weights, options: dict[str, Any], x: jax.Array) -> jax.Array:
    x = _max_pool(jax.nn.relu(w.conv("features.0", x, 4, 2)), 3, 2)
    x = _max_pool(jax.nn.relu(w.conv("features.3", x, 1, 2)), 3, 2)
    for place in (6, 8, 10):
        x = jax.nn.relu(w.conv(f"features.{place}", x, 1, 1))
    x = _mean_pool(_max_pool(x, 3, 2), 6)
    return _classifier(w, x.reshape(x.shape[0], -1), (1, 4, 6))


def vgg(layers: tuple[int, ...], w: Weights, options: dict[str, Any], x: jax.Array) -> jax.Array:
    place = 0
    for count in layers:
        for _ in range(count):
            x = jax.nn.relu(w.conv(f"features.{place}", x, 1, 1))
            place += 2
        x = _max_pool(x, 2, 2)
        place += 1
    x = _mean_pool(x, 7)
    return _classifier(w, x.reshape(x.shape[0], -1), (0, 3, 6))


def mobilenet_v2(w: Weights, options: dict[str, Any], x: jax.Array) -> jax.Array:
    def unit(name: str, x: jax.Array, stride: int) -> jax.Array:
        size = w[f"{name}.0.weight"].shape[-1]
        groups = x.shape[1] if w[f"{name}.0.weight"].shape[1] == 1 else 1
        return jnp.clip(w.batch_norm(f"{name}.1", w.conv(f"{name}.0", x, stride, size // 2, groups)), 0, 6)

    stages = ((1, 1, 1), (6, 2, 2), (6, 3, 2), (6, 4, 2), (6, 3, 1), (6, 3, 2), (6, 1, 1))  # expansion, blocks, stride
    x, at = unit("features.0", x, 2), 1
    for expansion, count, stride in stages:
        for k in range(count):
            name, y = f"features.{at}.conv", x
            wide = int(expansion != 1)
            if wide:
                y = unit(f"{name}.0", y, 1)
            y = unit(f"{name}.{wide}", y, stride if k == 0 else 1)
            y = w.batch_norm(f"{name}.{wide + 2}", w.conv(f"{name}.{wide + 1}", y))
            x = x + y if y.shape == x.shape and (k > 0 or stride == 1) else y
            at += 1
    return w.linear("classifier.1", unit(f"features.{at}", x, 1).mean((2, 3)))


def _attention(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array) -> jax.Array:
    """Of (n, t, heads, width of one): (n, t, width); positions look where the mask is true."""
    scores = jnp.einsum("nlhd,nshd->nhls", q * q.shape[-1] ** -0.5, k)
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1)
    return jnp.einsum("nhls,nshd->nlhd", weights, v).reshape(*q.shape[:2], -1)


def gpt2(w: Weights, options: dict[str, Any], tokens: jax.Array) -> jax.Array:
    n, t = tokens.shape
    heads, layers = options.get("heads", 12), options.get("layers", 12)
    table = w["transformer.wte.weight"]
    x, causal = table[tokens] + w["transformer.wpe.weight"][:t], jnp.tril(jnp.ones((t, t), bool))

    def dense(name: str, x: jax.Array) -> jax.Array:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    for k in range(layers):
        name = f"transformer.h.{k}"
        y = dense(f"{name}.attn.c_attn", w.layer_norm(f"{name}.ln_1", x)).reshape(n, t, 3, heads, -1)
        x = x + dense(f"{name}.attn.c_proj", _attention(y[:, :, 0], y[:, :, 1], y[:, :, 2], causal))
        y = jax.nn.gelu(dense(f"{name}.mlp.c_fc", w.layer_norm(f"{name}.ln_2", x)), approximate=True)
        x = x + dense(f"{name}.mlp.c_proj", y)
    return w.layer_norm("transformer.ln_f", x) @ table.T


def bert_base(
    w: Weights, options: dict[str, Any], tokens: jax.Array, segments: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    n, t = tokens.shape
    heads, layers = options.get("heads", 12), options.get("layers", 12)

    def norm(name: str, x: jax.Array) -> jax.Array:
        return w.layer_norm(f"{name}.LayerNorm", x, 1e-12)

    def gelu(x: jax.Array) -> jax.Array:
        return jax.nn.gelu(x, approximate=False)

    name = "bert.embeddings"
    table = w[f"{name}.word_embeddings.weight"]
    places = w[f"{name}.position_embeddings.weight"][:t]
    x = norm(name, table[tokens] + w[f"{name}.token_type_embeddings.weight"][segments] + places)
    allowed = (mask != 0)[:, None, None, :]
    for k in range(layers):
        name = f"bert.encoder.layer.{k}"
        parts = [w.linear(f"{name}.attention.self.{part}", x).reshape(n, t, heads, -1) for part in _PARTS]
        y = w.linear(f"{name}.attention.output.dense", _attention(parts[0], parts[1], parts[2], allowed))
        x = norm(f"{name}.attention.output", y + x)
        y = w.linear(f"{name}.output.dense", gelu(w.linear(f"{name}.intermediate.dense", x)))
        x = norm(f"{name}.output", y + x)
    pooled = jnp.tanh(w.linear("bert.pooler.dense", x[:, 0]))
    name = "cls.predictions"
    x = norm(f"{name}.transform", gelu(w.linear(f"{name}.transform.dense", x)))
    bias = w[f"{name}.bias" if f"{name}.bias" in w else f"{name}.decoder.bias"]
    return x @ table.T + bias, w.linear("cls.seq_relationship", pooled)


_PARTS = ("query", "key", "value")


def ncf(w: Weights, options: dict[str, Any], users: jax.Array, items: jax.Array) -> jax.Array:
    product = w["mf_user_embed.weight"][users] * w["mf_item_embed.weight"][items]
    x, k = jnp.concatenate([w["mlp_user_embed.weight"][users], w["mlp_item_embed.weight"][items]], -1), 0
    while f"mlp.{k}.weight" in w:
        x, k = jax.nn.relu(w.linear(f"mlp.{k}", x)), k + 1
    return w.linear("final", jnp.concatenate([product, x], -1))[:, 0]


def _cross_entropy(logits: jax.Array, labels: jax.Array, ignored: int = -100) -> jax.Array:
    """The mean over labels (...) that are not ignored, of logits (..., classes)."""
    asked = labels != ignored
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits, -1), jnp.where(asked, labels, 0)[..., None], -1)[..., 0]
    return -jnp.sum(jnp.where(asked, picked, 0)) / jnp.sum(asked)


def classification(logits: jax.Array, images: jax.Array, labels: jax.Array) -> jax.Array:
    return _cross_entropy(logits, labels)


def language(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    return _cross_entropy(logits[:, :-1], tokens[:, 1:])


def masked_language(outputs: tuple[jax.Array, jax.Array], *batch: jax.Array) -> jax.Array:
    return _cross_entropy(outputs[0], batch[3]) + _cross_entropy(outputs[1], batch[4])


def liked(logits: jax.Array, users: jax.Array, items: jax.Array, likes: jax.Array) -> jax.Array:
    return (jnp.maximum(logits, 0) - logits * likes + jnp.log1p(jnp.exp(-jnp.abs(logits)))).mean()


NETWORKS: dict[str, Callable[..., Any]] = {
    "alexnet": alexnet,
    "resnet18": partial(resnet, (2, 2, 2, 2), False),
    "resnet50": partial(resnet, (3, 4, 6, 3), True),
    "mobilenet_v2": mobilenet_v2,
    "gpt2": gpt2,
    "bert_base": bert_base,
    "ncf": ncf,
    **{name: partial(vgg, layers) for name, layers in _VGG.items()},
}
LOSSES: dict[str, Callable[..., jax.Array]] = {
    f.__name__: f for f in (classification, language, masked_language, liked)
}
