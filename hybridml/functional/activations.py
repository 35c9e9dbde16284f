"""Activations, in forms whose value and gradient stay finite over the whole range and which pass NaN through."""

from __future__ import annotations

import math
from typing import Any, Literal

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.library import compiled, compiled_when_repeated
from ..core.tensor import Tensor


def relu(input: Tensor) -> Tensor:
    """Rectified linear unit ``max(input, 0)``; the gradient at 0 is 0, as in PyTorch.

    Shapes (...) -> (...); float or integer dtype.

    >>> relu(hm.asarray([-1.0, 0.0, 2.0])).tolist()
    [0.0, 0.0, 2.0]
    """
    return xp.relu(input)


@compiled_when_repeated
def relu6(input: Tensor) -> Tensor:
    """Rectified linear unit with a ceiling, ``min(max(input, 0), 6)``; the gradient is 0 at both ends.

    Shapes (...) -> (...).

    >>> relu6(hm.asarray([-1.0, 3.0, 8.0])).tolist()
    [0.0, 3.0, 6.0]
    """
    return xp.where(input >= 6, 6, relu(input))


@compiled_when_repeated
def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Leaky rectified linear unit: input where positive, ``negative_slope * input`` elsewhere.

    Shapes (...) -> (...).

    >>> leaky_relu(hm.asarray([-1.0, 2.0]), 0.5).tolist()
    [-0.5, 2.0]
    """
    return xp.where(input > 0, input, input * negative_slope)


@compiled_when_repeated
def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Exponential linear unit: input where positive, ``alpha * (exp(input) - 1)`` elsewhere (Clevert et al. 2015).

    Shapes (...) -> (...).

    >>> elu(hm.asarray([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    positive = input > 0
    # exp sees no positive number: an overflow there would become 0 * inf = NaN in the gradient.
    return xp.where(positive, input, xp.expm1(xp.where(positive, 0, input)) * alpha)


@compiled_when_repeated
def gelu(input: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """Gaussian error linear unit ``input * Phi(input)`` (Hendrycks and Gimpel 2016): (...) -> (...).

    Phi is the normal distribution function; ``approximate="tanh"`` takes
    ``0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`` for it. Other values are an ArgumentError.

    >>> gelu(hm.asarray([0.0, 10.0])).tolist()
    [0.0, 10.0]
    """
    if approximate == "none":
        return input * 0.5 * (xp.erf(input * math.sqrt(0.5)) + 1)
    if approximate == "tanh":
        # (1 + tanh(z)) / 2 is sigmoid(2 z), which does not cancel for negative numbers and takes fewer operations
        scale = 2 * math.sqrt(2 / math.pi)
        return input * xp.sigmoid(input * (input * input * (0.044715 * scale) + scale))
    raise ArgumentError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")


@compiled_when_repeated
def silu(input: Tensor) -> Tensor:
    """Sigmoid linear unit ``input * sigmoid(input)``, also known as swish: (...) -> (...).

    >>> silu(hm.asarray([0.0])).tolist()
    [0.0]
    """
    return input * sigmoid(input)


@compiled_when_repeated
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Smooth rectifier ``log(1 + exp(beta * input)) / beta``; the input itself where ``beta * input > threshold``.

    Shapes (...) -> (...).

    >>> softplus(hm.asarray([100.0])).tolist()
    [100.0]
    """
    scaled = input * beta
    linear = scaled > threshold
    return xp.where(linear, input, xp.log1p(xp.exp(xp.where(linear, 0, scaled))) / beta)


def sigmoid(input: Tensor) -> Tensor:
    """Logistic function ``1 / (1 + exp(-input))`` of each element: (...) -> (...).

    >>> sigmoid(hm.asarray([0.0])).tolist()
    [0.5]
    """
    return xp.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent of each element: (...) -> (...).

    >>> tanh(hm.asarray([0.0])).tolist()
    [0.0]
    """
    return xp.tanh(input)


@compiled_when_repeated
def logsigmoid(input: Tensor) -> Tensor:
    """Logarithm of the sigmoid without overflow: ``min(x, 0) - log(1 + exp(-|x|))``.

    Shapes (...) -> (...).

    >>> logsigmoid(hm.asarray([-200.0, 200.0])).tolist()
    [-200.0, 0.0]
    """
    negative = input < 0
    small = xp.exp(xp.where(negative, input, -input))
    return xp.where(negative, input, 0) - xp.log1p(small)


@compiled
def softmax(input: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """Exponentials that sum to 1 along `dim`: ``exp(input) / sum(exp(input))``, without overflow. (...) -> (...).

    With `dtype` the input is cast first.

    >>> softmax(hm.asarray([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    input = input if dtype is None else xp.astype(input, dtype)
    shifted = xp.exp(input - _maximum(input, dim))
    return shifted / shifted.sum(axis=dim, keepdims=True)


@compiled
def log_softmax(input: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """Logarithm of the softmax along `dim`, without its rounding: (...) -> (...); with `dtype` of the cast input.

    >>> log_softmax(hm.asarray([0.0, -200.0])).tolist()
    [0.0, -200.0]
    """
    input = input if dtype is None else xp.astype(input, dtype)
    shifted = input - _maximum(input, dim)
    return shifted - xp.log(xp.exp(shifted).sum(axis=dim, keepdims=True))


def _maximum(input: Tensor, dim: int) -> Tensor:
    # Both functions are invariant under the shift: no gradient flows through it.
    detached = input.detach()
    return detached.max(axis=dim, keepdims=True) if detached.numel() else detached.sum(axis=dim, keepdims=True)


__all__ = [
    "elu", "gelu", "leaky_relu", "log_softmax", "logsigmoid", "relu", "relu6", "sigmoid", "silu", "softmax", "softplus",
    "tanh",
]  # fmt: skip
