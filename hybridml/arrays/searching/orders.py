"""Order along an axis: sort, argsort, top_k, kthvalue, mode, and searches in what is sorted.

nan is greater than every number, as in NumPy, PyTorch and JAX. Native routines sort and search, in compiled programs
as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.shapes import axis_index
from hybridml_compiler.ops.table import OPS

from ...core.context import placed, trusted
from ...core.library import compiled_when_small
from ...core.tensor import Tensor
from ..indexing.selecting import lifted
from ..shaping.manipulation import concat, squeeze, stack

_argsort, _take_along, _where = OPS["argsort"], OPS["take_along_axis"], OPS["where"]


class Chosen(NamedTuple):
    """Values, and where along the axis they were found."""

    values: Tensor
    indices: Tensor


def _flat_axis(x: Any, axis: int | None) -> tuple[Tensor, int]:
    x = lifted(x)
    return (OPS["reshape"].fn(x, (x.numel(),)), 0) if axis is None else (x, axis)


def sort(x: Tensor, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements along `axis` (of the flattened tensor with None) in ascending order, or `descending`.

    Zeros of both signs are equal, so `stable` changes nothing else that can be seen. The gradient goes where the
    element came from. Source: array API standard. Raises ShapeError for an axis that does not exist.

    >>> import hybridml as hm
    >>> hm.sort(hm.tensor([3.0, hm.nan, 1.0])).tolist()
    [1.0, 3.0, nan]
    """
    x, axis = _flat_axis(x, axis)
    return OPS["sort"].fn(x, axis, descending)


def argsort(x: Tensor, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """int64 positions that put the elements along `axis` in order. Equal elements keep theirs, `stable` or not.

    >>> import hybridml as hm
    >>> hm.argsort(hm.tensor([2, 1, 2, 1])).tolist(), hm.argsort(hm.tensor([2, 1, 2, 1]), descending=True).tolist()
    ([1, 3, 0, 2], [0, 2, 1, 3])
    """
    x, axis = _flat_axis(x, axis)
    return _argsort.fn(x, axis, descending)


def msort(x: Tensor, /) -> Tensor:
    """`sort` along the first axis. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.msort(hm.tensor([[3, 1], [2, 4]])).tolist()
    [[2, 1], [3, 4]]
    """
    return sort(x, axis=0)


def partition(x: Tensor, kth: int | Sequence[int], axis: int | None = -1) -> Tensor:
    """Elements `kth` where sorting puts them, smaller ones before and greater ones behind: all sorted, which is one
    such order. Source: NumPy. Raises ShapeError for a place that does not exist.

    >>> import hybridml as hm
    >>> hm.partition(hm.tensor([3, 1, 2]), 1).tolist()
    [1, 2, 3]
    """
    x, axis = _flat_axis(x, axis)
    _check_places("partition", x, kth, axis)
    return OPS["sort"].fn(x, axis, False)


def argpartition(x: Tensor, kth: int | Sequence[int], axis: int | None = -1) -> Tensor:
    """Positions of the elements in an order of `partition`: those of `argsort`.

    >>> import hybridml as hm
    >>> hm.argpartition(hm.tensor([3, 1, 2]), 1).tolist()
    [1, 2, 0]
    """
    x, axis = _flat_axis(x, axis)
    _check_places("argpartition", x, kth, axis)
    return _argsort.fn(x, axis, False)


def _check_places(name: str, x: Tensor, kth: int | Sequence[int], axis: int) -> None:
    n = x.shape[axis_index(name, axis, Aval(x.shape, x.dtype))]
    for k in (kth,) if isinstance(kth, int) else kth:
        axis_index(f"{name}: kth as an", k, (0,) * n)


def lexsort(keys: Any, axis: int = -1) -> Tensor:
    """int64 positions that order by the last of `keys`, equal ones by the key before it, and so on.

    `keys` is a sequence of tensors of one shape, or they are stacked along a first axis. Source: NumPy.

    >>> import hybridml as hm
    >>> first, last = hm.tensor([1, 0, 2]), hm.tensor([1, 1, 0])
    >>> hm.lexsort((first, last)).tolist()
    [2, 1, 0]
    """
    stacked = stack([lifted(key) for key in keys]) if isinstance(keys, list | tuple) else lifted(keys)
    return OPS["lexsort"].fn(stacked, axis)


def top_k(x: Tensor, k: int, /, *, axis: int = -1, largest: bool = True, sorted: bool = True) -> Chosen:
    """The k largest elements along `axis` (smallest with `largest=False`), as (values, indices), the most extreme
    first; of equal elements the first are taken.

    They come `sorted` in any case. Source: PyTorch, JAX. ArgumentError for a k that is larger than the axis.

    >>> import hybridml as hm
    >>> values, indices = hm.top_k(hm.tensor([1.0, 4.0, 2.0, 4.0]), 2)
    >>> values.tolist(), indices.tolist()
    ([4.0, 4.0], [1, 3])
    """
    x = lifted(x)
    indices = OPS["argtopk"].fn(x, k, axis, largest)
    return Chosen(trusted(_take_along.fn(x, indices, axis)), indices)


def topk(x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> Chosen:
    """`top_k` with PyTorch's name and order of arguments.

    >>> import hybridml as hm
    >>> hm.topk(hm.tensor([1, 4, 2]), 1, largest=False).values.tolist()
    [1]
    """
    return top_k(x, k, axis=axis, largest=largest)


def kthvalue(x: Tensor, k: int, axis: int = -1, keepdims: bool = False) -> Chosen:
    """The k-th smallest element along `axis`, counted from 1, as (values, indices). Source: PyTorch.

    ArgumentError for a k that is not 1 to the size of the axis.

    >>> import hybridml as hm
    >>> found = hm.kthvalue(hm.tensor([3.0, 1.0, 2.0]), 2)
    >>> found.values.item(), found.indices.item()
    (2.0, 2)
    """
    x = lifted(x)
    at = axis_index("kthvalue", axis, Aval(x.shape, x.dtype))
    if not 1 <= k <= x.shape[at]:
        raise ArgumentError(f"kthvalue: k must be 1 to {x.shape[at]}, the size of axis {axis}, got {k}")
    return _at(x, OPS["argtopk"].fn(x, k, at, False)[(slice(None),) * at + (slice(k - 1, k),)], at, keepdims)


@compiled_when_small
@placed
def mode(x: Tensor, axis: int = -1, keepdims: bool = False) -> Chosen:
    """The most frequent element along `axis`, as (values, indices): of equally frequent ones the smallest, and the
    last place where it is. Source: PyTorch.

    >>> import hybridml as hm
    >>> found = hm.mode(hm.tensor([2, 1, 3, 1, 3]))
    >>> found.values.item(), found.indices.item()
    (1, 3)
    """
    x = lifted(x)
    at = axis_index("mode", axis, Aval(x.shape, x.dtype))
    n = x.shape[at]
    if not n:
        raise ArgumentError(f"mode: axis {axis} of {Aval(x.shape, x.dtype)} is empty; check its size first")
    order = _argsort.fn(x.detach(), at, False)
    ordered = trusted(_take_along.fn(x.detach(), order, at))
    lead = (slice(None),) * at
    new = ordered[(*lead, slice(1, n))] != ordered[(*lead, slice(0, n - 1))]
    first = OPS["full"].fn(shape=tuple(1 if j == at else m for j, m in enumerate(x.shape)), value=True)
    place = OPS["arange"].fn(start=0, stop=n, dtype=dtypes.int64)
    place = OPS["reshape"].fn(place, tuple(n if j == at else 1 for j in range(x.ndim)))
    start = OPS["cumulative_max"].fn(_where.fn(concat([first, new], axis=at), place, 0), at)
    best = OPS["argmax"].fn(place - start, at, True)
    return _at(x, trusted(_take_along.fn(order, best, at)), at, keepdims)


def _at(x: Tensor, indices: Tensor, axis: int, keepdims: bool) -> Chosen:
    values = trusted(_take_along.fn(x, indices, axis))
    return Chosen(values, indices) if keepdims else Chosen(squeeze(values, axis), squeeze(indices, axis))


# -- searches


def searchsorted(x1: Tensor, x2: Any, /, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Positions (int64) in ascending x1 before which the elements of x2 belong: `side` "left" of elements
    that equal it, or "right".

    x1 has one axis and x2 any, or the rows of x1 are for the rows of x2, as in PyTorch; `sorter` gives the positions
    that put x1 in order. Source: array API standard. Raises ShapeError for other shapes, ArgumentError for a `side`.

    >>> import hybridml as hm
    >>> hm.searchsorted(hm.tensor([1, 3, 3, 5]), hm.tensor([3, 0, 9])).tolist()
    [1, 0, 4]
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side is 'left' or 'right', got {side!r}")
    x1 = lifted(x1)
    if sorter is not None:
        x1 = _take_along.fn(x1, lifted(sorter), -1)
    return OPS["searchsorted"].fn(x1, _operand(x2), side == "right")


def _operand(x: Any) -> Any:
    """A number stays one: it takes the dtype of the sorted ones."""
    return x if isinstance(x, bool | int | float) else lifted(x)


def bucketize(input: Any, boundaries: Tensor, right: bool = False) -> Tensor:
    """The number of the bucket of each element: boundaries[i - 1] < element <= boundaries[i], and with `right`
    boundaries[i - 1] <= element < boundaries[i]. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.bucketize(hm.tensor([0.5, 1.0, 9.0]), hm.tensor([1.0, 2.0])).tolist()
    [0, 0, 2]
    """
    return searchsorted(boundaries, input, side="right" if right else "left")


@compiled_when_small
def digitize(x: Any, bins: Tensor, right: bool = False) -> Tensor:
    """The number of the bin of each element: bins[i - 1] <= element < bins[i], and with `right` the other way round;
    of descending bins bins[i - 1] > element >= bins[i]. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.digitize(hm.tensor([0.5, 1.0, 9.0]), hm.tensor([1.0, 2.0])).tolist()
    [0, 1, 2]
    """
    bins = lifted(bins)
    side = "left" if right else "right"
    if bins.numel() < 2:
        return searchsorted(bins, x, side=side)
    ascends = bins[0] <= bins[-1]
    found = searchsorted(_where.fn(ascends, bins, OPS["flip"].fn(bins)), x, side=side)
    return _where.fn(ascends, found, bins.numel() - found)


for _method in (argsort, bucketize, kthvalue, mode, msort, searchsorted, sort, topk):
    setattr(Tensor, _method.__name__, _method)

__all__ = [
    "argpartition", "argsort", "bucketize", "digitize", "kthvalue", "lexsort", "mode", "msort", "partition",
    "searchsorted", "sort", "top_k", "topk",
]  # fmt: skip
