"""Elements without repetitions: unique and its kin, and `isin`. All of it is sorted, compared with neighbours and
counted, so that only the number of different elements is asked for in a trace.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ShapeError
from hybridml_compiler.ops.shapes import axis_index
from hybridml_compiler.ops.table import OPS

from ...core.context import placed
from ...core.library import compiled_when_small
from ...core.tensor import Tensor
from ..creation import asarray
from ..indexing.selecting import lifted, true_positions, waiting
from ..shaping.manipulation import concat, moveaxis

_take, _reshape, _full = OPS["take"], OPS["reshape"], OPS["full"]


class UniqueAll(NamedTuple):
    """Unique values, where each is first, which of them each element is, and how often each is there."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Unique values, and how often each is there."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Unique values, and which of them each element is."""

    values: Tensor
    inverse_indices: Tensor


class _Groups:
    """Rows in order, and where a new value begins among them."""

    def __init__(self, rows: Tensor, order: Tensor | None, equal_nan: bool) -> None:
        """`order`: positions of `rows` in what they were taken from; None where nothing is asked of it."""
        self.rows, self.order, self.n = rows, order, rows.shape[0]
        self.new = _full.fn(shape=(0,), value=True)
        if not self.n:
            return
        low, high = rows[: self.n - 1], rows[1:]
        differ: Tensor = OPS["not_equal"].fn(low, high)
        if equal_nan and rows.dtype.kind in "fcV":
            differ = differ & ((low == low) | (high == high))
        if differ.ndim > 1:
            differ = OPS["any"].fn(differ, tuple(range(1, differ.ndim)))
        self.new = concat([_full.fn(shape=(1,), value=True), differ])

    @cached_property
    def starts(self) -> Tensor:
        return true_positions(self.new, "unique()")

    @property
    def values(self) -> Tensor:
        return _take.fn(self.rows, self.starts, 0)

    @property
    def alone(self) -> Tensor:
        """The values, where nothing else is asked for: a trace lets them wait."""
        return waiting(self.rows, self.new, lambda rows, new: self.values)

    @property
    def indices(self) -> Tensor:
        return self.starts if self.order is None else _take.fn(self.order, self.starts, 0)

    @property
    def inverse(self) -> Tensor:
        if not self.n:
            return self.starts
        number = OPS["cumulative_sum"].fn(self.new, 0) - 1
        return number if self.order is None else OPS["scatter_set"].fn(number, self.order, number, 0)

    @property
    def counts(self) -> Tensor:
        ends = concat([self.starts, _full.fn(shape=(1,), value=self.n, dtype=dtypes.int64)])
        return ends[1:] - ends[: self.starts.shape[0]]


def _sorted(x: Tensor, equal_nan: bool = False, order: bool = True) -> _Groups:
    flat = _reshape.fn(x, (x.numel(),))
    if not order:
        return _Groups(OPS["sort"].fn(flat), None, equal_nan)
    places = OPS["argsort"].fn(flat)
    return _Groups(_take.fn(flat, places, 0), places, equal_nan)


@placed
def unique_all(x: Tensor, /) -> UniqueAll:
    """The different elements of x in ascending order, with where each is first (in the flattened x), which of them
    each element of x is, and how often each is there. Every nan is one of its own.

    Source: array API standard. A traced program asks for their number as a value.

    >>> import hybridml as hm
    >>> found = hm.unique_all(hm.tensor([3, 1, 3]))
    >>> [t.tolist() for t in found]
    [[1, 3], [1, 0], [1, 0, 1], [1, 2]]
    """
    x = lifted(x)
    found = _sorted(x)
    return UniqueAll(found.values, found.indices, _reshape.fn(found.inverse, x.shape), found.counts)


@placed
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different elements of x in ascending order, and how often each is there; see `unique_all`.

    >>> import hybridml as hm
    >>> hm.unique_counts(hm.tensor([3, 1, 3])).counts.tolist()
    [1, 2]
    """
    found = _sorted(lifted(x), order=False)
    return UniqueCounts(found.values, found.counts)


@placed
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different elements of x in ascending order, and which of them each element of x is; see `unique_all`.

    >>> import hybridml as hm
    >>> hm.unique_inverse(hm.tensor([[3, 1], [3, 3]])).inverse_indices.tolist()
    [[1, 0], [1, 1]]
    """
    x = lifted(x)
    found = _sorted(x)
    return UniqueInverse(found.values, _reshape.fn(found.inverse, x.shape))


@placed
def unique_values(x: Tensor, /) -> Tensor:
    """The different elements of x in ascending order; see `unique_all`.

    >>> import hybridml as hm
    >>> hm.unique_values(hm.tensor([3, 1, 3])).tolist()
    [1, 3]
    """
    return _sorted(lifted(x), order=False).alone


@placed
def unique(
    x: Tensor, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None, *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """The different elements of x, or with an `axis` its different slices, in ascending order.

    With `return_index`, `return_inverse` or `return_counts` a tuple, with these behind the values: where each is
    first, which of them each is (in the shape of x, or along `axis`), and how often each is there. All nan are one
    unless `equal_nan` is False. Source: NumPy and PyTorch. Traced, values alone wait until something needs them.

    >>> import hybridml as hm
    >>> hm.unique(hm.tensor([3, 1, 3]), return_counts=True)
    (Tensor([1, 3]), Tensor([1, 2]))
    >>> hm.unique(hm.tensor([[1, 2], [0, 2], [1, 2]]), axis=0).tolist()
    [[0, 2], [1, 2]]
    """
    x = lifted(x)
    if axis is None:
        found = _sorted(x, equal_nan, order=return_index or return_inverse)
        results = [found.values if return_index or return_inverse or return_counts else found.alone]
    else:
        k = axis_index("unique", axis, Aval(x.shape, x.dtype))
        rows = moveaxis(x, k, 0)
        if not x.numel():
            raise ShapeError(f"unique: {Aval(x.shape, x.dtype)} has no slices to compare along axis {axis}")
        keys = _reshape.fn(rows, (rows.shape[0], x.numel() // rows.shape[0]))
        order = OPS["lexsort"].fn(OPS["flip"].fn(OPS["permute_dims"].fn(keys), 0))
        found = _Groups(_take.fn(rows, order, 0), order, equal_nan)
        results = [moveaxis(found.values, 0, k)]
    if return_index:
        results.append(found.indices)
    if return_inverse:
        results.append(found.inverse if axis is not None else _reshape.fn(found.inverse, x.shape))
    if return_counts:
        results.append(found.counts)
    return results[0] if len(results) == 1 else tuple(results)


@placed
def unique_consecutive(x: Tensor, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The flattened x without elements that equal the one before; with `return_inverse` which of the result each
    element is, with `return_counts` how many each stands for. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.unique_consecutive(hm.tensor([1, 1, 3, 1])).tolist()
    [1, 3, 1]
    """
    x = lifted(x)
    found = _Groups(_reshape.fn(x, (x.size,)), None, False)
    results = [found.values]
    if return_inverse:
        results.append(_reshape.fn(found.inverse, x.shape))
    if return_counts:
        results.append(found.counts)
    return results[0] if len(results) == 1 else tuple(results)


@compiled_when_small
@placed
def isin(x: Any, elements: Any, /, *, invert: bool = False) -> Tensor:
    """Whether each element of x is among `elements` (with `invert`, whether it is not); nan is not.

    Source: NumPy, array API 2025. Dtypes are promoted.

    >>> import hybridml as hm
    >>> hm.isin(hm.tensor([1, 2, 3]), hm.tensor([3, 1])).tolist()
    [True, False, True]
    """
    x = x if isinstance(x, bool | int | float) else lifted(x)  # a number takes the dtype of the elements
    among = elements
    if isinstance(x, Tensor) and x.dtype.kind in "fV" and not isinstance(elements, Tensor | np.ndarray):
        among = asarray(elements, dtype=x.dtype)
    among = lifted(among)
    if not among.numel():
        return _full.fn(shape=x.shape if isinstance(x, Tensor) else (), value=invert, dtype=dtypes.bool_)
    ordered = OPS["sort"].fn(_reshape.fn(among, (among.numel(),)))
    place = OPS["minimum"].fn(OPS["searchsorted"].fn(ordered, x), among.numel() - 1)
    found = _take.fn(ordered, place, 0) == x
    return OPS["logical_not"].fn(found) if invert else found


for _method in (isin, unique, unique_consecutive):
    setattr(Tensor, _method.__name__, _method)

__all__ = [
    "isin", "unique", "unique_all", "unique_consecutive", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip
