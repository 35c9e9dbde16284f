"""Typical programs as graphs, written by hand: what the scheduler is looked at with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.ir import Graph, Node, constant, input_node
from hybridml_compiler.graph.rewrite import make


@dataclass(frozen=True)
class Value:
    """A node with operators; numbers become scalars of its dtype."""

    node: Node

    def _with(self, op: str, other: Value | float, *, swap: bool = False) -> Value:
        pair = [self.node, number(other, self)]
        return Value(make(op, *(reversed(pair) if swap else pair)))

    def __add__(self, other: Value | float) -> Value:
        return self._with("add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._with("subtract", other)

    def __mul__(self, other: Value | float) -> Value:
        return self._with("multiply", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._with("divide", other)

    def __matmul__(self, other: Value) -> Value:
        return self._with("matmul", other)

    def __radd__(self, other: float) -> Value:
        return self._with("add", other, swap=True)

    def __rsub__(self, other: float) -> Value:
        return self._with("subtract", other, swap=True)

    __rmul__ = __mul__

    def __gt__(self, other: Value | float) -> Value:
        return self._with("greater", other)

    @property
    def T(self) -> Value:
        return op("permute_dims", self, axes=(1, 0))

    def sum(self, axis: int | tuple[int, ...], keepdims: bool = False) -> Value:
        return op("sum", self, axis=axis, keepdims=keepdims)


def op(name: str, *inputs: Value, **params: Any) -> Value:
    return Value(make(name, *(v.node for v in inputs), **params))


def number(value: Value | float, like: Value) -> Node:
    return value.node if isinstance(value, Value) else constant(np.asarray(value, like.node.dtype))


def array(*shape: int, dtype: str = "f4", name: str = "") -> Value:
    return Value(input_node(Aval(shape, dtypes.canonical(dtype)), name))


def graph(name: str, inputs: list[Value], outputs: list[Value]) -> Graph:
    return Graph(tuple(v.node for v in inputs), tuple(v.node for v in outputs), name)


def gelu_chain() -> Graph:
    x, y = array(4096, name="x"), array(4096, name="y")
    z = x * 1.5 + y
    gelu = 0.5 * z * (1.0 + op("tanh", (z + 0.044715 * (z * z * z)) * 0.7978845608))
    return graph("gelu_chain", [x, y], [gelu * op("sigmoid", y) + x])


def _softmax(x: Value) -> Value:
    e = op("exp", x - op("max", x, axis=-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax() -> Graph:
    x = array(64, 100, name="x")
    return graph("softmax", [x], [_softmax(x)])


def layer_norm() -> Graph:
    x, w, b = array(32, 96, name="x"), array(96, name="w"), array(96, name="b")
    centred = x - op("mean", x, axis=-1, keepdims=True)
    variance = op("mean", centred * centred, axis=-1, keepdims=True)
    return graph("layer_norm", [x, w, b], [centred * op("rsqrt", variance + 1e-5) * w + b])


def mlp_step() -> Graph:
    """Two linear layers, relu, cross entropy, gradients by hand, and a step of gradient descent; donated parameters."""
    x, labels = array(32, 20, name="x"), array(32, dtype="i8", name="labels")
    w1, b1 = array(16, 20, name="w1"), array(16, name="b1")
    w2, b2 = array(10, 16, name="w2"), array(10, name="b2")
    rate = array(name="rate")
    before = x @ w1.T + b1
    hidden = op("maximum", before, Value(constant(np.asarray(np.float32(0)))))
    logits = hidden @ w2.T + b2
    shifted = logits - op("max", logits, axis=-1, keepdims=True)
    total = op("exp", shifted).sum(-1, keepdims=True)
    picked = op("one_hot", labels, num_classes=10, dtype=np.dtype("f4"))
    loss = (op("log", total) - (shifted * picked).sum(-1, keepdims=True)).sum((0, 1)) / 32.0
    g = (op("exp", shifted) / total - picked) / 32.0
    back = (g @ w2) * op("astype", before > 0.0, dtype=np.dtype("f4"))
    new = [w1 - rate * (back.T @ x), b1 - rate * back.sum(0), w2 - rate * (g.T @ hidden), b2 - rate * g.sum(0)]
    return graph("mlp_step", [x, labels, rate, w1, b1, w2, b2], [loss, *new])


MLP_DONATED = {1: 3, 2: 4, 3: 5, 4: 6}


def adam_update() -> Graph:
    """One parameter, gradient, two moments; all three are donated."""
    p, g, m, v = (array(50, 30, name=n) for n in ("p", "g", "m", "v"))
    step, rate = array(name="step"), array(name="rate")
    m1 = m * 0.9 + g * 0.1
    v1 = v * 0.999 + (g * g) * 0.001
    unbiased = m1 / (1.0 - op("pow", Value(constant(np.asarray(np.float32(0.9)))), step))
    scale = op("sqrt", v1 / (1.0 - op("pow", Value(constant(np.asarray(np.float32(0.999)))), step))) + 1e-8
    return graph("adam_update", [p, g, m, v, step, rate], [p - rate * unbiased / scale, m1, v1])


ADAM_DONATED = {0: 0, 1: 2, 2: 3}


def embedding() -> Graph:
    table, tokens = array(100, 16, name="table"), array(4, 8, dtype="i8", name="tokens")
    return graph("embedding", [table, tokens], [op("take", table, tokens, axis=0) * 4.0])


def scatter() -> Graph:
    g, tokens = array(4, 8, 16, name="g"), array(4, 8, dtype="i8", name="tokens")
    zeros = Value(make("full", shape=(100, 16), value=0.0, dtype=np.dtype("f4")))
    return graph("scatter", [g, tokens], [op("scatter_add", zeros, tokens, g * 2.0, axis=0)])


def convolution() -> Graph:
    """3 x 3 with padding, as a product over windows, with bias and relu."""
    x, w, b = array(2, 3, 8, 8, name="x"), array(4, 3, 3, 3, name="w"), array(4, name="b")
    padded = op("pad", x, widths=((0, 0), (0, 0), (1, 1), (1, 1)))
    columns = op("permute_dims", op("windows", padded, size=(3, 3)), axes=(0, 2, 3, 1, 4, 5))
    flat = op("reshape", columns, shape=(2 * 8 * 8, 27))
    out = flat @ op("reshape", w, shape=(4, 27)).T + b
    shaped = op("permute_dims", op("reshape", out, shape=(2, 8, 8, 4)), axes=(0, 3, 1, 2))
    return graph("convolution", [x, w, b], [op("maximum", shaped, Value(constant(np.asarray(np.float32(0)))))])


def complex_chain() -> Graph:
    z, w = array(4096, dtype="c8", name="z"), array(4096, dtype="c8", name="w")
    product = z * w + op("conj", z)
    return graph("complex_chain", [z, w], [product, op("real", product * op("conj", product)).sum(0)])


GRAPHS: dict[str, tuple[Callable[[], Graph], dict[int, int]]] = {
    "gelu_chain": (gelu_chain, {}),
    "softmax": (softmax, {}),
    "layer_norm": (layer_norm, {}),
    "mlp_step": (mlp_step, MLP_DONATED),
    "adam_update": (adam_update, ADAM_DONATED),
    "embedding": (embedding, {}),
    "scatter": (scatter, {}),
    "convolution": (convolution, {}),
    "complex_chain": (complex_chain, {}),
}
