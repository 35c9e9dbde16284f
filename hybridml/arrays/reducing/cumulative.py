"""Functions along an axis: cumulative sums, products, extremes and log-sums, and differences of neighbours."""

from __future__ import annotations

from typing import Any, NamedTuple

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.cumulative import linear_recurrence, running_places
from hybridml_compiler.ops.shapes import axis_index
from hybridml_compiler.ops.table import OPS

from ...core.context import placed
from ...core.tensor import Tensor
from ..indexing.selecting import lifted
from ..shaping.manipulation import concat

_where, _slice = OPS["where"], OPS["slice"]


class Extremes(NamedTuple):
    """Values, and where they were found."""

    values: Tensor
    indices: Tensor


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False, reverse: bool = False
) -> Tensor:
    """Running sum along `axis`, which a tensor of one axis need not name (ShapeError for others).

    With `include_initial` it begins with the empty sum, 0, and is one longer; `reverse` sums from the end. Integers
    and bool are summed in 64 bits, floats in their dtype, or all in `dtype`. Source: array API standard.

    >>> import hybridml as hm
    >>> hm.cumulative_sum(hm.tensor([1, 2, 3]), include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    return _accumulated("cumulative_sum", 0, x, axis, dtype, include_initial, reverse)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False, reverse: bool = False
) -> Tensor:
    """Running product along `axis`; parameters and dtypes as `cumulative_sum`. Gradients at zeros are exact.

    >>> import hybridml as hm
    >>> hm.cumulative_prod(hm.tensor([1.0, 2.0, 3.0])).tolist()
    [1.0, 2.0, 6.0]
    """
    return _accumulated("cumulative_prod", 1, x, axis, dtype, include_initial, reverse)


@placed
def _accumulated(name: str, first: int, x: Any, axis: Any, dtype: Any, initial: bool, reverse: bool) -> Tensor:
    found: Tensor = OPS[name].fn(lifted(x), axis, reverse, dtype)
    if not initial:
        return found
    k = axis_index(name, 0 if axis is None else axis, Aval(found.shape, found.dtype))
    shape = tuple(1 if j == k else n for j, n in enumerate(found.shape))
    start = OPS["full"].fn(shape=shape, value=first, dtype=found.dtype)
    return concat([found, start] if reverse else [start, found], axis=k)


def cumsum(x: Tensor, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Running sum along `axis`, of the flattened tensor without one. Source: NumPy; dtypes as `cumulative_sum`.

    >>> import hybridml as hm
    >>> hm.cumsum(hm.tensor([[1, 2], [3, 4]]), 0).tolist()
    [[1, 2], [4, 6]]
    """
    x, axis = _flat(x, axis)
    return OPS["cumulative_sum"].fn(x, axis, False, dtype)


def cumprod(x: Tensor, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Running product along `axis`, of the flattened tensor without one. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.cumprod(hm.tensor([[1, 2], [3, 4]])).tolist()
    [1, 2, 6, 24]
    """
    x, axis = _flat(x, axis)
    return OPS["cumulative_prod"].fn(x, axis, False, dtype)


def _flat(x: Any, axis: int | None) -> tuple[Tensor, int]:
    x = lifted(x)
    return (OPS["reshape"].fn(x, (x.numel(),)), 0) if axis is None else (x, axis)


def cummax(x: Tensor, axis: int = -1) -> Extremes:
    """Running maximum along `axis`, as (values, indices); of equal elements, and of nans, the last is named.

    Source: PyTorch. The gradient goes to the element that is named.

    >>> import hybridml as hm
    >>> found = hm.cummax(hm.tensor([1.0, 3.0, 2.0, 3.0]))
    >>> found.values.tolist(), found.indices.tolist()
    ([1.0, 3.0, 3.0, 3.0], [0, 1, 1, 3])
    """
    return _extremes("max", x, axis)


def cummin(x: Tensor, axis: int = -1) -> Extremes:
    """Running minimum along `axis`, as (values, indices); see `cummax`.

    >>> import hybridml as hm
    >>> hm.cummin(hm.tensor([3.0, 1.0, 2.0])).indices.tolist()
    [0, 1, 1]
    """
    return _extremes("min", x, axis)


@placed
def _extremes(which: str, x: Any, axis: int) -> Extremes:
    x = lifted(x)
    k = axis_index(f"cum{which}", axis, Aval(x.shape, x.dtype))
    values = OPS[f"cumulative_{which}"].fn(x, k)
    if not x.numel():
        return Extremes(values, OPS["full"].fn(shape=x.shape, value=0, dtype=dtypes.int64))
    return Extremes(values, running_places(x.detach(), values.detach(), k, False))


def logcumsumexp(x: Tensor, axis: int = -1) -> Tensor:
    """log of the running sum of exp(x) along `axis`, without overflow, in x's float dtype.

    Source: PyTorch. With m the running maximum, the sums of exp(x_j - m_i) obey s_i = s_(i-1) exp(m_(i-1) - m_i) +
    exp(x_i - m_i), a linear recurrence whose factors are at most 1.

    >>> import hybridml as hm
    >>> hm.logcumsumexp(hm.tensor([1000.0, 1000.0, -hm.inf])).tolist()
    [1000.0, 1000.693..., 1000.693...]
    """
    x = lifted(x)
    if x.dtype.kind not in "fcV":
        x = OPS["astype"].fn(x, dtypes.default_float())
    k = axis_index("logcumsumexp", axis, Aval(x.shape, x.dtype))
    if not x.numel():
        return OPS["positive"].fn(x)
    top = OPS["cumulative_max"].fn(OPS["real"].fn(x.detach()), k)
    endless = OPS["isinf"].fn(top)
    level = _where.fn(endless, 0.0, top)
    before = concat([_part(top, k, 0, 1), _part(top, k, 0, -1)], axis=k)
    kept = _where.fn(endless, 1.0, OPS["exp"].fn(before - level))
    sums = linear_recurrence(kept, OPS["exp"].fn(x - level), k)
    empty = sums == 0
    return _where.fn(empty, -float("inf"), OPS["log"].fn(_where.fn(empty, 1.0, sums)) + level)


def _part(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    return x[(slice(None),) * axis + (slice(start, stop),)]


def diff(x: Tensor, /, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Differences of neighbours along `axis`, taken `n` times; the axis gets n shorter. Of bool: whether they differ.

    `prepend` and `append` are tensors, or numbers, that are put before and behind x first. Source: array API standard.
    ArgumentError for a negative n, ShapeError for a tensor without axes.

    >>> import hybridml as hm
    >>> hm.diff(hm.tensor([1, 4, 9, 16])).tolist(), hm.diff(hm.tensor([1, 4, 9, 16]), n=2).tolist()
    ([3, 5, 7], [2, 2])
    """
    x = lifted(x)
    if n < 0:
        raise ArgumentError(f"diff: n must be 0 or more, got {n}")
    if not x.ndim:
        raise ShapeError("diff: a tensor without axes has no neighbours; reshape it to (1,)")
    k = axis_index("diff", axis, Aval(x.shape, x.dtype))
    ends = [end if end is None else _end(end, x, k) for end in (prepend, append)]
    if ends != [None, None]:
        x = concat([part for part in (ends[0], x, ends[1]) if part is not None], axis=k)
    row = OPS["not_equal"] if x.dtype.kind == "b" else OPS["subtract"]
    for _ in range(n):
        if x.shape[k] == 0:
            break
        x = row.fn(_part(x, k, 1, x.shape[k]), _part(x, k, 0, x.shape[k] - 1))
    return x


def _end(value: Any, x: Tensor, axis: int) -> Tensor:
    """Slice that is put at an end: a tensor as it is, a number with x's other sizes."""
    t = lifted(value)
    if t.ndim:
        return t
    if not isinstance(value, Tensor):
        t = OPS["astype"].fn(t, x.dtype)
    return OPS["broadcast_to"].fn(t, tuple(1 if j == axis else m for j, m in enumerate(x.shape)))


for _method in (cummax, cummin, cumprod, cumsum, diff, logcumsumexp):
    setattr(Tensor, _method.__name__, _method)

__all__ = [
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diff", "logcumsumexp",
]  # fmt: skip
