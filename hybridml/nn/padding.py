"""Padding layers: (before, after) of the last axis first, or one number for all sides."""

from __future__ import annotations

from collections.abc import Sequence

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import functional as F
from ..core.tensor import Tensor
from ..functional.arguments import LAYOUTS
from .function_module import Spatial


class _Pad(Spatial):
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
    """Input with `value` around its {last}.

    Shapes {layout} -> (..., {out}).
    `padding` is one width for all sides, or {sides} of them, (before, after) of the last axis first; negative ones
    crop. Raises ArgumentError for another number of widths. See `functional.pad`.

    >>> ConstantPad{dims}d(1, 0.5)(hm.ones((1, 2, {times[4]}))).shape
    (1, 2, {times[6]})
    """

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, value=self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad, dims=1): ...


class ConstantPad2d(_ConstantPad, dims=2): ...


class ConstantPad3d(_ConstantPad, dims=3): ...


class _ZeroPad(_Pad):
    """Input with zeros around its {last}.

    Shapes {layout} -> (..., {out}).
    `padding` is one width for all sides, or {sides} of them, (before, after) of the last axis first; negative ones
    crop. Raises ArgumentError for another number of widths, ShapeError for another number of axes. See
    `functional.pad`.

    >>> ZeroPad{dims}d(1)(hm.ones((1, 2, {times[4]}))).shape
    (1, 2, {times[6]})
    """


class ZeroPad1d(_ZeroPad, dims=1): ...


class ZeroPad2d(_ZeroPad, dims=2): ...


class ZeroPad3d(_ZeroPad, dims=3): ...


class _ReflectionPad(_Pad):
    """Input with its mirror image, without the edge, around its {last}.

    Shapes {layout} -> (..., {out}).
    `padding` is one width for all sides, or {sides} of them, (before, after) of the last axis first; negative ones
    crop. Raises ArgumentError for another number of widths, ShapeError for another number of axes or too few elements
    to reflect. See `functional.pad`.

    >>> ReflectionPad{dims}d(1)(hm.ones((1, 2, {times[4]}))).shape
    (1, 2, {times[6]})
    """

    mode = "reflect"


class ReflectionPad1d(_ReflectionPad, dims=1): ...


class ReflectionPad2d(_ReflectionPad, dims=2): ...


class ReflectionPad3d(_ReflectionPad, dims=3): ...


class _ReplicationPad(_Pad):
    """Input with its edge around its {last}.

    Shapes {layout} -> (..., {out}).
    `padding` is one width for all sides, or {sides} of them, (before, after) of the last axis first; negative ones
    crop. Raises ArgumentError for another number of widths, ShapeError for another number of axes. See
    `functional.pad`.

    >>> ReplicationPad{dims}d(1)(hm.ones((1, 2, {times[4]}))).shape
    (1, 2, {times[6]})
    """

    mode = "replicate"


class ReplicationPad1d(_ReplicationPad, dims=1): ...


class ReplicationPad2d(_ReplicationPad, dims=2): ...


class ReplicationPad3d(_ReplicationPad, dims=3): ...


class _CircularPad(_Pad):
    """Input with its opposite side around its {last}.

    Shapes {layout} -> (..., {out}).
    `padding` is one width for all sides, or {sides} of them, (before, after) of the last axis first; negative ones
    crop. Raises ArgumentError for another number of widths, ShapeError for another number of axes or too few elements
    to wrap. See `functional.pad`.

    >>> CircularPad{dims}d(1)(hm.ones((1, 2, {times[4]}))).shape
    (1, 2, {times[6]})
    """

    mode = "circular"


class CircularPad1d(_CircularPad, dims=1): ...


class CircularPad2d(_CircularPad, dims=2): ...


class CircularPad3d(_CircularPad, dims=3): ...


__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d",
    "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip
