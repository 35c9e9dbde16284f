"""Vectors as sets: `union1d`, `intersect1d`, `setdiff1d`, `setxor1d`. Results are sorted; their sizes are data."""

from __future__ import annotations

from typing import Any

from ...core import ops
from ...core.tensor import Tensor
from ..shaping.manipulation import _tensor
from .orders import argsort, searchsorted, sort
from .uniques import isin, unique_values


def _line(x: Any) -> Tensor:
    x = _tensor(x)
    return ops.reshape(x, (x.numel(),))


def _distinct(x: Any, assume_unique: bool) -> Tensor:
    return _line(x) if assume_unique else unique_values(_line(x))


def union1d(x: Tensor, y: Tensor, /) -> Tensor:
    """The elements that are in x or in y. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.union1d(hm.tensor([3, 1]), hm.tensor([1, 2])).tolist()
    [1, 2, 3]
    """
    return unique_values(ops.concat([_line(x), _line(y)], axis=0))


def intersect1d(x: Tensor, y: Tensor, /, assume_unique: bool = False, return_indices: bool = False) -> Any:
    """The elements that are in both x and y; with `return_indices` also where they first are in each. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.intersect1d(hm.tensor([3, 1]), hm.tensor([1, 2])).tolist()
    [1]
    """
    a = _distinct(x, assume_unique)
    both = sort(a[isin(a, y)])
    return (both, _first(x, both), _first(y, both)) if return_indices else both


def _first(x: Any, values: Tensor) -> Tensor:
    x = _line(x)
    order = argsort(x)
    return ops.take(order, searchsorted(ops.take(x, order, 0), values), 0)


def setdiff1d(x: Tensor, y: Tensor, /, assume_unique: bool = False) -> Tensor:
    """The elements that are in x and not in y. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.setdiff1d(hm.tensor([3, 1]), hm.tensor([1, 2])).tolist()
    [3]
    """
    a = _distinct(x, assume_unique)
    return a[isin(a, y, invert=True)]


def setxor1d(x: Tensor, y: Tensor, /, assume_unique: bool = False) -> Tensor:
    """The elements that are in one of x and y, not in both. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.setxor1d(hm.tensor([3, 1]), hm.tensor([1, 2])).tolist()
    [2, 3]
    """
    a, b = _distinct(x, assume_unique), _distinct(y, assume_unique)
    return sort(ops.concat([a[isin(a, b, invert=True)], b[isin(b, a, invert=True)]], axis=0))


__all__ = ["intersect1d", "setdiff1d", "setxor1d", "union1d"]
