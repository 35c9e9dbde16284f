"""Images at given points: `grid_sample`, and the grid of an affine map (Jaderberg et al. 2015)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from ..core.context import placed
from ..core.library import compiled
from ..core.tensor import Tensor

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


@compiled
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Values of images at points: (n, c, h, w) at grid (n, h', w', 2) -> (n, c, h', w').

    Volumes are (n, c, d, h, w), their grid (n, d', h', w', 3).

    A point is (x, y) or (x, y, z) from -1 to 1: the outer edges of the corner pixels, or with `align_corners` their
    centres. `mode` is "bilinear" (of volumes too), "nearest", or "bicubic" (images). Points outside see zeros, the
    pixels of the border, or the reflection: `padding_mode`. Gradients reach the images and, but for "nearest", points.

    >>> image = hm.asarray([[[[0.0, 1.0], [2.0, 3.0]]]])
    >>> grid_sample(image, hm.zeros((1, 1, 1, 2)), align_corners=True).tolist()
    [[[[1.5]]]]
    """
    dims = input.ndim - 2
    if mode not in _MODES or padding_mode not in _PADDINGS:
        raise ArgumentError(
            f"grid_sample: mode must be one of {_MODES} and padding_mode one of {_PADDINGS}, got {mode!r}, "
            f"{padding_mode!r}"
        )
    if dims not in (2, 3) or grid.shape[:1] != input.shape[:1] or grid.ndim != dims + 2 or grid.shape[-1] != dims:
        raise ShapeError(
            f"grid_sample: input must be (n, c, h, w) with a grid (n, h', w', 2), or (n, c, d, h, w) with (n, d', h', "
            f"w', 3), got {input.shape} and {grid.shape}"
        )
    if 0 in input.shape[2:]:
        raise ShapeError(f"grid_sample: the images of shape {input.shape} are empty")
    if mode == "bicubic" and dims == 3:
        raise ArgumentError("grid_sample: mode 'bicubic' is for images, input has 5 axes; use 'bilinear'")
    n, channels, *sizes = input.shape
    aligned = bool(align_corners)
    flat = input.reshape((n, channels, math.prod(sizes)))
    points = grid.reshape((n, 1, math.prod(grid.shape[1:-1]), dims))
    # The last axis of an image is the first number of a point.
    at = [_pixels(points[..., dims - 1 - k], size, aligned) for k, size in enumerate(sizes)]
    if mode != "bicubic":
        at = [_inside(p, size, padding_mode, aligned) for p, size in zip(at, sizes, strict=True)]
    if mode == "nearest":
        out = _picked(flat, sizes, [xp.round(p.detach()) for p in at])
    else:
        lows = [xp.floor(p.detach()) for p in at]
        parts = [p - low for p, low in zip(at, lows, strict=True)]
        offsets = range(2) if mode == "bilinear" else range(-1, 3)
        out = xp.zeros((), dtype=input.dtype)
        for corner in itertools.product(offsets, repeat=dims):
            places = [low + k for low, k in zip(lows, corner, strict=True)]
            if mode == "bicubic":
                places = [_inside(p, size, padding_mode, aligned) for p, size in zip(places, sizes, strict=True)]
                weights = [_keys(part, k) for part, k in zip(parts, corner, strict=True)]
            else:
                weights = [part if k else 1 - part for part, k in zip(parts, corner, strict=True)]
            out = out + _picked(flat, sizes, places) * math.prod(weights[1:], start=weights[0])
    return out.reshape((n, channels, *grid.shape[1:-1]))


@placed
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Grid of points for `grid_sample`: images of `size` under affine maps `theta`.

    For a size (n, c, h, w) theta is (n, 2, 3) and the grid (n, h, w, 2). For volumes (n, c, d, h, w) theta is
    (n, 3, 4) and the grid (n, d, h, w, 3).

    >>> affine_grid(hm.asarray([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2)).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    dims = len(size) - 2
    if dims not in (2, 3) or theta.shape != (size[0], dims, dims + 1):
        raise ShapeError(
            f"affine_grid: theta must be (n, 2, 3) for a size of 4 numbers, (n, 3, 4) for 5, got shape {theta.shape} "
            f"for {tuple(size)}"
        )
    axes = []
    for k, n in enumerate(size[2:]):
        if n < 1:
            raise ArgumentError(f"affine_grid: sizes must be positive, got {tuple(size)}")
        ends = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        line = ends if align_corners else ends * ((n - 1) / n)
        axes.append(line.reshape(*(n if j == k else 1 for j in range(dims))))
    base = np.stack([*np.broadcast_arrays(*reversed(axes)), np.ones([int(n) for n in size[2:]])], axis=-1)
    points = xp.asarray(base.reshape(-1, dims + 1), dtype=theta.dtype)
    return xp.matmul(points, theta.mT).reshape((size[0], *size[2:], dims))


def _pixels(x: Tensor, size: int, aligned: bool) -> Tensor:
    """Converts coordinates in -1..1 to pixels."""
    return (x + 1) * ((size - 1) / 2) if aligned else ((x + 1) * size - 1) * 0.5


def _inside(p: Tensor, size: int, padding_mode: str, aligned: bool) -> Tensor:
    if padding_mode == "zeros":
        return p
    if padding_mode == "reflection":
        low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))
        if span == 0:
            return p * 0
        distance = xp.abs(p - low)
        extra = distance - xp.floor(distance.detach() / span) * span
        turned = (xp.floor(distance.detach() / span) % 2) == 1
        p = xp.where(turned, span - extra, extra) + low
    return xp.clip(p, 0, size - 1)


def _picked(flat: Tensor, sizes: Sequence[int], places: Sequence[Tensor]) -> Tensor:
    """Elements of (n, c, h * w) at whole places (n, 1, points) of each axis; zero outside."""
    index = inside = None
    for place, size in zip(places, sizes, strict=True):
        here = (place >= 0) & (place <= size - 1)
        whole = xp.astype(xp.where(here, place, 0), xp.int64)
        index = whole if index is None else index * size + whole
        inside = here if inside is None else inside & here
    assert index is not None and inside is not None
    shape = (flat.shape[0], flat.shape[1], index.shape[2])
    found = xp.take_along_axis(flat, xp.broadcast_to(index, shape), axis=2)
    return xp.where(inside, found, 0)


def _keys(part: Tensor, k: int) -> Tensor:
    """Weight of the pixel at offset k from the one below a point (Keys 1981, a = -0.75)."""
    a = -0.75
    x = part - k if k <= 0 else k - part
    if k in (0, 1):
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


__all__ = ["affine_grid", "grid_sample"]
