"""Gathers and scatters with PyTorch's names and meanings, as new tensors: an index an element along an axis (`gather`,
`scatter`, `scatter_reduce`), an index a slice (`index_select`, `index_add`), and masks.

Indices may count from the end; one that does not exist raises OutOfBoundsError in both styles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.ops.shapes import axis_index
from hybridml_compiler.ops.table import OPS

from ...core.aliasing import is_python_float, update
from ...core.context import placed
from ...core.library import compiled_when_small
from ...core.tensor import Tensor
from ..shaping.manipulation import broadcast_arrays
from .at import scatter_row, updated
from .segments import highest, lowest
from .selecting import lifted

_reshape, _broadcast, _where, _full = (OPS[name] for name in ("reshape", "broadcast_to", "where", "full"))
# What of equal elements is combined -> (scatter row, what changes nothing).
_REDUCTIONS: dict[str, tuple[str, Any]] = {
    "sum": ("scatter_add", 0),
    "mean": ("scatter_add", 0),
    "prod": ("scatter_mul", 1),
    "amax": ("scatter_max", lowest),
    "amin": ("scatter_min", highest),
}


def _axis(name: str, x: Tensor, axis: int) -> int:
    return axis_index(name, axis, Aval(x.shape, x.dtype))


@placed
def _value(name: str, x: Tensor, value: Any, shape: tuple[int, ...]) -> Tensor:
    """Value that is written, in x's dtype: a tensor, or a number for every place of `shape`."""
    if isinstance(value, bool | int | float | complex):
        if isinstance(value, float) and x.dtype.kind in "iub" and not value.is_integer():
            raise DTypeError(f"{name}: {value} does not fit {Aval(x.shape, x.dtype)}; cast it with astype")
        return _full.fn(shape=shape, value=value, dtype=x.dtype)
    t = lifted(value)
    if is_python_float(t):
        return _broadcast.fn(OPS["astype"].fn(t, x.dtype), shape)
    if t.dtype is not x.dtype:
        raise DTypeError(f"{name}: {Aval(t.shape, t.dtype)} does not fit {Aval(x.shape, x.dtype)}; cast it with astype")
    return t


# -- an index an element


@compiled_when_small
def gather(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """x[..., index[..., i, ...], ...]: for each element of `index` the element of x at that position of `axis`.

    `index` has as many axes as x and is not longer in the others (ShapeError). Source: PyTorch; where the others are
    equal it is `take_along_axis`.

    >>> import hybridml as hm
    >>> hm.gather(hm.tensor([[1, 2], [3, 4]]), 1, hm.tensor([[0], [1]])).tolist()
    [[1], [4]]
    """
    x, index = lifted(x), lifted(index)
    k = _axis("gather", x, axis)
    _check_fits("gather", x, index, k)
    part = x[tuple(slice(None) if j == k else slice(0, n) for j, n in enumerate(index.shape))]
    return OPS["take_along_axis"].fn(part, index, k)


@compiled_when_small
def scatter(x: Tensor, axis: int, index: Tensor, src: Any, *, reduce: str | None = None) -> Tensor:
    """x with elements of `src` (or one number) at the positions `index` of `axis`; of equal positions the last counts.

    `index` and src have as many axes as x; index is not longer than src, nor than x but along the axis. With `reduce`
    "add" or "multiply" every one of them counts. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.scatter(hm.zeros((2, 3)), 1, hm.tensor([[2], [0]]), 5.0).tolist()
    [[0.0, 0.0, 5.0], [5.0, 0.0, 0.0]]
    """
    rows = {None: "scatter_set", "add": "scatter_add", "multiply": "scatter_mul"}
    if reduce not in rows:
        raise ArgumentError(f"scatter: reduce is 'add', 'multiply' or None, got {reduce!r}; see scatter_reduce")
    x, places, updates = _scattered("scatter", x, axis, index, src)
    return _reshape.fn(scatter_row(rows[reduce], _reshape.fn(x, (x.numel(),)), places, updates, 0), x.shape)


@placed
def scatter_reduce(x: Tensor, axis: int, index: Tensor, src: Any, reduce: str, *, include_self: bool = True) -> Tensor:
    """x combined with the elements of `src` at the positions `index` of `axis`: their "sum", "prod", "mean", "amax" or
    "amin". Without `include_self` the elements of x at these positions do not count. Source: PyTorch; see `scatter`.

    >>> import hybridml as hm
    >>> hm.scatter_reduce(hm.ones(2), 0, hm.tensor([0, 0, 0]), hm.tensor([2.0, 3.0, 4.0]), "mean").tolist()
    [2.5, 1.0]
    """
    if reduce not in _REDUCTIONS:
        raise ArgumentError(f"scatter_reduce: reduce is one of {', '.join(_REDUCTIONS)}, got {reduce!r}")
    row, neutral = _REDUCTIONS[reduce]
    x, places, updates = _scattered("scatter_reduce", x, axis, index, src)
    flat = _reshape.fn(x, (x.numel(),))
    if not include_self:
        start = neutral(x.dtype) if callable(neutral) else neutral
        flat = OPS["scatter_set"].fn(flat, places, _full.fn(shape=places.shape, value=start, dtype=x.dtype), 0)
    found = scatter_row(row, flat, places, updates, 0)
    if reduce == "mean":
        own = _full.fn(shape=flat.shape, value=int(include_self), dtype=dtypes.int64)
        ones = _full.fn(shape=places.shape, value=1, dtype=dtypes.int64)
        number = OPS["maximum"].fn(OPS["scatter_add"].fn(own, places, ones, 0), 1)
        whole = x.dtype.kind in "iu"
        found = OPS["floor_divide" if whole else "divide"].fn(found, OPS["astype"].fn(number, x.dtype))
    return _reshape.fn(found, x.shape)


def put_along_axis(x: Tensor, indices: Tensor, values: Any, axis: int | None) -> Tensor:
    """x with `values` where `take_along_axis(x, indices)` takes from; they broadcast to indices. As a new tensor.

    Source: NumPy, JAX. Without an axis the indices are those of the flattened x.

    >>> import hybridml as hm
    >>> hm.put_along_axis(hm.zeros((2, 2)), hm.tensor([[1], [0]]), 7.0, 1).tolist()
    [[0.0, 7.0], [7.0, 0.0]]
    """
    x, indices = lifted(x), lifted(indices)
    if axis is None:
        flat = put_along_axis(_reshape.fn(x, (x.size,)), _reshape.fn(indices, (indices.size,)), values, 0)
        return _reshape.fn(flat, x.shape)
    values = _value("put_along_axis", x, values, indices.shape)
    return scatter(x, axis, indices, _broadcast.fn(values, indices.shape))


def _check_fits(name: str, x: Tensor, index: Tensor, axis: int) -> None:
    fits = index.ndim == x.ndim and all(
        k == axis or n <= m for k, (n, m) in enumerate(zip(index.shape, x.shape, strict=True))
    )
    if not fits:
        raise ShapeError(
            f"{name}: index {Aval(index.shape, index.dtype)} must have the axes of {Aval(x.shape, x.dtype)}, none but "
            f"axis {axis} longer; use broadcast_to or expand_dims"
        )


@placed
def _scattered(name: str, x: Any, axis: int, index: Any, src: Any) -> tuple[Tensor, Tensor, Tensor]:
    """x, the positions of its flattened elements, and what comes there, both with one axis."""
    x, index = lifted(x), lifted(index)
    k = _axis(name, x, axis)
    _check_fits(name, x, index, k)
    src = _value(name, x, src, index.shape)
    if src.ndim != index.ndim or any(n > m for n, m in zip(index.shape, src.shape, strict=True)):
        raise ShapeError(f"{name}: index {Aval(index.shape, index.dtype)} is longer than {Aval(src.shape, src.dtype)}")
    updates = src if src.shape == index.shape else src[tuple(slice(0, n) for n in index.shape)]
    place = OPS["index"].fn(index, x.shape[k], k) * math.prod(x.shape[k + 1 :])
    for j, n in enumerate(index.shape):
        if j != k:
            along = OPS["arange"].fn(start=0, stop=n, dtype=dtypes.int64) * math.prod(x.shape[j + 1 :])
            place = place + _reshape.fn(along, (n, *(1,) * (index.ndim - j - 1)))
    count = (index.numel(),)
    return x, _reshape.fn(place, count), _reshape.fn(updates, count)


# -- an index a slice


def index_select(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """The slices of x at positions `index` of `axis`, as `take`. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.index_select(hm.tensor([[1, 2], [3, 4]]), 0, hm.tensor([1, 1])).tolist()
    [[3, 4], [3, 4]]
    """
    return OPS["take"].fn(x, index, axis)


@compiled_when_small
def index_add(x: Tensor, axis: int, index: Tensor, source: Any, *, alpha: float = 1) -> Tensor:
    """x with `alpha * source` added to its slices at positions `index` of `axis`; equal ones add up. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.index_add(hm.zeros(3), 0, hm.tensor([0, 2, 0]), hm.ones(3)).tolist()
    [2.0, 0.0, 1.0]
    """
    x, index = lifted(x), lifted(index)
    k = _axis("index_add", x, axis)
    source = _slices("index_add", x, index, source, k)
    return scatter_row("scatter_add", x, index, source if alpha == 1 else source * alpha, k)


@compiled_when_small
def index_copy(x: Tensor, axis: int, index: Tensor, source: Any) -> Tensor:
    """x with the slices of `source` at positions `index` of `axis`; of equal ones the last counts. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.index_copy(hm.zeros(3), 0, hm.tensor([2, 0]), hm.tensor([5.0, 6.0])).tolist()
    [6.0, 0.0, 5.0]
    """
    x, index = lifted(x), lifted(index)
    k = _axis("index_copy", x, axis)
    return OPS["scatter_set"].fn(x, index, _slices("index_copy", x, index, source, k), k)


def index_fill(x: Tensor, axis: int, index: Tensor, value: Any) -> Tensor:
    """x with one value in its slices at positions `index` of `axis`. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.index_fill(hm.zeros(3), 0, hm.tensor([2, 0]), 9.0).tolist()
    [9.0, 0.0, 9.0]
    """
    return index_copy(x, axis, index, value)


def _slices(name: str, x: Tensor, index: Tensor, source: Any, axis: int) -> Tensor:
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    value = _value(name, x, source, shape)
    return value if value.ndim else _broadcast.fn(value, shape)


def index_put(x: Tensor, indices: Sequence[Tensor], values: Any, accumulate: bool = False) -> Tensor:
    """x with `values` at x[indices], or added there with `accumulate`; see `x.at`. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.index_put(hm.zeros(2), [hm.tensor([1, 1])], hm.ones(2), accumulate=True).tolist()
    [0.0, 2.0]
    """
    x = lifted(x)
    return updated(x, tuple(indices), "add" if accumulate else "set", _value("index_put", x, values, ()))


# -- masks


@compiled_when_small
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value`, a number or a tensor without axes, where `mask` holds, else x; both broadcast. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.masked_fill(hm.tensor([1.0, 2.0]), hm.tensor([True, False]), 0).tolist()
    [0.0, 2.0]
    """
    x = lifted(x)
    return _where.fn(mask, _value("masked_fill", x, value, ()), x)


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of x where `mask` holds, with one axis; both broadcast. Source: PyTorch.

    A traced program asks for their number as a value.

    >>> import hybridml as hm
    >>> hm.masked_select(hm.tensor([[1, 2], [3, 4]]), hm.tensor([True, False])).tolist()
    [1, 3]
    """
    wide, chosen = broadcast_arrays(lifted(x), lifted(mask))
    return wide[chosen]


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """x with the elements of `source`, one after the other, where `mask` holds; x and mask broadcast.

    Source: PyTorch. ShapeError for a source that is empty, OutOfBoundsError for one that is too short.

    >>> import hybridml as hm
    >>> hm.masked_scatter(hm.zeros(3), hm.tensor([True, False, True]), hm.tensor([5.0, 6.0])).tolist()
    [5.0, 0.0, 6.0]
    """
    x, mask = broadcast_arrays(lifted(x), lifted(mask))
    source = _value("masked_scatter", x, source, x.shape)
    if not source.numel() and x.numel():
        raise ShapeError("masked_scatter: source has no elements")
    number = OPS["cumulative_sum"].fn(_reshape.fn(mask, (x.numel(),)), 0) - 1
    number = _where.fn(_reshape.fn(mask, (x.numel(),)), number, 0)
    taken = OPS["take"].fn(_reshape.fn(source, (source.numel(),)), number, 0)
    return _where.fn(mask, _reshape.fn(taken, x.shape), x)


# -- as methods, and in place


_ONE_WRITE = (index_add, index_copy, index_fill)  # their x goes to one row, which writes to places of it


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    name = f"{function.__name__}_"

    def in_place(self: Tensor, *args: Any, **params: Any) -> Tensor:
        reads = (*args, *params.values()) if function in _ONE_WRITE else None
        return update(self, lambda x: function(x, *args, **params), (), name, reads)

    in_place.__name__ = name
    in_place.__doc__ = f"`{function.__name__}` in place."
    return in_place


for _method in (
    index_add, index_copy, index_fill, index_put, masked_fill, masked_scatter, scatter, scatter_reduce,
):  # fmt: skip
    setattr(Tensor, _method.__name__, _method)
    setattr(Tensor, f"{_method.__name__}_", _in_place(_method))
for _reads in (gather, index_select, masked_select):
    setattr(Tensor, _reads.__name__, _reads)

__all__ = [
    "gather", "index_add", "index_copy", "index_fill", "index_put", "index_select", "masked_fill", "masked_scatter",
    "masked_select", "put_along_axis", "scatter", "scatter_reduce",
]  # fmt: skip
