"""Pooling over windows of one, two and three axes, in PyTorch's channels-first layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from ..core.context import placed
from ..core.library import compiled
from ..core.precision.composites import in_float32
from ..core.tensor import Tensor
from .arguments import Pair, batched, fits, numbers, padded, positive, real_numbers


@compiled
def max_pool1d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest value of each window of (n, c, l) or (c, l); see `max_pool2d`.

    Raises ArgumentError for sizes below 1 or padding of more than half a window, ShapeError for an input of other axes
    or smaller than a window.

    >>> max_pool1d(hm.asarray([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
    [[3.0, 2.0]]
    """
    return _max_pooled("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@compiled
def max_pool2d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest value of each window; padding counts as minus infinity. (n, c, h, w) or (c, h, w).

    The first of equal maxima gets the gradient, as in PyTorch. With `return_indices` also its position in its
    image, counted row by row (int64): what `max_unpool2d` takes. Raises ArgumentError for sizes below 1 or padding of
    more than half a window, ShapeError for an input of other axes or smaller than a window.

    >>> max_pool2d(hm.asarray([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[4.0]]]
    """
    return _max_pooled("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@compiled
def max_pool3d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest value of each window of (n, c, d, h, w) or (c, d, h, w); see `max_pool2d`.

    Raises ArgumentError for sizes below 1 or padding of more than half a window, ShapeError for an input of other axes
    or smaller than a window.

    >>> max_pool3d(hm.ones((1, 2, 4, 6, 6)), (1, 2, 2)).shape
    (1, 2, 4, 3, 3)
    """
    return _max_pooled("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@compiled
def avg_pool1d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window of (n, c, l) or (c, l); see `avg_pool2d`.

    Raises ArgumentError for sizes below 1 or padding of more than half a window, ShapeError for an input of other axes
    or smaller than a window.

    >>> avg_pool1d(hm.asarray([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
    [[2.0, 1.0]]
    """
    return _mean_pooled("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@compiled
def avg_pool2d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window. (n, c, h, w) or (c, h, w). `count_include_pad` counts the zeros of the padding.

    `divisor_override` divides all sums, whatever their windows hold. Raises ArgumentError for sizes below 1 or padding
    of more than half a window, ShapeError for an input of other axes or smaller than a window.

    >>> avg_pool2d(hm.asarray([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[2.5]]]
    """
    return _mean_pooled(
        "avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@compiled
def avg_pool3d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of (n, c, d, h, w) or (c, d, h, w); see `avg_pool2d`.

    Raises ArgumentError for sizes below 1 or padding of more than half a window, ShapeError for an input of other axes
    or smaller than a window.

    >>> avg_pool3d(hm.ones((1, 2, 4, 6, 6)), 2).shape
    (1, 2, 2, 3, 3)
    """
    return _mean_pooled(
        "avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@compiled
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Pair, stride: Pair | None = None, ceil_mode: bool = False
) -> Tensor:
    """``(sum x^p)^(1/p)`` over each window of (n, c, l) or (c, l); see `lp_pool2d`.

    Raises ArgumentError for sizes below 1 or ``norm_type=0``, DTypeError for complex numbers, ShapeError for an input
    of other axes.

    >>> lp_pool1d(hm.asarray([[3.0, 4.0]]), 2, 2).tolist()
    [[5.0]]
    """
    return _power_pooled(1, input, norm_type, kernel_size, stride, ceil_mode)


@compiled
def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Pair, stride: Pair | None = None, ceil_mode: bool = False
) -> Tensor:
    """``(sum x^p)^(1/p)`` over each window with p = `norm_type`. (n, c, h, w) or (c, h, w).

    As in PyTorch a negative sum has no root (NaN), and where it is 0 the gradient is 0. Raises ArgumentError for sizes
    below 1 or ``norm_type=0``, DTypeError for complex numbers, ShapeError for an input of other axes.

    >>> lp_pool2d(hm.asarray([[[3.0, 4.0]]]), 2, (1, 2)).tolist()
    [[[5.0]]]
    """
    return _power_pooled(2, input, norm_type, kernel_size, stride, ceil_mode)


@compiled
def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Pair, stride: Pair | None = None, ceil_mode: bool = False
) -> Tensor:
    """``(sum x^p)^(1/p)`` over each window of (n, c, d, h, w) or (c, d, h, w); see `lp_pool2d`.

    Raises ArgumentError for sizes below 1 or ``norm_type=0``, DTypeError for complex numbers, ShapeError for an input
    of other axes.

    >>> lp_pool3d(hm.ones((1, 2, 4, 6, 6)), 2, 2).shape
    (1, 2, 2, 3, 3)
    """
    return _power_pooled(3, input, norm_type, kernel_size, stride, ceil_mode)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Values of `max_pool1d` put back at its `indices`, zeros elsewhere: (n, c, l') -> (n, c, l); see `max_unpool2d`.

    Raises ShapeError where `input` and `indices` differ in shape, ArgumentError for an `output_size` that has no such
    windows.

    >>> max_unpool1d(hm.asarray([[3.0, 2.0]]), hm.asarray([[1, 2]]), 2).tolist()
    [[0.0, 3.0, 2.0, 0.0]]
    """
    return _unpooled("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Values of `max_pool2d` put back at its `indices`, zeros elsewhere. (n, c, h, w) or (c, h, w).

    Without `output_size` (its last axes count) the result is the smallest that has such windows. The last of several
    values for one place stays. Raises ShapeError where `input` and `indices` differ in shape, ArgumentError for an
    `output_size` that has no such windows.

    >>> pooled, indices = max_pool2d(hm.asarray([[[1.0, 2.0], [3.0, 4.0]]]), 2, return_indices=True)
    >>> max_unpool2d(pooled, indices, 2).tolist()
    [[[0.0, 0.0], [0.0, 4.0]]]
    """
    return _unpooled("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Values of `max_pool3d` put back at its `indices`, zeros elsewhere: (n, c, d', h', w') -> (n, c, d, h, w).

    Raises ShapeError where `input` and `indices` differ in shape, ArgumentError for an `output_size` that has no such
    windows.

    >>> max_unpool3d(hm.ones((1, 1, 1, 1, 1)), hm.zeros((1, 1, 1, 1, 1), dtype=hm.int64), 2).shape
    (1, 1, 2, 2, 2)
    """
    return _unpooled("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)


# ---------------------------------------------------------------- any number of axes


@placed
def _max_pooled(
    what: str,
    dims: int,
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None,
    padding: Pair,
    dilation: Pair,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    x, single = batched(what, input, dims)
    size = positive(what, "kernel_size", kernel_size, dims)
    steps = size if stride is None else positive(what, "stride", stride, dims)
    dilations = positive(what, "dilation", dilation, dims)
    around = _around(what, x, size, steps, padding, dilations, ceil_mode)
    fits(what, x, size, around, dilations)
    result = xp.max_pool(x, size=size, stride=steps, padding=around, dilation=dilations)
    if not return_indices:
        return result[0] if single else result
    places = xp.astype(xp.argmax_pool(x, size=size, stride=steps, padding=around, dilation=dilations), xp.int64)
    indices: Any = 0
    for axis in range(dims):
        inner = math.prod(size[axis + 1 :])
        corner = xp.arange(result.shape[axis + 2]) * steps[axis] - around[axis][0]
        at = (places // inner) % size[axis] * dilations[axis]
        at = at + corner.reshape((-1, *(1,) * (dims - axis - 1)))
        # Where all elements are minus infinity the first of them is in the padding: take the first behind it.
        indices = indices * x.shape[axis + 2] + xp.where(at < 0, at % dilations[axis], at)
    return (result[0], indices[0]) if single else (result, indices)


@in_float32
@placed
def _mean_pooled(
    what: str,
    dims: int,
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None,
    padding: Pair,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    if divisor_override == 0:
        raise ArgumentError(f"{what}: divisor_override must not be zero")
    x, single = batched(what, input, dims)
    size = positive(what, "kernel_size", kernel_size, dims)
    steps = size if stride is None else positive(what, "stride", stride, dims)
    asked = numbers(what, "padding", padding, dims)
    around = _around(what, x, size, steps, padding, (1,) * dims, ceil_mode)
    result = _window_sums(what, padded(x, around), size, steps)
    plain = all(low == high == p for (low, high), p in zip(around, asked, strict=True))
    if divisor_override is not None:
        result = result / divisor_override
    elif plain and (count_include_pad or not any(asked)):
        result = result / math.prod(size)
    else:
        # Elements that count: the input's own, and with `count_include_pad` the padding that was asked for (the
        # further padding of `ceil_mode` never counts).
        inner = asked if count_include_pad else (0,) * dims
        ones = xp.ones((1, 1, *(n + 2 * k for n, k in zip(x.shape[2:], inner, strict=True))), dtype=x.dtype)
        outer = [(low - k, high - k) for (low, high), k in zip(around, inner, strict=True)]
        result = result / _window_sums(what, padded(ones, outer), size, steps)
    return result[0] if single else result


@in_float32
def _power_pooled(
    dims: int, input: Tensor, norm_type: float, kernel_size: Pair, stride: Pair | None, ceil_mode: bool
) -> Tensor:
    what = f"lp_pool{dims}d"
    if norm_type == 0:
        raise ArgumentError(f"{what}: norm_type must not be zero")
    real_numbers(what, input)
    area = math.prod(positive(what, "kernel_size", kernel_size, dims))
    mean = _mean_pooled(what, dims, input**norm_type, kernel_size, stride, 0, ceil_mode, True, None)
    zero = xp.equal(mean, 0)  # there the root would have an infinite slope
    return xp.where(zero, 0, (xp.where(zero, 1, mean) * area) ** (1 / norm_type))


@placed
def _unpooled(
    what: str,
    dims: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Pair,
    stride: Pair | None,
    padding: Pair,
    output_size: Sequence[int] | None,
) -> Tensor:
    if input.shape != indices.shape:
        raise ShapeError(f"{what}: input {input.shape} and indices {indices.shape} must have one shape")
    x, single = batched(what, input, dims)
    size = positive(what, "kernel_size", kernel_size, dims)
    steps = size if stride is None else positive(what, "stride", stride, dims)
    around = numbers(what, "padding", padding, dims)
    least = tuple((n - 1) * s - 2 * p + k for n, s, p, k in zip(x.shape[2:], steps, around, size, strict=True))
    wanted = least if output_size is None else tuple(output_size)[-dims:]
    if any(abs(n - m) >= s for n, m, s in zip(wanted, least, steps, strict=True)):
        raise ArgumentError(
            f"{what}: output_size {wanted} must be within the stride {steps} of {least}, the size that such windows "
            "come from"
        )
    n, channels = x.shape[:2]
    plane = math.prod(wanted)
    at = indices.reshape((n * channels, -1))
    first = xp.arange(n * channels)[:, None] * plane
    # An index outside of its image is outside of all.
    places = xp.where((at < 0) | (at >= plane), n * channels * plane, at + first).reshape((-1,))
    empty = xp.zeros((n * channels * plane,), dtype=x.dtype)
    result = xp.scatter_set(empty, places, x.reshape((-1,)), axis=0).reshape((n, channels, *wanted))
    return result[0] if single else result


def _around(
    what: str,
    x: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Pair,
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[tuple[int, int]]:
    around = numbers(what, "padding", padding, len(size))
    if any(p < 0 or 2 * p > k for p, k in zip(around, size, strict=True)):
        raise ArgumentError(f"{what}: padding must be at most half of the window {tuple(size)}, got {around}")
    result = []
    for n, k, s, p, d in zip(x.shape[2:], size, stride, around, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        windows = -(-span // s) + 1 if ceil_mode else span // s + 1
        if ceil_mode and (windows - 1) * s >= n + p:  # a window may not start in the padding on the right
            windows -= 1
        result.append((p, max(p, (windows - 1) * s + d * (k - 1) + 1 - n - p)))
    return result


def _window_sums(what: str, x: Tensor, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """(n, c, ...) -> the sum of each window."""
    dims = len(size)
    fits(what, x, size, ((0, 0),) * dims, (1,) * dims)
    windows = xp.windows(x, size=tuple(size), stride=tuple(stride))
    return windows.sum(axis=tuple(range(-dims, 0)))


__all__ = [
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d",
    "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip
