"""Pooling layers over one, two and three axes, in PyTorch's channels-first layout."""

from __future__ import annotations

from collections.abc import Sequence

from .. import functional as F
from ..core.tensor import Tensor
from ..functional.adaptive import Sizes
from ..functional.arguments import Pair
from .function_module import FunctionModule, Spatial


class _MaxPool(Spatial, FunctionModule):
    """Largest value of each window.

    Shapes {layout} -> (..., {out}).
    `kernel_size`, `stride` (the size of the window unless given) and `padding` are one number or one per axis.
    `dilation` spreads a window out, `ceil_mode` keeps windows that go over the end, and `return_indices` returns
    (values, int64 indices), as `MaxUnpool{dims}d` takes them. Raises ShapeError for other axes or an input smaller than
    a window, ArgumentError for sizes below 1 or padding of more than half a window. See `functional.max_pool{dims}d`.

    >>> MaxPool{dims}d(2)(hm.ones((1, 2, {times[8]}))).shape
    (1, 2, {times[4]})
    """

    functions = (F.max_pool1d, F.max_pool2d, F.max_pool3d)

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


class _MaxUnpool(Spatial, FunctionModule):
    """Values of a `MaxPool{dims}d` put back at their indices, with zeros elsewhere: (..., {out}) -> (..., {axes}).

    Called with (input, indices, output_size=None), where `input` and `indices` have one shape (ShapeError otherwise);
    `output_size` chooses among the sizes that such windows come from (ArgumentError for others). See
    `functional.max_unpool{dims}d`.

    >>> pooled, indices = MaxPool{dims}d(2, return_indices=True)(hm.ones((1, 2, {times[8]})))
    >>> MaxUnpool{dims}d(2)(pooled, indices).shape
    (1, 2, {times[8]})
    """

    functions = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)

    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0) -> None:
        super().__init__(kernel_size=kernel_size, stride=kernel_size if stride is None else stride, padding=padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        found: Tensor = type(self).function(input, indices, self.kernel_size, self.stride, self.padding, output_size)
        return found


class _AvgPool(Spatial, FunctionModule):
    """Mean of the elements of each window.

    Shapes {layout} -> (..., {out}).
    `kernel_size`, `stride` (the size of the window unless given) and `padding` are one number or one per axis.
    `ceil_mode` keeps windows that go over the end, `count_include_pad` counts the zeros of the padding, and
    `divisor_override` divides all sums. Raises ShapeError for other axes or an input smaller than a window,
    ArgumentError for sizes below 1, padding of more than half a window or a divisor of 0. See
    `functional.avg_pool{dims}d`.

    >>> AvgPool{dims}d(2)(hm.ones((1, 2, {times[8]}))).shape
    (1, 2, {times[4]})
    """

    functions = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)

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


class _LPPool(Spatial, FunctionModule):
    """Norm ``(sum x^p)^(1/p)`` of each window, with p = `norm_type`.

    Shapes {layout} -> (..., {out}).
    `kernel_size` and `stride` (the size of the window unless given) are one number or one per axis; `ceil_mode` keeps
    windows that go over the end. Raises ArgumentError for ``norm_type=0``, ShapeError for other axes. See
    `functional.lp_pool{dims}d`.

    >>> LPPool{dims}d(2, 2)(hm.ones((1, 2, {times[8]}))).shape
    (1, 2, {times[4]})
    """

    functions = (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)

    def __init__(
        self, norm_type: float, kernel_size: Pair, stride: Pair | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__(norm_type=norm_type, kernel_size=kernel_size, stride=stride, ceil_mode=ceil_mode)


class _AdaptiveAvgPool(Spatial, FunctionModule):
    """Mean over windows chosen so that the result has `output_size`.

    Shapes {layout} -> (..., {out}).
    `output_size` is one number or one per axis, of which None keeps its axis; ArgumentError for others. Raises
    ShapeError for an input of other axes. See `functional.adaptive_avg_pool{dims}d`.

    >>> AdaptiveAvgPool{dims}d(1)(hm.ones((1, 2, {times[8]}))).shape
    (1, 2, {times[1]})
    """

    functions = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)

    def __init__(self, output_size: Sizes) -> None:
        super().__init__(output_size=output_size)


class _AdaptiveMaxPool(Spatial, FunctionModule):
    """Largest value of windows chosen so that the result has `output_size`.

    Shapes {layout} -> (..., {out}).
    `output_size` is one number or one per axis, of which None keeps its axis (ArgumentError for others);
    `return_indices` returns (values, int64 indices). Raises ShapeError for an input of other axes. See
    `functional.adaptive_max_pool{dims}d`.

    >>> AdaptiveMaxPool{dims}d(1)(hm.ones((1, 2, {times[8]}))).shape
    (1, 2, {times[1]})
    """

    functions = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)

    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None:
        super().__init__(output_size=output_size, return_indices=return_indices)


class MaxPool1d(_MaxPool, dims=1): ...


class MaxPool2d(_MaxPool, dims=2): ...


class MaxPool3d(_MaxPool, dims=3): ...


class MaxUnpool1d(_MaxUnpool, dims=1): ...


class MaxUnpool2d(_MaxUnpool, dims=2): ...


class MaxUnpool3d(_MaxUnpool, dims=3): ...


class AvgPool1d(_AvgPool, dims=1):
    """Mean of the elements of each window.

    Shapes (n, c, l) or (c, l) -> (..., l'). `kernel_size`, `stride` (the size of the window unless given) and
    `padding` are one number or one per axis. `ceil_mode` keeps windows that go over the end, `count_include_pad`
    counts the zeros of the padding. Raises ShapeError for other axes or an input smaller than a window, ArgumentError
    for sizes below 1, padding of more than half a window. See `functional.avg_pool1d`.

    >>> AvgPool1d(2)(hm.ones((1, 2, 8))).shape
    (1, 2, 4)
    """

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        FunctionModule.__init__(
            self, kernel_size=kernel_size, stride=kernel_size if stride is None else stride, padding=padding,
            ceil_mode=ceil_mode, count_include_pad=count_include_pad,
        )  # fmt: skip


class AvgPool2d(_AvgPool, dims=2): ...


class AvgPool3d(_AvgPool, dims=3): ...


class LPPool1d(_LPPool, dims=1): ...


class LPPool2d(_LPPool, dims=2): ...


class LPPool3d(_LPPool, dims=3): ...


class AdaptiveAvgPool1d(_AdaptiveAvgPool, dims=1): ...


class AdaptiveAvgPool2d(_AdaptiveAvgPool, dims=2): ...


class AdaptiveAvgPool3d(_AdaptiveAvgPool, dims=3): ...


class AdaptiveMaxPool1d(_AdaptiveMaxPool, dims=1): ...


class AdaptiveMaxPool2d(_AdaptiveMaxPool, dims=2): ...


class AdaptiveMaxPool3d(_AdaptiveMaxPool, dims=3): ...


__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip
