"""Convolution with channels last and the groups as an axis of their own, so that its gradients are convolutions too.

    out[n, y, x, g, o] = sum over ky, kx, c of  x[n, y*sy + ky*dy - top, x*sx + kx*dx - left, g, c] * w[ky, kx, g, c, o]

Three facts make the set closed under differentiation (Dumoulin and Visin, "A guide to convolution arithmetic for deep
learning", 2016; the rules of JAX's `conv_general_dilated` are the same):

- The gradient of w is a convolution of x with the cotangent, batch and channels exchanged, stride and dilation too.
- The gradient of x at stride 1 is a convolution of the cotangent with the kernel reversed.
- At stride s it is s such convolutions per axis, each with every s-th tap: the positions p of x with p mod s = a meet
  only the taps k with k mod s = a. No zeros are multiplied, as they would be by a cotangent spread out with zeros.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..aval import Aval
from ..errors import ArgumentError, ShapeError
from ..sizes.dims import is_dim
from . import movement
from .contraction import matmul
from .indexing import Index, Load, Scalar, all_of
from .op import Op
from .samples import cases, fails
from .shapes import Shape, integers
from .windows import positions

Widths = tuple[tuple[int, int], tuple[int, int]]
_EXCHANGED = (0, 3, 4, 1, 2)  # (n, y, x, g, o) to (n, g, o, y, x), and back
_NONE: Widths = ((0, 0), (0, 0))
_COLUMNS = 1 << 22  # elements of a window matrix that eager code makes at a time


def _pair(what: str, value: Any) -> tuple[int, int]:
    first, second = integers("convolution", what, value, 2)
    if min(first, second) < 1:
        raise ArgumentError(f"convolution: {what} must be 1 or more at every axis, got {(first, second)}")
    return first, second


def _widths(padding: Any) -> Widths:
    try:
        rows, columns = padding
    except (TypeError, ValueError):
        raise ArgumentError(
            f"convolution: padding must be ((top, bottom), (left, right)), got {padding!r}; negative numbers crop"
        ) from None
    (top, bottom), (left, right) = (integers("convolution", "padding", pair, 2) for pair in (rows, columns))
    return (top, bottom), (left, right)


Params = tuple[tuple[int, int], Widths, tuple[int, int]]


def _params(stride: Any, padding: Any, dilation: Any) -> Params:
    return _pair("stride", stride), _widths(padding), _pair("dilation", dilation)


def _canon(x: Aval, w: Aval, stride: Any, padding: Any, dilation: Any, channels_first: bool) -> dict[str, Any]:
    params = dict(zip(("stride", "padding", "dilation"), _params(stride, padding, dilation), strict=True))
    return {**params, "channels_first": bool(channels_first)}


def _numbers(x: Shape, w: Shape) -> tuple[int, Shape, Shape]:
    """(batch, shape of x, shape of w): kernels are made for given sizes, all but the number of images.

    That is the batch, or the channels of a gradient of weights; either may come with the call.
    """
    n, *image, c = x
    channels = operator.index(c) if is_dim(n) else c
    kernel = [size if axis == 3 else operator.index(size) for axis, size in enumerate(w)]
    return n, (n, *map(operator.index, image), channels), tuple(kernel)


def _spatial(x: Shape, w: Shape, stride: Sequence[int], padding: Widths, dilation: Sequence[int]) -> tuple[int, ...]:
    padded = [n + low + high for n, (low, high) in zip(x[1:3], padding, strict=True)]
    return tuple(map(positions, padded, w[:2], stride, dilation))


def _infer(x: Aval, w: Aval, stride: Any, padding: Any, dilation: Any, channels_first: bool) -> Aval:
    if x.ndim != 5 or w.ndim != 5 or x.shape[3:] != w.shape[2:4]:
        raise ShapeError(
            f"convolution: {x} and {w} do not fit; x is (n, h, w, groups, c) and w (kh, kw, groups, c, o), with equal "
            "groups and c"
        )
    (*steps,), widths, (*dilations,) = _params(stride, padding, dilation)
    batch, image, kernel = _numbers(x.shape, w.shape)
    size = _spatial(image, kernel, steps, widths, dilations)
    if min(size) < 1 or 0 in w.shape[:2]:
        raise ShapeError(
            f"convolution: a kernel of {w.shape[:2]} with dilation {tuple(dilations)} does not fit into {x} with "
            f"padding {widths}; pad more or use a smaller kernel"
        )
    shape = (batch, *size, kernel[2], kernel[4])
    return Aval(tuple(shape[k] for k in _EXCHANGED) if channels_first else shape, x.dtype)


# ---------------------------------------------------------------- meaning


def _padded(x: np.ndarray, padding: Widths) -> np.ndarray:
    """x with zeros around axes 1 and 2; negative widths cut."""
    if padding == _NONE:
        return x
    (top, bottom), (left, right) = padding
    n, height, width, *rest = x.shape
    x = x[:, max(-top, 0) : height + min(bottom, 0), max(-left, 0) : width + min(right, 0)]
    out = np.zeros((n, height + top + bottom, width + left + right, *rest), x.dtype)
    out[:, max(top, 0) : max(top, 0) + x.shape[1], max(left, 0) : max(left, 0) + x.shape[2]] = x
    return out


def _eager(
    x: np.ndarray, w: np.ndarray, stride: Any, padding: Any, dilation: Any, channels_first: bool = False
) -> np.ndarray:
    """Windows times a matrix, one product a group, over so many images at a time that their windows stay small."""
    if channels_first:
        return np.ascontiguousarray(_eager(x, w, stride, padding, dilation).transpose(_EXCHANGED))
    (sy, sx), widths, (dy, dx) = _params(stride, padding, dilation)
    kh, kw, groups, c, o = w.shape
    padded = _padded(x, widths)
    n = x.shape[0]
    height, width = positions(padded.shape[1], kh, sy, dy), positions(padded.shape[2], kw, sx, dx)
    by_image, by_row, by_pixel, by_group, by_channel = padded.strides
    windows = as_strided(
        padded,
        (groups, n, height, width, kh, kw, c),
        (by_group, by_image, sy * by_row, sx * by_pixel, dy * by_row, dx * by_pixel, by_channel),
    )
    matrices = w.transpose(2, 0, 1, 3, 4).reshape(groups, kh * kw * c, o)
    if groups * n * height * width * kh * kw * c <= _COLUMNS:
        return _products(windows, matrices)
    out = np.empty((n, height, width, groups, o), x.dtype)
    images = max(1, _COLUMNS // max(1, windows[:, :1].size))
    for first in range(0, n, images):
        out[first : first + images] = _products(windows[:, first : first + images], matrices)
    return out


def _products(windows: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    groups, n, height, width = windows.shape[:4]
    _, area, o = matrices.shape
    product = matmul.eager(windows.reshape(groups, n * height * width, area), matrices)
    found: np.ndarray = product.reshape(groups, n, height, width, o)
    return found.transpose(1, 2, 3, 0, 4)


def _lower(
    s: Any, i: Index, x: Load, w: Load, stride: Shape, padding: Widths, dilation: Shape, channels_first: bool
) -> Scalar:
    n, *at, g, o = (i[k] for k in _EXCHANGED) if channels_first else i
    kh, kw, _, c, _ = w.shape

    def body(r: Index) -> Scalar:
        inside, source = [], []
        for k, size in enumerate(x.shape[1:3]):
            place = s.sub(s.add(s.mul(at[k], stride[k]), s.mul(r[k], dilation[k])), padding[k][0])
            inside += [s.ge(place, 0), s.lt(place, size)]
            source.append(s.bounded(place, size))
        value = s.masked(all_of(s, inside), lambda: x((n, *source, g, r[2])), s.const(0, x.dtype))
        return s.mul(value, w((r[0], r[1], g, r[2], o)))

    return s.reduce("add", (kh, kw, c), body)


# ---------------------------------------------------------------- gradients


def _image_gradient(
    g: Any, w: Any, x_shape: Shape, stride: Any, padding: Any, dilation: Any, channels_first: bool
) -> Any:
    if channels_first:
        g = g.permute_dims(axes=_EXCHANGED)
    return transposed(g, w, size=x_shape[1:3], stride=stride, padding=padding, dilation=dilation)


def _kernel_gradient(
    g: Any, x: Any, w_shape: Shape, stride: Any, padding: Any, dilation: Any, channels_first: bool
) -> Any:
    if channels_first:
        g = g.permute_dims(axes=_EXCHANGED)
    stride, widths, dilation = _params(stride, padding, dilation)
    sizes = zip(widths, x.shape[1:3], w_shape[:2], g.shape[1:3], stride, dilation, strict=True)
    around = tuple((low, d * (k - 1) + s * (m - 1) + 1 - n - low) for (low, _), n, k, m, s, d in sizes)
    exchanged = convolution(
        x.permute_dims(axes=(4, 1, 2, 3, 0)),
        g.permute_dims(axes=(1, 2, 3, 0, 4)),
        stride=dilation,
        padding=around,
        dilation=stride,
    )
    return exchanged.permute_dims(axes=(1, 2, 3, 0, 4))


def transposed(g: Any, w: Any, *, size: Sequence[int], stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Any:
    """The transpose of `convolution` in x: (n, oh, ow, groups, o) to (n, *size, groups, c). It is linear in both."""
    (*steps,), widths, dilations = _params(stride, padding, dilation)
    for k in range(2):
        if steps[k] > 1 and dilations[k] > 1:  # every tap meets several phases: the plain rule, on a sparse cotangent
            g, steps[k] = _spread(g, k + 1, steps[k]), 1
    phases = [
        _phases(n, m, k, s, d, low)
        for n, m, k, s, d, (low, _) in zip(size, g.shape[1:3], w.shape[:2], steps, dilations, widths, strict=True)
    ]
    swapped = w.permute_dims(axes=(0, 1, 2, 4, 3)).flip(axis=(0, 1))
    rows = []
    for row in phases[0]:
        parts = [
            convolution(
                g,
                _every(swapped, (row[0], column[0]), (steps[0], steps[1])),
                padding=(row[1], column[1]),
                dilation=tuple(1 if s > 1 else d for s, d in zip(steps, dilations, strict=True)),
            )
            for column in phases[1]
        ]
        rows.append(_interleaved(parts, 2, steps[1], size[1], widths[1][0]))
    return _interleaved(rows, 1, steps[0], size[0], widths[0][0])


Phase = tuple[range, tuple[int, int]]  # taps of the reversed kernel, padding of the cotangent


def _phases(n: int, m: int, k: int, s: int, d: int, low: int) -> list[Phase]:
    """The convolutions over a cotangent of m elements that make an axis of n, for each phase that has a tap.

    Position p of the padded axis and tap t meet at y = (p - t) / s. In phase a, p = a + s*q and t = a + s*j, so that
    y = q - j: a convolution with padding (taps - 1) before, whatever q starts from.
    """
    if s == 1:
        return [(range(k), (d * (k - 1) - low, n - m + low))]
    first, last = low // s, (low + n - 1) // s
    found = []
    for a in range(min(s, k)):
        taps = len(range(a, k, s))
        start = (k - 1 - a) % s  # of every s-th tap, counted from the end
        found.append((range(start, k, s), (taps - 1 - first, last - m + 1)))
    return found


def _every(w: Any, taps: tuple[range, range], steps: tuple[int, int]) -> Any:
    if steps == (1, 1):
        return w
    rest = w.shape[2:]
    return movement.slice(
        w,
        starts=(*(r.start for r in taps), 0, 0, 0),
        stops=(*(r.stop for r in taps), *rest),
        steps=(*steps, 1, 1, 1),
    )


def _interleaved(phases: Sequence[Any], axis: int, s: int, n: int, low: int) -> Any:
    """The interleaved phases: phase a holds the elements a, a + s, ... of `axis`; those of a missing phase are
    zeros."""
    if s == 1:
        return phases[0]
    shape = tuple(phases[0].shape)
    between = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    whole = movement.concat([part.reshape(shape=between) for part in phases], axis=axis + 1)
    if len(phases) < s:
        whole = movement.pad(whole, widths=[(0, s - len(phases) if k == axis + 1 else 0) for k in range(len(between))])
    whole = whole.reshape(shape=(*shape[:axis], shape[axis] * s, *shape[axis + 1 :]))
    starts = [low % s if k == axis else 0 for k in range(len(shape))]
    stops = [low % s + n if k == axis else size for k, size in enumerate(shape)]
    return movement.slice(whole, starts=tuple(starts), stops=tuple(stops))


def _spread(g: Any, axis: int, s: int) -> Any:
    """g with s - 1 zeros between the elements of `axis`."""
    shape = tuple(g.shape)
    between = g.reshape(shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
    whole = movement.pad(between, widths=[(0, s - 1 if k == axis + 1 else 0) for k in range(len(shape) + 1)])
    whole = whole.reshape(shape=(*shape[:axis], shape[axis] * s, *shape[axis + 1 :]))
    stops = tuple((size - 1) * s + 1 if k == axis else size for k, size in enumerate(shape))
    return movement.slice(whole, starts=(0,) * len(shape), stops=stops)


convolution: Op = Op(
    "convolution",
    "convolution",
    public=False,
    inputs=("x", "w"),
    params={"stride": 1, "padding": ((0, 0), (0, 0)), "dilation": 1, "channels_first": False},
    canon=_canon,
    infer=_infer,
    eager=_eager,
    lower=_lower,
    vjp=(
        _image_gradient,
        _kernel_gradient,
    ),
    reorders="sum",
    samples=cases(
        ([(2, 5, 6, 1, 3), (3, 2, 1, 3, 4)], {}),
        ([(1, 4, 5, 2, 2), (3, 3, 2, 2, 1)], {"padding": ((1, 1), (0, 2))}),
        ([(2, 7, 6, 1, 2), (3, 3, 1, 2, 2)], {"stride": (2, 3), "padding": ((1, 0), (2, 1))}),
        ([(1, 8, 7, 1, 1), (4, 3, 1, 1, 2)], {"stride": 2, "padding": ((-1, 2), (3, -2))}),
        ([(1, 7, 8, 1, 2), (2, 3, 1, 2, 1)], {"dilation": (3, 2), "padding": ((2, 2), (1, 0))}),
        ([(1, 9, 8, 1, 1), (3, 2, 1, 1, 2)], {"stride": (2, 3), "dilation": (2, 3), "padding": ((1, 2), (0, 1))}),
        ([(2, 5, 5, 3, 1), (3, 3, 3, 1, 1)], {"stride": (1, 2), "padding": ((1, 1), (1, 1))}),
        ([(2, 5, 4, 3, 1), (3, 2, 3, 1, 1)], {"padding": ((1, 1), (1, 0)), "channels_first": True}),
        ([(2, 3, 5, 1, 4), (1, 1, 1, 4, 3)], {"stride": 3}),
        ([(0, 3, 3, 1, 2), (2, 2, 1, 2, 1)], {}),
        dtypes="f8 f4 i4",
    ),
    error_samples=lambda: (
        fails(
            ShapeError, "convolution: f32[1,3,3,1,2] and f32[2,2,1,3,4] do not fit", (1, 3, 3, 1, 2), (2, 2, 1, 3, 4)
        ),
        fails(ShapeError, "convolution: a kernel of (4, 1)", (1, 3, 3, 1, 2), (4, 1, 1, 2, 1)),
        fails(ArgumentError, "convolution: stride must be 1 or more", (1, 3, 3, 1, 2), (1, 1, 1, 2, 1), stride=0),
        fails(ArgumentError, "convolution: padding must be ((top", (1, 3, 3, 1, 2), (1, 1, 1, 2, 1), padding=1),
    ),
    accepts="numeric",
    unify=(0, 1),
    doc="Cross-correlation, channels last: (n, h, w, groups, c) by (kh, kw, groups, c, o) to (n, h', w', groups, o). "
    "`padding` is ((top, bottom), (left, right)) zeros; negative numbers crop. "
    "`channels_first` gives (n, groups, o, h', w').",
)

ROWS = (convolution,)
