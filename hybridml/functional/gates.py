"""Piecewise activations: bounded, shrinking, with a parameter, of two halves, and with random slopes."""

from __future__ import annotations

from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import random
from ..core.context import placed
from ..core.library import compiled, compiled_when_repeated
from ..core.tensor import Tensor
from .activations import relu6, softmax, softplus


@compiled_when_repeated
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Input clipped to `min_val` .. `max_val`; the gradient is 0 at both ends.

    Raises ArgumentError where `min_val` is above `max_val`. Shapes (...) -> (...).

    >>> hardtanh(hm.asarray([-2.0, 0.5, 2.0])).tolist()
    [-1.0, 0.5, 1.0]
    """
    if min_val > max_val:
        raise ArgumentError(f"hardtanh: min_val must not be above max_val, got {min_val} and {max_val}")
    return xp.where(input <= min_val, min_val, xp.where(input >= max_val, max_val, input))


@compiled_when_repeated
def hardsigmoid(input: Tensor) -> Tensor:
    """Piecewise linear sigmoid ``relu6(input + 3) / 6`` (Courbariaux et al. 2015): (...) -> (...).

    >>> hardsigmoid(hm.asarray([-3.0, 0.0, 3.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return relu6(input + 3) / 6


@compiled_when_repeated
def hardswish(input: Tensor) -> Tensor:
    """Piecewise swish ``input * hardsigmoid(input)`` (Howard et al. 2019): (...) -> (...).

    >>> hardswish(hm.asarray([-3.0, 0.0, 3.0])).tolist()
    [0.0, 0.0, 3.0]
    """
    straight = input * (input + 3) / 6
    return xp.where(input <= -3, 0, xp.where(input >= 3, input, straight))


@compiled_when_repeated
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Input where it is outside of -lambd .. lambd, 0 within.

    Shapes (...) -> (...).

    >>> hardshrink(hm.asarray([-1.0, 0.2, 0.5])).tolist()
    [-1.0, 0.0, 0.0]
    """
    return xp.where(xp.abs(input) <= lambd, 0, input)


@compiled_when_repeated
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Input moved towards 0 by `lambd`, and 0 where it would pass it.

    Raises ArgumentError for a negative `lambd`. Shapes (...) -> (...).

    >>> softshrink(hm.asarray([-1.0, 0.2, 2.0])).tolist()
    [-0.5, 0.0, 1.5]
    """
    if lambd < 0:
        raise ArgumentError(f"softshrink: lambd must not be negative, got {lambd}")
    moved = xp.where(input > lambd, input - lambd, input + lambd)
    return xp.where(xp.abs(input) <= lambd, 0, moved)


@compiled_when_repeated
def tanhshrink(input: Tensor) -> Tensor:
    """Tanhshrink activation ``input - tanh(input)``: (...) -> (...).

    >>> tanhshrink(hm.asarray([0.0])).tolist()
    [0.0]
    """
    return input - xp.tanh(input)


@compiled_when_repeated
def softsign(input: Tensor) -> Tensor:
    """Softsign activation ``input / (1 + |input|)``: (...) -> (...).

    >>> softsign(hm.asarray([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """
    return input / (xp.abs(input) + 1)


@compiled_when_repeated
def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """Input where it is above `threshold`, `value` elsewhere.

    Shapes (...) -> (...).

    >>> threshold(hm.asarray([-1.0, 2.0]), 0.5, 9.0).tolist()
    [9.0, 2.0]
    """
    return xp.where(input <= threshold, value, input)


@compiled_when_repeated
def mish(input: Tensor) -> Tensor:
    """Mish activation ``input * tanh(softplus(input))`` (Misra 2019): (...) -> (...).

    >>> mish(hm.asarray([0.0])).tolist()
    [0.0]
    """
    return input * xp.tanh(softplus(input))


@compiled_when_repeated
def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Exponential linear unit: input where positive, ``alpha * (exp(input / alpha) - 1)`` elsewhere (Barron 2017).

    Raises ArgumentError for ``alpha=0``. Shapes (...) -> (...).

    >>> celu(hm.asarray([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    if alpha == 0:
        raise ArgumentError("celu: alpha must not be 0")
    positive = input > 0
    return xp.where(positive, input, xp.expm1(xp.where(positive, 0, input) / alpha) * alpha)


@compiled_when_repeated
def selu(input: Tensor) -> Tensor:
    """Scaled `elu` that keeps mean 0 and variance 1 from layer to layer (Klambauer et al. 2017).

    Shapes (...) -> (...).

    >>> round(selu(hm.asarray([1.0])).item(), 4)
    1.0507
    """
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    positive = input > 0
    negative = xp.expm1(xp.where(positive, 0, input)) * (scale * alpha)
    return xp.where(positive, input * scale, negative)


@compiled
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`input` where it is positive, ``weight * input`` elsewhere; weight is a scalar, (1,) or (c,) for (n, c, ...).

    Raises ShapeError for a weight that is neither one number nor one per channel.

    >>> prelu(hm.asarray([[-1.0, 2.0]]), hm.asarray([0.25, 0.5])).tolist()
    [[-0.25, 2.0]]
    """
    count = weight.numel()
    if weight.ndim > 1 or (count != 1 and (input.ndim < 1 or count != input.shape[min(1, input.ndim - 1)])):
        raise ShapeError(f"prelu: weight must be one number or one a channel of {input.shape}, got {weight.shape}")
    behind = (1,) * (input.ndim - 2) if count != 1 else ()
    slope = weight.reshape((-1, *behind)) if count != 1 else weight.reshape(())
    return xp.where(input > 0, input, input * slope)


def rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """Leaky relu whose slope is drawn uniformly from lower .. upper for each element in training (Xu et al. 2015).

    In evaluation the slope is the middle. Raises ArgumentError where `lower` is above `upper`. Shapes (...) -> (...).

    >>> rrelu(hm.asarray([-1.0, 2.0]), 0.25, 0.75).tolist()
    [-0.5, 2.0]
    """
    if lower > upper:
        raise ArgumentError(f"rrelu: lower must not be above upper, got {lower} and {upper}")
    if not training:
        return xp.where(input > 0, input, input * ((lower + upper) / 2))
    slopes = random.uniform(input.shape, lower, upper, dtype=input.dtype)
    return xp.where(input > 0, input, input * slopes)


@compiled_when_repeated
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Gated linear unit ``a * sigmoid(b)`` of the halves a and b of `dim` (Dauphin et al. 2017).

    Shapes (..., 2 k, ...) -> (..., k, ...). Raises ShapeError where the axis has an odd number of elements.

    >>> glu(hm.asarray([4.0, 0.0])).tolist()
    [2.0]
    """
    if input.ndim == 0 or input.shape[dim] % 2:
        raise ShapeError(f"glu: axis {dim} must have an even number of elements, got shape {input.shape}")
    value, gate = xp.split(input, input.shape[dim] // 2, axis=dim)
    return value * xp.sigmoid(gate)


@compiled
def softmin(input: Tensor, dim: int = -1, *, dtype: Any = None) -> Tensor:
    """Softmax of the negated input along `dim`, ``softmax(-input)``: (...) -> (...).

    >>> softmin(hm.asarray([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """
    return softmax(-input, dim, dtype=dtype)


@placed
def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, *, dim: int = -1) -> Tensor:
    """Differentiable sample of the categories of `logits`: ``softmax((logits + gumbel) / tau)`` along `dim`.

    With `hard` the sample is one-hot, with the gradient of the soft one. Shape and dtype are those of `logits`. Raises
    ArgumentError for a `tau` that is not positive. Source: Jang et al. 2017. Shapes (...) -> (...).

    >>> gumbel_softmax(hm.zeros((2, 3)), hard=True).sum(axis=-1).tolist()
    [1.0, 1.0]
    """
    if tau <= 0:
        raise ArgumentError(f"gumbel_softmax: tau must be positive, got {tau}")
    uniform = 1 - random.uniform(logits.shape, dtype=logits.dtype)  # (0, 1]
    gumbel = -xp.log(xp.maximum(-xp.log(uniform), float(xp.finfo(logits.dtype).smallest_normal)))
    soft = softmax((logits + gumbel) / tau, dim)
    if not hard:
        return soft
    values = soft.detach()
    axis = dim % soft.ndim
    places = xp.arange(soft.shape[axis]).reshape((-1, *(1,) * (soft.ndim - axis - 1)))
    chosen = xp.expand_dims(xp.argmax(values, axis=axis), axis=axis) == places
    return xp.astype(chosen, soft.dtype) - values + soft


__all__ = [
    "celu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "mish", "prelu", "rrelu",
    "selu", "softmin", "softshrink", "softsign", "tanhshrink", "threshold",
]  # fmt: skip
