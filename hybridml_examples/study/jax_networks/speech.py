"""Networks of speech: functions of weights, options of the architecture and inputs; their losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .layers import Weights


def deep_speech2(
    w: Weights, options: dict[str, Any], spectrograms: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def within(x: jax.Array, mask: jax.Array) -> jax.Array:
        return jnp.clip(x, 0.0, 20.0) * mask

    def normalised(name: str, x: jax.Array) -> jax.Array:
        return w.batch_norm(name, x.reshape(-1, x.shape[2])).reshape(x.shape)

    inside = jnp.arange(spectrograms.shape[2]) < lengths[:, None]
    x = w.conv("conv1", (spectrograms * inside[:, None])[:, None], (2, 2), (20, 5))
    lengths = (lengths + 1) // 2
    inside = jnp.arange(x.shape[3]) < lengths[:, None]
    mask = inside[:, None, None]
    x = within(w.batch_norm("bn1", x * mask), mask)
    x = within(w.batch_norm("bn2", w.conv("conv2", x, (2, 1), (10, 5)) * mask), mask)
    x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], x.shape[3], -1)
    for k in range(options.get("layers", 5)):
        if k:
            x = normalised(f"rnns.{k}.batch_norm", x)
        onward, backward = w.both_ways(w.gru, f"rnns.{k}.rnn", x, lengths)
        x = (onward + backward) * inside[:, :, None]
    return w.linear("fc", normalised("batch_norm", x)), lengths


def transcription(
    outputs: tuple[jax.Array, jax.Array], x: jax.Array, lengths: jax.Array, words: jax.Array, word_lengths: jax.Array
) -> jax.Array:
    """Connectionist temporal classification (Graves et al. 2006, section 4.1), with the logarithms of its sums."""
    logits, steps = outputs
    scores = jax.nn.log_softmax(logits, -1)
    n, length = words.shape
    labels = jnp.zeros((n, 2 * length + 1), words.dtype).at[:, 1::2].set(words)  # blanks around and between them
    before = jnp.pad(labels, ((0, 0), (2, 0)))[:, :-2]
    skips = (labels != 0) & (labels != before)
    none = jnp.full((n, 2), -1e30)
    picked = jnp.take_along_axis(scores, labels[:, None], 2)  # (n, t, 2 length + 1)
    first = jnp.where(jnp.arange(2 * length + 1) < 2, picked[:, 0], -1e30)

    def step(sums: jax.Array, given: Any) -> Any:
        at, score = given
        one, two = (jnp.concatenate([none[:, :k], sums], 1)[:, :-k] for k in (1, 2))
        new = jnp.logaddexp(jnp.logaddexp(sums, one), jnp.where(skips, two, -1e30)) + score
        return jnp.where((at < steps)[:, None], new, sums), None

    times = jnp.arange(1, picked.shape[1])
    sums, _ = jax.lax.scan(step, first, (times, picked[:, 1:].swapaxes(0, 1)))
    ends = jnp.take_along_axis(sums, jnp.stack([2 * word_lengths, jnp.maximum(2 * word_lengths - 1, 0)], 1), 1)
    return (-jnp.logaddexp(ends[:, 0], ends[:, 1]) / jnp.maximum(word_lengths, 1)).mean()


NETWORKS: dict[str, Callable[..., Any]] = {"deep_speech2": deep_speech2}
LOSSES: dict[str, Callable[..., jax.Array]] = {"transcription": transcription}
