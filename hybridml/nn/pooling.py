"""The pooling layers, in PyTorch's channels-first layout."""

from __future__ import annotations

from collections.abc import Sequence

from .. import functional as F
from ..core.tensor import Tensor
from ..functional.adaptive import Sizes
from ..functional.arguments import Pair
from .held import Held


class _MaxPool(Held):
    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size, stride=kernel_size if stride is None else stride, padding=padding,
            dilation=dilation, return_indices=return_indices, ceil_mode=ceil_mode,
        )  # fmt: skip


class _MaxUnpool(Held):
    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0) -> None:
        super().__init__(kernel_size=kernel_size, stride=kernel_size if stride is None else stride, padding=padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        found: Tensor = type(self).function(input, indices, self.kernel_size, self.stride, self.padding, output_size)
        return found


class _AvgPool(Held):
    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size, stride=kernel_size if stride is None else stride, padding=padding,
            ceil_mode=ceil_mode, count_include_pad=count_include_pad, divisor_override=divisor_override,
        )  # fmt: skip


class _LPPool(Held):
    def __init__(
        self, norm_type: float, kernel_size: Pair, stride: Pair | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__(norm_type=norm_type, kernel_size=kernel_size, stride=stride, ceil_mode=ceil_mode)


class _AdaptiveAvgPool(Held):
    def __init__(self, output_size: Sizes) -> None:
        super().__init__(output_size=output_size)


class _AdaptiveMaxPool(Held):
    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None:
        super().__init__(output_size=output_size, return_indices=return_indices)


class MaxPool1d(_MaxPool):
    """Largest value of each window; see `functional.max_pool1d`."""

    function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """Largest value of each window; see `functional.max_pool2d`."""

    function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """Largest value of each window; see `functional.max_pool3d`."""

    function = staticmethod(F.max_pool3d)


class MaxUnpool1d(_MaxUnpool):
    """What a pooling found, back at its places; see `functional.max_unpool1d`."""

    function = staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """What a pooling found, back at its places; see `functional.max_unpool2d`."""

    function = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """What a pooling found, back at its places; see `functional.max_unpool3d`."""

    function = staticmethod(F.max_unpool3d)


class AvgPool1d(_AvgPool):
    """Mean of each window; see `functional.avg_pool1d`."""

    function = staticmethod(F.avg_pool1d)

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        Held.__init__(
            self, kernel_size=kernel_size, stride=kernel_size if stride is None else stride, padding=padding,
            ceil_mode=ceil_mode, count_include_pad=count_include_pad,
        )  # fmt: skip


class AvgPool2d(_AvgPool):
    """Mean of each window; see `functional.avg_pool2d`."""

    function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPool):
    """Mean of each window; see `functional.avg_pool3d`."""

    function = staticmethod(F.avg_pool3d)


class LPPool1d(_LPPool):
    """The norm of order `norm_type` of each window; see `functional.lp_pool1d`."""

    function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """The norm of order `norm_type` of each window; see `functional.lp_pool2d`."""

    function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """The norm of order `norm_type` of each window; see `functional.lp_pool3d`."""

    function = staticmethod(F.lp_pool3d)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Mean over windows that give the asked output size; see `functional.adaptive_avg_pool1d`."""

    function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Mean over windows that give the asked output size; see `functional.adaptive_avg_pool2d`."""

    function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Mean over windows that give the asked output size; see `functional.adaptive_avg_pool3d`."""

    function = staticmethod(F.adaptive_avg_pool3d)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Largest value of windows that give the asked output size; see `functional.adaptive_max_pool1d`."""

    function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Largest value of windows that give the asked output size; see `functional.adaptive_max_pool2d`."""

    function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Largest value of windows that give the asked output size; see `functional.adaptive_max_pool3d`."""

    function = staticmethod(F.adaptive_max_pool3d)
