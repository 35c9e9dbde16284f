"""The workloads in TensorFlow, each one `tf.function`; images are NHWC, the only layout its CPU convolutions have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .models.in_tensorflow import MODELS
from .training import RATES, Arrays, Training, split
from .workloads import Case


def set_threads(count: int) -> None:
    if tf.config.threading.get_intra_op_parallelism_threads() != count:
        tf.config.threading.set_intra_op_parallelism_threads(count)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def _channels_last(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if array.ndim == 4 else array


def _channels_first(array: np.ndarray) -> np.ndarray:
    return np.moveaxis(array, -1, 1) if array.ndim == 4 else array


def _case(fn: Callable[..., Any], *args: Any, read: Callable[[np.ndarray], np.ndarray] = np.asarray) -> Case:
    run = tf.function(fn)
    last: list[Any] = [None]

    def call() -> None:
        last[0] = run(*args)

    return Case(call, lambda: [read(last[0].numpy())])


def _tensors(arrays: Arrays) -> list[tf.Tensor]:
    return [tf.constant(array) for array in arrays.values()]


def gelu_chain(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, y: tf.nn.gelu(x * 1.5 + y, approximate=True) * tf.sigmoid(y) + x, *_tensors(arrays))


def tiny_call(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: x * 2 + 1, *_tensors(arrays))


def black_scholes(arrays: Arrays, style: str) -> Case:
    def price(spot: tf.Tensor, strike: tf.Tensor, years: tf.Tensor, rate: tf.Tensor, vol: tf.Tensor) -> tf.Tensor:
        spread = vol * tf.sqrt(years)
        d1 = (tf.math.log(spot / strike) + (rate + vol * vol * 0.5) * years) / spread
        d2 = d1 - spread
        up, down = (tf.math.erf(d * 0.5**0.5) * 0.5 + 0.5 for d in (d1, d2))
        return spot * up - strike * tf.exp(-rate * years) * down

    return _case(price, *_tensors(arrays))


def softmax(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: tf.nn.softmax(x / 8, -1), *_tensors(arrays))


def layer_norm(arrays: Arrays, style: str) -> Case:
    def norm(x: tf.Tensor, w: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, b, w, 1e-5)

    return _case(norm, *_tensors(arrays))


def sum_squares(arrays: Arrays, style: str) -> Case:
    return _case(lambda x: tf.reduce_sum(x * x, 0), *_tensors(arrays))


def linear_gelu(arrays: Arrays, style: str) -> Case:
    return _case(lambda x, w, b: tf.nn.gelu(tf.matmul(x, w) + b), *_tensors(arrays))


def _convolved(activation: Callable[..., Any], padding: str, arrays: Arrays) -> Case:
    x, w, b = arrays["x"], arrays["w"], arrays["b"]
    filters = tf.constant(np.ascontiguousarray(w.transpose(2, 3, 1, 0)))  # (kh, kw, in / groups, out)
    if w.shape[1] == 1:
        filters = tf.transpose(filters, (0, 1, 3, 2))

    def run(x: tf.Tensor, w: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        if w.shape[3] == 1:
            return activation(tf.nn.depthwise_conv2d(x, w, (1, 1, 1, 1), padding) + b)
        return activation(tf.nn.conv2d(x, w, 1, padding) + b)

    return _case(run, tf.constant(_channels_last(x)), filters, tf.constant(b), read=_channels_first)


def conv3x3(arrays: Arrays, style: str) -> Case:
    return _convolved(tf.nn.relu, "SAME", arrays)


def conv1x1(arrays: Arrays, style: str) -> Case:
    return _convolved(tf.nn.relu, "VALID", arrays)


def depthwise(arrays: Arrays, style: str) -> Case:
    return _convolved(tf.nn.relu6, "SAME", arrays)


def attention(arrays: Arrays, style: str) -> Case:
    def attend(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
        scores = tf.matmul(q * q.shape[-1] ** -0.5, k, transpose_b=True)
        return tf.matmul(tf.nn.softmax(scores, -1), v)

    return _case(attend, *_tensors(arrays))


def _adam(step: tf.Tensor, p: tf.Variable, g: tf.Tensor, mean: tf.Variable, square: tf.Variable) -> None:
    epsilon = 1e-8 * tf.sqrt(1 - 0.999**step)  # it is added before the correction here, after it in the others
    tf.raw_ops.ResourceApplyAdam(
        **{"var": p.handle, "m": mean.handle, "v": square.handle, "grad": g, "lr": RATES["adam"]},
        **{"beta1": 0.9, "beta2": 0.999, "epsilon": epsilon, "beta1_power": 0.9**step, "beta2_power": 0.999**step},
    )


def _sgd(step: tf.Tensor, p: tf.Variable, g: tf.Tensor, velocity: tf.Variable) -> None:
    tf.raw_ops.ResourceApplyMomentum(
        var=p.handle, accum=velocity.handle, lr=RATES["sgd"], grad=g, momentum=0.9, use_nesterov=False
    )


UPDATES: dict[str, tuple[Callable[..., None], int]] = {"adam": (_adam, 2), "sgd": (_sgd, 1)}


def training(task: Training, arrays: Arrays, style: str) -> Case:
    data, targets, weights = split(arrays)
    inputs = [tf.constant(_channels_last(x)) for x in data]
    labels = tf.constant(targets)
    update, slots = UPDATES[task.optimizer]
    starts = {name: _laid_out(name, array, task) for name, array in weights.items()}
    parameters = {name: tf.Variable(array) for name, array in starts.items()}
    held = {name: [tf.Variable(tf.zeros_like(p)) for _ in range(slots)] for name, p in parameters.items()}
    count = tf.Variable(0.0)
    last: list[Any] = [None]

    @tf.function
    def step(labels: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = MODELS[task.module](parameters, task.arguments, *inputs)
            if task.loss == "cross_entropy":
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            else:
                losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        count.assign_add(1.0)
        for name, gradient in tape.gradient(loss, parameters).items():
            update(count, parameters[name], tf.convert_to_tensor(gradient), *held[name])
        return loss

    def reset() -> None:
        count.assign(0.0)
        for name, parameter in parameters.items():
            parameter.assign(starts[name])
            for slot in held[name]:
                slot.assign(tf.zeros_like(slot))

    def call() -> None:
        last[0] = step(labels, *inputs)

    return Case(call, lambda: [last[0].numpy()], reset)


def _laid_out(name: str, array: np.ndarray, task: Training) -> np.ndarray:
    """Filters are (kh, kw, in, out); an image is flattened as (h, w, channels), and AlexNet's first matrix follows."""
    if array.ndim == 4:
        return np.ascontiguousarray(array.transpose(2, 3, 1, 0))
    if task.module == "alexnet" and name == "classifier.1.weight":
        return np.ascontiguousarray(_channels_last(array.reshape(-1, 256, 6, 6)).reshape(array.shape))
    return array
