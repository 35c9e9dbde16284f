"""Conv2d and the pooling layers, in NCHW layout."""

from __future__ import annotations

from collections.abc import Sequence

import hybridml as hm
from hybridml_compiler.errors import ArgumentError

from .. import functional as F
from ..functional.convolution import Padding, Pair, pair
from ..tensor import Tensor
from .linear import uniform_by_fan_in
from .module import Module
from .parameter import Parameter


class Conv2d(Module):
    """Cross-correlation (n, in_channels, h, w) -> (n, out_channels, h', w'); see `functional.conv2d`.

    >>> Conv2d(3, 64, 7, stride=2, padding=3)(hm.ones((1, 3, 32, 32))).shape
    (1, 64, 16, 16)
    """

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
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"Conv2d: in_channels={in_channels} and out_channels={out_channels} must divide by groups={groups}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = pair("Conv2d", "kernel_size", kernel_size)
        self.stride, self.dilation = pair("Conv2d", "stride", stride), pair("Conv2d", "dilation", dilation)
        self.padding: Padding = padding if isinstance(padding, str) else pair("Conv2d", "padding", padding)
        self.weight = Parameter(hm.empty((out_channels, in_channels // groups, *self.kernel_size)))
        self.register_parameter("bias", Parameter(hm.empty((out_channels,))) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        uniform_by_fan_in(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, default in (("padding", (0, 0)), ("dilation", (1, 1)), ("groups", 1)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)!r}"
        return text if self.bias is not None else text + ", bias=False"


class MaxPool2d(Module):
    """Largest value of each window; see `functional.max_pool2d`."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return F.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(Module):
    """Mean of each window; see `functional.avg_pool2d`."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Mean over windows that give the asked output size; see `functional.adaptive_avg_pool2d`."""

    def __init__(self, output_size: int | Sequence[int | None] | None) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
