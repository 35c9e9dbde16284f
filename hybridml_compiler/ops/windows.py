"""Sliding windows and their adjoint: two rows that turn convolution and pooling into contractions and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..aval import Aval
from ..errors import ArgumentError, ShapeError
from .indexing import Index, Load, Scalar, all_of
from .op import REQUIRED, Op
from .samples import cases, fails
from .shapes import Shape, integers


def _lengths(name: str, what: str, value: Any, n: int) -> Shape:
    found = (1,) * n if value is None else integers(name, what, value, n)
    if any(v < 1 for v in found):
        raise ArgumentError(f"{name}: {what} must be 1 or more at every axis, got {found}")
    return found


def positions(n: int, size: int, stride: int, dilation: int) -> int:
    """Number of windows along an axis of n elements; 0 or less when none fits."""
    return (n - (size - 1) * dilation - 1) // stride + 1


def _windows_params(x: Aval | Shape, size: Any, stride: Any, dilation: Any) -> tuple[Shape, Shape, Shape]:
    shape = x.shape if isinstance(x, Aval) else x
    sizes = _lengths("windows", "size", size, len(integers("windows", "size", size)))
    n = len(sizes)
    if n > len(shape):
        raise ShapeError(f"windows: {n} window sizes {sizes} for {x}; give at most one for each of its axes")
    strides, dilations = _lengths("windows", "stride", stride, n), _lengths("windows", "dilation", dilation, n)
    tail = shape[len(shape) - n :]
    if any(m < (k - 1) * d + 1 for m, k, d in zip(tail, sizes, dilations, strict=True)):
        raise ShapeError(
            f"windows: a window of {sizes} with dilation {dilations} does not fit into axes {tail} of {x}; "
            "pad the input or use a smaller window"
        )
    return sizes, strides, dilations


def _windows_canon(x: Aval, size: Any, stride: Any, dilation: Any) -> dict[str, Any]:
    return dict(zip(("size", "stride", "dilation"), _windows_params(x, size, stride, dilation), strict=True))


def _windows_infer(x: Aval, size: Any, stride: Any, dilation: Any) -> Aval:
    sizes, strides, dilations = _windows_params(x, size, stride, dilation)
    lead = x.ndim - len(sizes)
    return Aval((*x.shape[:lead], *map(positions, x.shape[lead:], sizes, strides, dilations), *sizes), x.dtype)


def _windows_eager(x: np.ndarray, size: Any, stride: Any, dilation: Any) -> np.ndarray:
    sizes, strides, dilations = _windows_params(x.shape, size, stride, dilation)
    n = len(sizes)
    spans = tuple((k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=True))
    every = sliding_window_view(x, spans, tuple(range(x.ndim - n, x.ndim)))
    steps: Any = (..., *(slice(None, None, step) for step in (*strides, *dilations)))
    found: np.ndarray = every[steps]
    return found


def _windows_lower(s: Any, i: Index, x: Load, size: Shape, stride: Shape, dilation: Shape) -> Scalar:
    n, lead = len(size), len(x.shape) - len(size)
    places = (
        s.add(s.mul(o, step), s.mul(k, d))
        for o, k, step, d in zip(i[lead : lead + n], i[lead + n :], stride, dilation, strict=True)
    )
    return x((*i[:lead], *places))


windows = Op(
    "windows",
    "movement",
    inputs=("x",),
    params={"size": REQUIRED, "stride": None, "dilation": None},
    canon=_windows_canon,
    infer=_windows_infer,
    eager=_windows_eager,
    lower=_windows_lower,
    vjp=(
        lambda g, x_shape, size, stride, dilation: fold_windows(
            g, shape=x_shape[len(x_shape) - len(integers("windows", "size", size)) :], stride=stride, dilation=dilation
        ),
    ),
    samples=cases(
        ([(2, 5, 6)], {"size": (3, 2)}),
        ([(7, 8)], {"size": (2, 3), "stride": (3, 2), "dilation": (2, 1)}),
        ([(3, 10)], {"size": (3,), "stride": 2, "dilation": 2}),
        ([(0, 4)], {"size": (2,)}),
        ([(4,)], {"size": 4}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "windows: a window of (4,)", (2, 3), size=(4,)),
        fails(ShapeError, "windows: 2 window sizes", (3,), size=(1, 1)),
        fails(ArgumentError, "windows: stride must be 1 or more", (3,), size=(1,), stride=(0,)),
    ),
    doc="Windows over the trailing axes: (..., H, W) to (..., Ho, Wo, kh, kw), element x[..., o*stride + k*dilation]. "
    "Only whole windows, as the 'valid' convolution; pad first for others.",
)


def _fold_params(x: Aval | Shape, shape: Any, stride: Any, dilation: Any) -> tuple[Shape, Shape, Shape]:
    got = x.shape if isinstance(x, Aval) else x
    sizes = _lengths("fold_windows", "shape", shape, len(integers("fold_windows", "shape", shape)))
    n = len(sizes)
    strides, dilations = (
        _lengths("fold_windows", "stride", stride, n),
        _lengths("fold_windows", "dilation", dilation, n),
    )
    if len(got) < 2 * n:
        raise ShapeError(f"fold_windows: {x} has no window axes for shape {sizes}; it needs {2 * n} trailing axes")
    expected = tuple(map(positions, sizes, got[len(got) - n :], strides, dilations))
    if expected != got[len(got) - 2 * n : len(got) - n]:
        raise ShapeError(
            f"fold_windows: {x} does not hold the windows of shape {sizes} with stride {strides} and dilation "
            f"{dilations}: there are {expected} of them; give the shape that `windows` was taken from"
        )
    return sizes, strides, dilations


def _fold_canon(x: Aval, shape: Any, stride: Any, dilation: Any) -> dict[str, Any]:
    return dict(zip(("shape", "stride", "dilation"), _fold_params(x, shape, stride, dilation), strict=True))


def _fold_infer(x: Aval, shape: Any, stride: Any, dilation: Any) -> Aval:
    sizes, _, _ = _fold_params(x, shape, stride, dilation)
    return Aval((*x.shape[: x.ndim - 2 * len(sizes)], *sizes), x.dtype)


def _fold_eager(x: np.ndarray, shape: Any, stride: Any, dilation: Any) -> np.ndarray:
    sizes, strides, dilations = _fold_params(x.shape, shape, stride, dilation)
    n = len(sizes)
    out = np.zeros((*x.shape[: x.ndim - 2 * n], *sizes), x.dtype)
    counts = x.shape[x.ndim - 2 * n : x.ndim - n]
    for k in np.ndindex(x.shape[x.ndim - n :]):
        spans = zip(k, dilations, counts, strides, strict=True)
        target: Any = (..., *(slice(o * d, o * d + (c - 1) * step + 1, step) for o, d, c, step in spans))
        source: Any = (..., *k)
        out[target] += x[source]
    return out


def _fold_lower(s: Any, i: Index, x: Load, shape: Shape, stride: Shape, dilation: Shape) -> Scalar:
    n = len(shape)
    lead = len(x.shape) - 2 * n
    counts, sizes = x.shape[lead : lead + n], x.shape[lead + n :]
    # Windows that do not overlap along an axis have one candidate there: no sum, as in the gradient of most pooling.
    summed = [k for k in range(n) if stride[k] < sizes[k] or dilation[k] > 1]

    def along(h: Scalar, k: int, part: Scalar | None) -> tuple[list[Scalar], Scalar, Scalar]:
        """(conditions, window, position in it) of position h; `part` counts the positions of a summed axis."""
        count, step = counts[k], stride[k]
        if part is None:
            window, part = s.floordiv(h, step), s.mod(h, step)
            inside = [s.lt(part, sizes[k]), s.lt(window, count)]
            return inside, s.bounded(window, count), s.bounded(part, sizes[k])
        offset = s.sub(h, s.mul(part, dilation[k]))
        inside = [s.ge(offset, 0)]
        if step > 1:
            inside.append(s.eq(s.mod(offset, step), 0))
            offset = s.floordiv(offset, step)
        inside.append(s.lt(offset, count))
        return inside, s.bounded(offset, count), part

    def body(r: Index) -> Scalar:
        parts = dict(zip(summed, r, strict=True))
        found = [along(h, k, parts.get(k)) for k, h in enumerate(i[lead:])]
        inside = [c for conditions, _, _ in found for c in conditions]
        source = (*i[:lead], *(w for _, w, _ in found), *(p for _, _, p in found))
        return s.masked(all_of(s, inside), lambda: x(source), s.const(0, x.dtype))

    return s.reduce("add", [sizes[k] for k in summed], body) if summed else body(())


fold_windows: Op = Op(
    "fold_windows",
    "reduction",
    inputs=("x",),
    params={"shape": REQUIRED, "stride": None, "dilation": None},
    canon=_fold_canon,
    infer=_fold_infer,
    eager=_fold_eager,
    lower=_fold_lower,
    vjp=(
        lambda g, x_shape, shape, stride, dilation: windows(
            g,
            size=x_shape[len(x_shape) - len(integers("fold_windows", "shape", shape)) :],
            stride=stride,
            dilation=dilation,
        ),
    ),
    samples=cases(
        ([(2, 3, 5, 3, 2)], {"shape": (5, 6)}),
        ([(2, 3, 2, 3)], {"shape": (7, 8), "stride": (3, 2), "dilation": (2, 1)}),
        ([(3, 3, 3)], {"shape": (10,), "stride": 2, "dilation": 2}),
        ([(0, 3, 2)], {"shape": (4,)}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "fold_windows: f32[3,2] does not hold the windows", (3, 2), shape=(5,)),
        fails(ShapeError, "fold_windows: f32[3] has no window axes", (3,), shape=(3,)),
    ),
    accepts="numeric",
    doc="Adjoint of `windows`: every window is added back at its place, (..., Ho, Wo, kh, kw) to (..., H, W). "
    "Overlaps add in row-major order of the window's elements.",
)

ROWS = (windows, fold_windows)
