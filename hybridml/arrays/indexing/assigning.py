"""Copies of a tensor with a part replaced, by PyTorch's names: `select_scatter`, `slice_scatter`, `put`, ...

The part is a slice, a diagonal or a list of positions; `x.at[key].set(value)` is the general form. Every one of them
has gradients for the tensor and for what replaces its part.
"""

from __future__ import annotations

from typing import Any

from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.table import OPS

from ...core import ops
from ...core.context import placed
from ...core.tensor import Tensor
from ..creation import arange, zeros
from ..shaping.manipulation import moveaxis
from .at import updated
from .scattering import _axis, _in_place, _slices, _value, scatter_reduce
from .selecting import lifted

_reshape = OPS["reshape"]


def select_scatter(x: Tensor, src: Any, axis: int, index: int) -> Tensor:
    """x with `src` as its slice `index` of `axis`; src has x's shape without that axis. Source: PyTorch.

    ShapeError for another shape, OutOfBoundsError for an index that does not exist.

    >>> import hybridml as hm
    >>> hm.select_scatter(hm.zeros((2, 2)), hm.ones(2), 0, 1).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    x = lifted(x)
    k = _axis("select_scatter", x, axis)
    return _replaced("select_scatter", x, (slice(None),) * k + (index,), src)


def slice_scatter(
    x: Tensor, src: Any, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """x with `src` in place of ``start:end:step`` of `axis`; src has that slice's shape (ShapeError). Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.slice_scatter(hm.zeros(4), hm.ones(2), start=1, end=4, step=2).tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    x = lifted(x)
    k = _axis("slice_scatter", x, axis)
    return _replaced("slice_scatter", x, (slice(None),) * k + (slice(start, end, step),), src)


@placed
def _replaced(name: str, x: Tensor, key: tuple[Any, ...], src: Any) -> Tensor:
    shape = x.detach()[key].shape
    value = _value(name, x, src, shape)
    if value.shape != shape:
        raise ShapeError(
            f"{name}: the part of {Aval(x.shape, x.dtype)} has shape {shape}, src has shape {value.shape}; "
            "use broadcast_to or reshape"
        )
    return updated(x, key, "set", value)


@placed
def diagonal_scatter(x: Tensor, src: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """x with `src` as its diagonal over two axes; src has the shape of ``diagonal(x, offset, axis1, axis2)``.

    Source: PyTorch. ShapeError for another shape, AxisError for axes that do not exist.

    >>> import hybridml as hm
    >>> hm.diagonal_scatter(hm.zeros((2, 2)), hm.tensor([1.0, 2.0])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    x = lifted(x)
    a, b = _axis("diagonal_scatter", x, axis1), _axis("diagonal_scatter", x, axis2)
    if a == b:
        raise ShapeError(f"diagonal_scatter: a diagonal is over two different axes, got {axis1} and {axis2}")
    front = moveaxis(x, (a, b), (0, 1))
    rows, columns = _diagonal_places(front.shape[0], front.shape[1], offset)
    value = _value("diagonal_scatter", x, src, (*front.shape[2:], rows.shape[0]))
    if value.shape != (*front.shape[2:], rows.shape[0]):
        raise ShapeError(
            f"diagonal_scatter: the diagonal of {Aval(x.shape, x.dtype)} has shape "
            f"{(*front.shape[2:], rows.shape[0])}, src has shape {value.shape}"
        )
    return moveaxis(updated(front, (rows, columns), "set", moveaxis(value, -1, 0)), (0, 1), (a, b))


def _diagonal_places(rows: int, columns: int, offset: int) -> tuple[Tensor, Tensor]:
    """Rows and columns of the elements of a diagonal."""
    top, left = max(-offset, 0), max(offset, 0)
    count = max(min(rows - top, columns - left), 0)
    places = arange(count)
    return places + top, places + left


@placed
def diag_embed(x: Tensor, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Matrices over the axes `axis1` and `axis2` of the result, with x's last axis as their diagonal. Source: PyTorch.

    x (..., n) gives two axes of ``n + |offset|`` elements. ShapeError for axes that are the same.

    >>> import hybridml as hm
    >>> hm.diag_embed(hm.tensor([1.0, 2.0])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    x = lifted(x)
    if not x.ndim:
        raise ShapeError("diag_embed: needs at least one axis, got a number; use reshape((1,))")
    size = x.shape[-1] + abs(offset)
    whole = Aval((*x.shape[:-1], size, size), x.dtype)
    a, b = (axis % whole.ndim if -whole.ndim <= axis < whole.ndim else axis for axis in (axis1, axis2))
    if a == b:
        raise ShapeError(f"diag_embed: the axes of a matrix are different ones, got {axis1} and {axis2}")
    square = diagonal_scatter(zeros(whole.shape, dtype=x.dtype), x, offset, -2, -1)
    return moveaxis(square, (-2, -1), (axis1, axis2))


def put(x: Tensor, index: Tensor, source: Any, accumulate: bool = False) -> Tensor:
    """x with the elements of `source` at the positions `index` of the flattened x; added there with `accumulate`.

    `source` has as many elements as index (ShapeError). Of equal positions the last counts. Source: PyTorch; the method
    `Tensor.put` is NumPy's, which writes in place.

    >>> import hybridml as hm
    >>> hm.put(hm.zeros((2, 2)), hm.tensor([0, 3]), hm.tensor([1.0, 2.0])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    x, index = lifted(x), lifted(index)
    value = _value("put", x, source, index.shape)
    if value.numel() != index.numel():
        raise ShapeError(f"put: {index.numel()} positions for {value.numel()} elements of source; give one for each")
    flat, places = _reshape.fn(x, (x.numel(),)), _reshape.fn(index, (index.numel(),))
    row = OPS["scatter_add" if accumulate else "scatter_set"]
    return _reshape.fn(row.fn(flat, places, _reshape.fn(value, (index.numel(),)), 0), x.shape)


_REDUCTIONS = ("prod", "mean", "amax", "amin")


def index_reduce(x: Tensor, axis: int, index: Tensor, source: Any, reduce: str, *, include_self: bool = True) -> Tensor:
    """x with slices at `index` of `axis` combined with those of `source` by "prod", "mean", "amax" or "amin".

    Without `include_self` x's own slices at these positions do not count. Source: PyTorch; see `scatter_reduce`.

    >>> import hybridml as hm
    >>> hm.index_reduce(hm.ones(2), 0, hm.tensor([0, 0]), hm.tensor([2.0, 6.0]), "mean").tolist()
    [3.0, 1.0]
    """
    x, index = lifted(x), lifted(index)
    if reduce not in _REDUCTIONS:
        raise ArgumentError(f"index_reduce: reduce is one of {', '.join(_REDUCTIONS)}, got {reduce!r}")
    k = _axis("index_reduce", x, axis)
    source = _slices("index_reduce", x, index, source, k)
    places = _reshape.fn(index, tuple(-1 if j == k else 1 for j in range(x.ndim)))
    places = ops.broadcast_to(places, source.shape)
    return scatter_reduce(x, k, places, source, reduce, include_self=include_self)


for _method in (diag_embed, diagonal_scatter, index_reduce, select_scatter, slice_scatter):
    setattr(Tensor, _method.__name__, _method)
for _written in (index_reduce, put):
    setattr(Tensor, f"{_written.__name__}_", _in_place(_written))

__all__ = ["diag_embed", "diagonal_scatter", "index_reduce", "put", "select_scatter", "slice_scatter"]
