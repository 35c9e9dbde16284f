"""Dropout: of elements, of whole channels, and of a kind that keeps mean and variance."""

from __future__ import annotations

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import random
from ..core.context import placed
from ..core.library import compiled_when_repeated
from ..core.tensor import Tensor
from .arguments import LAYOUTS

# What a selu gives for minus infinity: dropped elements take it (Klambauer et al. 2017).
_SATURATED = -1.7580993408473766


def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero each element with probability `p` and scale the rest by ``1 / (1 - p)`` (Srivastava et al. 2014).

    Draws from the default generator: the same mask eagerly and traced after the same `hm.manual_seed`. Raises
    ArgumentError unless 0 <= p <= 1. Shapes (...) -> (...).

    >>> dropout(hm.ones((2, 2)), 0.5, training=False).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _dropped("dropout", input, p, training)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero whole channels of (n, c, l) or (c, l) with probability `p` and scale the rest by ``1 / (1 - p)``.

    Raises ArgumentError unless 0 <= p <= 1, ShapeError for an input of other axes.

    >>> dropout1d(hm.ones((1, 2, 3)), 0.0).shape
    (1, 2, 3)
    """
    return _dropped("dropout1d", input, p, training, _channels("dropout1d", input, 1))


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero whole channels of (n, c, h, w) or (c, h, w) with probability `p` and scale the rest by ``1 / (1 - p)``.

    Source: Tompson et al. 2015.

    Raises ArgumentError unless 0 <= p <= 1, ShapeError for an input of other axes.

    >>> dropout2d(hm.ones((1, 2, 3, 3)), 1.0).sum().item()
    0.0
    """
    return _dropped("dropout2d", input, p, training, _channels("dropout2d", input, 2))


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero whole channels of (n, c, d, h, w) or (c, d, h, w) with probability `p`, scale the rest by ``1 / (1 - p)``.

    Raises ArgumentError unless 0 <= p <= 1, ShapeError for an input of other axes.

    >>> dropout3d(hm.ones((1, 2, 3, 3, 3)), training=False).shape
    (1, 2, 3, 3, 3)
    """
    return _dropped("dropout3d", input, p, training, _channels("dropout3d", input, 3))


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False) -> Tensor:
    """Saturated elements of a selu, with probability `p`, that keep mean 0 and variance 1: (...) -> (...).

    Source: Klambauer et al. 2017. Raises ArgumentError unless 0 <= p <= 1.

    >>> alpha_dropout(hm.ones((3,))).tolist()
    [1.0, 1.0, 1.0]
    """
    return _saturated("alpha_dropout", input, p, training)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels of (n, c, ...).

    Raises ArgumentError unless 0 <= p <= 1, ShapeError in training for fewer than two axes.

    >>> feature_alpha_dropout(hm.ones((1, 3, 2))).shape
    (1, 3, 2)
    """
    if input.ndim < 2 and training and p:
        raise ShapeError(f"feature_alpha_dropout: input must be (n, c, ...), got shape {input.shape}")
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return _saturated("feature_alpha_dropout", input, p, training, shape)


def _dropped(what: str, input: Tensor, p: float, training: bool, shape: tuple[int, ...] | None = None) -> Tensor:
    check_probability(what, p)
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0
    return _masked(input, p, shape)


@compiled_when_repeated
@placed
def _masked(input: Tensor, p: float, shape: tuple[int, ...] | None) -> Tensor:
    return xp.where(random.bernoulli(1 - p, input.shape if shape is None else shape), input * (1 / (1 - p)), 0)


def _saturated(what: str, input: Tensor, p: float, training: bool, shape: tuple[int, ...] | None = None) -> Tensor:
    check_probability(what, p)
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0
    return _alpha_masked(input, p, shape)


@compiled_when_repeated
@placed
def _alpha_masked(input: Tensor, p: float, shape: tuple[int, ...] | None) -> Tensor:
    scale = ((1 - p) * (1 + p * _SATURATED**2)) ** -0.5
    kept = xp.where(random.bernoulli(1 - p, input.shape if shape is None else shape), input, _SATURATED)
    return kept * scale - scale * p * _SATURATED


def check_probability(what: str, p: float) -> None:
    """Raises an ArgumentError for a number that is none."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"{what}: p is a probability, 0 <= p <= 1, got {p}")


def _channels(what: str, input: Tensor, dims: int) -> tuple[int, ...]:
    if input.ndim not in (dims + 1, dims + 2):
        raise ShapeError(f"{what}: input must be {LAYOUTS[dims]}, got shape {input.shape}")
    return (*input.shape[:-dims], *(1,) * dims)


__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]
