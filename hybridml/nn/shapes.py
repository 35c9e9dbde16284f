"""Layers that move elements: windows to columns and back, pixels to channels, other sizes, other axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hybridml_compiler.errors import ShapeError

from .. import functional as F
from ..core.tensor import Tensor
from ..functional.arguments import Pair
from .function_module import FunctionModule
from .module import Module


class Unfold(FunctionModule):
    """Windows of an image as columns (im2col): (n, c, h, w) or (c, h, w) -> (n, c * kh * kw, windows).

    The options are one number or one per axis. Raises ShapeError for other axes or a window larger than the padded
    input, ArgumentError for sizes below 1. See `functional.unfold`.

    >>> Unfold((2, 3))(hm.ones((1, 3, 4, 5))).shape
    (1, 18, 9)
    """

    function = staticmethod(F.unfold)

    def __init__(self, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1) -> None:
        super().__init__(kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)


class Fold(FunctionModule):
    """Columns added up at their windows in an image, the transpose of `Unfold`.

    Shapes (n, c * kh * kw, windows), or without n, -> (n, c, *output_size). Raises ShapeError where the columns are
    not the windows of such an image, ArgumentError for sizes below 1. See `functional.fold`.

    >>> Fold((4, 4), 2)(hm.ones((1, 4, 9))).shape
    (1, 1, 4, 4)
    """

    function = staticmethod(F.fold)

    def __init__(
        self, output_size: Pair, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1
    ) -> None:
        super().__init__(
            output_size=output_size, kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride
        )


class Upsample(FunctionModule):
    """Image of another size: (n, c, ...) -> (n, c, *size), or `scale_factor` times as large.

    `mode` is "nearest", "nearest-exact", "linear" (n, c, l), "bilinear" or "bicubic" (n, c, h, w), "trilinear"
    (n, c, d, h, w), or "area". Raises ArgumentError for other modes or unless one of `size` and `scale_factor` is
    given, ShapeError for an input of other axes than the mode takes. See `functional.interpolate`.

    >>> Upsample(scale_factor=2, mode="bilinear")(hm.ones((1, 3, 4, 4))).shape
    (1, 3, 8, 8)
    """

    function = staticmethod(F.interpolate)

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__(
            size=size, scale_factor=scale_factor, mode=mode, align_corners=align_corners,
            recompute_scale_factor=recompute_scale_factor,
        )  # fmt: skip


class UpsamplingNearest2d(Upsample):
    """Image enlarged by its nearest pixels: (n, c, h, w) -> (n, c, h', w'), `Upsample` in mode "nearest".

    >>> UpsamplingNearest2d(scale_factor=2)(hm.ones((1, 3, 4, 4))).shape
    (1, 3, 8, 8)
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Image enlarged by bilinear weights: (n, c, h, w) -> (n, c, h', w'), with aligned corners; see `Upsample`.

    >>> UpsamplingBilinear2d(size=(6, 8))(hm.ones((1, 3, 4, 4))).shape
    (1, 3, 6, 8)
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


class PixelShuffle(FunctionModule):
    """Channels moved to pixels: (..., c r^2, h, w) -> (..., c, h r, w r) with r = `upscale_factor` (Shi et al. 2016).

    Raises ShapeError where the channels do not divide by r^2. See `functional.pixel_shuffle`.

    >>> PixelShuffle(2)(hm.ones((1, 8, 3, 4))).shape
    (1, 2, 6, 8)
    """

    function = staticmethod(F.pixel_shuffle)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__(upscale_factor=upscale_factor)


class PixelUnshuffle(FunctionModule):
    """Pixels moved to channels: (..., c, h r, w r) -> (..., c r^2, h, w) with r = `downscale_factor`.

    Raises ShapeError where height or width do not divide by r. See `functional.pixel_unshuffle`.

    >>> PixelUnshuffle(2)(hm.ones((1, 2, 6, 8))).shape
    (1, 8, 3, 4)
    """

    function = staticmethod(F.pixel_unshuffle)

    def __init__(self, downscale_factor: int) -> None:
        super().__init__(downscale_factor=downscale_factor)


class ChannelShuffle(FunctionModule):
    """Channels of (n, c, ...) dealt out over `groups`: channel (g, k) becomes (k, g) (Zhang et al. 2018).

    Raises ShapeError where `groups` does not divide the channels. See `functional.channel_shuffle`.

    >>> ChannelShuffle(2)(hm.arange(4).reshape((1, 4, 1))).reshape((-1,)).tolist()
    [0, 2, 1, 3]
    """

    function = staticmethod(F.channel_shuffle)

    def __init__(self, groups: int) -> None:
        super().__init__(groups=groups)


class CosineSimilarity(FunctionModule):
    """Cosine of the angle of two inputs along axis `dim`: (..., k, ...) twice -> (..., ...), of shapes that broadcast.

    Lengths are at least `eps`. Raises DTypeError for complex numbers. See `functional.cosine_similarity`.

    >>> CosineSimilarity(dim=-1)(hm.asarray([3.0, 4.0]), hm.asarray([4.0, 3.0])).item()
    0.9600000381469727
    """

    function = staticmethod(F.cosine_similarity)

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


class PairwiseDistance(FunctionModule):
    """Distance ``|x1 - x2 + eps|_p`` of two inputs along the last axis: (..., k) twice -> (...).

    With `keepdim` the result is (..., 1). The shapes broadcast. See `functional.pairwise_distance`.

    >>> PairwiseDistance(eps=0.0)(hm.asarray([3.0, 4.0]), hm.asarray([0.0, 0.0])).item()
    5.0
    """

    function = staticmethod(F.pairwise_distance)

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)


class Flatten(Module):
    """Axes `start_dim` to `end_dim` merged into one, by default all but the first: (n, a, b) -> (n, a * b).

    Raises ShapeError where the axes do not exist in this order.

    >>> Flatten()(hm.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        start, end = (d + input.ndim if d < 0 else d for d in (self.start_dim, self.end_dim))
        if not 0 <= start <= end < input.ndim:
            raise ShapeError(
                f"Flatten: axes {self.start_dim} to {self.end_dim} do not exist in order in shape {input.shape}"
            )
        middle = math.prod(input.shape[start : end + 1])
        return input.reshape((*input.shape[:start], middle, *input.shape[end + 1 :]))

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Axis `dim` split into the sizes `unflattened_size`: (n, a * b) -> (n, a, b). One of the sizes may be -1.

    Raises ShapeError where the axis does not exist or does not have as many elements.

    >>> Unflatten(1, (2, -1))(hm.ones((5, 6))).shape
    (5, 2, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        if not -input.ndim <= self.dim < input.ndim:
            raise ShapeError(f"Unflatten: axis {self.dim} does not exist in shape {input.shape}")
        axis = self.dim % input.ndim
        sizes, n = list(self.unflattened_size), input.shape[axis]
        known = math.prod(size for size in sizes if size != -1)
        if sizes.count(-1) == 1 and known:
            sizes[sizes.index(-1)] = n // known
        if math.prod(sizes) != n or -1 in sizes:
            raise ShapeError(f"Unflatten: axis {axis} of shape {input.shape} is not {self.unflattened_size}")
        return input.reshape((*input.shape[:axis], *sizes, *input.shape[axis + 1 :]))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Identity(Module):
    """Input returned as it is: (...) -> (...). All arguments of the constructor are ignored.

    >>> Identity(54, unused=True)(hm.ones((2, 3))).shape
    (2, 3)
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


__all__ = [
    "ChannelShuffle", "CosineSimilarity", "Flatten", "Fold", "Identity", "PairwiseDistance", "PixelShuffle",
    "PixelUnshuffle", "Unflatten", "Unfold", "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d",
]  # fmt: skip
