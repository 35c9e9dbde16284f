"""Pooling to a size that is given: window k of m along n elements is ``floor(k n / m) : ceil((k + 1) n / m)``.

An axis is split in two, windows and places in them: a reshape where all windows are equally long, a look-up by a table
otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.context import placed
from ..core.library import compiled
from ..core.precision.composites import in_float32
from ..core.tensor import Tensor
from .arguments import batched

Sizes = int | Sequence[int | None] | None


@compiled
def adaptive_avg_pool1d(input: Tensor, output_size: Sizes) -> Tensor:
    """Mean over windows chosen so that (n, c, l) or (c, l) gives (..., output_size); see `adaptive_avg_pool2d`.

    Raises ArgumentError for sizes that are not positive or not one per axis, ShapeError for an input of other axes.

    >>> adaptive_avg_pool1d(hm.asarray([[1.0, 2.0, 3.0]]), 2).tolist()
    [[1.5, 2.5]]
    """
    return _averaged("adaptive_avg_pool1d", 1, input, output_size)


@compiled
def adaptive_avg_pool2d(input: Tensor, output_size: Sizes) -> Tensor:
    """Mean over windows chosen so that (n, c, h, w) or (c, h, w) gives (..., *output_size); None keeps an axis.

    Window k of m along n elements is ``floor(k n / m) : ceil((k + 1) n / m)``, as in PyTorch. Raises ArgumentError for
    sizes that are not positive or not one per axis, ShapeError for an input of other axes.

    >>> adaptive_avg_pool2d(hm.ones((2, 3, 7, 7)), 1).shape
    (2, 3, 1, 1)
    """
    return _averaged("adaptive_avg_pool2d", 2, input, output_size)


@compiled
def adaptive_avg_pool3d(input: Tensor, output_size: Sizes) -> Tensor:
    """Mean over windows chosen so that (n, c, d, h, w) or (c, d, h, w) gives (..., *output_size).

    See `adaptive_avg_pool2d`. Raises ArgumentError for sizes that are not positive or not one per axis, ShapeError for
    an input of other axes.

    >>> adaptive_avg_pool3d(hm.ones((2, 3, 4, 7, 7)), (2, None, 1)).shape
    (2, 3, 2, 7, 1)
    """
    return _averaged("adaptive_avg_pool3d", 3, input, output_size)


@compiled
def adaptive_max_pool1d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """Largest value of windows chosen so that (n, c, l) or (c, l) gives (..., output_size); see `adaptive_max_pool2d`.

    Raises ArgumentError for sizes that are not positive or not one per axis, ShapeError for an input of other axes.

    >>> adaptive_max_pool1d(hm.asarray([[1.0, 3.0, 2.0]]), 2).tolist()
    [[3.0, 3.0]]
    """
    return _largest("adaptive_max_pool1d", 1, input, output_size, return_indices)


@compiled
def adaptive_max_pool2d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """Largest value of each window of `adaptive_avg_pool2d`: (n, c, h, w) or (c, h, w) -> (..., *output_size).

    The first of equal maxima gets the gradient. With `return_indices` also its position in its image, counted row
    by row (int64). Raises ArgumentError for sizes that are not positive or not one per axis, ShapeError for an input
    of other axes.

    >>> adaptive_max_pool2d(hm.asarray([[[1.0, 2.0], [4.0, 3.0]]]), (1, 2)).tolist()
    [[[4.0, 3.0]]]
    """
    return _largest("adaptive_max_pool2d", 2, input, output_size, return_indices)


@compiled
def adaptive_max_pool3d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """Largest value of windows chosen so that (n, c, d, h, w) or (c, d, h, w) gives (..., *output_size).

    See `adaptive_max_pool2d`. Raises ArgumentError for sizes that are not positive or not one per axis, ShapeError for
    an input of other axes.

    >>> adaptive_max_pool3d(hm.ones((2, 3, 4, 7, 7)), 2).shape
    (2, 3, 2, 2, 2)
    """
    return _largest("adaptive_max_pool3d", 3, input, output_size, return_indices)


class _Split(NamedTuple):
    """Split of an axis into (windows, places)."""

    shape: tuple[int, int]
    table: np.ndarray | None  # which element stands at each; the last of a window stands at all places behind it
    lengths: np.ndarray | int
    starts: np.ndarray


def _split(n: int, m: int) -> _Split:
    if n % m == 0:
        return _Split((m, n // m), None, n // m, np.arange(0, n, n // m))
    starts, stops = np.arange(m) * n // m, -(-np.arange(1, m + 1) * n // m)
    lengths = stops - starts
    places = np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
    return _Split(places.shape, starts[:, None] + places, lengths, starts)


@placed
def _windows(x: Tensor, axis: int, split: _Split) -> Tensor:
    if split.table is not None:
        x = xp.take(x, xp.asarray(split.table.ravel()), axis=axis)
    return x.reshape((*x.shape[:axis], *split.shape, *x.shape[axis + 1 :]))


@in_float32
@placed
def _averaged(what: str, dims: int, input: Tensor, output_size: Sizes) -> Tensor:
    x, single = batched(what, input, dims)
    for axis, m in enumerate(_sizes(what, x, output_size), 2):
        split = _split(int(x.shape[axis]), m)
        x = _windows(x, axis, split)
        rest = (1,) * (x.ndim - axis - 2)
        if split.table is None:
            x = x.mean(axis=axis + 1)
        else:
            counts = np.arange(split.shape[1]) < np.asarray(split.lengths)[:, None]
            inside = xp.asarray(counts.reshape(*split.shape, *rest))
            number = xp.asarray(split.lengths, dtype=x.dtype).reshape((-1, *rest))
            x = xp.where(inside, x, 0).sum(axis=axis + 1) / number
    return x[0] if single else x


@placed
def _largest(what: str, dims: int, input: Tensor, output_size: Sizes, return_indices: bool) -> Any:
    x, single = batched(what, input, dims)
    sizes, shape = _sizes(what, x, output_size), x.shape
    indices: Tensor | None = None
    # The last axis first: the first of equal ones is then the first in the order of rows.
    for axis in reversed(range(2, x.ndim)):
        split = _split(int(x.shape[axis]), sizes[axis - 2])
        x = _windows(x, axis, split)
        place = xp.expand_dims(xp.argmax(x, axis=axis + 1), axis=axis + 1)
        x = xp.take_along_axis(x, place, axis=axis + 1).squeeze(axis + 1)
        if return_indices:
            starts = xp.asarray(split.starts).reshape((-1, *(1,) * (x.ndim - axis - 1)))
            at = place.squeeze(axis + 1) + starts
            if indices is not None:
                inner = xp.take_along_axis(_windows(indices, axis, split), place, axis=axis + 1).squeeze(axis + 1)
                at = at * int(np.prod([int(n) for n in shape[axis + 1 :]])) + inner
            indices = at
    if indices is not None:
        return (x[0], indices[0]) if single else (x, indices)
    return x[0] if single else x


def _sizes(what: str, x: Tensor, output_size: Sizes) -> list[int]:
    dims = x.ndim - 2
    asked = list(output_size) if isinstance(output_size, Sequence) else [output_size] * dims
    asked = asked * dims if len(asked) == 1 else asked
    if len(asked) != dims or not all(n is None or n > 0 for n in asked):
        several = "a number" if dims == 1 else f"{dims} of them"
        raise ArgumentError(f"{what}: output_size must be positive or {several}, got {output_size!r}")
    return [int(n) if m is None else m for n, m in zip(x.shape[2:], asked, strict=True)]


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d",
]  # fmt: skip
