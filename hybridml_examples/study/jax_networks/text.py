"""Networks of text and of ratings: functions of weights, options of the architecture and inputs; their losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .layers import Weights, attention, cross_entropy

_PARTS = ("query", "key", "value")


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
        x = x + dense(f"{name}.attn.c_proj", attention(y[:, :, 0], y[:, :, 1], y[:, :, 2], causal))
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
        y = w.linear(f"{name}.attention.output.dense", attention(parts[0], parts[1], parts[2], allowed))
        x = norm(f"{name}.attention.output", y + x)
        y = w.linear(f"{name}.output.dense", gelu(w.linear(f"{name}.intermediate.dense", x)))
        x = norm(f"{name}.output", y + x)
    pooled = jnp.tanh(w.linear("bert.pooler.dense", x[:, 0]))
    name = "cls.predictions"
    x = norm(f"{name}.transform", gelu(w.linear(f"{name}.transform.dense", x)))
    bias = w[f"{name}.bias" if f"{name}.bias" in w else f"{name}.decoder.bias"]
    return x @ table.T + bias, w.linear("cls.seq_relationship", pooled)


def transformer_base(
    w: Weights, options: dict[str, Any], source: jax.Array, lengths: jax.Array, target: jax.Array
) -> jax.Array:
    heads, layers, table = options.get("heads", 8), options.get("layers", 6), w["embedding.weight"]
    width = table.shape[1]

    def embedded(tokens: jax.Array) -> jax.Array:
        places = jnp.arange(tokens.shape[1], dtype=table.dtype)[:, None]
        rates = jnp.exp(jnp.arange(0, width, 2, dtype=table.dtype) * (-math.log(10000.0) / width))
        waves = jnp.stack([jnp.sin(places * rates), jnp.cos(places * rates)], 2).reshape(tokens.shape[1], width)
        return table[tokens] * math.sqrt(width) + waves

    def attended(name: str, x: jax.Array, seen: jax.Array, mask: jax.Array) -> jax.Array:
        weights, biases = (jnp.split(w[f"{name}.in_proj_{part}"], 3) for part in ("weight", "bias"))
        parts = [
            (of @ weight.T + bias).reshape(*of.shape[:2], heads, -1)
            for of, weight, bias in zip((x, seen, seen), weights, biases, strict=True)
        ]
        return w.linear(f"{name}.out_proj", attention(parts[0], parts[1], parts[2], mask))

    def fed(name: str, norm: str, x: jax.Array) -> jax.Array:
        y = w.linear(f"{name}.linear2", jax.nn.relu(w.linear(f"{name}.linear1", x)))
        return w.layer_norm(f"{name}.{norm}", x + y)

    inside = (jnp.arange(source.shape[1]) < lengths[:, None])[:, None, None]
    causal = jnp.tril(jnp.ones((target.shape[1], target.shape[1]), bool))
    memory = embedded(source)
    for k in range(layers):
        name = f"encoder.layers.{k}"
        y = attended(f"{name}.self_attn", memory, memory, inside)
        memory = fed(name, "norm2", w.layer_norm(f"{name}.norm1", memory + y))
    x = embedded(target)
    for k in range(layers):
        name = f"decoder.layers.{k}"
        x = w.layer_norm(f"{name}.norm1", x + attended(f"{name}.self_attn", x, x, causal))
        x = w.layer_norm(f"{name}.norm2", x + attended(f"{name}.multihead_attn", x, memory, inside))
        x = fed(name, "norm3", x)
    return x @ table.T


def gnmt(w: Weights, options: dict[str, Any], source: jax.Array, lengths: jax.Array, target: jax.Array) -> jax.Array:
    layers, table = options.get("layers", 4), w["encoder.embedder.weight"]
    x = jnp.concatenate(w.both_ways(w.lstm, "encoder.rnn_layers.0", table[source], lengths), 2)
    x = w.lstm("encoder.rnn_layers.1", x)
    for k in range(2, layers):
        x = w.lstm(f"encoder.rnn_layers.{k}", x) + x
    keys, padding = x, jnp.arange(source.shape[1]) >= lengths[:, None]
    x, name = w.lstm("decoder.att_rnn.rnn", table[target]), "decoder.att_rnn.attn"
    sums = w.linear(f"{name}.linear_q", x)[:, :, None] + w.linear(f"{name}.linear_k", keys)[:, None]
    vector = w[f"{name}.linear_att"]
    direction = vector / jnp.sqrt((vector * vector).sum()) * w[f"{name}.normalize_scalar"]
    scores = jnp.tanh(sums + w[f"{name}.normalize_bias"]) @ direction
    context = jax.nn.softmax(jnp.where(padding[:, None], -65504.0, scores), -1) @ keys
    for k in range(layers - 1):
        y = w.lstm(f"decoder.rnn_layers.{k}", jnp.concatenate([x, context], 2))
        x = y if k == 0 else y + x
    return w.linear("decoder.classifier", x)


def ncf(w: Weights, options: dict[str, Any], users: jax.Array, items: jax.Array) -> jax.Array:
    product = w["mf_user_embed.weight"][users] * w["mf_item_embed.weight"][items]
    x, k = jnp.concatenate([w["mlp_user_embed.weight"][users], w["mlp_item_embed.weight"][items]], -1), 0
    while f"mlp.{k}.weight" in w:
        x, k = jax.nn.relu(w.linear(f"mlp.{k}", x)), k + 1
    return w.linear("final", jnp.concatenate([product, x], -1))[:, 0]


def language(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    return cross_entropy(logits[:, :-1], tokens[:, 1:])


def masked_language(outputs: tuple[jax.Array, jax.Array], *batch: jax.Array) -> jax.Array:
    return cross_entropy(outputs[0], batch[3]) + cross_entropy(outputs[1], batch[4])


def translation(
    logits: jax.Array, source: jax.Array, lengths: jax.Array, before: jax.Array, after: jax.Array
) -> jax.Array:
    return cross_entropy(logits, after, ignored=0, smoothing=0.1)


def liked(logits: jax.Array, users: jax.Array, items: jax.Array, likes: jax.Array) -> jax.Array:
    return (jnp.maximum(logits, 0) - logits * likes + jnp.log1p(jnp.exp(-jnp.abs(logits)))).mean()


NETWORKS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (bert_base, gnmt, gpt2, ncf, transformer_base)}
LOSSES: dict[str, Callable[..., jax.Array]] = {f.__name__: f for f in (language, liked, masked_language, translation)}
