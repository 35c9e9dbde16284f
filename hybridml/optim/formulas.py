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
def over_root(g: Tensor, square: Tensor, eps: Tensor) -> Tensor:
    """The gradient over the root of a mean square."""
    return g / (xp.sqrt(square) + eps)


@Composite
def adam_step(
    value: Tensor, mean: Tensor, square: Tensor, step_size: Tensor, correction: Tensor, eps: Tensor
) -> Tensor:
    """The parameter after a step along the mean over the root of the mean square."""
    return value - mean * step_size / (xp.sqrt(square) / correction + eps)
