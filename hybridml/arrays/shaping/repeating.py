"""`repeat`: elements of an axis, each as often as a number says."""

from __future__ import annotations

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.table import OPS

from ...core.context import current_interpreter, placed
from ...core.tensor import Tensor, wrap
from .manipulation import _axis, _tensor, expand_dims

_reshape, _broadcast = OPS["reshape"], OPS["broadcast_to"]


def repeat(x: Tensor, repeats: int | Tensor, /, axis: int | None = None) -> Tensor:
    """Each element of an axis `repeats` times in a row (of the flattened x without an axis).

    `repeats` is one number for all, or integers, one for each element of the axis. Traced, the sum of the latter is
    asked for as a value. Raises ArgumentError for negative ones, ShapeError where their number does not fit.

    >>> import hybridml as hm
    >>> hm.repeat(hm.asarray([1, 2, 3]), 2).tolist()
    [1, 1, 2, 2, 3, 3]
    >>> hm.repeat(hm.asarray([1, 2, 3]), hm.asarray([2, 0, 1])).tolist()
    [1, 1, 3]
    """
    x = _tensor(x)
    if axis is None:
        return repeat(_reshape.fn(x, (x.size,)), repeats, axis=0)
    k = _axis("repeat", axis, x.ndim, x)
    if isinstance(repeats, Tensor | np.ndarray | list | tuple):
        n = x.shape[k]
        counts = _tensor(repeats)
        if counts.numel() != 1 and counts.shape != (n,):
            raise ShapeError(f"repeat: {n} elements along axis {axis} need as many counts, got shape {counts.shape}")
        return OPS["take"].fn(x, _positions(_broadcast.fn(_reshape.fn(counts, (counts.numel(),)), (n,))), k)
    if repeats < 0:
        raise ArgumentError(f"repeat: counts cannot be negative, got {repeats}")
    wide = _broadcast.fn(expand_dims(x, k + 1), (*x.shape[: k + 1], repeats, *x.shape[k + 1 :]))
    return _reshape.fn(wide, (*x.shape[:k], x.shape[k] * repeats, *x.shape[k + 1 :]))


@placed
def _positions(counts: Tensor) -> Tensor:
    """0, 1, ..., n - 1 as int64, k as often as `counts[k]` says."""
    interp = current_interpreter() or type(counts).home
    n = counts.numel()
    if interp is None:
        if n and counts._array.min() < 0:
            raise ArgumentError(f"repeat: counts cannot be negative, got {counts.tolist()!r:.60}")
        return wrap(np.repeat(np.arange(n), counts._array))
    counts = OPS["astype"].fn(interp.lift(counts), dtypes.int64)
    total = OPS["sum"].fn(counts)
    if n:  # one question for both: how many there are, and whether a count is negative
        total = OPS["where"].fn(OPS["min"].fn(counts) < 0, -1, total)
    total = interp.read(total, "number", "repeat()")
    if total < 0:
        raise ArgumentError("repeat: counts cannot be negative")
    if not total:
        return OPS["full"].fn(shape=(0,), value=0, dtype=dtypes.int64)
    # Each element but the first raises the running index by one where it starts; an end is a place of its own.
    starts = OPS["cumulative_sum"].fn(counts, axis=0)[: n - 1]
    zeros, ones = (OPS["full"].fn(shape=s, value=v, dtype=dtypes.int64) for s, v in (((total + 1,), 0), ((n - 1,), 1)))
    steps = OPS["scatter_add"].fn(zeros, starts, ones, axis=0)
    return OPS["cumulative_sum"].fn(steps, axis=0)[:total]


__all__ = ["repeat"]
