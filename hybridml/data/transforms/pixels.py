"""Parts of all transforms of images: one layout for tensors, arrays and Pillow's images; sizes; random numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, ShapeError

from ... import arrays as xp
from ...core.tensor import Tensor
from ..sampler import random_bits
from ..workers import process


class Transform:
    """Base of transforms: its `repr` names its arguments."""

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({given})"


def is_pillow(image: Any) -> bool:
    """Whether an image is one of Pillow's, which is not imported to find out."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(image, pillow.Image)


def on_pixels(image: Any, fn: Callable[[np.ndarray], np.ndarray]) -> Any:
    """`fn` of an image as an array (..., height, width, channels), back in the form of the image.

    Raises ShapeError for arrays of other numbers of axes, and TypeError for what is no image.
    """
    if isinstance(image, Tensor):
        pixels = image.detach().numpy()
        if pixels.ndim < 2:
            raise ShapeError(f"transforms: an image has two axes or more, got shape {pixels.shape}")
        if pixels.ndim == 2:
            return xp.asarray(np.ascontiguousarray(fn(pixels[..., None])[..., 0]))
        return xp.asarray(np.ascontiguousarray(np.moveaxis(fn(np.moveaxis(pixels, -3, -1)), -1, -3)))
    if isinstance(image, np.ndarray):
        if image.ndim not in (2, 3):
            raise ShapeError(
                f"transforms: an array of an image is (height, width) or (height, width, channels), got {image.shape}"
            )
        done = fn(image if image.ndim == 3 else image[..., None])
        return done[..., 0] if image.ndim == 2 and done.shape[-1] == 1 else done
    if is_pillow(image):
        from PIL import Image

        return Image.fromarray(np.ascontiguousarray(on_pixels(array_of(image), fn)))
    raise TypeError(f"transforms: an image is a tensor, a NumPy array or Pillow's, got {type(image).__name__}")


def array_of(image: Any) -> np.ndarray:
    """Pixels of one of Pillow's images; palettes become colours, and bits grey."""
    plain = {"P": "RGB", "1": "L", "CMYK": "RGB", "YCbCr": "RGB"}.get(image.mode)
    return np.array(image if plain is None else image.convert(plain))


def size_of(image: Any) -> tuple[int, int]:
    """Height and width of an image."""
    if is_pillow(image):
        return image.height, image.width
    shape = image.shape
    return (shape[-2], shape[-1]) if isinstance(image, Tensor) or len(shape) == 2 else (shape[0], shape[1])


def pair(size: int | Sequence[int], what: str) -> tuple[int, int]:
    """Height and width of a size that is one number for both, or a pair."""
    both = (size, size) if isinstance(size, int | np.integer) else tuple(size)
    if len(both) == 1:
        both = (both[0], both[0])
    if len(both) != 2 or min(both) < 1:
        raise ArgumentError(f"{what}: a size is a positive number or a pair (height, width), got {size!r}")
    return int(both[0]), int(both[1])


def like(pixels: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Floats as pixels of a dtype: of a whole-number one rounded and held to its range."""
    if dtype.kind not in "iu":
        return pixels.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(pixels), limits.min, limits.max).astype(dtype)


def drawn() -> np.random.Generator:
    """Random numbers of this moment: of the batch in a worker process, elsewhere of the default generator."""
    return process.batch_bits() or random_bits(None)
