"""Conv1d, Conv2d and ConvTranspose2d, in PyTorch's channels-first layout."""

from __future__ import annotations

from typing import Any

import hybridml as hm
from hybridml_compiler.errors import ArgumentError

from .. import functional as F
from ..functional.convolution import Padding, Pair, numbers
from ..tensor import Tensor, adopt
from .linear import uniform_by_fan_in
from .module import Module
from .parameter import Parameter


def channels_last(outer: int, inner: int, kernel: tuple[int, ...], dtype: Any = None) -> Tensor:
    """An empty (outer, inner, *kernel) that lies in memory as (*kernel, inner, outer), the order that compiled
    convolutions read: a step that had to permute every weight and its gradient took a quarter longer (ResNet-18)."""
    memory = hm.empty((*kernel, inner, outer), dtype=dtype).numpy()
    dims = len(kernel)
    return adopt(memory.transpose(dims + 1, dims, *range(dims)))


class _Convolution(Module):
    """What the layers share: checked arguments, parameters and the text of `repr`."""

    dims: int
    padding: Padding

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair,
        padding: Padding,
        dilation: Pair,
        groups: int,
        bias: bool,
        padding_mode: str,
        dtype: Any,
        transposed: bool = False,
    ) -> None:
        super().__init__()
        what = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"{what}: in_channels={in_channels} and out_channels={out_channels} must divide by groups={groups}"
            )
        if padding_mode != "zeros":
            raise ArgumentError(
                f"{what}: padding_mode must be 'zeros', got {padding_mode!r}; pad the input before the layer instead"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = numbers(what, "kernel_size", kernel_size, self.dims)
        self.stride = numbers(what, "stride", stride, self.dims)
        self.dilation = numbers(what, "dilation", dilation, self.dims)
        self.padding = padding if isinstance(padding, str) else numbers(what, "padding", padding, self.dims)
        self.padding_mode = padding_mode
        outer, inner = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        self._make_state(outer, inner // groups, bias, dtype)

    def _make_state(self, outer: int, inner: int, bias: bool, dtype: Any) -> None:
        self.weight = Parameter(channels_last(outer, inner, self.kernel_size))
        self.register_parameter("bias", Parameter(hm.empty((self.out_channels,))) if bias else None)
        self.reset_parameters()
        self._draw_in(dtype)

    def reset_parameters(self) -> None:
        uniform_by_fan_in(self.weight, self.bias)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        defaults: tuple[tuple[str, Any], ...] = (
            ("padding", (0,) * self.dims),
            ("output_padding", (0,) * self.dims),
            ("dilation", (1,) * self.dims),
            ("groups", 1),
        )
        for name, default in defaults:
            if getattr(self, name, default) != default:
                text += f", {name}={getattr(self, name)!r}"
        return text if self.bias is not None else text + ", bias=False"


class Conv1d(_Convolution):
    """Cross-correlation (n, in_channels, l) -> (n, out_channels, l'); see `functional.conv1d`.

    >>> Conv1d(3, 8, 5, padding="same")(hm.ones((2, 3, 20))).shape
    (2, 8, 20)
    """

    dims = 1

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Padding = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, dtype
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        return F.conv1d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(_Convolution):
    """Cross-correlation (n, in_channels, h, w) -> (n, out_channels, h', w'); see `functional.conv2d`.

    >>> Conv2d(3, 64, 7, stride=2, padding=3)(hm.ones((1, 3, 32, 32))).shape
    (1, 64, 16, 16)
    """

    dims = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Padding = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, dtype
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose2d(_Convolution):
    """The transpose of a `Conv2d`: (n, in_channels, h, w) -> (n, out_channels, h', w'); see
    `functional.conv_transpose2d`.

    >>> ConvTranspose2d(8, 3, 4, stride=2, padding=1)(hm.ones((1, 8, 16, 16))).shape
    (1, 3, 32, 32)
    """

    dims = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        output_padding: Pair = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Pair = 1,
        padding_mode: str = "zeros",
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, numbers("ConvTranspose2d", "padding", padding, 2), dilation,
            groups, bias, padding_mode, dtype, transposed=True,
        )  # fmt: skip
        self.output_padding = numbers("ConvTranspose2d", "output_padding", output_padding, 2)

    def forward(self, input: Tensor) -> Tensor:
        assert not isinstance(self.padding, str)
        return F.conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )
