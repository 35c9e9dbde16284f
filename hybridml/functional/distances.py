"""Lengths and distances of vectors. Where a length is 0 its gradient is 0, as in PyTorch."""

from __future__ import annotations

from numbers import Real

import numpy as np

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import linalg
from ..core.library import compiled, compiled_for_pairs
from ..core.precision.composites import in_float32
from ..core.tensor import Tensor
from .arguments import real_numbers


@compiled
@in_float32
def normalize(input: Tensor, p: float = 2.0, dim: int | tuple[int, ...] = 1, eps: float = 1e-12) -> Tensor:
    """Vectors of length 1 along `dim`: ``input / max(|input|_p, eps)``, (...) -> (...) in the dtype of `input`.

    >>> normalize(hm.asarray([[3.0, 4.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    return input / xp.maximum(_length("normalize", input, p, dim, keepdims=True), eps)


@compiled
@in_float32
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine ``x1 . x2 / (max(|x1|, eps) max(|x2|, eps))`` along `dim` of tensors (..., k, ...) that broadcast.

    Raises DTypeError for complex numbers.

    >>> cosine_similarity(hm.asarray([[1.0, 0.0]]), hm.asarray([[2.0, 0.0]])).tolist()
    [1.0]
    """
    real_numbers("cosine_similarity", x1, x2)
    x1, x2 = xp.broadcast_arrays(x1, x2)
    one, other = (xp.maximum(linalg.vector_norm(x, axis=dim, keepdims=True), eps) for x in (x1, x2))
    return ((x1 / one) * (x2 / other)).sum(axis=dim)


@compiled
@in_float32
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Distance ``|x1 - x2 + eps|_p`` along the last axis of tensors (..., k) that broadcast: (...).

    >>> pairwise_distance(hm.asarray([[3.0, 4.0]]), hm.zeros((1, 2)), eps=0.0).tolist()
    [5.0]
    """
    return _length("pairwise_distance", x1 - x2 + eps, p, -1, keepdims=keepdim)


@compiled_for_pairs
@in_float32
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """Distances of all pairs of rows: (..., n, k) and (..., m, k) -> (..., n, m), by the norm of order `p`.

    Differences are summed, not products: near points keep all digits. Raises ShapeError for other shapes,
    ArgumentError for a negative `p`.

    >>> cdist(hm.asarray([[0.0, 0.0]]), hm.asarray([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist: needs (..., n, k) and (..., m, k), got {x1.shape} and {x2.shape}")
    return _length("cdist", x1[..., :, None, :] - x2[..., None, :, :], p, -1)


@compiled_for_pairs
@in_float32
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Distances of all pairs of different rows of (n, k), as one vector (n (n - 1) / 2,).

    It is the upper triangle of `cdist`, row by row. Raises ShapeError unless the input has two axes, ArgumentError for
    a negative `p`.

    >>> pdist(hm.asarray([[0.0], [1.0], [3.0]])).tolist()
    [1.0, 3.0, 2.0]
    """
    if input.ndim != 2:
        raise ShapeError(f"pdist: input must be (n, k), got shape {input.shape}")
    first, second = (xp.asarray(k) for k in np.triu_indices(int(input.shape[0]), 1))
    return _length("pdist", xp.take(input, first, axis=0) - xp.take(input, second, axis=0), p, -1)


def _length(what: str, x: Tensor, p: float, axis: int | tuple[int, ...], keepdims: bool = False) -> Tensor:
    """The norm of order `p` along `axis`; see `linalg.vector_norm`. Raises ArgumentError unless p is 0 or more."""
    if not (isinstance(p, Real | Tensor) and p >= 0):
        raise ArgumentError(f"{what}: p must be a number, 0 or more, got {p!r}")
    return linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=p)


__all__ = ["cdist", "cosine_similarity", "normalize", "pairwise_distance", "pdist"]
