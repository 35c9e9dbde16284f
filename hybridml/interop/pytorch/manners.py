"""Functions that return what PyTorch's do when they are called in its manner: by `dim=`, its name of an axis.

`x.max(axis=1)` is NumPy's, values alone; `x.max(dim=1)` is PyTorch's, values with their indices. `std(dim=0)` divides
by n - 1, as PyTorch does, and `std(axis=0)` by n, as NumPy and the array API standard do. `squeeze(dim=0)` leaves an
axis of another size alone, where `squeeze(axis=0)` is an error. `median(dim=0)` is the lower
one of two in the middle. So a program keeps the numbers that it has where it comes from. `add(x, y, alpha=2)` is
``x + 2 * y``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import arrays as xp
from ...arrays.searching.orders import Chosen
from ...core import ops
from ...core.context import grad_is_off
from ...core.spellings import pytorchs, renamed
from ...core.tensor import Tensor

_NAMES = {"axis": "dim", "keepdims": "keepdim", "ddof": "correction", "unbiased": "correction"}


def _at(x: Tensor, indices: Tensor, dim: int) -> Tensor:
    return ops.take_along_axis(x, indices, dim) if x.ndim else x


def _extreme(
    value_of: Callable[..., Tensor] | None,
    index_of: Callable[..., Tensor],
    x: Tensor,
    /,
    dim: int,
    keepdim: bool = False,
) -> Chosen:
    """Values and their indices, the axis of size 1 or left out. A gradient goes to the element of the index."""
    x = xp.asarray(x)
    if not x.ndim:
        return Chosen(x, xp.zeros((), dtype=xp.int64))
    if value_of is not None and (x._node is None or grad_is_off()):
        return Chosen(value_of(x, dim, keepdim), index_of(x, dim, keepdim))
    indices = index_of(x, dim, True)
    found = Chosen(_at(x, indices, dim), indices)
    return found if keepdim else Chosen(*(xp.squeeze(t, dim) for t in found))


def _middle(x: Tensor, dim: int, keepdim: bool) -> Tensor:
    """The index of the lower one of two in the middle; the axis stays."""
    shape = tuple(1 if k == dim % x.ndim else n for k, n in enumerate(x.shape))
    last = x.shape[dim] - 1
    middle = xp.full(shape, last // 2)
    if x.dtype.kind in "fV":  # NaN is sorted to the end, and is the median
        middle = xp.where(xp.isnan(x).any(axis=dim, keepdims=True), last, middle)
    return ops.take_along_axis(xp.argsort(x, axis=dim), middle, dim)


def _sort(x: Tensor, /, dim: int = -1, descending: bool = False, stable: bool = True) -> Chosen:
    x = xp.asarray(x)
    indices = xp.argsort(x, axis=dim, descending=descending, stable=stable) if x.ndim else xp.zeros((), dtype=xp.int64)
    return Chosen(_at(x, indices, dim), indices)


def _spread(of: Callable[..., Tensor], x: Tensor, /, dim: Any, correction: float = 1, keepdim: bool = False) -> Tensor:
    return of(x, axis=dim, correction=correction, keepdims=keepdim)


def _squeeze(x: Tensor, /, dim: Any) -> Tensor:
    """Without those of the axes that have size 1."""
    x = xp.asarray(x)
    if dim is None:
        return xp.squeeze(x)
    axes, shape = (dim,) if isinstance(dim, int | np.integer) else tuple(dim), x.shape or (0,)
    return xp.squeeze(x, tuple(a for a in axes if not -len(shape) <= a < len(shape) or shape[a] == 1))


def _scaled(of: Callable[..., Tensor], x: Any, y: Any, /, alpha: Any) -> Tensor:
    return of(x, y if alpha == 1 else y * alpha)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": partial(_scaled, ops.add),
    "max": partial(_extreme, ops.max, ops.argmax),
    "median": partial(_extreme, None, _middle),
    "min": partial(_extreme, ops.min, ops.argmin),
    "sort": _sort,
    "squeeze": _squeeze,
    "std": partial(_spread, xp.std),
    "subtract": partial(_scaled, ops.subtract),
    "var": partial(_spread, xp.var),
}


def _named(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs, **given: fn(*inputs, **renamed(name, given, _NAMES))


pytorchs |= {name: _named(name, fn) for name, fn in _FUNCTIONS.items()}
