"""Formulas of updates, elementwise: a traced step has one operation for each, instead of up to six."""

from __future__ import annotations

from .. import arrays as xp
from ..core.tensor import Tensor
from ..tracing.capture.composite import Composite


@Composite
def moving_mean(mean: Tensor, g: Tensor, rest: Tensor) -> Tensor:
    """The running mean of gradients, in which the present one weighs `rest`."""
    return mean + (g - mean) * rest


@Composite
def moving_square(square: Tensor, g: Tensor, beta: Tensor, rest: Tensor) -> Tensor:
    """The running mean of squares, in which the present one weighs `rest` and those before `beta`."""
    return square * beta + g * rest * g


@Composite
def weighted(one: Tensor, other: Tensor, of_one: Tensor, of_other: Tensor) -> Tensor:
    """The sum of two tensors by their weights."""
    return one * of_one + other * of_other


@Composite
def over_root(g: Tensor, square: Tensor, eps: Tensor) -> Tensor:
    """The gradient over the root of a mean square."""
    return g / (xp.sqrt(square) + eps)


@Composite
def adam_step(
    value: Tensor, mean: Tensor, square: Tensor, step_size: Tensor, correction: Tensor, eps: Tensor
) -> Tensor:
    """The parameter after a step along the mean over the root of the mean square."""
    return value - mean * step_size / (xp.sqrt(square) / correction + eps)


@Composite
def adagrad_step(value: Tensor, g: Tensor, total: Tensor, lr: Tensor, eps: Tensor) -> Tensor:
    """The parameter after a step along the gradient over the root of the sum of squares."""
    return value - g / (xp.sqrt(total) + eps) * lr


@Composite
def adadelta_change(g: Tensor, square: Tensor, change: Tensor, eps: Tensor) -> Tensor:
    """The gradient, in the units of the changes before: by the root of their mean square over that of gradients."""
    return xp.sqrt(change + eps) / xp.sqrt(square + eps) * g


@Composite
def adamax_norm(norm: Tensor, g: Tensor, beta: Tensor, eps: Tensor) -> Tensor:
    """The largest gradient so far, in which those before weigh `beta`."""
    return xp.maximum(norm * beta, xp.abs(g) + eps)


@Composite
def along(value: Tensor, direction: Tensor, scale: Tensor, step_size: Tensor) -> Tensor:
    """The parameter after a step along a direction over its scale."""
    return value - direction * step_size / scale


@Composite
def nadam_step(
    value: Tensor, g: Tensor, mean: Tensor, square: Tensor, of_g: Tensor, of_mean: Tensor, rest: Tensor, eps: Tensor
) -> Tensor:
    """The parameter after a step along gradient and mean, by their weights, over the root of the mean square."""
    return value - (g * of_g + mean * of_mean) / (xp.sqrt(square / rest) + eps)


@Composite
def radam_step(
    value: Tensor, mean: Tensor, square: Tensor, step_size: Tensor, rectified: Tensor, eps: Tensor
) -> Tensor:
    """The parameter after a step along the mean, over the root of the mean square where that is `rectified`."""
    return value - mean * step_size * xp.where(rectified > 0, rectified / (xp.sqrt(square) + eps), xp.ones_like(value))


@Composite
def lion_step(value: Tensor, mean: Tensor, g: Tensor, beta: Tensor, rest: Tensor, lr: Tensor) -> Tensor:
    """The parameter after a step along the signs of mean and gradient."""
    return value - xp.sign(mean * beta + g * rest) * lr


@Composite
def rprop_factor(g: Tensor, previous: Tensor, shorter: Tensor, longer: Tensor) -> Tensor:
    """The factor of a step size: `longer` where the gradient kept its sign, `shorter` where it turned."""
    kept = xp.sign(g * previous)
    return xp.where(kept > 0, longer, xp.where(kept < 0, shorter, kept + 1))


@Composite
def rprop_gradient(g: Tensor, previous: Tensor) -> Tensor:
    """The gradient, and 0 where its sign turned."""
    return xp.where(g * previous < 0, xp.zeros_like(g), g)


@Composite
def clipped(step_size: Tensor, factor: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """A step size times its factor, within bounds."""
    return xp.minimum(xp.maximum(step_size * factor, low), high)


@Composite
def averaged(mean: Tensor, value: Tensor, share: Tensor) -> Tensor:
    """The mean of parameters, in which the present one weighs `share`: with 1 it is that one, to the bit."""
    return xp.where(share >= 1, value, mean + (value - mean) * share)
