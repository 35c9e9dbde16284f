"""Padding layers: (before, after) of the last axis first, or one number for all sides."""

from __future__ import annotations

from collections.abc import Sequence

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import functional as F
from ..core.tensor import Tensor
from ..functional.arguments import LAYOUTS
from .module import Module


class _Pad(Module):
    dims: int
    mode: str = "constant"

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = (padding,) * (2 * self.dims) if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != 2 * self.dims:
            raise ArgumentError(
                f"{type(self).__name__}: padding must be a number or {2 * self.dims} of them, got {padding!r}"
            )

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self.dims + 1, self.dims + 2):
            raise ShapeError(f"{type(self).__name__}: input must be {LAYOUTS[self.dims]}, got shape {input.shape}")
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, value=self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Input with `value` around its last axis.

    Shapes (n, c, l) or (c, l) -> (..., l'). `padding` is one width for all sides, or 2 of them, (before, after) of the
    last axis first; negative ones crop. Raises ArgumentError for another number of widths. See `functional.pad`.

    >>> ConstantPad1d(1, 0.5)(hm.ones((1, 2, 4))).shape
    (1, 2, 6)
    """

    dims = 1


class ConstantPad2d(_ConstantPad):
    """Input with `value` around its last 2 axes.

    Shapes (n, c, h, w) or (c, h, w) -> (..., h', w'). `padding` is one width for all sides, or 4 of them,
    (before, after) of the last axis first; negative ones crop. Raises ArgumentError for another number of widths. See
    `functional.pad`.

    >>> ConstantPad2d(1, 0.5)(hm.ones((1, 2, 4, 4))).shape
    (1, 2, 6, 6)
    """

    dims = 2


class ConstantPad3d(_ConstantPad):
    """Input with `value` around its last 3 axes.

    Shapes (n, c, d, h, w) or (c, d, h, w) -> (..., d', h', w'). `padding` is one width for all sides, or 6 of them,
    (before, after) of the last axis first; negative ones crop. Raises ArgumentError for another number of widths. See
    `functional.pad`.

    >>> ConstantPad3d(1, 0.5)(hm.ones((1, 2, 4, 4, 4))).shape
    (1, 2, 6, 6, 6)
    """

    dims = 3


class ZeroPad1d(_Pad):
    """Input with zeros around its last axis.

    Shapes (n, c, l) or (c, l) -> (..., l'). `padding` is one width for all sides, or 2 of them, (before, after) of the
    last axis first; negative ones crop. Raises ArgumentError for another number of widths, ShapeError for another
    number of axes. See `functional.pad`.

    >>> ZeroPad1d(1)(hm.ones((1, 2, 4))).shape
    (1, 2, 6)
    """

    dims = 1


class ZeroPad2d(_Pad):
    """Input with zeros around its last 2 axes.

    Shapes (n, c, h, w) or (c, h, w) -> (..., h', w'). `padding` is one width for all sides, or 4 of them,
    (before, after) of the last axis first; negative ones crop. Raises ArgumentError for another number of widths,
    ShapeError for another number of axes. See `functional.pad`.

    >>> ZeroPad2d(1)(hm.ones((1, 2, 4, 4))).shape
    (1, 2, 6, 6)
    """

    dims = 2


class ZeroPad3d(_Pad):
    """Input with zeros around its last 3 axes.

    Shapes (n, c, d, h, w) or (c, d, h, w) -> (..., d', h', w'). `padding` is one width for all sides, or 6 of them,
    (before, after) of the last axis first; negative ones crop. Raises ArgumentError for another number of widths,
    ShapeError for another number of axes. See `functional.pad`.

    >>> ZeroPad3d(1)(hm.ones((1, 2, 4, 4, 4))).shape
    (1, 2, 6, 6, 6)
    """

    dims = 3


class ReflectionPad1d(_Pad):
    """Input with its mirror image, without the edge, around its last axis.

    Shapes (n, c, l) or (c, l) -> (..., l'). `padding` is one width for all sides, or 2 of them, (before, after) of the
    last axis first; negative ones crop. Raises ArgumentError for another number of widths, ShapeError for another
    number of axes or too few elements to reflect. See `functional.pad`.

    >>> ReflectionPad1d(1)(hm.ones((1, 2, 4))).shape
    (1, 2, 6)
    """

    dims = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """Input with its mirror image, without the edge, around its last 2 axes.

    Shapes (n, c, h, w) or (c, h, w) -> (..., h', w'). `padding` is one width for all sides, or 4 of them,
    (before, after) of the last axis first; negative ones crop. Raises ArgumentError for another number of widths,
    ShapeError for another number of axes or too few elements to reflect. See `functional.pad`.

    >>> ReflectionPad2d(1)(hm.ones((1, 2, 4, 4))).shape
    (1, 2, 6, 6)
    """

    dims = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """Input with its mirror image, without the edge, around its last 3 axes.

    Shapes (n, c, d, h, w) or (c, d, h, w) -> (..., d', h', w'). `padding` is one width for all sides, or 6 of them,
    (before, after) of the last axis first; negative ones crop. Raises ArgumentError for another number of widths,
    ShapeError for another number of axes or too few elements to reflect. See `functional.pad`.

    >>> ReflectionPad3d(1)(hm.ones((1, 2, 4, 4, 4))).shape
    (1, 2, 6, 6, 6)
    """

    dims = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """Input with its edge around its last axis.

    Shapes (n, c, l) or (c, l) -> (..., l'). `padding` is one width for all sides, or 2 of them, (before, after) of the
    last axis first; negative ones crop. Raises ArgumentError for another number of widths, ShapeError for another
    number of axes. See `functional.pad`.

    >>> ReplicationPad1d(1)(hm.ones((1, 2, 4))).shape
    (1, 2, 6)
    """

    dims = 1
    mode = "replicate"


class ReplicationPad2d(_Pad):
    """Input with its edge around its last 2 axes.

    Shapes (n, c, h, w) or (c, h, w) -> (..., h', w'). `padding` is one width for all sides, or 4 of them,
    (before, after) of the last axis first; negative ones crop. Raises ArgumentError for another number of widths,
    ShapeError for another number of axes. See `functional.pad`.

    >>> ReplicationPad2d(1)(hm.ones((1, 2, 4, 4))).shape
    (1, 2, 6, 6)
    """

    dims = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """Input with its edge around its last 3 axes.

    Shapes (n, c, d, h, w) or (c, d, h, w) -> (..., d', h', w'). `padding` is one width for all sides, or 6 of them,
    (before, after) of the last axis first; negative ones crop. Raises ArgumentError for another number of widths,
    ShapeError for another number of axes. See `functional.pad`.

    >>> ReplicationPad3d(1)(hm.ones((1, 2, 4, 4, 4))).shape
    (1, 2, 6, 6, 6)
    """

    dims = 3
    mode = "replicate"


class CircularPad1d(_Pad):
    """Input with its opposite side around its last axis.

    Shapes (n, c, l) or (c, l) -> (..., l'). `padding` is one width for all sides, or 2 of them, (before, after) of the
    last axis first; negative ones crop. Raises ArgumentError for another number of widths, ShapeError for another
    number of axes or too few elements to wrap. See `functional.pad`.

    >>> CircularPad1d(1)(hm.ones((1, 2, 4))).shape
    (1, 2, 6)
    """

    dims = 1
    mode = "circular"


class CircularPad2d(_Pad):
    """Input with its opposite side around its last 2 axes.

    Shapes (n, c, h, w) or (c, h, w) -> (..., h', w'). `padding` is one width for all sides, or 4 of them,
    (before, after) of the last axis first; negative ones crop. Raises ArgumentError for another number of widths,
    ShapeError for another number of axes or too few elements to wrap. See `functional.pad`.

    >>> CircularPad2d(1)(hm.ones((1, 2, 4, 4))).shape
    (1, 2, 6, 6)
    """

    dims = 2
    mode = "circular"


class CircularPad3d(_Pad):
    """Input with its opposite side around its last 3 axes.

    Shapes (n, c, d, h, w) or (c, d, h, w) -> (..., d', h', w'). `padding` is one width for all sides, or 6 of them,
    (before, after) of the last axis first; negative ones crop. Raises ArgumentError for another number of widths,
    ShapeError for another number of axes or too few elements to wrap. See `functional.pad`.

    >>> CircularPad3d(1)(hm.ones((1, 2, 4, 4, 4))).shape
    (1, 2, 6, 6, 6)
    """

    dims = 3
    mode = "circular"
