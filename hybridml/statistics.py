"""Statistics of tensors: averages, quantiles, covariances and histograms. As NumPy's, compositions of rows."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.table import OPS

from . import ops
from .elementwise import _floating
from .manipulation import _axis, _tensor, expand_dims, moveaxis, squeeze, stack
from .missing import present
from .tensor import Tensor

_where, _sum, _reshape, _isnan, _floor = (OPS[name] for name in ("where", "sum", "reshape", "isnan", "floor"))


def ptp(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Greatest less least element along an axis ("peak to peak").

    >>> import hybridml as hm
    >>> hm.ptp(hm.tensor([1.0, 5.0, 2.0])).item()
    4.0
    """
    return ops.max(x, axis, keepdims) - ops.min(x, axis, keepdims)


def average(
    x: Tensor, /, *, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """Mean with weights, of x's shape or of that of its `axis`; with `returned` also the sums of the weights.

    Source: NumPy. ShapeError where the weights do not fit.

    >>> import hybridml as hm
    >>> hm.average(hm.tensor([1.0, 3.0]), weights=hm.tensor([3.0, 1.0])).item()
    1.5
    """
    x = _floating(x)
    axes = _axes("average", x, axis)
    w = ops.full(shape=(), value=1, dtype=x.dtype) if weights is None else _tensor(weights)
    if weights is not None and w.shape != x.shape:
        if axis is None or w.shape != tuple(x.shape[a] for a in axes):
            raise ShapeError(f"average: weights of shape {w.shape} fit neither x, {x.shape}, nor its axis {axis}")
        order = sorted(range(len(axes)), key=lambda k: axes[k])
        w = ops.permute_dims(w, tuple(order))
        w = _reshape(w, tuple(n if k in axes else 1 for k, n in enumerate(x.shape)))
    w = ops.broadcast_to(w, x.shape)
    total = _sum(w, axes, keepdims)
    mean = ops.divide(_sum(x * w, axes, keepdims), total)
    return (mean, total.astype(mean.dtype, copy=False)) if returned else mean


def _axes(name: str, x: Tensor, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(_axis(name, int(a), x.ndim, x) for a in (axis if isinstance(axis, tuple | list) else (axis,)))


# -- quantiles

# Where between the sorted elements a quantile lies: n * q + alpha + q * (1 - alpha - beta) - 1.
# Source: Hyndman and Fan, Sample Quantiles in Statistical Packages (1996), and NumPy's names.
_PLACES = {
    "linear": (1.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0), "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8), "interpolated_inverted_cdf": (0.0, 1.0),
}  # fmt: skip
_METHODS = (
    *_PLACES, "lower", "higher", "nearest", "midpoint", "inverted_cdf", "averaged_inverted_cdf", "closest_observation",
)  # fmt: skip


def quantile(x: Tensor, q: Any, /, *, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """The values below which a share `q` (0 to 1; a number, or any shape, which comes first in the result) of the
    elements along an axis lies, between two of them by `method` (NumPy's names). NaN where one is NaN.

    Source: NumPy; methods as in Hyndman and Fan (1996). Raises ArgumentError.

    >>> import hybridml as hm
    >>> hm.quantile(hm.tensor([1.0, 2.0, 3.0, 4.0]), 0.5).item()
    2.5
    """
    return _quantile("quantile", x, q, axis, method, keepdims, ignore=False)


def nanquantile(x: Tensor, q: Any, /, *, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """`quantile` of the elements that are not NaN; NaN where there is none.

    >>> import hybridml as hm
    >>> hm.nanquantile(hm.tensor([1.0, hm.nan, 3.0]), 0.5).item()
    2.0
    """
    return _quantile("nanquantile", x, q, axis, method, keepdims, ignore=True)


def percentile(x: Tensor, q: Any, /, *, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """`quantile` of shares in percent.

    >>> import hybridml as hm
    >>> hm.percentile(hm.tensor([1.0, 2.0, 3.0]), 50).item()
    2.0
    """
    return _quantile("percentile", x, _share(q), axis, method, keepdims, ignore=False)


def nanpercentile(x: Tensor, q: Any, /, *, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """`nanquantile` of shares in percent.

    >>> import hybridml as hm
    >>> hm.nanpercentile(hm.tensor([1.0, hm.nan, 3.0]), 50).item()
    2.0
    """
    return _quantile("nanpercentile", x, _share(q), axis, method, keepdims, ignore=True)


def _share(q: Any) -> Any:
    return q / 100 if isinstance(q, Tensor | int | float) else np.asarray(q) / 100


def median(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The middle element along an axis, the mean of the two middle ones of an even number. NaN where one is NaN.

    Source: NumPy (PyTorch's gives the lower of the two).

    >>> import hybridml as hm
    >>> hm.median(hm.tensor([3.0, 1.0, 2.0, 4.0])).item()
    2.5
    """
    lines, back = _lines("median", x, axis, keepdims)
    n = lines.shape[-1]
    return back(_nan_if_any(lines, (lines[..., (n - 1) // 2] + lines[..., n // 2]) / 2))


def nanmedian(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """`median` of the elements that are not NaN; NaN where there is none.

    >>> import hybridml as hm
    >>> hm.nanmedian(hm.tensor([3.0, hm.nan, 1.0])).item()
    2.0
    """
    lines, back = _lines("nanmedian", x, axis, keepdims)
    n = present(lines, -1)
    last = ops.maximum(n - 1, 0)
    low, high = _at(lines, expand_dims(last // 2, -1)), _at(lines, expand_dims((last + 1) // 2, -1))
    return back(squeeze((low + high) / 2, -1))


def _lines(name: str, x: Any, axis: Any, keepdims: bool) -> tuple[Tensor, Any]:
    """x sorted along one last axis in the place of `axis`, and what gives results of lines the shape asked for."""
    from .sorting import sort

    x = _floating(x)
    axes = _axes(name, x, axis)
    rest = tuple(k for k in range(x.ndim) if k not in axes)
    size = math.prod(x.shape[a] for a in axes)
    if not size:
        raise ShapeError(f"{name}: no elements along axis {axis} of shape {x.shape}")
    shape = tuple(x.shape[k] for k in rest)
    lines = sort(_reshape(ops.permute_dims(x, (*rest, *axes)), (*shape, size)), axis=-1)
    kept = tuple(1 if k in axes else n for k, n in enumerate(x.shape))

    def back(found: Tensor) -> Tensor:
        return _reshape(found, (*found.shape[: found.ndim - len(shape)], *kept)) if keepdims else found

    return lines, back


def _at(lines: Tensor, places: Tensor) -> Tensor:
    places = ops.broadcast_to(places.astype(dtypes.int64, copy=False), (*lines.shape[:-1], places.shape[-1]))
    return ops.take_along_axis(lines, places, axis=-1)


def _nan_if_any(lines: Tensor, found: Tensor) -> Tensor:
    """NaN where a line has one: they are sorted to its end."""
    return _where(_isnan(lines[..., -1]), math.nan, found)


def _quantile(name: str, x: Any, q: Any, axis: Any, method: str, keepdims: bool, ignore: bool) -> Tensor:
    if method not in _METHODS:
        raise ArgumentError(f"{name}: method must be one of {', '.join(_METHODS)}; got {method!r}")
    if not isinstance(q, Tensor) and not np.all((np.asarray(q) >= 0) & (np.asarray(q) <= 1)):
        raise ArgumentError(f"{name}: shares must lie in 0..{'100' if 'percent' in name else '1'}, got {q}")
    lines, back = _lines(name, x, axis, keepdims)
    shares = _tensor(np.asarray(q, dtypes.float64)) if not isinstance(q, Tensor) else q
    n = expand_dims(present(lines, -1), -1) if ignore else lines.shape[-1]
    low, high, weight = _between(_reshape(shares, (-1,)), n, method)
    a, b = _at(lines, low), _at(lines, high)
    weight = weight.astype(lines.dtype, copy=False)
    apart = _where(ops.equal(a, b), 0.0, b - a)  # two equal infinities
    found = _where(weight < 0.5, a + apart * weight, b - apart * (1 - weight))  # monotonic, and exact at both ends
    if not ignore:
        found = _where(_isnan(lines[..., -1:]), math.nan, found)
    found = moveaxis(found, -1, 0)
    return back(_reshape(found, (*shares.shape, *found.shape[1:])))


def _between(q: Tensor, n: Any, method: str) -> tuple[Tensor, Tensor, Tensor]:
    """The places of the two elements round each quantile of n sorted ones, and the weight of the second."""
    if method in _PLACES:
        alpha, beta = _PLACES[method]
        place = n * q + (alpha + q * (1 - alpha - beta)) - 1
    elif method in ("inverted_cdf", "averaged_inverted_cdf", "closest_observation"):
        place = n * q - (1.5 if method == "closest_observation" else 1)
    else:
        place = (n - 1) * q
    first = _floor(place)
    weight = place - first
    match method:
        case "lower":
            weight = weight * 0
        case "higher" | "inverted_cdf":
            weight = ops.ceil(weight)
        case "nearest":
            weight = ops.round(place) - first
        case "midpoint":
            weight = _where(weight > 0, 0.5, weight)
        case "averaged_inverted_cdf":
            weight = _where(weight > 0, 1.0, weight * 0 + 0.5)
        case "closest_observation":
            weight = _where((weight > 0) | (first % 2 == 0), 1.0, weight)
    last = ops.maximum(n - 1, 0) if isinstance(n, Tensor) else n - 1
    low, high = (ops.minimum(ops.maximum(p, 0), last) for p in (first, first + 1))
    return low.astype(dtypes.int64), high.astype(dtypes.int64), weight


# -- covariance


def cov(
    x: Tensor, y: Tensor | None = None, /, *, rowvar: bool = True, correction: float = 1, fweights: Any = None,
    aweights: Any = None,
) -> Tensor:  # fmt: skip
    """Covariance matrix of variables in the rows of x and y (in the columns if not `rowvar`), one observation a column.

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


def corrcoef(x: Tensor, y: Tensor | None = None, /, *, rowvar: bool = True) -> Tensor:
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
    elif x.size:
        low, high = ops.min(x), ops.max(x)
    else:
        low, high = (ops.full(shape=(), value=b, dtype=x.dtype) for b in (0.0, 1.0))
    flat = ops.equal(low, high)
    low, high = _where(flat, low - 0.5, low), _where(flat, high + 0.5, high)
    steps = ops.arange(start=0, stop=int(bins) + 1, step=1, dtype=low.dtype)
    edges = low + steps * ((high - low) / int(bins))
    return ops.concat([edges[:-1], expand_dims(high, 0)], axis=0)


def histogram(
    x: Tensor, /, bins: Any = 10, range: Sequence[Any] | None = None, density: bool | None = None, weights: Any = None
) -> tuple[Tensor, Tensor]:
    """How many elements of x, flattened, lie in each bin (a sum of weights with `weights`), and the edges of the bins.

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


def _flat(x: Any) -> Tensor:
    return _reshape(_tensor(x), (-1,))


def histogramdd(
    sample: Any, /, bins: Any = 10, range: Sequence[Any] | None = None, density: bool | None = None, weights: Any = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Histogram of points with several coordinates, a row each (or a sequence of the coordinates); and all edges.

    Source: NumPy.

    >>> import hybridml as hm
    >>> hm.histogramdd(hm.tensor([[0.0, 0.0], [1.0, 1.0]]), 2)[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    from .segments import bincount
    from .sorting import searchsorted

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
    w = ops.full(shape=place.shape, value=1.0, dtype=dtypes.float64) if weights is None else _tensor(weights)
    counts = _reshape(bincount(place, weights=w, minlength=total + 1)[:total], tuple(sizes))
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
    "average", "corrcoef", "cov", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd", "median",
    "nanmedian", "nanpercentile", "nanquantile", "percentile", "ptp", "quantile",
]  # fmt: skip
