"""Statistics of tensors: averages, covariances and histograms. As NumPy's, compositions of rows."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.table import OPS

from ...core import ops
from ...core.context import placed
from ...core.library import compiled_when_repeated
from ...core.precision.composites import in_float32
from ...core.tensor import Tensor
from ..elementwise import _floating
from ..indexing.segments import bincount
from ..searching.orders import searchsorted
from ..shaping.manipulation import _axis, _tensor, expand_dims, squeeze, stack

_where, _sum, _reshape, _isnan, _floor = (OPS[name] for name in ("where", "sum", "reshape", "isnan", "floor"))


def ptp(x: Tensor, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Greatest less least element along an axis ("peak to peak").

    >>> import hybridml as hm
    >>> hm.ptp(hm.tensor([1.0, 5.0, 2.0])).item()
    4.0
    """
    return ops.max(x, axis, keepdims) - ops.min(x, axis, keepdims)


@placed
def average(
    x: Tensor, /, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    """Mean with weights, of x's shape or of that of its `axis`; with `returned` also the sums of the weights.

    Source: NumPy. ShapeError where the weights do not fit.

    >>> import hybridml as hm
    >>> hm.average(hm.tensor([1.0, 3.0]), weights=hm.tensor([3.0, 1.0])).item()
    1.5
    """
    x = _floating(x)
    axes = axes_of("average", x, axis)
    w = (
        ops.full(shape=x.shape, value=1, dtype=x.dtype)
        if weights is None
        else fitting_weights("average", x, axis, weights)
    )
    mean = _weighted_mean(x, w, axes, keepdims)
    return (mean, _sum(w, axes, keepdims).astype(mean.dtype, copy=False)) if returned else mean


@in_float32
def _weighted_mean(x: Tensor, w: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    found: Tensor = ops.divide(_sum(x * w, axes, keepdims), _sum(w, axes, keepdims))
    return found


def axes_of(name: str, x: Tensor, axis: Any) -> tuple[int, ...]:
    """The axes that `axis` names, from 0; all of them for None."""
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(_axis(name, int(a), x.ndim, x) for a in (axis if isinstance(axis, tuple | list) else (axis,)))


def fitting_weights(name: str, x: Tensor, axis: Any, weights: Any) -> Tensor:
    """Weights of x's shape or of that of its axes, in x's shape."""
    w = _tensor(weights)
    if w.shape == x.shape:
        return w
    axes = axes_of(name, x, axis)
    if axis is None or w.shape != tuple(x.shape[a] for a in axes):
        raise ShapeError(f"{name}: weights of shape {w.shape} fit neither x, {x.shape}, nor its axis {axis}")
    w = ops.permute_dims(w, tuple(sorted(range(len(axes)), key=lambda k: axes[k])))
    w = _reshape(w, tuple(n if k in axes else 1 for k, n in enumerate(x.shape)))
    return ops.broadcast_to(w, x.shape)


# -- covariance


@in_float32
def cov(
    x: Tensor, y: Tensor | None = None, /, rowvar: bool = True, *, correction: float = 1, fweights: Any = None,
    aweights: Any = None,
) -> Tensor:  # fmt: skip
    """Covariance matrix of variables in the rows of x and y (columns if not `rowvar`), one observation per column.

    Divided by the number of observations less `correction`. `fweights`: how often each observation counts; `aweights`:
    how much. Source: NumPy and PyTorch. ShapeError for more than 2 axes.

    >>> import hybridml as hm
    >>> hm.cov(hm.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    x = _variables(x, rowvar)
    if y is not None:
        x = ops.concat([x, _variables(y, rowvar)], axis=0)
    weights: Any = 1
    for given in (fweights, aweights):
        if given is not None and _tensor(given).shape != x.shape[1:]:
            raise ShapeError(f"cov: weights must have shape {x.shape[1:]}, one an observation, got {given.shape}")
        weights = weights if given is None else _tensor(given) * weights
    total = _sum(weights) if isinstance(weights, Tensor) else x.shape[1]
    apart = x - _sum(x * weights, 1, True) / total
    weighted = apart * weights
    divisor = total - (correction if aweights is None else correction * _sum(weights * aweights) / total)
    other = apart if x.dtype.kind != "c" else ops.conj(apart)
    product = ops.matmul(weighted, ops.permute_dims(other, (1, 0)))
    if isinstance(divisor, Tensor):
        return squeeze(ops.divide(product, ops.maximum(divisor, 0)))
    return squeeze(product / max(divisor, 0) if divisor > 0 else product * math.inf)


def _variables(x: Any, rowvar: bool) -> Tensor:
    x = _floating(x)
    if x.ndim > 2:
        raise ShapeError(f"cov: needs at most 2 axes, got shape {x.shape}")
    x = _reshape(x, (1,) * (2 - x.ndim) + x.shape)
    return x if rowvar or x.shape[0] == 1 else ops.permute_dims(x, (1, 0))


@in_float32
def corrcoef(x: Tensor, y: Tensor | None = None, /, rowvar: bool = True) -> Tensor:
    """Pearson's correlation coefficients of variables in the rows of x and y, within -1..1; see `cov`. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.corrcoef(hm.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    c = cov(x, y, rowvar=rowvar)
    if c.ndim == 0:
        return c / c
    spread = ops.sqrt(ops.diagonal(c))
    found = c / expand_dims(spread, 1) / expand_dims(spread, 0)
    return found if found.dtype.kind == "c" else ops.clip(found, -1.0, 1.0)


# -- histograms


@placed
def histogram_bin_edges(
    x: Tensor, /, bins: Any = 10, range: Sequence[Any] | None = None, weights: Any = None
) -> Tensor:
    """The edges of a histogram's bins: `bins` of equal width over `range` (x's), or the given ones, or by one of
    NumPy's rules ("auto", "sturges", ...), which looks at the values (a traced function asks for them).

    >>> import hybridml as hm
    >>> hm.histogram_bin_edges(hm.tensor([1.0, 5.0]), 2).tolist()
    [1.0, 3.0, 5.0]
    """
    if isinstance(bins, str):
        bounds: Any = range
        return _tensor(np.histogram_bin_edges(np.asarray(_tensor(x).detach()), bins, bounds, weights))
    x = _reshape(_tensor(x), (-1,))
    if not isinstance(bins, int | np.integer):
        edges = _tensor(bins)
        if edges.ndim != 1:
            raise ShapeError(f"histogram: edges of bins must have one axis, got shape {edges.shape}")
        return edges
    if bins < 1:
        raise ArgumentError(f"histogram: needs at least one bin, got {bins}")
    x = _floating(x)
    if range is not None:
        low, high = (ops.full(shape=(), value=b, dtype=x.dtype) if not isinstance(b, Tensor) else b for b in range)
    elif x.numel():
        low, high = ops.min(x), ops.max(x)
    else:
        low, high = (ops.full(shape=(), value=b, dtype=x.dtype) for b in (0.0, 1.0))
    flat = ops.equal(low, high)
    low, high = _where(flat, low - 0.5, low), _where(flat, high + 0.5, high)
    steps = ops.arange(start=0, stop=int(bins) + 1, step=1, dtype=low.dtype)
    edges = low + steps * ((high - low) / int(bins))
    return ops.concat([edges[:-1], expand_dims(high, 0)], axis=0)


@compiled_when_repeated
def histogram(
    x: Tensor, /, bins: Any = 10, range: Sequence[Any] | None = None, density: bool | None = None, weights: Any = None
) -> tuple[Tensor, Tensor]:
    """Numbers of elements of x, flattened, in each bin (sums of weights with `weights`), and the edges of the bins.

    The last bin includes its upper edge. `density`: divided by the number and by the bins' widths. Source: NumPy.

    >>> import hybridml as hm
    >>> [t.tolist() for t in hm.histogram(hm.tensor([1.0, 2.0, 2.5, 5.0]), 2)]
    [[3, 1], [1.0, 3.0, 5.0]]
    """
    edges = histogram_bin_edges(x, bins, range)
    counts, _ = histogramdd(_reshape(_tensor(x), (-1, 1)), [edges], weights=None if weights is None else _flat(weights))
    counts = counts if weights is not None else counts.astype(dtypes.int64)
    if not density:
        return counts, edges
    return counts / ((edges[1:] - edges[:-1]) * _sum(counts)), edges


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Numbers of elements of x in each of `bins` bins of equal width from `min` to `max`, in x's float dtype.

    Others are not counted; where min and max are equal, the bins are between x's own. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.histc(hm.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3).tolist()
    [0.0, 2.0, 1.0, 0.0]
    """
    x = _floating(x)
    return histogram(x, bins, None if min == max else (min, max))[0].astype(x.dtype)


def _flat(x: Any) -> Tensor:
    return _reshape(_tensor(x), (-1,))


@compiled_when_repeated
@placed
def histogramdd(
    sample: Any, /, bins: Any = 10, range: Sequence[Any] | None = None, density: bool | None = None, weights: Any = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Histogram of points with several coordinates, a row each (or a sequence of the coordinates); and all edges.

    Source: NumPy.

    >>> import hybridml as hm
    >>> hm.histogramdd(hm.tensor([[0.0, 0.0], [1.0, 1.0]]), 2)[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if not isinstance(sample, Tensor | np.ndarray):
        sample = stack([_flat(x) for x in sample], axis=1)
    x = _tensor(sample)
    x = _reshape(x, (-1, 1)) if x.ndim == 1 else x
    n = x.shape[1]
    each = [bins] * n if isinstance(bins, int | np.integer) else list(bins)
    ranges = [None] * n if range is None else list(range)
    if len(each) != n or len(ranges) != n:
        raise ShapeError(f"histogramdd: {len(each)} bins and {len(ranges)} ranges for {n} coordinates")
    columns = [x[:, k] for k in builtins.range(n)]
    edges = [histogram_bin_edges(*both) for both in zip(columns, each, ranges, strict=True)]
    sizes = [e.shape[0] - 1 for e in edges]
    place, inside = ops.full(shape=(), value=0, dtype=dtypes.int64), ops.full(shape=(), value=True)
    for column, edge, size in zip(columns, edges, sizes, strict=True):
        column = column.astype(edge.dtype, copy=False)
        found = searchsorted(edge, column, side="right") - 1
        found = _where(ops.equal(column, edge[-1]), size - 1, found)
        inside = inside & (found >= 0) & (found < size)
        place = place * size + found
    total = math.prod(sizes)
    place = _where(inside, place, total)
    counts = bincount(place, weights=None if weights is None else _tensor(weights), length=total)
    counts = _reshape(counts if weights is not None else counts.astype(dtypes.float64), tuple(sizes))
    if density:
        counts = counts / _sum(counts)
        for k, edge in enumerate(edges):
            counts = counts / _reshape(edge[1:] - edge[:-1], tuple(-1 if j == k else 1 for j in builtins.range(n)))
    return counts, tuple(edges)


def histogram2d(
    x: Tensor, y: Tensor, /, bins: Any = 10, range: Sequence[Any] | None = None, density: bool | None = None,
    weights: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Histogram of points (x, y), the edges along x and those along y. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.histogram2d(hm.tensor([0.0, 1.0]), hm.tensor([0.0, 1.0]), 2)[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    single = isinstance(bins, Tensor | np.ndarray) or (isinstance(bins, list | tuple) and len(bins) not in (1, 2))
    counts, (first, second) = histogramdd([x, y], [bins, bins] if single else bins, range, density, weights)
    return counts, first, second


__all__ = [
    "average", "corrcoef", "cov", "histc", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd", "ptp",
]  # fmt: skip
