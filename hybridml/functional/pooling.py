"""Pooling over windows, in PyTorch's channels-first layout."""

from __future__ import annotations

from collections.abc import Sequence

import hybridml as hm
from hybridml_compiler.errors import ArgumentError

from ..tensor import Tensor
from .compiled import compiled
from .convolution import Pair, batched, fits, numbers


@compiled
def max_pool2d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Largest value of each window; padding counts as minus infinity. (n, c, h, w) or (c, h, w).

    The first of equal maxima gets the gradient, as in PyTorch.

    >>> max_pool2d(hm.asarray([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[4.0]]]
    """
    x, single = batched("max_pool2d", input, 2)
    size = numbers("max_pool2d", "kernel_size", kernel_size, 2)
    steps = size if stride is None else numbers("max_pool2d", "stride", stride, 2)
    dilations = numbers("max_pool2d", "dilation", dilation, 2)
    around = _pool_padding("max_pool2d", x, size, steps, padding, dilations, ceil_mode)
    fits("max_pool2d", x, size, around, dilations)
    result = hm.max_pool(x, size=size, stride=steps, padding=around, dilation=dilations)
    return result[0] if single else result


@compiled
def avg_pool2d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window. (n, c, h, w) or (c, h, w). `count_include_pad` counts the zeros of the padding.

    >>> avg_pool2d(hm.asarray([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[2.5]]]
    """
    x, single = batched("avg_pool2d", input, 2)
    size = numbers("avg_pool2d", "kernel_size", kernel_size, 2)
    steps = size if stride is None else numbers("avg_pool2d", "stride", stride, 2)
    around = _pool_padding("avg_pool2d", x, size, steps, padding, (1, 1), ceil_mode)
    result = _windows("avg_pool2d", _pad(x, around, 0), size, steps, (1, 1)).sum(axis=(-2, -1))
    before = numbers("avg_pool2d", "padding", padding, 2)
    plain = all(low == high == p for (low, high), p in zip(around, before, strict=True))
    if plain and (count_include_pad or before == (0, 0)):
        result = result / (size[0] * size[1])
    else:
        # Elements that count: the input's own, and with `count_include_pad` the padding that was asked for (the
        # further padding of `ceil_mode` never counts).
        inner = before if count_include_pad else (0, 0)
        ones = hm.ones((1, 1, *(n + 2 * k for n, k in zip(x.shape[2:], inner, strict=True))), dtype=x.dtype)
        outer = [(low - k, high - k) for (low, high), k in zip(around, inner, strict=True)]
        result = result / _windows("avg_pool2d", _pad(ones, outer, 0), size, steps, (1, 1)).sum(axis=(-2, -1))
    return result[0] if single else result


def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    """Mean over windows chosen so that the output has `output_size` (None keeps an axis). (n, c, h, w) or (c, h, w).

    Window k of m along n elements is ``floor(k n / m) : ceil((k + 1) n / m)``, as in PyTorch.

    >>> adaptive_avg_pool2d(hm.ones((2, 3, 7, 7)), 1).shape
    (2, 3, 1, 1)
    """
    wanted = list(output_size) if isinstance(output_size, Sequence) else [output_size, output_size]
    if len(wanted) != 2 or not all(n is None or n > 0 for n in wanted):
        raise ArgumentError(f"adaptive_avg_pool2d: output_size must be positive or a pair, got {output_size!r}")
    x = input
    for axis, asked in zip((-2, -1), wanted, strict=True):
        n = x.shape[axis]
        m = n if asked is None else asked
        if n % m == 0:
            split = (*x.shape[:axis], m, n // m, *(x.shape[-1:] if axis == -2 else ()))
            x = x.reshape(split).mean(axis=axis)
        else:
            x = hm.concat([_narrow(x, axis, k * n // m, -(-(k + 1) * n // m)) for k in range(m)], axis=axis)
    return x


def _narrow(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    part = x[..., start:stop] if axis == -1 else x[..., start:stop, :]
    return part.mean(axis=axis, keepdims=True)


def _pool_padding(
    what: str,
    x: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Pair,
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[tuple[int, int]]:
    around = numbers(what, "padding", padding, 2)
    if any(2 * p > k for p, k in zip(around, size, strict=True)):
        raise ArgumentError(f"{what}: padding must be at most half of the window {tuple(size)}, got {around}")
    result = []
    for n, k, s, p, d in zip(x.shape[2:], size, stride, around, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        windows = -(-span // s) + 1 if ceil_mode else span // s + 1
        if ceil_mode and (windows - 1) * s >= n + p:  # a window may not start in the padding on the right
            windows -= 1
        result.append((p, max(p, (windows - 1) * s + d * (k - 1) + 1 - n - p)))
    return result


def _pad(x: Tensor, around: Sequence[tuple[int, int]], value: float) -> Tensor:
    if all(low == high == 0 for low, high in around):
        return x
    return hm.pad(x, ((0, 0), (0, 0), *around), value)


def _windows(what: str, x: Tensor, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """(n, c, h, w) -> (n, c, h', w', kh, kw)."""
    fits(what, x, size, ((0, 0), (0, 0)), dilation)
    return hm.windows(x, size=tuple(size), stride=tuple(stride), dilation=tuple(dilation))
