"""Images of another size: interpolation along each axis, pixels to channels and back.

Along an axis of n elements that becomes m, every output is a sum of few inputs: tables (m, taps) of positions and of
weights, made by NumPy from the sizes. Along several axes it is done one axis after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError

from .. import arrays as xp
from ..core.context import placed, trusted
from ..core.library import compiled, compiled_when_repeated
from ..core.tensor import Tensor
from .adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .arguments import numbers

_RANKS = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "area": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "bicubic": (2,),
    "trilinear": (3,),
}
_AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
_MOST_TAPS = 4  # taken one by one; more of them as a product with a matrix
Taps = tuple[np.ndarray, np.ndarray | None]  # positions and weights, (m, taps)


@compiled
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Image (n, c, ...) of another size: `size`, or `scale_factor` times as large (rounded down).

    `mode` is "nearest" (the floor of a position, as PyTorch's), "nearest-exact", "linear" (n, c, l), "bilinear" or
    "bicubic" (n, c, h, w; Keys 1981 with a = -0.75), "trilinear" (n, c, d, h, w), or "area" (`adaptive_avg_pool2d`).
    `align_corners` puts the corner pixels' centres on each other. `antialias` widens bilinear and bicubic filters by
    the factor that an image shrinks. Raises ArgumentError for other modes and sizes.

    >>> interpolate(hm.asarray([[[0.0, 2.0]]]), scale_factor=2, mode="linear").tolist()
    [[[0.0, 0.5, 1.5, 2.0]]]
    """
    dims = input.ndim - 2
    if mode not in _RANKS:
        raise ArgumentError(f"interpolate: mode must be one of {list(_RANKS)}, got {mode!r}")
    if dims not in _RANKS[mode]:
        axes = " or ".join(str(rank + 2) for rank in _RANKS[mode])
        raise ShapeError(f"interpolate: mode {mode!r} takes an input of {axes} axes, got shape {input.shape}")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ArgumentError(f"interpolate: align_corners is for linear and cubic modes, not for {mode!r}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError(f"interpolate: antialias is for modes 'bilinear' and 'bicubic', not for {mode!r}")
    if input.dtype.kind not in "fV" and not mode.startswith("nearest"):
        raise DTypeError(f"interpolate: mode {mode!r} takes floats, got {input.dtype.name}; cast it with .astype")
    sizes, factors = _sizes(input, size, scale_factor, bool(recompute_scale_factor))
    if mode == "area":
        return _AREA[dims](input, sizes)
    out = input
    for axis, (m, factor) in enumerate(zip(sizes, factors, strict=True), 2):
        n = int(input.shape[axis])
        if m == n and (antialias or "linear" in mode or (mode == "nearest" and dims == 2)):
            continue  # there PyTorch copies, whatever the factor
        if mode.startswith("nearest"):
            taps: Taps = _nearest(n, m, factor, mode == "nearest-exact")
        elif antialias:
            taps = _widened(n, m, _scale(n, m, factor, bool(align_corners)), mode)
        else:
            taps = _weighted(n, m, _scale(n, m, factor, bool(align_corners)), bool(align_corners), mode == "bicubic")
        out = _along(out, axis, n, taps)
    return out


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Image (n, c, ...) of another size: PyTorch's older name of `interpolate`.

    >>> upsample(hm.asarray([[[0.0, 2.0]]]), scale_factor=2).tolist()
    [[[0.0, 0.0, 2.0, 2.0]]]
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """Image (n, c, ...) of another size by its nearest pixels: `interpolate` with ``mode="nearest"``.

    >>> upsample_nearest(hm.asarray([[[0.0, 2.0]]]), scale_factor=2).tolist()
    [[[0.0, 0.0, 2.0, 2.0]]]
    """
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """Image (n, c, h, w) of another size by bilinear weights with aligned corners: PyTorch's older name.

    >>> upsample_bilinear(hm.asarray([[[[0.0, 2.0]]]]), size=(1, 3)).tolist()
    [[[[0.0, 1.0, 2.0]]]]
    """
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


@compiled_when_repeated
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels to pixels: (..., c r^2, h, w) -> (..., c, h r, w r) (Shi et al. 2016).

    Raises ShapeError where the sizes do not divide.

    >>> pixel_shuffle(hm.arange(4).reshape((4, 1, 1)), 2).tolist()
    [[[0, 1], [2, 3]]]
    """
    r = upscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-3] % (r * r):
        raise ShapeError(
            f"pixel_shuffle: input must be (..., c * {r * r}, h, w) for upscale_factor={r}, got shape {input.shape}"
        )
    *batch, channels, height, width = input.shape
    split = input.reshape((*batch, channels // (r * r), r, r, height, width))
    k = len(batch)
    moved = xp.permute_dims(split, (*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return moved.reshape((*batch, channels // (r * r), height * r, width * r))


@compiled_when_repeated
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Pixels to channels, the inverse of `pixel_shuffle`: (..., c, h r, w r) -> (..., c r^2, h, w).

    Raises ShapeError where the sizes do not divide.

    >>> pixel_unshuffle(hm.arange(4).reshape((1, 2, 2)), 2).tolist()
    [[[0]], [[1]], [[2]], [[3]]]
    """
    r = downscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-2] % r or input.shape[-1] % r:
        raise ShapeError(
            f"pixel_unshuffle: input must be (..., c, h * {r}, w * {r}) for downscale_factor={r}, got {input.shape}"
        )
    *batch, channels, height, width = input.shape
    split = input.reshape((*batch, channels, height // r, r, width // r, r))
    k = len(batch)
    moved = xp.permute_dims(split, (*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return moved.reshape((*batch, channels * r * r, height // r, width // r))


@compiled_when_repeated
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Deals the channels of (n, c, ...) out over `groups`: channel (g, k) becomes (k, g) (Zhang et al. 2018).

    Raises ShapeError where the sizes do not divide.

    >>> channel_shuffle(hm.arange(4).reshape((1, 4)), 2).tolist()
    [[0, 2, 1, 3]]
    """
    if input.ndim < 2 or groups < 1 or input.shape[1] % groups:
        raise ShapeError(f"channel_shuffle: input must be (n, c, ...), c divisible by {groups}, got {input.shape}")
    n, channels, *rest = input.shape
    return xp.swapaxes(input.reshape((n, groups, channels // groups, *rest)), 1, 2).reshape(input.shape)


# ---------------------------------------------------------------- sums of few inputs


@placed
def _along(x: Tensor, axis: int, n: int, taps: Taps) -> Tensor:
    positions, weights = taps
    if weights is None:
        m, table = len(positions), positions[:, 0]
        if m % n == 0 and (table == np.arange(m) // (m // n)).all():  # a whole number of times as large
            return x if m == n else xp.repeat(x, m // n, axis=axis)
        return trusted(xp.take(x, xp.asarray(table), axis=axis))
    m, count = positions.shape
    if count > _MOST_TAPS:
        matrix = np.zeros((n, m))
        np.add.at(matrix, (positions, np.arange(m)[:, None]), weights)
        return xp.swapaxes(xp.matmul(xp.swapaxes(x, axis, -1), xp.asarray(matrix, dtype=x.dtype)), axis, -1)
    shape = (m, *(1,) * (x.ndim - axis - 1))
    total: Any = None
    for k in range(count):
        weight = xp.asarray(weights[:, k], dtype=x.dtype).reshape(shape)
        term = trusted(xp.take(x, xp.asarray(positions[:, k]), axis=axis)) * weight
        total = term if total is None else total + term
    out: Tensor = total
    return out


def _nearest(n: int, m: int, factor: float | None, exact: bool) -> Taps:
    scale = np.float32(n / m if factor is None else 1 / factor)  # in PyTorch's precision: floors depend on it
    at = (np.arange(m, dtype=np.float32) + np.float32(0.5 if exact else 0)) * scale
    return np.minimum(np.floor(at).astype(np.int64), n - 1)[:, None], None


def _scale(n: int, m: int, factor: float | None, align_corners: bool) -> float:
    if align_corners:
        return (n - 1) / (m - 1) if m > 1 else 0.0
    return n / m if factor is None else 1 / factor


def _weighted(n: int, m: int, scale: float, align_corners: bool, cubic: bool) -> Taps:
    at = np.arange(m) * scale if align_corners else (np.arange(m) + 0.5) * scale - 0.5
    if not cubic:
        at = np.clip(at, 0, n - 1)
    low = np.floor(at).astype(np.int64)
    part = at - low
    offsets = np.arange(-1, 3) if cubic else np.arange(2)
    distances = np.abs(part[:, None] - offsets)
    weights = _cubic(distances, -0.75) if cubic else 1 - distances
    return np.clip(low[:, None] + offsets, 0, n - 1), weights


def _widened(n: int, m: int, scale: float, mode: str) -> Taps:
    """Filters as wide as `scale` inputs, as Pillow's: parts outside of the image are left out."""
    width = max(scale, 1.0)
    support = (2 if mode == "bicubic" else 1) * width
    centres = (np.arange(m) + 0.5) * scale
    first = np.maximum(np.floor(centres - support + 0.5).astype(np.int64), 0)
    last = np.minimum(np.floor(centres + support + 0.5).astype(np.int64), n)
    positions = first[:, None] + np.arange(max(int((last - first).max()), _MOST_TAPS + 1))
    distances = np.abs((positions + 0.5 - centres[:, None]) / width)
    weights = _cubic(distances, -0.5) if mode == "bicubic" else np.maximum(1 - distances, 0)
    weights = np.where(positions < last[:, None], weights, 0)
    return np.minimum(positions, n - 1), weights / weights.sum(axis=1, keepdims=True)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """The kernel of R. G. Keys, "Cubic convolution interpolation for digital image processing" (1981), for x >= 0."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


# ---------------------------------------------------------------- arguments


def _sizes(
    x: Tensor, size: int | Sequence[int] | None, scale_factor: float | Sequence[float] | None, again: bool
) -> tuple[tuple[int, ...], list[float | None]]:
    """(size, the factor that positions are computed with where it is not that of the sizes) of each axis."""
    dims = x.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate: give size or scale_factor, one of the two")
    if size is not None:
        if again:
            raise ArgumentError("interpolate: recompute_scale_factor is for scale_factor, not for size")
        sizes = numbers("interpolate", "size", size, dims)
        factors: list[float | None] = [None] * dims
    else:
        assert scale_factor is not None
        given = list(scale_factor) if isinstance(scale_factor, Sequence) else [scale_factor] * dims
        if len(given) != dims:
            raise ArgumentError(f"interpolate: scale_factor must be a number or {dims} of them, got {scale_factor!r}")
        sizes = tuple(math.floor(int(n) * float(f)) for n, f in zip(x.shape[2:], given, strict=True))
        factors = [None if again else float(f) for f in given]
    if min(sizes) < 1 or 0 in x.shape[2:]:
        raise ArgumentError(f"interpolate: sizes must be positive, got {tuple(x.shape[2:])} to {sizes}")
    return sizes, factors


__all__ = [
    "channel_shuffle", "interpolate", "pixel_shuffle", "pixel_unshuffle", "upsample", "upsample_bilinear",
    "upsample_nearest",
]  # fmt: skip
