"""Sliding windows and their adjoint: the movements that pooling is made of, over any axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..aval import Aval
from ..errors import ArgumentError, ShapeError
from .indexing import Index, Load, Scalar, all_of
from .op import REQUIRED, Op
from .samples import cases, fails
from .shapes import Shape, axis_index, integers


def lengths(name: str, what: str, value: Any, n: int) -> Shape:
    """`n` numbers of 1 or more; 1 where none are given."""
    found = (1,) * n if value is None else integers(name, what, value, n)
    if any(v < 1 for v in found):
        raise ArgumentError(f"{name}: {what} must be 1 or more at every axis, got {found}")
    return found


def axes_of(name: str, axes: Any, n: int, ndim: int) -> Shape:
    """The `n` axes that windows slide along: the last ones where none are given."""
    if axes is None:
        return tuple(range(ndim - n, ndim))
    found = tuple(axis_index(name, k, (1,) * ndim) for k in integers(name, "axes", axes))
    if len(found) != n or len(set(found)) != n:
        raise ArgumentError(f"{name}: axes {axes} must be {n} different ones, one for each size")
    return found


def positions(n: int, size: int, stride: int, dilation: int) -> int:
    """Number of windows along an axis of n elements; 0 or less when none fits."""
    return (n - (size - 1) * dilation - 1) // stride + 1


def placed(values: Sequence[Any], axes: Sequence[int], new: Sequence[Any]) -> tuple[Any, ...]:
    """`values` with those of `axes` replaced."""
    at = dict(zip(axes, new, strict=True))
    return tuple(at.get(k, v) for k, v in enumerate(values))


Params = tuple[Shape, Shape, Shape, Shape]


def _windows_params(x: Aval | Shape, size: Any, stride: Any, dilation: Any, axes: Any) -> Params:
    shape = x.shape if isinstance(x, Aval) else x
    sizes = lengths("windows", "size", size, len(integers("windows", "size", size)))
    n = len(sizes)
    if n > len(shape):
        raise ShapeError(f"windows: {n} window sizes {sizes} for {x}; give at most one for each of its axes")
    strides, dilations = lengths("windows", "stride", stride, n), lengths("windows", "dilation", dilation, n)
    along = axes_of("windows", axes, n, len(shape))
    given = tuple(shape[k] for k in along)
    if any(m < (k - 1) * d + 1 for m, k, d in zip(given, sizes, dilations, strict=True)):
        raise ShapeError(
            f"windows: a window of {sizes} with dilation {dilations} does not fit into axes {given} of {x}; "
            "pad the input or use a smaller window"
        )
    return sizes, strides, dilations, along


def _windows_canon(x: Aval, size: Any, stride: Any, dilation: Any, axes: Any) -> dict[str, Any]:
    found = _windows_params(x, size, stride, dilation, axes)
    return dict(zip(("size", "stride", "dilation", "axes"), found, strict=True))


def _windows_infer(x: Aval, size: Any, stride: Any, dilation: Any, axes: Any) -> Aval:
    sizes, strides, dilations, along = _windows_params(x, size, stride, dilation, axes)
    counts = map(positions, (x.shape[k] for k in along), sizes, strides, dilations)
    return Aval((*placed(x.shape, along, tuple(counts)), *sizes), x.dtype)


def _windows_eager(x: np.ndarray, size: Any, stride: Any, dilation: Any, axes: Any) -> np.ndarray:
    sizes, strides, dilations, along = _windows_params(x.shape, size, stride, dilation, axes)
    spans = tuple((k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=True))
    every = sliding_window_view(x, spans, along)
    steps = (*placed((1,) * x.ndim, along, strides), *dilations)
    found: np.ndarray = every[tuple(slice(None, None, step) for step in steps)]
    return found


def _windows_lower(s: Any, i: Index, x: Load, size: Shape, stride: Shape, dilation: Shape, axes: Shape) -> Scalar:
    ndim = len(x.shape)
    places = tuple(
        s.add(s.mul(i[axis], step), s.mul(k, d))
        for axis, k, step, d in zip(axes, i[ndim:], stride, dilation, strict=True)
    )
    return x(placed(i[:ndim], axes, places))


def _windows_vjp(g: Any, x_shape: Shape, size: Any, stride: Any, dilation: Any, axes: Any) -> Any:
    _, strides, dilations, along = _windows_params(x_shape, size, stride, dilation, axes)
    return fold_windows(g, shape=tuple(x_shape[k] for k in along), stride=strides, dilation=dilations, axes=along)


windows = Op(
    "windows",
    "movement",
    public=False,
    inputs=("x",),
    params={"size": REQUIRED, "stride": None, "dilation": None, "axes": None},
    canon=_windows_canon,
    infer=_windows_infer,
    eager=_windows_eager,
    lower=_windows_lower,
    vjp=(_windows_vjp,),
    samples=cases(
        ([(2, 5, 6)], {"size": (3, 2)}),
        ([(7, 8)], {"size": (2, 3), "stride": (3, 2), "dilation": (2, 1)}),
        ([(3, 10)], {"size": (3,), "stride": 2, "dilation": 2}),
        ([(7, 8, 3)], {"size": (2, 3), "stride": (3, 2), "axes": (1, 0)}),
        ([(0, 4)], {"size": (2,)}),
        ([(4,)], {"size": 4}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "windows: a window of (4,)", (2, 3), size=(4,)),
        fails(ShapeError, "windows: 2 window sizes", (3,), size=(1, 1)),
        fails(ArgumentError, "windows: stride must be 1 or more", (3,), size=(1,), stride=(0,)),
        fails(ArgumentError, "windows: axes (1,) must be 2 different", (3, 3), size=(1, 1), axes=(1,)),
    ),
    doc="Windows along `axes` (the last ones), stacked as new axes at the end: (..., H, W) to (..., Ho, Wo, kh, kw), "
    "element x[..., o*stride + k*dilation]. Only whole windows, as the 'valid' convolution; pad first for others.",
)


def _fold_params(x: Aval | Shape, shape: Any, stride: Any, dilation: Any, axes: Any) -> Params:
    got = x.shape if isinstance(x, Aval) else x
    sizes = lengths("fold_windows", "shape", shape, len(integers("fold_windows", "shape", shape)))
    n = len(sizes)
    strides, dilations = lengths("fold_windows", "stride", stride, n), lengths("fold_windows", "dilation", dilation, n)
    if len(got) < 2 * n:
        raise ShapeError(f"fold_windows: {x} has no window axes for shape {sizes}; it needs {2 * n} trailing axes")
    along = axes_of("fold_windows", axes, n, len(got) - n)
    expected = tuple(map(positions, sizes, got[len(got) - n :], strides, dilations))
    if expected != tuple(got[k] for k in along):
        raise ShapeError(
            f"fold_windows: {x} does not hold the windows of shape {sizes} with stride {strides} and dilation "
            f"{dilations}: there are {expected} of them; give the shape that `windows` was taken from"
        )
    return sizes, strides, dilations, along


def _fold_canon(x: Aval, shape: Any, stride: Any, dilation: Any, axes: Any) -> dict[str, Any]:
    found = _fold_params(x, shape, stride, dilation, axes)
    return dict(zip(("shape", "stride", "dilation", "axes"), found, strict=True))


def _fold_infer(x: Aval, shape: Any, stride: Any, dilation: Any, axes: Any) -> Aval:
    sizes, _, _, along = _fold_params(x, shape, stride, dilation, axes)
    return Aval(placed(x.shape[: x.ndim - len(sizes)], along, sizes), x.dtype)


def _fold_eager(x: np.ndarray, shape: Any, stride: Any, dilation: Any, axes: Any) -> np.ndarray:
    sizes, strides, dilations, along = _fold_params(x.shape, shape, stride, dilation, axes)
    ndim = x.ndim - len(sizes)
    out = np.zeros(placed(x.shape[:ndim], along, sizes), x.dtype)
    counts = [x.shape[k] for k in along]
    for k in np.ndindex(x.shape[ndim:]):
        spans = zip(k, dilations, counts, strides, strict=True)
        target = placed(
            (slice(None),) * ndim, along, [slice(o * d, o * d + (c - 1) * step + 1, step) for o, d, c, step in spans]
        )
        source: Any = (..., *k)
        out[target] += x[source]
    return out


class Cover:
    """The windows along one axis that hold a position: `tries` candidates, and which of them do.

    Without dilation those are one stride after the other, ceil(size / stride) of them; with it every tap may be one.
    """

    def __init__(self, count: int, size: int, stride: int, dilation: int) -> None:
        self.count, self.size, self.stride, self.dilation = count, size, stride, dilation
        self.tries = -(-size // stride) if dilation == 1 else size

    def __call__(self, s: Any, h: Scalar, k: Scalar) -> tuple[list[Scalar], Scalar, Scalar]:
        """(conditions, window, place in it) of candidate k for position h; places ascend with k."""
        if self.dilation == 1:
            window = s.sub(s.floordiv(h, self.stride), k)
            place = s.add(s.mod(h, self.stride), s.mul(k, self.stride))
            inside = [s.ge(window, 0), s.lt(window, self.count), s.lt(place, self.size)]
            return inside, s.bounded(window, self.count), s.bounded(place, self.size)
        offset = s.sub(h, s.mul(k, self.dilation))
        inside = [s.ge(offset, 0)]
        if self.stride > 1:
            inside.append(s.eq(s.mod(offset, self.stride), 0))
            offset = s.floordiv(offset, self.stride)
        inside.append(s.lt(offset, self.count))
        return inside, s.bounded(offset, self.count), k


def over_covers(s: Any, covers: Sequence[Cover], at: Sequence[Scalar], read: Any, dtype: np.dtype) -> Scalar:
    """The sum of `read(windows, places)` over the windows that hold the position `at`."""
    # Windows that do not overlap along an axis have one candidate there: no sum, as in most pooling.
    summed = [k for k, cover in enumerate(covers) if cover.tries > 1]

    def body(r: Index) -> Scalar:
        tries = dict(zip(summed, r, strict=True))
        found = [cover(s, h, tries.get(k, 0)) for k, (cover, h) in enumerate(zip(covers, at, strict=True))]
        inside = [c for conditions, _, _ in found for c in conditions]
        value = [[w for _, w, _ in found], [p for _, _, p in found]]
        return s.masked(all_of(s, inside), lambda: read(*value), s.const(0, dtype))

    return s.reduce("add", [covers[k].tries for k in summed], body) if summed else body(())


def _fold_lower(s: Any, i: Index, x: Load, shape: Shape, stride: Shape, dilation: Shape, axes: Shape) -> Scalar:
    counts, sizes = [x.shape[k] for k in axes], x.shape[len(i) :]
    covers = list(map(Cover, counts, sizes, stride, dilation))

    def read(windows: Sequence[Scalar], places: Sequence[Scalar]) -> Scalar:
        return x((*placed(i, axes, windows), *places))

    return over_covers(s, covers, [i[k] for k in axes], read, x.dtype)


def _fold_vjp(g: Any, x_shape: Shape, shape: Any, stride: Any, dilation: Any, axes: Any) -> Any:
    sizes, strides, dilations, along = _fold_params(x_shape, shape, stride, dilation, axes)
    return windows(g, size=x_shape[len(x_shape) - len(sizes) :], stride=strides, dilation=dilations, axes=along)


fold_windows: Op = Op(
    "fold_windows",
    "reduction",
    public=False,
    inputs=("x",),
    params={"shape": REQUIRED, "stride": None, "dilation": None, "axes": None},
    canon=_fold_canon,
    infer=_fold_infer,
    eager=_fold_eager,
    lower=_fold_lower,
    vjp=(_fold_vjp,),
    reorders="sum",
    memory_order="",
    samples=cases(
        ([(2, 3, 5, 3, 2)], {"shape": (5, 6)}),
        ([(2, 3, 2, 3)], {"shape": (7, 8), "stride": (3, 2), "dilation": (2, 1)}),
        ([(3, 3, 3)], {"shape": (10,), "stride": 2, "dilation": 2}),
        ([(4, 2, 2, 2, 3)], {"shape": (8, 7), "stride": (2, 3), "axes": (0, 2)}),
        ([(0, 3, 2)], {"shape": (4,)}),
        dtypes="f8 f4 c16",
    ),
    error_samples=lambda: (
        fails(ShapeError, "fold_windows: f32[3,2] does not hold the windows", (3, 2), shape=(5,)),
        fails(ShapeError, "fold_windows: f32[3] has no window axes", (3,), shape=(3,)),
    ),
    accepts="number",
    doc="Adjoint of `windows`: every window is added back at its place along `axes`, (..., Ho, Wo, kh, kw) to "
    "(..., H, W). Overlaps add in row-major order of the window's elements.",
)

ROWS = (windows, fold_windows)
