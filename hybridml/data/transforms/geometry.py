"""Sizes, crops, flips and rotations of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, ShapeError

from .pixels import Transform, drawn, is_pillow, like, on_pixels, pair, size_of

INTERPOLATIONS = ("nearest", "bilinear")
MODES = ("constant", "edge", "reflect", "symmetric")


class Resize(Transform):
    """Images of a size (height, width); one number is that of the shorter side, and keeps the proportions.

    `max_size` limits the longer side then. "bilinear" weighs all pixels that a new one covers (`antialias`), as Pillow
    does, or the four around it; "nearest" takes one. Whole numbers are rounded. ArgumentError for other sizes and
    names.

    >>> Resize(8)(hm.zeros((3, 32, 16))).shape
    (3, 16, 8)
    """

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: str = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        self.size: Any = size if isinstance(size, int) else size[0] if len(size) == 1 else pair(size, "Resize")
        self.interpolation, self.max_size, self.antialias = _known(interpolation), max_size, antialias
        pair(size, "Resize")
        if max_size is not None and (not isinstance(self.size, int) or max_size <= self.size):
            raise ArgumentError(f"Resize: max_size is for one size and larger than it, got {max_size!r} and {size!r}")

    def __call__(self, image: Any) -> Any:
        return resized(image, self._of(*size_of(image)), self.interpolation, self.antialias)

    def _of(self, height: int, width: int) -> tuple[int, int]:
        if not isinstance(self.size, int):
            return self.size
        short, long = sorted((height, width))
        new_short, new_long = self.size, int(self.size * long / short)
        if self.max_size is not None and new_long > self.max_size:
            new_short, new_long = int(self.max_size * new_short / new_long), self.max_size
        return (new_short, new_long) if height <= width else (new_long, new_short)


def resized(image: Any, size: tuple[int, int], interpolation: str, antialias: bool | None = True) -> Any:
    """The image in a size (height, width); Pillow's by Pillow."""
    if size == size_of(image):
        return image
    if is_pillow(image):
        from PIL import Image

        return image.resize(size[::-1], getattr(Image.Resampling, interpolation.upper()))

    def both(pixels: np.ndarray) -> np.ndarray:
        if interpolation == "nearest":
            rows, columns = (_nearest(pixels.shape[axis], new) for axis, new in zip((-3, -2), size, strict=True))
            return pixels[..., rows, :, :][..., columns, :]
        grid = pixels.astype(np.float32 if pixels.dtype.kind != "f" else pixels.dtype, copy=False)
        for axis, new in zip((-2, -3), size[::-1], strict=True):
            if grid.shape[axis] != new:
                grid = _along(grid, axis, new, antialias is not False)
        return like(grid, pixels.dtype)

    return on_pixels(image, both)


def _nearest(old: int, new: int) -> np.ndarray:
    return np.minimum((np.arange(new) * (old / new)).astype(np.int64), old - 1)


def _along(grid: np.ndarray, axis: int, new: int, antialias: bool) -> np.ndarray:
    """Rows, or columns, that are triangles of the old ones."""
    old = grid.shape[axis]
    scale = old / new
    reach = max(scale, 1.0) if antialias else 1.0
    centre = (np.arange(new) + 0.5) * scale
    first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + reach + 0.5).astype(np.int64), old)
    index = first[:, None] + np.arange((last - first).max())
    weights = np.maximum(1 - np.abs(index + 0.5 - centre[:, None]) / reach, 0) * (index < last[:, None])
    weights = (weights / weights.sum(1, keepdims=True)).astype(grid.dtype)
    index = np.minimum(index, old - 1)
    shape = [1] * grid.ndim
    shape[axis] = new
    total = np.take(grid, index[:, 0], axis) * weights[:, 0].reshape(shape)
    for k in range(1, index.shape[1]):
        total += np.take(grid, index[:, k], axis) * weights[:, k].reshape(shape)
    return total


def cropped(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """The part of an image; Pillow's by Pillow."""
    if is_pillow(image):
        return image.crop((left, top, left + width, top + height))
    return on_pixels(image, lambda pixels: pixels[..., top : top + height, left : left + width, :])


def flipped(image: Any, axis: int) -> Any:
    """The image with its columns (axis -2) or its rows (-3) in reverse order; Pillow's by Pillow."""
    if is_pillow(image):
        from PIL import Image

        return image.transpose(getattr(Image.Transpose, "FLIP_LEFT_RIGHT" if axis == -2 else "FLIP_TOP_BOTTOM"))
    return on_pixels(image, lambda pixels: np.flip(pixels, axis))


class CenterCrop(Transform):
    """The middle of images, with zeros around those that are smaller.

    >>> CenterCrop(2)(hm.arange(16).reshape(1, 4, 4)).tolist()
    [[[5, 6], [9, 10]]]
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = pair(size, "CenterCrop")

    def __call__(self, image: Any) -> Any:
        (height, width), (new_height, new_width) = size_of(image), self.size
        short_h, short_w = max(new_height - height, 0), max(new_width - width, 0)
        if short_h or short_w:
            around = (short_w // 2, short_h // 2, (short_w + 1) // 2, (short_h + 1) // 2)
            image = Pad(around)(image)
            height, width = height + short_h, width + short_w
        top, left = (round((height - new_height) / 2.0), round((width - new_width) / 2.0))
        return cropped(image, top, left, new_height, new_width)


class Pad(Transform):
    """Images with a border: one number for all sides, (left and right, top and bottom), or left, top, right, bottom.

    `padding_mode` is "constant" (of `fill`, a number or one for each channel), "edge", "reflect" or "symmetric".

    >>> Pad(1, fill=7)(hm.zeros((1, 1, 1))).tolist()
    [[[7.0, 7.0, 7.0], [7.0, 0.0, 7.0], [7.0, 7.0, 7.0]]]
    """

    def __init__(
        self, padding: int | Sequence[int], fill: float | Sequence[float] = 0, padding_mode: str = "constant"
    ) -> None:
        sides = (padding,) * 4 if isinstance(padding, int) else tuple(padding)
        sides = sides * {1: 4, 2: 2, 4: 1}.get(len(sides), 0)
        if len(sides) != 4 or min(sides) < 0:
            raise ArgumentError(f"Pad: padding is one, two or four whole numbers, got {padding!r}")
        if padding_mode not in MODES:
            raise ArgumentError(f"Pad: padding_mode is one of {', '.join(MODES)}, got {padding_mode!r}")
        self.padding, self.fill, self.padding_mode = sides, fill, padding_mode

    def __call__(self, image: Any) -> Any:
        left, top, right, bottom = self.padding

        def padded(pixels: np.ndarray) -> np.ndarray:
            sides = [(0, 0)] * (pixels.ndim - 3) + [(top, bottom), (left, right), (0, 0)]
            if self.padding_mode != "constant":
                mode: Any = self.padding_mode
                return np.pad(pixels, sides, mode)
            shape = [length + sum(side) for length, side in zip(pixels.shape, sides, strict=True)]
            made = np.empty(shape, pixels.dtype)
            made[...] = np.asarray(self.fill, pixels.dtype)
            made[..., top : shape[-3] - bottom, left : shape[-2] - right, :] = pixels
            return made

        return on_pixels(image, padded)


class RandomCrop(Transform):
    """A random part of images, of a size (height, width), of what `Pad` with `padding` makes of them.

    Smaller images raise ShapeError, or with `pad_if_needed` get a border on both sides.

    >>> RandomCrop(28, padding=4)(hm.zeros((1, 28, 28))).shape
    (1, 28, 28)
    """

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float | Sequence[float] = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size, self.padding, self.pad_if_needed = pair(size, "RandomCrop"), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode
        Pad(0 if padding is None else padding, fill, padding_mode)  # checks them

    def __call__(self, image: Any) -> Any:
        if self.padding is not None:
            image = Pad(self.padding, self.fill, self.padding_mode)(image)
        height, width = size_of(image)
        short = max(self.size[1] - width, 0), max(self.size[0] - height, 0)
        if any(short):
            if not self.pad_if_needed:
                raise ShapeError(f"RandomCrop: {self.size} of an image of {(height, width)}; give pad_if_needed=True")
            image = Pad(short, self.fill, self.padding_mode)(image)
            height, width = size_of(image)
        bits = drawn()
        top, left = (int(bits.integers(old - new + 1)) for old, new in zip((height, width), self.size, strict=True))
        return cropped(image, top, left, *self.size)


class RandomResizedCrop(Transform):
    """A random part of images, with a share of their area in `scale` and proportions in `ratio`, resized to `size`.

    >>> RandomResizedCrop(8)(hm.zeros((3, 20, 30))).shape
    (3, 8, 8)
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: str = "bilinear",
    ) -> None:
        self.size, self.scale, self.ratio = pair(size, "RandomResizedCrop"), tuple(scale), tuple(ratio)
        self.interpolation = _known(interpolation)
        if not (0 < scale[0] <= scale[1] and 0 < ratio[0] <= ratio[1]):
            raise ArgumentError(f"RandomResizedCrop: scale and ratio are pairs, the lesser first, got {scale}, {ratio}")

    def __call__(self, image: Any) -> Any:
        part = self._part(*size_of(image), drawn())
        return resized(cropped(image, *part), self.size, self.interpolation)

    def _part(self, height: int, width: int, bits: np.random.Generator) -> tuple[int, int, int, int]:
        found = _random_part(bits, height, width, self.scale, self.ratio)
        if found is not None:
            return found
        held = min(max(width / height, self.ratio[0]), self.ratio[1])
        h, w = (min(height, round(width / held)), min(width, round(height * held)))
        return (height - h) // 2, (width - w) // 2, h, w


class RandomErasing(Transform):
    """Images of which, with probability `p`, a random part is replaced by `value`.

    The part has a share of the area in `scale` and proportions, height over width, in `ratio`. `value` is a number, one
    for each channel, or "random" for normal numbers; ArgumentError for other words or numbers of channels.

    >>> RandomErasing(p=1.0, scale=(0.25, 0.25), ratio=(1, 1))(hm.ones((1, 4, 4))).sum().item()
    12.0
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0,
    ) -> None:
        if isinstance(value, str) and value != "random":
            raise ArgumentError(f'RandomErasing: value is a number, one for each channel or "random", got {value!r}')
        self.p, self.scale, self.ratio, self.value = p, tuple(scale), tuple(ratio), value

    def __call__(self, image: Any) -> Any:
        bits, (height, width) = drawn(), size_of(image)
        if bits.random() >= self.p:
            return image
        part = _random_part(bits, width, height, self.scale, self.ratio)
        if part is None:
            return image
        left, top, w, h = part

        def erased(pixels: np.ndarray) -> np.ndarray:
            done = pixels.copy()
            hole = done[..., top : top + h, left : left + w, :]
            values = bits.standard_normal(hole.shape) if self.value == "random" else np.asarray(self.value)
            if values.ndim == 1 and len(values) not in (1, hole.shape[-1]):
                raise ArgumentError(f"RandomErasing: {len(values)} values for an image of {hole.shape[-1]} channels")
            hole[...] = like(values, done.dtype)
            return done

        return on_pixels(image, erased)


def _random_part(
    bits: np.random.Generator, height: int, width: int, scale: Sequence[float], ratio: Sequence[float]
) -> tuple[int, int, int, int] | None:
    """Top, left, height and width of a part, by its share of the area and its width over its height; None after ten
    that do not fit."""
    for _ in range(10):
        area = height * width * bits.uniform(scale[0], scale[1])
        proportion = math.exp(bits.uniform(*np.log(ratio)))
        h, w = round(math.sqrt(area / proportion)), round(math.sqrt(area * proportion))
        if 0 < h <= height and 0 < w <= width:
            return int(bits.integers(height - h + 1)), int(bits.integers(width - w + 1)), h, w
    return None


class RandomHorizontalFlip(Transform):
    """Images that are mirrored, left and right, with probability `p`.

    >>> RandomHorizontalFlip(p=1.0)(hm.asarray([[[1, 2]]])).tolist()
    [[[2, 1]]]
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, image: Any) -> Any:
        return flipped(image, -2) if drawn().random() < self.p else image


class RandomVerticalFlip(Transform):
    """Images that are turned upside down with probability `p`.

    >>> RandomVerticalFlip(p=1.0)(hm.asarray([[[1], [2]]])).tolist()
    [[[2], [1]]]
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, image: Any) -> Any:
        return flipped(image, -3) if drawn().random() < self.p else image


class RandomRotation(Transform):
    """Images that are turned counter-clockwise by a random angle: from -degrees to degrees, or from a pair.

    `interpolation` is "nearest" or "bilinear"; what comes from outside is `fill`. The size stays.

    >>> RandomRotation((90, 90))(hm.asarray([[[1, 2], [3, 4]]])).tolist()
    [[[2, 4], [1, 3]]]
    """

    def __init__(
        self, degrees: float | Sequence[float], interpolation: str = "nearest", fill: float | Sequence[float] = 0
    ) -> None:
        self.degrees = (-degrees, degrees) if isinstance(degrees, int | float) else tuple(degrees)
        self.interpolation, self.fill = _known(interpolation), fill
        if len(self.degrees) != 2 or self.degrees[0] > self.degrees[1]:
            raise ArgumentError(f"RandomRotation: degrees are a number from 0 on or a pair, got {degrees!r}")

    def __call__(self, image: Any) -> Any:
        angle = math.radians(drawn().uniform(self.degrees[0], self.degrees[1]))
        return on_pixels(image, lambda pixels: _rotated(pixels, angle, self.interpolation, self.fill))


def _rotated(pixels: np.ndarray, angle: float, interpolation: str, fill: Any) -> np.ndarray:
    height, width = pixels.shape[-3:-1]
    y, x = np.arange(height)[:, None] - (height - 1) / 2, np.arange(width) - (width - 1) / 2
    cos, sin = math.cos(angle), math.sin(angle)
    # Where each new pixel was; a quarter turn comes out on the grid but for rounding.
    row = np.round(cos * y + sin * x + (height - 1) / 2, 6)
    column = np.round(cos * x - sin * y + (width - 1) / 2, 6)
    outside = np.asarray(fill, pixels.dtype)

    def at(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        inside = ((i >= 0) & (i < height) & (j >= 0) & (j < width))[..., None]
        found = pixels[..., i.clip(0, height - 1), j.clip(0, width - 1), :]
        return np.where(inside, found, outside)

    if interpolation == "nearest":
        return at(np.floor(row + 0.5).astype(np.int64), np.floor(column + 0.5).astype(np.int64))
    i, j = np.floor(row).astype(np.int64), np.floor(column).astype(np.int64)
    v, u = ((row - i)[..., None]).astype(np.float32), ((column - j)[..., None]).astype(np.float32)
    upper = at(i, j) * (1 - u) + at(i, j + 1) * u
    lower = at(i + 1, j) * (1 - u) + at(i + 1, j + 1) * u
    return like(upper * (1 - v) + lower * v, pixels.dtype)


def _known(interpolation: Any) -> str:
    name = str(getattr(interpolation, "value", interpolation))
    if name not in INTERPOLATIONS:
        raise ArgumentError(f"transforms: interpolation is one of {', '.join(INTERPOLATIONS)}, got {interpolation!r}")
    return name
