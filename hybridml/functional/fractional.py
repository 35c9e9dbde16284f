"""Fractional max pooling (Graham 2014): windows at pseudo-random places, so that an image shrinks by any factor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import random
from ..core.context import placed
from ..core.tensor import Tensor
from .arguments import Pair, batched, positive

Ratio = float | Sequence[float]


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Pair,
    output_size: Pair | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima of windows at random places, for each image and channel its own. (n, c, h, w) or (c, h, w).

    `output_size`, or `output_ratio` of the image's size (both in 0..1), says how many windows there are; those of an
    axis are evenly spaced but for a random phase, and the last one ends where the image does. `_random_samples`
    (n, c, 2) in 0..1 fixes them. With `return_indices` also the positions of the maxima, as `max_pool2d`. ArgumentError
    for both sizes or neither, ShapeError where windows do not fit. Source: PyTorch.

    >>> fractional_max_pool2d(hm.arange(16.0).reshape((1, 1, 4, 4)), 2, output_size=1).tolist()
    [[[[15.0]]]]
    """
    return _pooled(
        "fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Pair,
    output_size: Pair | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """`fractional_max_pool2d` of (n, c, d, h, w) or (c, d, h, w); `_random_samples` is (n, c, 3).

    >>> fractional_max_pool3d(hm.ones((1, 2, 4, 4, 4)), 2, output_ratio=0.5).shape
    (1, 2, 2, 2, 2)
    """
    return _pooled(
        "fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )


@placed
def _pooled(
    what: str,
    dims: int,
    input: Tensor,
    kernel_size: Pair,
    output_size: Pair | None,
    output_ratio: Ratio | None,
    return_indices: bool,
    samples: Tensor | None,
) -> Any:
    x, single = batched(what, input, dims)
    size = positive(what, "kernel_size", kernel_size, dims)
    counts = _counts(what, x.shape[2:], output_size, output_ratio)
    for n, k, m in zip(x.shape[2:], size, counts, strict=True):
        if not 0 < m <= n - k + 1:
            raise ShapeError(f"{what}: {m} windows of {k} elements do not fit an axis of {n}; use at most {n - k + 1}")
    if samples is None:
        samples = random.rand(*x.shape[:2], dims, dtype=x.dtype)
    elif samples.shape != (*x.shape[:2], dims):
        raise ShapeError(f"{what}: _random_samples must be {(*x.shape[:2], dims)}, got shape {samples.shape}")
    places: Any = 0  # of each element of each window in its image
    for axis, (n, k, m) in enumerate(zip(x.shape[2:], size, counts, strict=True)):
        drawn = samples[..., _SAMPLE_OF_AXIS[dims][axis], None].astype(xp.float32)  # PyTorch's rounding
        at = xp.expand_dims(_starts(drawn, n, k, m), -1) + xp.arange(k)
        shape = [1] * (2 * dims)
        shape[axis], shape[dims + axis] = m, k
        places = places * n + at.reshape((*at.shape[:2], *shape))
    windows = places.reshape((*x.shape[:2], math.prod(counts), math.prod(size)))
    flat = x.reshape((*x.shape[:2], 1, -1))
    values = xp.take_along_axis(xp.broadcast_to(flat.detach(), (*windows.shape[:-1], flat.shape[-1])), windows, axis=-1)
    best = xp.argmax(values, axis=-1, keepdims=True)
    indices = xp.take_along_axis(windows, best, axis=-1)[..., 0]
    result = xp.take_along_axis(x.reshape((*x.shape[:2], -1)), indices, axis=-1).reshape((*x.shape[:2], *counts))
    indices = indices.reshape(result.shape)
    result, indices = (result[0], indices[0]) if single else (result, indices)
    return (result, indices) if return_indices else result


# Which random sample places the windows of an axis, as in PyTorch.
_SAMPLE_OF_AXIS = {2: (1, 0), 3: (0, 1, 2)}


@placed
def _starts(drawn: Tensor, n: int, k: int, m: int) -> Tensor:
    """Starts of the m windows of k elements along an axis of n, (..., m) for a phase (..., 1) in 0..1."""
    if m == 1:
        return xp.zeros_like(drawn).astype(xp.int64) + (n - k)
    alpha = (n - k) / (m - 1)
    steps = xp.arange(m).astype(drawn.dtype)
    starts = ((steps + drawn) * alpha).astype(xp.int64) - (drawn * alpha).astype(xp.int64)
    return xp.where(xp.arange(m) == m - 1, n - k, starts)


def _counts(what: str, sizes: Sequence[int], output_size: Pair | None, ratio: Ratio | None) -> tuple[int, ...]:
    if (output_size is None) == (ratio is None):
        raise ArgumentError(f"{what}: give output_size or output_ratio, one of them")
    if output_size is not None:
        return positive(what, "output_size", output_size, len(sizes))
    ratios: tuple[Any, ...] = tuple(ratio) if isinstance(ratio, tuple | list) else (ratio,) * len(sizes)
    if len(ratios) != len(sizes) or not all(isinstance(r, float) and 0 < r < 1 for r in ratios):
        raise ArgumentError(f"{what}: output_ratio must be one or {len(sizes)} numbers between 0 and 1, got {ratio}")
    return tuple(int(n * r) for n, r in zip(sizes, ratios, strict=True))


__all__ = ["fractional_max_pool2d", "fractional_max_pool3d"]
