"""Convolutions over one, two and three axes, in PyTorch's channels-first layout.

The operation itself has two axes and its channels last, which is the order that vectors want; the layout pass takes the
permutations out of a traced network, all but those of its inputs and outputs. A sequence is an image of one row. In a
volume the taps along its depth are channels: `windows` of the input put them there, and the kernel's depth lies beside
its channels.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.convolution import transposed

from .. import arrays as xp
from ..core.library import compiled
from ..core.tensor import Tensor
from .arguments import Padding, Pair, batched, fits, numbers, padded, positive

T = TypeVar("T")
_KERNELS = {1: "k", 2: "kh, kw", 3: "kd, kh, kw"}


@compiled
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation: input (n, c, l) or (c, l), weight (o, c / groups, k), bias (o,) -> (n, o, l').

    `padding` as in `conv2d`. Shapes that do not fit are a `ShapeError`. Other values of `padding` and sizes below 1
    are an ArgumentError.

    >>> conv1d(hm.ones((1, 3, 8)), hm.ones((4, 3, 3)), padding=1).shape
    (1, 4, 8)
    """
    return _convolved("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@compiled
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation: input (n, c, h, w) or (c, h, w), weight (o, c / groups, kh, kw), bias (o,) -> (n, o, h', w').

    `padding` is a number, a pair, ``"valid"`` (none) or ``"same"`` (output as large as the input; stride 1). Shapes
    that do not fit are a `ShapeError`. Other values of `padding` and sizes below 1 are an ArgumentError.

    >>> conv2d(hm.ones((1, 3, 8, 8)), hm.ones((4, 3, 3, 3)), padding=1).shape
    (1, 4, 8, 8)
    """
    return _convolved("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@compiled
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation: input (n, c, d, h, w) or (c, d, h, w), weight (o, c / groups, kd, kh, kw), bias (o,).

    The result is (n, o, d', h', w').

    `padding` as in `conv2d`. Shapes that do not fit are a `ShapeError`. Other values of `padding` and sizes below 1
    are an ArgumentError.

    >>> conv3d(hm.ones((1, 3, 4, 8, 8)), hm.ones((4, 3, 2, 3, 3)), padding=(0, 1, 1)).shape
    (1, 4, 3, 8, 8)
    """
    return _convolved("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


@compiled
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    groups: int = 1,
    dilation: Pair = 1,
) -> Tensor:
    """Transpose of `conv1d`: input (n, c, l) or (c, l), weight (c, o / groups, k), bias (o,) -> (n, o, l').

    Sizes and errors are as of `conv_transpose2d`.

    >>> conv_transpose1d(hm.ones((1, 4, 8)), hm.ones((4, 3, 2)), stride=2).shape
    (1, 3, 16)
    """
    what = "conv_transpose1d"
    return _transposed(what, 1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@compiled
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    groups: int = 1,
    dilation: Pair = 1,
) -> Tensor:
    """Transpose of `conv2d`: (n, c, h, w) or (c, h, w), weight (c, o / groups, kh, kw), bias (o,) -> (n, o, h', w').

    The size is ``h' = (h - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1``. Raises ShapeError for
    shapes that do not fit, ArgumentError for sizes below 1.

    >>> conv_transpose2d(hm.ones((1, 4, 8, 8)), hm.ones((4, 3, 2, 2)), stride=2).shape
    (1, 3, 16, 16)
    """
    what = "conv_transpose2d"
    return _transposed(what, 2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@compiled
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    groups: int = 1,
    dilation: Pair = 1,
) -> Tensor:
    """Transpose of `conv3d`: input (n, c, d, h, w) or (c, d, h, w), weight (c, o / groups, kd, kh, kw), bias (o,).

    The result is (n, o, d', h', w'); sizes and errors are as of `conv_transpose2d`.

    >>> conv_transpose3d(hm.ones((1, 4, 3, 8, 8)), hm.ones((4, 3, 2, 2, 2)), stride=2).shape
    (1, 3, 6, 16, 16)
    """
    what = "conv_transpose3d"
    return _transposed(what, 3, input, weight, bias, stride, padding, output_padding, groups, dilation)


@compiled
def unfold(input: Tensor, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1) -> Tensor:
    """Windows as columns (im2col): (n, c, h, w) or (c, h, w) -> (n, c * kh * kw, windows), windows row by row.

    Raises ShapeError for other axes or a window larger than the padded input, ArgumentError for sizes below 1.

    >>> unfold(hm.ones((1, 3, 4, 5)), (2, 3)).shape
    (1, 18, 9)
    """
    x, single = batched("unfold", input, 2)
    size, dilations, around, steps = _window("unfold", kernel_size, dilation, padding, stride)
    fits("unfold", x, size, around, dilations)
    columns = xp.windows(padded(x, around), size=size, stride=steps, dilation=dilations)
    n, channels, rows, per_row, *_ = columns.shape
    result = xp.permute_dims(columns, (0, 1, 4, 5, 2, 3)).reshape((n, channels * size[0] * size[1], rows * per_row))
    return result[0] if single else result


@compiled
def fold(
    input: Tensor, output_size: Pair, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1
) -> Tensor:
    """Transpose of `unfold`: columns added up at their windows in an image.

    Shapes (n, c * kh * kw, windows), or without n, -> (n, c, *output_size). Raises ShapeError where the columns are
    not the windows of such an image, ArgumentError for sizes below 1.

    >>> fold(hm.ones((1, 4, 9)), (4, 4), 2)[0, 0, 1].tolist()
    [2.0, 4.0, 4.0, 2.0]
    """
    if input.ndim not in (2, 3):
        raise ShapeError(f"fold: input must be (n, c * kh * kw, windows) or without n, got shape {input.shape}")
    x = input[None] if input.ndim == 2 else input
    size, dilations, around, steps = _window("fold", kernel_size, dilation, padding, stride)
    out = positive("fold", "output_size", output_size, 2)
    whole_size = tuple(n + low + high for n, (low, high) in zip(out, around, strict=True))
    counts = tuple(
        (n - d * (k - 1) - 1) // s + 1 for n, k, d, s in zip(whole_size, size, dilations, steps, strict=True)
    )
    area = size[0] * size[1]
    if x.shape[1] % area or min(counts) < 1 or x.shape[2] != counts[0] * counts[1]:
        raise ShapeError(
            f"fold: input {input.shape} does not hold the windows {size} of an image {out}: it needs a multiple of "
            f"{area} rows and {max(counts[0], 0)} x {max(counts[1], 0)} columns"
        )
    stacked = x.reshape((x.shape[0], x.shape[1] // area, *size, *counts))
    whole = xp.fold_windows(
        xp.permute_dims(stacked, (0, 1, 4, 5, 2, 3)), shape=whole_size, stride=steps, dilation=dilations
    )
    (top, _), (left, _) = around
    result = whole[:, :, top : top + out[0], left : left + out[1]]
    return result[0] if input.ndim == 2 else result


def _window(
    what: str, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, int]], tuple[int, ...]]:
    size, dilations = positive(what, "kernel_size", kernel_size, 2), positive(what, "dilation", dilation, 2)
    return size, dilations, _around(what, padding, size, (), ()), positive(what, "stride", stride, 2)


# ---------------------------------------------------------------- any number of axes


def _convolved(
    what: str,
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
) -> Tensor:
    if "c" in (input.dtype.kind, weight.dtype.kind):
        parts = partial(_convolved, what, dims, bias=None, stride=stride, padding=padding, dilation=dilation)
        return _complex(partial(parts, groups=groups), input, weight, bias, dims)
    x, single = batched(what, input, dims)
    size = _kernel(what, x, weight, groups, dims)
    steps, dilations = positive(what, "stride", stride, dims), positive(what, "dilation", dilation, dims)
    around = _around(what, padding, size, steps, dilations)
    fits(what, x, size, around, dilations)
    out, per_group = weight.shape[:2]
    kernels = weight.reshape((groups, out // groups, per_group, *size))
    plane = {"stride": _two(steps, 1), "padding": _two(around, (0, 0)), "dilation": _two(dilations, 1)}
    if dims < 3:
        flat = xp.convolution(_last(x, groups), _plane(kernels, dims), **plane)
        return _finished(_first(flat, dims, 1), bias, single)
    images = _last(padded(x, (around[0], (0, 0), (0, 0))), groups)
    depth = (images.shape[1] - dilations[0] * (size[0] - 1) - 1) // steps[0] + 1
    if steps[0] == 1:
        images = xp.windows(images, size=size[:1], dilation=dilations[:1], axes=(1,))
        images = xp.permute_dims(images, (0, 1, 2, 3, 4, 6, 5))  # taps before channels: runs of channels are copied
        images = images.reshape((-1, *images.shape[2:5], size[0] * per_group))
        flat = xp.convolution(images, _plane(kernels, dims), **plane)
    else:
        # Few windows share a plane: a convolution for each tap reads what it needs where it lies. At stride 2 a step of
        # 16 to 32 channels took a third of the time, at stride 1 a fifth more.
        flat = None
        for k in range(size[0]):
            first = k * dilations[0]
            planes = images[:, first : first + (depth - 1) * steps[0] + 1 : steps[0]]
            part = xp.convolution(planes.reshape((-1, *planes.shape[2:])), _plane(kernels[:, :, :, k], 2), **plane)
            flat = part if flat is None else flat + part
    return _finished(_first(flat, dims, depth), bias, single)


def _complex(
    convolve: Callable[[Tensor, Tensor], Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, dims: int
) -> Tensor:
    """A convolution of complex numbers by four of their parts."""
    (a, b), (c, d) = ((xp.real(t), xp.imag(t)) for t in (input, weight))
    found = xp.complex(convolve(a, c) - convolve(b, d), convolve(a, d) + convolve(b, c))
    return found if bias is None else found + bias.reshape((-1, *(1,) * dims))


def _transposed(
    what: str,
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Pair,
    padding: Pair,
    output_padding: Pair,
    groups: int,
    dilation: Pair,
) -> Tensor:
    if "c" in (input.dtype.kind, weight.dtype.kind):
        parts = partial(_transposed, what, dims, bias=None, stride=stride, padding=padding, groups=groups)
        return _complex(partial(parts, output_padding=output_padding, dilation=dilation), input, weight, bias, dims)
    x, single = batched(what, input, dims)
    if weight.ndim != dims + 2 or groups < 1 or weight.shape[0] != x.shape[1] or x.shape[1] % groups:
        raise ShapeError(
            f"{what}: weight must be (in, out / groups, {_KERNELS[dims]}) with the input's {x.shape[1]} channels, a "
            f"multiple of groups={groups}, got shape {weight.shape}"
        )
    channels, per_group, *kernel = weight.shape
    steps, dilations = positive(what, "stride", stride, dims), positive(what, "dilation", dilation, dims)
    around, more = numbers(what, "padding", padding, dims), numbers(what, "output_padding", output_padding, dims)
    size = transposed_size(x.shape[2:], kernel, steps, around, dilations, more)
    if min(size) < 1 or any(not 0 <= e < max(s, d) for e, s, d in zip(more, steps, dilations, strict=True)):
        raise ArgumentError(
            f"{what}: padding={around} and output_padding={more} would give an output of {size}; pad less, and keep "
            f"output_padding below the stride {steps} or the dilation {dilations}"
        )
    kernels = weight.reshape((groups, channels // groups, per_group, *kernel))
    images = _last(x, groups)
    if dims == 3:
        images = images.reshape((-1, *images.shape[2:]))
    result = transposed(
        images,
        _plane(kernels, dims),
        size=_two(size, 1),
        stride=_two(steps, 1),
        padding=_two([(p, p) for p in around], (0, 0)),
        dilation=_two(dilations, 1),
    )
    if dims == 3:
        result = _folded_depth(result, x.shape[2], kernel[0], steps[0], dilations[0], around[0], size[0])
    return _finished(_first(result, dims, size[0]), bias, single)


def transposed_size(
    shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> tuple[int, ...]:
    """The spatial sizes that a transposed convolution gives."""
    columns = zip(shape, kernel, stride, padding, dilation, output_padding, strict=True)
    return tuple((n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, d, extra in columns)


def _folded_depth(x: Tensor, count: int, taps: int, stride: int, dilation: int, padding: int, size: int) -> Tensor:
    """(n * count, h, w, groups, taps * c) -> (n * size, h, w, groups, c): the taps along the depth at their places."""
    *plane, wide = x.shape[1:]
    stacked = xp.permute_dims(x.reshape((-1, count, *plane, taps, wide // taps)), (0, 1, 2, 3, 4, 6, 5))
    span = (count - 1) * stride + dilation * (taps - 1) + 1
    whole = xp.fold_windows(stacked, shape=(span,), stride=(stride,), dilation=(dilation,), axes=(1,))
    if padding + size > span:
        whole = xp.pad(whole, ((0, 0), (0, padding + size - span), *((0, 0),) * 4))
    return whole[:, padding : padding + size].reshape((-1, *plane, wide // taps))


def _plane(kernels: Tensor, dims: int) -> Tensor:
    """Weights (groups, o, c, ...) with one to three axes as (kh, kw, groups, c, o), with a depth among the channels.

    Their sizes are asked for as numbers, which a trace is then for: there is no kernel for any number of channels.
    """
    for n in kernels.shape:
        operator.index(n)
    if dims == 1:
        kernels = kernels[:, :, :, None]
    if dims == 3:
        groups, out, channels, depth, *size = kernels.shape
        kernels = xp.permute_dims(kernels, (0, 1, 3, 2, 4, 5)).reshape((groups, out, depth * channels, *size))
    return xp.permute_dims(kernels, (3, 4, 0, 2, 1))


def _two(values: Sequence[T], missing: T) -> tuple[T, ...]:
    """The values of the last two axes; a sequence has one row."""
    return (missing, *values) if len(values) == 1 else tuple(values[-2:])


def _last(x: Tensor, groups: int) -> Tensor:
    """(n, c, ..., w) -> (n, ..., w, groups, c / groups), with a row for a sequence."""
    n, channels, *size = x.shape
    rows = (1, *size) if len(size) == 1 else size
    return xp.permute_dims(x, (0, *range(2, x.ndim), 1)).reshape((n, *rows, groups, channels // groups))


def _first(x: Tensor, dims: int, depth: int) -> Tensor:
    """(n, h, w, groups, c) -> (n, groups * c, h, w); without the row of a sequence, with the depth of a volume."""
    *size, groups, channels = x.shape
    if dims == 1:
        size = [size[0], size[2]]
    elif dims == 3:
        size = [size[0] // depth, depth, *size[1:]]
    return xp.permute_dims(x.reshape((*size, groups * channels)), (0, dims + 1, *range(1, dims + 1)))


def _finished(result: Tensor, bias: Tensor | None, single: bool) -> Tensor:
    if bias is not None:
        result = result + bias.reshape((bias.shape[0], *(1,) * (result.ndim - 2)))
    return result[0] if single else result


# ---------------------------------------------------------------- arguments


def _kernel(what: str, x: Tensor, weight: Tensor, groups: int, dims: int) -> list[int]:
    if weight.ndim != dims + 2:
        raise ShapeError(f"{what}: weight must be (out, in / groups, {_KERNELS[dims]}), got shape {weight.shape}")
    out, per_group, *size = weight.shape
    if groups < 1 or out % groups or x.shape[1] != per_group * groups:
        raise ShapeError(
            f"{what}: input {x.shape} and weight {weight.shape} do not fit with groups={groups}: the input needs "
            f"{per_group * max(groups, 1)} channels and the {out} outputs must divide by groups"
        )
    return size


def same_padding(size: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    """Padding (before, after) that keeps the length of each axis; an odd element goes after it."""
    totals = (d * (k - 1) for k, d in zip(size, dilation, strict=True))
    return [(n // 2, n - n // 2) for n in totals]


def _around(
    what: str, padding: Padding, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """Zeros before and after, an axis each."""
    if isinstance(padding, str) and stride:
        if padding == "valid":
            return [(0, 0)] * len(size)
        if padding != "same":
            raise ArgumentError(f"{what}: padding must be a number, a pair, 'same' or 'valid', got {padding!r}")
        if set(stride) != {1}:
            raise ArgumentError(f"{what}: padding='same' needs stride 1, got stride={tuple(stride)}")
        return same_padding(size, dilation)
    around = numbers(what, "padding", padding, len(size))  # type: ignore[arg-type]
    if min(around) < 0:
        raise ArgumentError(f"{what}: padding must not be negative, got {around}")
    return [(n, n) for n in around]


__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fold", "unfold"]
