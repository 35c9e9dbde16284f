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
    """Largest value of each window.

    Shapes (n, c, l) or (c, l) -> (..., l'). `kernel_size`, `stride` (the size of the window unless given) and
    `padding` are one number or one per axis. `dilation` spreads a window out, `ceil_mode` keeps windows that go over
    the end, and `return_indices` returns (values, int64 indices), as `MaxUnpool1d` takes them. Raises ShapeError for
    other axes or an input smaller than a window, ArgumentError for sizes below 1 or padding of more than half a
    window. See `functional.max_pool1d`.

    >>> MaxPool1d(2)(hm.ones((1, 2, 8))).shape
    (1, 2, 4)
    """

    function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """Largest value of each window.

    Shapes (n, c, h, w) or (c, h, w) -> (..., h', w'). `kernel_size`, `stride` (the size of the window unless given)
    and `padding` are one number or one per axis. `dilation` spreads a window out, `ceil_mode` keeps windows that go
    over the end, and `return_indices` returns (values, int64 indices), as `MaxUnpool2d` takes them. Raises ShapeError
    for other axes or an input smaller than a window, ArgumentError for sizes below 1 or padding of more than half a
    window. See `functional.max_pool2d`.

    >>> MaxPool2d(2)(hm.ones((1, 2, 8, 8))).shape
    (1, 2, 4, 4)
    """

    function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """Largest value of each window.

    Shapes (n, c, d, h, w) or (c, d, h, w) -> (..., d', h', w'). `kernel_size`, `stride` (the size of the window unless
    given) and `padding` are one number or one per axis. `dilation` spreads a window out, `ceil_mode` keeps windows
    that go over the end, and `return_indices` returns (values, int64 indices), as `MaxUnpool3d` takes them. Raises
    ShapeError for other axes or an input smaller than a window, ArgumentError for sizes below 1 or padding of more
    than half a window. See `functional.max_pool3d`.

    >>> MaxPool3d(2)(hm.ones((1, 2, 8, 8, 8))).shape
    (1, 2, 4, 4, 4)
    """

    function = staticmethod(F.max_pool3d)


class MaxUnpool1d(_MaxUnpool):
    """Values of a `MaxPool1d` put back at their indices, with zeros elsewhere: (..., l') -> (..., l).

    Called with (input, indices, output_size=None), where `input` and `indices` have one shape (ShapeError otherwise);
    `output_size` chooses among the sizes that such windows come from (ArgumentError for others). See
    `functional.max_unpool1d`.

    >>> pooled, indices = MaxPool1d(2, return_indices=True)(hm.ones((1, 2, 8)))
    >>> MaxUnpool1d(2)(pooled, indices).shape
    (1, 2, 8)
    """

    function = staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """Values of a `MaxPool2d` put back at their indices, with zeros elsewhere: (..., h', w') -> (..., h, w).

    Called with (input, indices, output_size=None), where `input` and `indices` have one shape (ShapeError otherwise);
    `output_size` chooses among the sizes that such windows come from (ArgumentError for others). See
    `functional.max_unpool2d`.

    >>> pooled, indices = MaxPool2d(2, return_indices=True)(hm.ones((1, 2, 8, 8)))
    >>> MaxUnpool2d(2)(pooled, indices).shape
    (1, 2, 8, 8)
    """

    function = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """Values of a `MaxPool3d` put back at their indices, with zeros elsewhere: (..., d', h', w') -> (..., d, h, w).

    Called with (input, indices, output_size=None), where `input` and `indices` have one shape (ShapeError otherwise);
    `output_size` chooses among the sizes that such windows come from (ArgumentError for others). See
    `functional.max_unpool3d`.

    >>> pooled, indices = MaxPool3d(2, return_indices=True)(hm.ones((1, 2, 8, 8, 8)))
    >>> MaxUnpool3d(2)(pooled, indices).shape
    (1, 2, 8, 8, 8)
    """

    function = staticmethod(F.max_unpool3d)


class AvgPool1d(_AvgPool):
    """Mean of the elements of each window.

    Shapes (n, c, l) or (c, l) -> (..., l'). `kernel_size`, `stride` (the size of the window unless given) and
    `padding` are one number or one per axis. `ceil_mode` keeps windows that go over the end, `count_include_pad`
    counts the zeros of the padding. Raises ShapeError for other axes or an input smaller than a window, ArgumentError
    for sizes below 1, padding of more than half a window. See `functional.avg_pool1d`.

    >>> AvgPool1d(2)(hm.ones((1, 2, 8))).shape
    (1, 2, 4)
    """

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
    """Mean of the elements of each window.

    Shapes (n, c, h, w) or (c, h, w) -> (..., h', w'). `kernel_size`, `stride` (the size of the window unless given)
    and `padding` are one number or one per axis. `ceil_mode` keeps windows that go over the end, `count_include_pad`
    counts the zeros of the padding, and `divisor_override` divides all sums. Raises ShapeError for other axes or an
    input smaller than a window, ArgumentError for sizes below 1, padding of more than half a window or a divisor of 0.
    See `functional.avg_pool2d`.

    >>> AvgPool2d(2)(hm.ones((1, 2, 8, 8))).shape
    (1, 2, 4, 4)
    """

    function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPool):
    """Mean of the elements of each window.

    Shapes (n, c, d, h, w) or (c, d, h, w) -> (..., d', h', w'). `kernel_size`, `stride` (the size of the window unless
    given) and `padding` are one number or one per axis. `ceil_mode` keeps windows that go over the end,
    `count_include_pad` counts the zeros of the padding, and `divisor_override` divides all sums. Raises ShapeError for
    other axes or an input smaller than a window, ArgumentError for sizes below 1, padding of more than half a window
    or a divisor of 0. See `functional.avg_pool3d`.

    >>> AvgPool3d(2)(hm.ones((1, 2, 8, 8, 8))).shape
    (1, 2, 4, 4, 4)
    """

    function = staticmethod(F.avg_pool3d)


class LPPool1d(_LPPool):
    """Norm ``(sum x^p)^(1/p)`` of each window, with p = `norm_type`.

    Shapes (n, c, l) or (c, l) -> (..., l'). `kernel_size` and `stride` (the size of the window unless given) are one
    number or one per axis; `ceil_mode` keeps windows that go over the end. Raises ArgumentError for ``norm_type=0``,
    ShapeError for other axes. See `functional.lp_pool1d`.

    >>> LPPool1d(2, 2)(hm.ones((1, 2, 8))).shape
    (1, 2, 4)
    """

    function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """Norm ``(sum x^p)^(1/p)`` of each window, with p = `norm_type`.

    Shapes (n, c, h, w) or (c, h, w) -> (..., h', w'). `kernel_size` and `stride` (the size of the window unless given)
    are one number or one per axis; `ceil_mode` keeps windows that go over the end. Raises ArgumentError for
    ``norm_type=0``, ShapeError for other axes. See `functional.lp_pool2d`.

    >>> LPPool2d(2, 2)(hm.ones((1, 2, 8, 8))).shape
    (1, 2, 4, 4)
    """

    function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """Norm ``(sum x^p)^(1/p)`` of each window, with p = `norm_type`.

    Shapes (n, c, d, h, w) or (c, d, h, w) -> (..., d', h', w'). `kernel_size` and `stride` (the size of the window
    unless given) are one number or one per axis; `ceil_mode` keeps windows that go over the end. Raises ArgumentError
    for ``norm_type=0``, ShapeError for other axes. See `functional.lp_pool3d`.

    >>> LPPool3d(2, 2)(hm.ones((1, 2, 8, 8, 8))).shape
    (1, 2, 4, 4, 4)
    """

    function = staticmethod(F.lp_pool3d)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Mean over windows chosen so that the result has `output_size`.

    Shapes (n, c, l) or (c, l) -> (..., l'). `output_size` is one number or one per axis; ArgumentError for others.
    Raises ShapeError for an input of other axes. See `functional.adaptive_avg_pool1d`.

    >>> AdaptiveAvgPool1d(1)(hm.ones((1, 2, 8))).shape
    (1, 2, 1)
    """

    function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Mean over windows chosen so that the result has `output_size`.

    Shapes (n, c, h, w) or (c, h, w) -> (..., h', w'). `output_size` is one number or one per axis, of which None keeps
    its axis; ArgumentError for others. Raises ShapeError for an input of other axes. See
    `functional.adaptive_avg_pool2d`.

    >>> AdaptiveAvgPool2d(1)(hm.ones((1, 2, 8, 8))).shape
    (1, 2, 1, 1)
    """

    function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Mean over windows chosen so that the result has `output_size`.

    Shapes (n, c, d, h, w) or (c, d, h, w) -> (..., d', h', w'). `output_size` is one number or one per axis, of which
    None keeps its axis; ArgumentError for others. Raises ShapeError for an input of other axes. See
    `functional.adaptive_avg_pool3d`.

    >>> AdaptiveAvgPool3d(1)(hm.ones((1, 2, 8, 8, 8))).shape
    (1, 2, 1, 1, 1)
    """

    function = staticmethod(F.adaptive_avg_pool3d)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Largest value of windows chosen so that the result has `output_size`.

    Shapes (n, c, l) or (c, l) -> (..., l'). `output_size` is one number or one per axis (ArgumentError for others);
    `return_indices` returns (values, int64 indices). Raises ShapeError for an input of other axes. See
    `functional.adaptive_max_pool1d`.

    >>> AdaptiveMaxPool1d(1)(hm.ones((1, 2, 8))).shape
    (1, 2, 1)
    """

    function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Largest value of windows chosen so that the result has `output_size`.

    Shapes (n, c, h, w) or (c, h, w) -> (..., h', w'). `output_size` is one number or one per axis, of which None keeps
    its axis (ArgumentError for others); `return_indices` returns (values, int64 indices). Raises ShapeError for an
    input of other axes. See `functional.adaptive_max_pool2d`.

    >>> AdaptiveMaxPool2d(1)(hm.ones((1, 2, 8, 8))).shape
    (1, 2, 1, 1)
    """

    function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Largest value of windows chosen so that the result has `output_size`.

    Shapes (n, c, d, h, w) or (c, d, h, w) -> (..., d', h', w'). `output_size` is one number or one per axis, of which
    None keeps its axis (ArgumentError for others); `return_indices` returns (values, int64 indices). Raises ShapeError
    for an input of other axes. See `functional.adaptive_max_pool3d`.

    >>> AdaptiveMaxPool3d(1)(hm.ones((1, 2, 8, 8, 8))).shape
    (1, 2, 1, 1, 1)
    """

    function = staticmethod(F.adaptive_max_pool3d)
