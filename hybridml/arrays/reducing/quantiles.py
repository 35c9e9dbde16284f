"""Quantiles: `quantile`, `percentile`, `median` and those that leave NaN out. As NumPy's, compositions of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.table import OPS

from ...core import ops
from ...core.context import placed, trusted
from ...core.library import compiled_when_small
from ...core.tensor import Tensor
from ..elementwise import _floating
from ..searching.orders import argsort, sort
from ..shaping.manipulation import _tensor, expand_dims, moveaxis, squeeze
from .missing import present
from .statistics import axes_of, fitting_weights

_where, _isnan = OPS["where"], OPS["isnan"]

# Where between the sorted elements a quantile lies: n * q + alpha + q * (1 - alpha - beta) - 1.
# Source: Hyndman and Fan, Sample Quantiles in Statistical Packages (1996), and NumPy's names.
_PLACES = {
    "linear": (1.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0), "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8), "interpolated_inverted_cdf": (0.0, 1.0),
}  # fmt: skip
_METHODS = (
    *_PLACES, "lower", "higher", "nearest", "midpoint", "inverted_cdf", "averaged_inverted_cdf", "closest_observation",
)  # fmt: skip


@compiled_when_small
def quantile(
    x: Tensor, /, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False, weights: Any = None
) -> Tensor:
    """The values below which a share `q` (0 to 1; a number, or any shape, which comes first in the result) of the
    elements along an axis lies, between two of them by `method` (NumPy's names). NaN where one is NaN. `weights` of x's
    shape, or of its axis, say how much each element counts, with the method "inverted_cdf".

    Source: NumPy; methods as in Hyndman and Fan (1996). Raises ArgumentError, ShapeError for weights that do not fit.

    >>> import hybridml as hm
    >>> hm.quantile(hm.tensor([1.0, 2.0, 3.0, 4.0]), 0.5).item()
    2.5
    """
    return _quantile("quantile", x, q, axis, method, keepdims, weights, ignore=False)


@compiled_when_small
def nanquantile(
    x: Tensor, /, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False, weights: Any = None
) -> Tensor:
    """`quantile` of the elements that are not NaN; NaN where there is none.

    >>> import hybridml as hm
    >>> hm.nanquantile(hm.tensor([1.0, hm.nan, 3.0]), 0.5).item()
    2.0
    """
    return _quantile("nanquantile", x, q, axis, method, keepdims, weights, ignore=True)


@compiled_when_small
def percentile(
    x: Tensor, /, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False, weights: Any = None
) -> Tensor:
    """`quantile` of shares in percent.

    >>> import hybridml as hm
    >>> hm.percentile(hm.tensor([1.0, 2.0, 3.0]), 50).item()
    2.0
    """
    return _quantile("percentile", x, _share(q), axis, method, keepdims, weights, ignore=False)


@compiled_when_small
def nanpercentile(
    x: Tensor, /, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False, weights: Any = None
) -> Tensor:
    """`nanquantile` of shares in percent.

    >>> import hybridml as hm
    >>> hm.nanpercentile(hm.tensor([1.0, hm.nan, 3.0]), 50).item()
    2.0
    """
    return _quantile("nanpercentile", x, _share(q), axis, method, keepdims, weights, ignore=True)


def _share(q: Any) -> Any:
    return q / 100 if isinstance(q, Tensor | int | float) else np.asarray(q) / 100


def median(x: Tensor, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """The middle element along an axis, the mean of the two middle ones of an even number. NaN where one is NaN.

    Source: NumPy (PyTorch's gives the lower of the two).

    >>> import hybridml as hm
    >>> hm.median(hm.tensor([3.0, 1.0, 2.0, 4.0])).item()
    2.5
    """
    lines, back = _lines("median", x, axis, keepdims)
    n = lines.shape[-1]
    return back(_nan_if_any(lines, (lines[..., (n - 1) // 2] + lines[..., n // 2]) / 2))


def nanmedian(x: Tensor, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
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
    lines, back = _unsorted(name, _floating(x), axis, keepdims)
    return sort(lines, axis=-1), back


def _unsorted(name: str, x: Tensor, axis: Any, keepdims: bool) -> tuple[Tensor, Any]:
    axes = axes_of(name, x, axis)
    rest = tuple(k for k in range(x.ndim) if k not in axes)
    size = math.prod(x.shape[a] for a in axes)
    if not size:
        raise ShapeError(f"{name}: no elements along axis {axis} of shape {x.shape}")
    shape = tuple(x.shape[k] for k in rest)
    lines = ops.reshape(ops.permute_dims(x, (*rest, *axes)), (*shape, size))
    kept = tuple(1 if k in axes else n for k, n in enumerate(x.shape))

    def back(found: Tensor) -> Tensor:
        return ops.reshape(found, (*found.shape[: found.ndim - len(shape)], *kept)) if keepdims else found

    return lines, back


def _at(lines: Tensor, places: Tensor) -> Tensor:
    places = ops.broadcast_to(places.astype(dtypes.int64, copy=False), (*lines.shape[:-1], places.shape[-1]))
    return trusted(ops.take_along_axis(lines, places, axis=-1))


def _nan_if_any(lines: Tensor, found: Tensor) -> Tensor:
    """NaN where a line has one: they are sorted to its end."""
    return _where(_isnan(lines[..., -1]), math.nan, found)


@placed
def _quantile(name: str, x: Any, q: Any, axis: Any, method: str, keepdims: bool, weights: Any, ignore: bool) -> Tensor:
    if method not in _METHODS:
        raise ArgumentError(f"{name}: method must be one of {', '.join(_METHODS)}; got {method!r}")
    if not isinstance(q, Tensor) and not np.all((np.asarray(q) >= 0) & (np.asarray(q) <= 1)):
        raise ArgumentError(f"{name}: shares must lie in 0..{'100' if 'percent' in name else '1'}, got {q}")
    shares = q if isinstance(q, Tensor) else _tensor(np.asarray(q, dtypes.float64))
    line = ops.reshape(shares, (-1,))
    if weights is not None:
        lines, back, low = _weighted(name, x, line, axis, method, keepdims, weights, ignore)
        found = _at(lines, low)
    else:
        lines, back = _lines(name, x, axis, keepdims)
        n = expand_dims(present(lines, -1), -1) if ignore else lines.shape[-1]
        low, high, weight = _between(line, n, method)
        a, b, weight = _at(lines, low), _at(lines, high), weight.astype(lines.dtype, copy=False)
        apart = _where(ops.equal(a, b), 0.0, b - a)  # two equal infinities
        found = _where(weight < 0.5, a + apart * weight, b - apart * (1 - weight))  # monotonic, exact at both ends
    if not ignore:
        found = _where(_isnan(lines[..., -1:]), math.nan, found)
    found = moveaxis(found, -1, 0)
    return back(ops.reshape(found, (*shares.shape, *found.shape[1:])))


def _weighted(
    name: str, x: Any, q: Tensor, axis: Any, method: str, keepdims: bool, weights: Any, ignore: bool
) -> tuple[Tensor, Any, Tensor]:
    """Sorted lines, `back`, and where the running sum of the weights comes to each share of it."""
    if method != "inverted_cdf":
        raise ArgumentError(f"{name}: weights= is for method='inverted_cdf'; got {method!r}")
    x = _floating(x)
    lines, back = _unsorted(name, x, axis, keepdims)
    w, _ = _unsorted(name, fitting_weights(name, x, axis, weights), axis, keepdims)
    order = argsort(lines, axis=-1)
    lines, w = (ops.take_along_axis(t, order, axis=-1) for t in (lines, w))
    w = _where(_isnan(lines), 0, w) if ignore else w
    running = ops.cumulative_sum(w, axis=-1)
    share = ops.divide(running, running[..., -1:])
    low = ops.sum((expand_dims(share, -2) < expand_dims(q, -1)).astype(dtypes.int64), -1)
    last = ops.maximum(present(lines, -1, True) - 1, 0) if ignore else lines.shape[-1] - 1
    return lines, back, ops.minimum(low, last)


def _between(q: Tensor, n: Any, method: str) -> tuple[Tensor, Tensor, Tensor]:
    """The places of the two elements round each quantile of n sorted ones, and the weight of the second."""
    if method in _PLACES:
        alpha, beta = _PLACES[method]
        place = n * q + (alpha + q * (1 - alpha - beta)) - 1
    elif method in ("inverted_cdf", "averaged_inverted_cdf", "closest_observation"):
        place = n * q - (1.5 if method == "closest_observation" else 1)
    else:
        place = (n - 1) * q
    first = ops.floor(place)
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


__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]
