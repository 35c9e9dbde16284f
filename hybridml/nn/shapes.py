"""Layers that move elements: windows to columns and back, pixels to channels, other sizes, other axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hybridml_compiler.errors import ShapeError

from .. import functional as F
from ..core.tensor import Tensor
from ..functional.arguments import Pair
from .held import Held
from .module import Module


class Unfold(Held):
    """Windows as columns; see `functional.unfold`."""

    function = staticmethod(F.unfold)

    def __init__(self, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1) -> None:
        super().__init__(kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)


class Fold(Held):
    """Columns added at their places in an image; see `functional.fold`."""

    function = staticmethod(F.fold)

    def __init__(
        self, output_size: Pair, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1
    ) -> None:
        super().__init__(
            output_size=output_size, kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride
        )


class Upsample(Held):
    """An image of another size; see `functional.interpolate`."""

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
    """`Upsample` in mode "nearest"."""

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """`Upsample` in mode "bilinear" with aligned corners."""

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


class PixelShuffle(Held):
    """Channels to pixels; see `functional.pixel_shuffle`."""

    function = staticmethod(F.pixel_shuffle)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__(upscale_factor=upscale_factor)


class PixelUnshuffle(Held):
    """Pixels to channels; see `functional.pixel_unshuffle`."""

    function = staticmethod(F.pixel_unshuffle)

    def __init__(self, downscale_factor: int) -> None:
        super().__init__(downscale_factor=downscale_factor)


class ChannelShuffle(Held):
    """Channels dealt out over groups; see `functional.channel_shuffle`."""

    function = staticmethod(F.channel_shuffle)

    def __init__(self, groups: int) -> None:
        super().__init__(groups=groups)


class CosineSimilarity(Held):
    """`functional.cosine_similarity` of two inputs."""

    function = staticmethod(F.cosine_similarity)

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


class PairwiseDistance(Held):
    """`functional.pairwise_distance` of two inputs."""

    function = staticmethod(F.pairwise_distance)

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)


class Flatten(Module):
    """Make axes `start_dim` to `end_dim` one axis.

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
    """Make axis `dim` several axes, of the sizes `unflattened_size` (one of them may be -1).

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
    """Gives back its input; takes and ignores any arguments when it is made."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input
