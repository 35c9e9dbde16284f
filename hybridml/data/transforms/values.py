"""Conversions of images and their colours, and transforms one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DTypeError

from ... import arrays as xp
from ...core.tensor import Tensor
from .pixels import Transform, array_of, drawn, is_pillow, like, on_pixels

GREY = np.array([0.2989, 0.587, 0.114], np.float32)  # ITU-R 601-2, as PyTorch rounds it


class Compose:
    """Several transforms, one after the other; any functions of one argument.

    >>> Compose([abs, float])(-3)
    3.0
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, sample: Any) -> Any:
        for transform in self.transforms:
            sample = transform(sample)
        return sample

    def __repr__(self) -> str:
        return "Compose(\n" + "".join(f"    {transform!r}\n" for transform in self.transforms) + ")"


class RandomApply(Transform):
    """Transforms that are applied, all of them, with probability `p`.

    >>> RandomApply([abs], p=1.0)(-3)
    3
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: float = 0.5) -> None:
        self.transforms, self.p = list(transforms), p

    def __call__(self, sample: Any) -> Any:
        return Compose(self.transforms)(sample) if drawn().random() < self.p else sample


class RandomChoice(Transform):
    """One of several transforms, each as likely, or by the weights `p`.

    >>> RandomChoice([abs, float], p=[1, 0])(-3)
    3
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: Sequence[float] | None = None) -> None:
        self.transforms, self.p = list(transforms), p
        if not self.transforms or (p is not None and not (len(p) == len(self.transforms) and min(p) >= 0 < sum(p))):
            raise ArgumentError(f"RandomChoice: takes transforms and a weight for each, got {transforms!r} and {p!r}")

    def __call__(self, sample: Any) -> Any:
        shares = None if self.p is None else np.asarray(self.p) / np.sum(self.p)
        return self.transforms[int(drawn().choice(len(self.transforms), p=shares))](sample)


class Lambda(Transform):
    """A function as a transform; TypeError for what cannot be called.

    >>> Lambda(lambda x: x * 2)(3)
    6
    """

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Lambda: takes a function, got {lambd!r}")
        self.lambd = lambd

    def __call__(self, sample: Any) -> Any:
        return self.lambd(sample)


class ToTensor(Transform):
    """Tensor (channels, height, width) of one of Pillow's images, or of an array (height, width, channels).

    An array (height, width) is one channel. Bytes become float32 from 0 to 1; other dtypes stay, and bits become 0.0
    and 1.0. TypeError for anything else.

    >>> ToTensor()(np.full((4, 5, 3), 51, np.uint8)).shape
    (3, 4, 5)
    """

    def __call__(self, image: Any) -> Tensor:
        pixels = array_of(image) if is_pillow(image) else image
        if not isinstance(pixels, np.ndarray) or pixels.ndim not in (2, 3):
            raise TypeError(
                f"ToTensor: takes Pillow's images and arrays of two or three axes, got {type(image).__name__}"
            )
        planes = np.moveaxis(pixels.reshape(*pixels.shape[:2], -1), -1, 0)
        if pixels.dtype != np.uint8:
            return xp.asarray(np.array(planes, np.float32 if pixels.dtype.kind == "b" else pixels.dtype, order="C"))
        return xp.asarray(np.divide(planes, np.float32(255), out=np.empty(planes.shape, np.float32)))


class ConvertImageDtype(Transform):
    """Images of another dtype with their range: bytes are 0 to 255 where floats are 0 to 1.

    >>> ConvertImageDtype("float32")(hm.full((1, 2, 2), 255, dtype=hm.uint8)).max().item()
    1.0
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)

    def __call__(self, image: Any) -> Any:
        return on_pixels(image, lambda pixels: _converted(pixels, self.dtype))


def _converted(pixels: np.ndarray, dtype: np.dtype) -> np.ndarray:
    before, after = (kind.kind in "iu" for kind in (pixels.dtype, dtype))
    if before == after:
        return pixels.astype(dtype)
    if before:
        return (pixels / np.float64(np.iinfo(pixels.dtype).max)).astype(dtype)
    return (pixels.astype(np.float64) * (np.iinfo(dtype).max + 1.0 - 1e-3)).astype(dtype)  # PyTorch's rounding


class Normalize(Transform):
    """Images ``(image - mean) / std``, by channel; `mean` and `std` are numbers or one for each channel.

    Raises DTypeError for whole numbers (ToTensor first), and ArgumentError for a `std` of 0. `inplace` is there
    for torchvision's sake: the image that is given stays as it is.

    >>> Normalize([0.5], [0.25])(hm.ones((1, 2, 2))).tolist()
    [[[2.0, 2.0], [2.0, 2.0]]]
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float], inplace: bool = False) -> None:
        self.mean, self.std = np.asarray(mean, np.float32), np.asarray(std, np.float32)
        if not self.std.all():
            raise ArgumentError("Normalize: std is 0 for a channel, by which nothing can be divided")

    def __call__(self, image: Any) -> Any:
        def normalized(pixels: np.ndarray) -> np.ndarray:
            if pixels.dtype.kind not in "fV":
                raise DTypeError(f"Normalize: needs floats, got {pixels.dtype.name}; put ToTensor() before it")
            return (pixels - self.mean.astype(pixels.dtype)) / self.std.astype(pixels.dtype)

        return on_pixels(image, normalized)


class Grayscale(Transform):
    """Grey images of coloured ones, with 1 or 3 equal channels.

    >>> Grayscale()(hm.ones((3, 2, 2))).shape
    (1, 2, 2)
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise ArgumentError(f"Grayscale: num_output_channels is 1 or 3, got {num_output_channels!r}")
        self.num_output_channels = num_output_channels

    def __call__(self, image: Any) -> Any:
        return on_pixels(
            image, lambda pixels: np.repeat(like(_grey(pixels), pixels.dtype), self.num_output_channels, -1)
        )


class RandomGrayscale(Transform):
    """Images that are grey, with as many channels as before, with probability `p`.

    >>> RandomGrayscale(p=1.0)(hm.ones((3, 2, 2))).shape
    (3, 2, 2)
    """

    def __init__(self, p: float = 0.1) -> None:
        self.p = p

    def __call__(self, image: Any) -> Any:
        if drawn().random() >= self.p:
            return image

        def grey(pixels: np.ndarray) -> np.ndarray:
            made = pixels.copy()
            _colours(made)[...] = like(_grey(pixels), pixels.dtype)
            return made

        return on_pixels(image, grey)


class ColorJitter(Transform):
    """Images whose brightness, contrast, saturation and hue are changed at random, in a random order.

    Each is a number x, for a factor from ``max(0, 1 - x)`` to ``1 + x``, or a pair of the least and the most; `hue` is
    added, from -x to x, at most 0.5. ArgumentError for other numbers.

    >>> ColorJitter(brightness=0.2)(hm.ones((3, 2, 2))).shape
    (3, 2, 2)
    """

    def __init__(
        self,
        brightness: float | tuple[float, float] = 0,
        contrast: float | tuple[float, float] = 0,
        saturation: float | tuple[float, float] = 0,
        hue: float | tuple[float, float] = 0,
    ) -> None:
        self.brightness, self.contrast = _range("brightness", brightness), _range("contrast", contrast)
        self.saturation, self.hue = _range("saturation", saturation), _range("hue", hue)

    def __call__(self, image: Any) -> Any:
        bits = drawn()
        given = zip(CHANGES, (self.brightness, self.contrast, self.saturation, self.hue), strict=True)
        changes = [(fn, bits.uniform(*limits)) for fn, limits in given if limits is not None]
        order = [changes[k] for k in bits.permutation(len(changes))]

        def changed(pixels: np.ndarray) -> np.ndarray:
            top = np.float32(np.iinfo(pixels.dtype).max if pixels.dtype.kind in "iu" else 1)
            colours = _colours(pixels).astype(np.float32)
            for fn, factor in order:
                colours = np.clip(fn(colours, np.float32(factor), top), 0, top)
            made = pixels.copy()
            _colours(made)[...] = like(colours, pixels.dtype)
            return made

        return on_pixels(image, changed)


def _range(name: str, given: float | tuple[float, float]) -> tuple[float, float] | None:
    """The least and the most of a change; None for no change."""
    middle, floor, top = (0.0, -0.5, 0.5) if name == "hue" else (1.0, 0.0, float("inf"))
    if isinstance(given, int | float):
        if given < 0:
            raise ArgumentError(f"ColorJitter: {name} is no number below 0, got {given!r}")
        low, high = max(middle - given, floor) if name != "hue" else middle - given, middle + given
    else:
        low, high = given
    if not floor <= low <= high <= top:
        raise ArgumentError(f"ColorJitter: {name} must be from {floor} to {top}, got {given!r}")
    return None if low == high == middle else (float(low), float(high))


def _colours(pixels: np.ndarray) -> np.ndarray:
    """The channels of pixels without their opacity."""
    return pixels[..., : pixels.shape[-1] // 3 * 3 or 1]


def _grey(pixels: np.ndarray) -> np.ndarray:
    """Brightness of pixels (..., 1)."""
    if pixels.shape[-1] == 1:
        return pixels.astype(np.float32)
    if pixels.shape[-1] not in (3, 4):
        raise ArgumentError(f"transforms: images have 1, 3 or 4 channels, got {pixels.shape[-1]}")
    return (pixels[..., :3].astype(np.float32) @ GREY)[..., None]


def _brightness(pixels: np.ndarray, factor: np.float32, top: np.float32) -> np.ndarray:
    return pixels * factor


def _contrast(pixels: np.ndarray, factor: np.float32, top: np.float32) -> np.ndarray:
    grey = _grey(pixels).mean(axis=(-3, -2, -1), keepdims=True)
    return pixels * factor + grey * (1 - factor)


def _saturation(pixels: np.ndarray, factor: np.float32, top: np.float32) -> np.ndarray:
    return pixels * factor + _grey(pixels) * (1 - factor)


def _hue(pixels: np.ndarray, shift: np.float32, top: np.float32) -> np.ndarray:
    """Colours whose hue goes round by `shift` turns, with their value and saturation (Foley and van Dam's HSV)."""
    if pixels.shape[-1] == 1:
        return pixels
    red, green, blue = np.moveaxis(pixels, -1, 0)
    value, low = pixels.max(-1), pixels.min(-1)
    spread = value - low
    safe = np.where(spread == 0, 1, spread)
    sixths = [(green - blue) / safe, 2 + (blue - red) / safe]
    hue = np.select([value == red, value == green], sixths, 4 + (red - green) / safe)
    hue = (hue + 6 * shift) % 6
    # The value of a channel falls with the distance of the hue from the two sixths in which it is highest.
    planes = []
    for offset in (5, 3, 1):
        k = (offset + hue) % 6
        planes.append(value - spread * np.clip(np.minimum(k, 4 - k), 0, 1))
    return np.stack(planes, -1)


CHANGES = (_brightness, _contrast, _saturation, _hue)
