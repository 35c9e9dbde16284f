"""Order of the axes of an array in memory.

A dense array whose axes are permuted, such as the weight of a convolution with its channels last, is captured as what
it is: C-contiguous memory and a permutation of it, which the compiler sees. Nothing is copied on the way in or out.
"""

from __future__ import annotations

import functools

import numpy as np

Order = tuple[int, ...]


def memory_order(array: np.ndarray) -> Order | None:
    """The axes from the slowest to the fastest, if that makes a C-contiguous array of one that is not, else None."""
    if type(array) is not np.ndarray or array.flags.c_contiguous:
        return None  # arrays of a device are dense
    strides = array.strides
    order = tuple(sorted(range(array.ndim), key=lambda k: -strides[k]))
    return order if array.transpose(order).flags.c_contiguous else None


def in_memory(array: np.ndarray, order: Order | None) -> np.ndarray:
    """The view of `array` with its axes in memory order."""
    return array if order is None else array.transpose(order)


def as_seen(array: np.ndarray, order: Order | None) -> np.ndarray:
    """The inverse of `in_memory`."""
    return array if order is None else array.transpose(inverse(order))


@functools.lru_cache(maxsize=1024)
def inverse(order: Order) -> Order:
    """The permutation that undoes this one."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))
