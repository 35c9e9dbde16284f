"""Convolutions in PyTorch's channels-first layout.

The operation itself has its channels last, which is the order that vectors want; the layout pass takes the permutations
out of a traced network, all but those of its inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Literal

import hybridml as hm
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.convolution import transposed

from ..tensor import Tensor
from .compiled import compiled

Pair = int | Sequence[int]
Padding = Pair | Literal["same", "valid"]
_LAYOUTS = {1: "(n, c, l) or (c, l)", 2: "(n, c, h, w) or (c, h, w)"}


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

    `padding` as in `conv2d`. Shapes that do not fit are a `ShapeError`.

    >>> conv1d(hm.ones((1, 3, 8)), hm.ones((4, 3, 3)), padding=1).shape
    (1, 4, 8)
    """
    x, single = batched("conv1d", input, 1)
    size = _kernel("conv1d", x, weight, groups, 1)
    steps, dilations = numbers("conv1d", "stride", stride, 1), numbers("conv1d", "dilation", dilation, 1)
    around = _around("conv1d", padding, size, steps, dilations)
    fits("conv1d", x, size, around, dilations)
    flat = _convolved(
        x[:, :, None], weight[:, :, None], (1, *steps), ((0, 0), around[0]), (1, *dilations), groups
    )  # an image of one row
    return _finished(flat[:, :, 0], bias, single)


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
    that do not fit are a `ShapeError`.

    >>> conv2d(hm.ones((1, 3, 8, 8)), hm.ones((4, 3, 3, 3)), padding=1).shape
    (1, 4, 8, 8)
    """
    x, single = batched("conv2d", input, 2)
    size = _kernel("conv2d", x, weight, groups, 2)
    steps, dilations = numbers("conv2d", "stride", stride, 2), numbers("conv2d", "dilation", dilation, 2)
    around = _around("conv2d", padding, size, steps, dilations)
    fits("conv2d", x, size, around, dilations)
    return _finished(_convolved(x, weight, steps, around, dilations, groups), bias, single)


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
    """The transpose of `conv2d`: input (n, c, h, w) or (c, h, w), weight (c, o / groups, kh, kw), bias (o,) -> (n, o,
    h', w') with ``h' = (h - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1``.

    >>> conv_transpose2d(hm.ones((1, 4, 8, 8)), hm.ones((4, 3, 2, 2)), stride=2).shape
    (1, 3, 16, 16)
    """
    what = "conv_transpose2d"
    x, single = batched(what, input, 2)
    if weight.ndim != 4 or groups < 1 or weight.shape[0] != x.shape[1] or x.shape[1] % groups:
        raise ShapeError(
            f"{what}: weight must be (in, out / groups, kh, kw) with the input's {x.shape[1]} channels, a multiple of "
            f"groups={groups}, got shape {weight.shape}"
        )
    channels, per_group, *kernel = weight.shape
    steps, dilations = numbers(what, "stride", stride, 2), numbers(what, "dilation", dilation, 2)
    around, more = numbers(what, "padding", padding, 2), numbers(what, "output_padding", output_padding, 2)
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for n, s, p, d, k, extra in zip(x.shape[2:], steps, around, dilations, kernel, more, strict=True)
    )
    if min(size) < 1 or any(not 0 <= e < max(s, d) for e, s, d in zip(more, steps, dilations, strict=True)):
        raise ArgumentError(
            f"{what}: padding={around} and output_padding={more} would give an output of {size}; pad less, and keep "
            f"output_padding below the stride {steps} or the dilation {dilations}"
        )
    kernels = weight.reshape((groups, channels // groups, per_group, *kernel))
    result = transposed(
        _last(x, groups),
        hm.permute_dims(kernels, (3, 4, 0, 2, 1)),
        size=size,
        stride=steps,
        padding=tuple((p, p) for p in around),
        dilation=dilations,
    )
    return _finished(_first(result), bias, single)


def _convolved(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    out, per_group, *size = weight.shape
    kernels = hm.permute_dims(weight.reshape((groups, out // groups, per_group, *size)), (3, 4, 0, 2, 1))
    return _first(
        hm.convolution(
            _last(x, groups), kernels, stride=tuple(stride), padding=tuple(padding), dilation=tuple(dilation)
        )
    )


def _last(x: Tensor, groups: int) -> Tensor:
    """(n, c, h, w) -> (n, h, w, groups, c / groups)."""
    n, channels, *size = x.shape
    return hm.permute_dims(x, (0, 2, 3, 1)).reshape((n, *size, groups, channels // groups))


def _first(x: Tensor) -> Tensor:
    """(n, h, w, groups, c) -> (n, groups * c, h, w)."""
    n, height, width, groups, channels = x.shape
    return hm.permute_dims(x.reshape((n, height, width, groups * channels)), (0, 3, 1, 2))


def _finished(result: Tensor, bias: Tensor | None, single: bool) -> Tensor:
    if bias is not None:
        result = result + bias.reshape((bias.shape[0], *(1,) * (result.ndim - 2)))
    return result[0] if single else result


# ---------------------------------------------------------------- arguments


def numbers(what: str, name: str, value: Pair, n: int) -> tuple[int, ...]:
    """`n` integers; one number stands for all."""
    try:
        found = tuple(map(index, value if isinstance(value, Iterable) else (value,) * n))
    except TypeError:
        found = ()
    if len(found) != n:
        several = "a pair of integers" if n == 2 else f"{n} of them"
        raise ArgumentError(f"{what}: {name} must be an integer or {several}, got {value!r}")
    return found


def batched(what: str, input: Tensor, dims: int) -> tuple[Tensor, bool]:
    """(the input with its batch axis, was there none?)."""
    if input.ndim == dims + 2:
        return input, False
    if input.ndim == dims + 1:
        return input[None], True
    raise ShapeError(f"{what}: input must be {_LAYOUTS[dims]}, got shape {input.shape}")


def _kernel(what: str, x: Tensor, weight: Tensor, groups: int, dims: int) -> list[int]:
    if weight.ndim != dims + 2:
        form = "(out, in / groups, kh, kw)" if dims == 2 else "(out, in / groups, k)"
        raise ShapeError(f"{what}: weight must be {form}, got shape {weight.shape}")
    out, per_group, *size = weight.shape
    if groups < 1 or out % groups or x.shape[1] != per_group * groups:
        raise ShapeError(
            f"{what}: input {x.shape} and weight {weight.shape} do not fit with groups={groups}: the input needs "
            f"{per_group * max(groups, 1)} channels and the {out} outputs must divide by groups"
        )
    return size


def _around(
    what: str, padding: Padding, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """Zeros before and after, an axis each."""
    if isinstance(padding, str):
        if padding == "valid":
            return [(0, 0)] * len(size)
        if padding != "same":
            raise ArgumentError(f"{what}: padding must be a number, a pair, 'same' or 'valid', got {padding!r}")
        if set(stride) != {1}:
            raise ArgumentError(f"{what}: padding='same' needs stride 1, got stride={tuple(stride)}")
        total = [d * (k - 1) for k, d in zip(size, dilation, strict=True)]
        return [(n // 2, n - n // 2) for n in total]
    return [(n, n) for n in numbers(what, "padding", padding, len(size))]


def fits(what: str, x: Tensor, size: Sequence[int], around: Sequence[tuple[int, int]], dilation: Sequence[int]) -> None:
    padded = tuple(n + low + high for n, (low, high) in zip(x.shape[2:], around, strict=True))
    if any(n < d * (k - 1) + 1 for n, k, d in zip(padded, size, dilation, strict=True)):
        raise ShapeError(
            f"{what}: the window {tuple(size)} with dilation {tuple(dilation)} is larger than the padded input "
            f"{padded}; pad more or take a smaller window"
        )
