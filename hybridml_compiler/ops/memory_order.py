"""The order in which the axes of arrays lie in memory, and that of NumPy's results ("K" order)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def order_of(array: np.ndarray) -> tuple[int, ...] | None:
    """Axes from the one with the longest steps on, those of one element first; None where that is their order."""
    strides = array.strides
    if array.flags.c_contiguous or (strides[-1] >= 0 and sorted(strides, reverse=True) == [*strides]):
        return None
    moving = [k for k, n in enumerate(array.shape) if n > 1]
    order = sorted(moving, key=lambda k: -abs(array.strides[k]))
    return None if order == moving else (*[k for k, n in enumerate(array.shape) if n <= 1], *order)


def order_of_result(arrays: Sequence[np.ndarray]) -> tuple[int, ...] | None:
    """The order of what NumPy computes of arrays element by element; None where it is that of the axes.

    Results of convolutions lie with channels last, and what is computed of them does.

    >>> order_of_result([np.ones((2, 3)).T])
    (1, 0)
    """
    if all([a.flags.c_contiguous for a in arrays]):
        return None
    if len(arrays) == 1 and 0 not in arrays[0].strides:  # an axis of no steps stays where it is
        return order_of(arrays[0])
    modes: Any = [["readonly"]] * len(arrays) + [["writeonly", "allocate"]]
    kinds: Any = [None] * len(arrays) + [np.bool_]
    return order_of(np.nditer((*arrays, None), ["zerosize_ok"], modes, kinds, order="K").operands[-1])
