"""The models as TensorFlow functions of their weights by name, the arguments of the class, and the inputs.

Images are NHWC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Weights = dict[str, tf.Variable]


def _linear(p: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
    flat = tf.matmul(tf.reshape(x, (-1, x.shape[-1])), p[f"{name}.weight"], transpose_b=True)
    flat = tf.nn.bias_add(flat, p[f"{name}.bias"]) if f"{name}.bias" in p else flat
    return tf.reshape(flat, (*x.shape[:-1], flat.shape[-1]))


def _layer_norm(p: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, p[f"{name}.bias"], p[f"{name}.weight"], 1e-5)


def _batch_norm(p: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
    y, *_ = tf.compat.v1.nn.fused_batch_norm(x, p[f"{name}.weight"], p[f"{name}.bias"], epsilon=1e-5)
    return y


def _conv(p: Weights, name: str, x: tf.Tensor, stride: int, padding: int) -> tf.Tensor:
    edges = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
    y = tf.nn.conv2d(x, p[f"{name}.weight"], stride, edges)
    return tf.nn.bias_add(y, p[f"{name}.bias"]) if f"{name}.bias" in p else y


def mlp(p: Weights, sizes: dict[str, Any], x: tf.Tensor) -> tf.Tensor:
    last = len(sizes["widths"]) - 2
    for k in range(last):
        x = tf.nn.relu(_linear(p, f"layers.{k}", x))
    return _linear(p, f"layers.{last}", x)


def gpt(p: Weights, sizes: dict[str, Any], tokens: tf.Tensor) -> tf.Tensor:
    n, t = tokens.shape
    width, heads = sizes["width"], sizes["heads"]
    causal = tf.linalg.band_part(tf.ones((t, t), tf.bool), -1, 0)
    x = tf.gather(p["tokens.weight"], tokens) + p["positions.weight"][:t]
    for k in range(sizes["layers"]):
        name = f"blocks.{k}"
        y = _linear(p, f"{name}.qkv", _layer_norm(p, f"{name}.norm1", x))
        y = tf.transpose(tf.reshape(y, (n, t, 3, heads, width // heads)), (2, 0, 3, 1, 4))
        scores = tf.matmul(y[0] * (width // heads) ** -0.5, y[1], transpose_b=True)
        y = tf.matmul(tf.nn.softmax(tf.where(causal, scores, float("-inf")), -1), y[2])
        x = x + _linear(p, f"{name}.out", tf.reshape(tf.transpose(y, (0, 2, 1, 3)), (n, t, width)))
        y = tf.nn.gelu(_linear(p, f"{name}.up", _layer_norm(p, f"{name}.norm2", x)), approximate=True)
        x = x + _linear(p, f"{name}.down", y)
    return _linear(p, "head", _layer_norm(p, "norm", x))


def lstm(p: Weights, sizes: dict[str, Any], x: tf.Tensor) -> tf.Tensor:
    n, steps, features = x.shape
    bias = p["lstm.bias_ih_l0"] + p["lstm.bias_hh_l0"]
    flat = tf.matmul(tf.reshape(tf.transpose(x, (1, 0, 2)), (-1, features)), p["lstm.weight_ih_l0"], transpose_b=True)
    inputs = tf.unstack(tf.reshape(flat + bias, (steps, n, -1)))
    h = c = tf.zeros((n, sizes["hidden"]))
    for gates in inputs:
        i, f, g, o = tf.split(gates + tf.matmul(h, p["lstm.weight_hh_l0"], transpose_b=True), 4, -1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
    return _linear(p, "head", h)


def resnet(p: Weights, sizes: dict[str, Any], x: tf.Tensor) -> tf.Tensor:
    def block(name: str, x: tf.Tensor, stride: int) -> tf.Tensor:
        y = tf.nn.relu(_batch_norm(p, f"{name}.bn1", _conv(p, f"{name}.conv1", x, stride, 1)))
        y = _batch_norm(p, f"{name}.bn2", _conv(p, f"{name}.conv2", y, 1, 1))
        if f"{name}.downsample.0.weight" in p:
            x = _batch_norm(p, f"{name}.downsample.1", _conv(p, f"{name}.downsample.0", x, stride, 0))
        return tf.nn.relu(y + x)

    x = tf.nn.relu(_batch_norm(p, "bn1", _conv(p, "conv1", x, 2, 3)))
    x = tf.nn.max_pool2d(x, 3, 2, [[0, 0], [1, 1], [1, 1], [0, 0]])
    for layer in (1, 2, 3, 4):
        x = block(f"layer{layer}.0", x, 1 if layer == 1 else 2)
        x = block(f"layer{layer}.1", x, 1)
    return _linear(p, "fc", tf.reduce_mean(x, (1, 2)))


def alexnet(p: Weights, sizes: dict[str, Any], x: tf.Tensor) -> tf.Tensor:
    x = tf.nn.max_pool2d(tf.nn.relu(_conv(p, "features.0", x, 4, 2)), 3, 2, "VALID")
    x = tf.nn.max_pool2d(tf.nn.relu(_conv(p, "features.3", x, 1, 2)), 3, 2, "VALID")
    for k in (6, 8, 10):
        x = tf.nn.relu(_conv(p, f"features.{k}", x, 1, 1))
    x = tf.reshape(tf.nn.max_pool2d(x, 3, 2, "VALID"), (x.shape[0], -1))
    for k in (1, 4):
        x = tf.nn.relu(_linear(p, f"classifier.{k}", x))
    return _linear(p, "classifier.6", x)


def ncf(p: Weights, sizes: dict[str, Any], users: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
    u, i = tf.gather(p["users.weight"], users), tf.gather(p["items.weight"], items)
    x = tf.nn.relu(_linear(p, "layer1", tf.concat([u, i], -1)))
    x = tf.nn.relu(_linear(p, "layer2", x))
    return tf.reshape(_linear(p, "head", tf.concat([u * i, x], -1)), (-1,))


MODELS: dict[str, Callable[..., tf.Tensor]] = {f.__name__: f for f in (mlp, gpt, lstm, resnet, alexnet, ncf)}
