"""Reductions over segments: elements with one number are combined, whichever place they have.

Signatures are JAX's (`jax.ops.segment_sum`, ...): numbers outside of 0 to num_segments - 1 are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.ops.table import OPS

from ...core.context import placed
from ...core.library import compiled_when_small
from ...core.tensor import Tensor
from .selecting import from_zero, lifted

_full, _where = OPS["full"], OPS["where"]


@compiled_when_small
def segment_sum(
    data: Tensor, segment_ids: Tensor, num_segments: int | None = None, indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Tensor:  # fmt: skip
    """Sums of the rows of `data` with one number: (n, ...) and integers (n,) -> (num_segments, ...).

    Without `num_segments` it is the largest number plus 1, which a traced program asks for as a value. A segment
    without rows is 0; sums keep the dtype. `indices_are_sorted` and `unique_indices` change nothing. Raises ShapeError
    where `segment_ids` does not fit the first axes of data, DTypeError where it has no integers.

    >>> import hybridml as hm
    >>> hm.segment_sum(hm.tensor([1.0, 2.0, 4.0]), hm.tensor([0, 2, 0]), 4).tolist()
    [5.0, 0.0, 2.0, 0.0]
    """
    return _segments("segment_sum", "scatter_add", 0, data, segment_ids, num_segments)


@compiled_when_small
def segment_prod(
    data: Tensor, segment_ids: Tensor, num_segments: int | None = None, indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Tensor:  # fmt: skip
    """Products of the rows of `data` with one number; 1 where there are none. See `segment_sum`.

    >>> import hybridml as hm
    >>> hm.segment_prod(hm.tensor([3.0, 2.0, 4.0]), hm.tensor([0, 2, 0]), 3).tolist()
    [12.0, 1.0, 2.0]
    """
    return _segments("segment_prod", "scatter_mul", 1, data, segment_ids, num_segments)


@compiled_when_small
def segment_max(
    data: Tensor, segment_ids: Tensor, num_segments: int | None = None, indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Tensor:  # fmt: skip
    """Maxima of the rows of `data` with one number; the dtype's least value (-inf) where there are none.

    Equal maxima share the gradient. See `segment_sum`.

    >>> import hybridml as hm
    >>> hm.segment_max(hm.tensor([1.0, 2.0, 4.0]), hm.tensor([0, 2, 0]), 3).tolist()
    [4.0, -inf, 2.0]
    """
    return _segments("segment_max", "scatter_max", None, data, segment_ids, num_segments)


@compiled_when_small
def segment_min(
    data: Tensor, segment_ids: Tensor, num_segments: int | None = None, indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Tensor:  # fmt: skip
    """Minima of the rows of `data` with one number; the dtype's greatest value (inf) where there are none.

    >>> import hybridml as hm
    >>> hm.segment_min(hm.tensor([1, 2, 4]), hm.tensor([0, 1, 0]), 2).tolist()
    [1, 2]
    """
    return _segments("segment_min", "scatter_min", None, data, segment_ids, num_segments)


@compiled_when_small
@placed
def segment_mean(
    data: Tensor, segment_ids: Tensor, num_segments: int | None = None, indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Tensor:  # fmt: skip
    """Means of the rows of `data` with one number, in floating point; 0 where there are none. Source: TensorFlow.

    >>> import hybridml as hm
    >>> hm.segment_mean(hm.tensor([1.0, 2.0, 4.0]), hm.tensor([0, 2, 0]), 3).tolist()
    [2.5, 0.0, 2.0]
    """
    data = lifted(data)
    if data.dtype.kind not in "fcV":
        data = OPS["astype"].fn(data, dtypes.default_float())
    total = _segments("segment_mean", "scatter_add", 0, data, segment_ids, num_segments)
    ids = lifted(segment_ids)
    rows = _segments("segment_mean", "scatter_add", 0, _full.fn(shape=ids.shape, value=1), ids, total.shape[0])
    each = OPS["reshape"].fn(OPS["maximum"].fn(rows, 1), (total.shape[0], *(1,) * (total.ndim - 1)))
    return total / OPS["astype"].fn(each, total.dtype)


@placed
def _segments(name: str, row: str, empty: Any, data: Any, segment_ids: Any, num_segments: int | None) -> Tensor:
    data, ids = lifted(data), lifted(segment_ids)
    if ids.dtype.kind not in "iu":
        raise DTypeError(f"{name}: segment_ids must be integers, got {Aval(ids.shape, ids.dtype)}; use astype")
    if not ids.ndim or data.shape[: ids.ndim] != ids.shape:
        raise ShapeError(
            f"{name}: segment_ids {Aval(ids.shape, ids.dtype)} must have the first axes of data, which is "
            f"{Aval(data.shape, data.dtype)}"
        )
    if num_segments is None:
        num_segments = max(0, int(OPS["max"].fn(ids)) + 1) if ids.numel() else 0
    if num_segments < 0:
        raise ArgumentError(f"{name}: num_segments must be 0 or more, got {num_segments}")
    rest = data.shape[ids.ndim :]
    if ids.ndim > 1:
        ids, data = OPS["reshape"].fn(ids, (ids.numel(),)), OPS["reshape"].fn(data, (ids.numel(), *rest))
    if empty is None:
        empty = lowest(data.dtype) if row == "scatter_max" else highest(data.dtype)
    base = _full.fn(shape=(num_segments + 1, *rest), value=empty, dtype=data.dtype)
    return OPS[row].fn(base, _places(ids, num_segments), data, 0)[:num_segments]


def _places(ids: Tensor, n: int) -> Tensor:
    """The numbers, and of those outside of 0 to n - 1 the place behind the last."""
    if ids.dtype is not dtypes.int64:
        ids = OPS["astype"].fn(ids, dtypes.int64)
    return _where.fn((ids >= 0) & (ids < n), ids, n)


def lowest(dtype: np.dtype) -> Any:
    """Lower bound of the numbers of a dtype, the start of a maximum."""
    return -float("inf") if dtype.kind in "fcV" else False if dtype.kind == "b" else int(np.iinfo(dtype).min)


def highest(dtype: np.dtype) -> Any:
    """Upper bound of the numbers of a dtype, the start of a minimum."""
    return float("inf") if dtype.kind in "fcV" else True if dtype.kind == "b" else int(np.iinfo(dtype).max)


@compiled_when_small
@placed
def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0, *, length: int | None = None) -> Tensor:
    """Counts of 0, 1, ... among the integers x, or the sums of their `weights`, in (flattened) x's order.

    There are as many as the largest plus 1, which a traced program asks for as a value, or `minlength` if that is
    more, for which it asks whether it is; with `length`, as in JAX, exactly as many, and greater integers are left out.
    Source: NumPy. OutOfBoundsError for a negative integer, DTypeError for other dtypes.

    >>> import hybridml as hm
    >>> hm.bincount(hm.tensor([0, 2, 2])).tolist()
    [1, 0, 2]
    """
    x = lifted(x)
    x = OPS["reshape"].fn(x, (x.numel(),))
    if x.dtype.kind not in "iu":
        raise DTypeError(f"bincount: counts integers, got {Aval(x.shape, x.dtype)}; use astype")
    wide = OPS["astype"].fn(x, dtypes.int64)
    if length is None:
        largest = OPS["max"].fn(wide) if x.numel() else -1
        # One answer for all data where they are in range, which is no question where their form tells it: `i % 10`.
        size = minlength if minlength and largest < minlength else int(largest) + 1
    else:
        size = length
    places = OPS["minimum"].fn(from_zero(wide, size + 1), size)
    if weights is None:
        counted = _full.fn(shape=(x.numel(),), value=1, dtype=dtypes.int64)
    else:
        counted = OPS["reshape"].fn(lifted(weights), (x.numel(),))
        if counted.dtype.kind not in "fcV":
            counted = OPS["astype"].fn(counted, dtypes.default_float())
    return OPS["scatter_add"].fn(_full.fn(shape=(size + 1,), value=0, dtype=counted.dtype), places, counted, 0)[:size]


setattr(Tensor, bincount.__name__, bincount)

__all__ = ["bincount", "segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum"]
