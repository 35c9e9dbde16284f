"""Images that come with scikit-learn: its 1797 scanned digits, and its two photographs. It has no faces of its own.

(`fetch_olivetti_faces` and `fetch_lfw_people` download theirs.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

import hybridml as hm

from .made import Arrays, Data, Missing, Samples, rows

TEST = 297  # digits
PHOTOGRAPHS = ("china.jpg", "flower.jpg")


@cache
def _digits() -> Arrays:
    """Grey values (1797, 1, 8, 8) float32 in 0..1, labels (1797,) int64."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise Missing("the digits come with scikit-learn: pip install 'hybridml[demo]'") from None
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32).reshape(-1, 1, 8, 8), labels.astype(np.int64)


def enlarged(images: np.ndarray, side: int, channels: int = 1) -> np.ndarray:
    """Images (n, 1, h, w) -> (n, channels, side, side), bilinear; the channels are equal."""
    if images.shape[-1] != side:
        images = hm.functional.interpolate(hm.asarray(images), size=(side, side), mode="bilinear").numpy()
    return np.repeat(images, channels, axis=1)


def digits(side: int = 32, channels: int = 3) -> Data:
    """Batches (images (n, channels, side, side) in -1..1, labels (n,)) of the digits, enlarged from 8 x 8."""
    return _digits_as(lambda k, images, labels: (2 * enlarged(images, side, channels) - 1, labels), side)


def flat_digits(side: int = 16) -> Data:
    """Batches (images (n, side * side) in 0..1,) of the digits."""
    return _digits_as(lambda k, images, labels: (enlarged(images, side).reshape(len(images), -1),), side)


def digits_and_noise(latent: int = 100, channels: int = 3, side: int = 64) -> Data:
    """Batches (normal noise (n, latent, 1, 1), images (n, channels, side, side) in -1..1) of the digits."""

    def make(k: np.ndarray, images: np.ndarray, labels: np.ndarray) -> Arrays:
        # The numbers of a batch's samples are its seed: other batches, also of the same samples, have other noise.
        noise = np.random.default_rng(k).standard_normal((len(k), latent, 1, 1), np.float32)
        return noise, 2 * enlarged(images, side, channels) - 1

    return _digits_as(make, side)


def _digits_as(change: Callable[[np.ndarray, np.ndarray, np.ndarray], Arrays], side: int) -> Data:
    """The digits, of which `change` makes a batch: of the numbers of the samples, images 8 x 8 and labels."""
    about = (
        f"scikit-learn's {len(_digits()[1])} scanned digits (8 x 8), enlarged to {side} x {side}; {TEST} of them test"
    )
    data = rows(about, _digits(), TEST)

    def samples(plain: Samples) -> Samples:
        return Samples(len(plain), lambda k: change(k, *plain.make(k)))

    return Data(about, samples(data.training), samples(data.test))


@cache
def photographs() -> tuple[np.ndarray, ...]:
    """The photographs as colours (height, width, 3) float32 in 0..1."""
    try:
        from sklearn.datasets import load_sample_image

        return tuple((load_sample_image(name) / 255).astype(np.float32) for name in PHOTOGRAPHS)
    except ImportError:
        raise Missing(
            "scikit-learn has the photographs and pillow reads them: pip install 'hybridml[demo,data]'"
        ) from None


def warm(photograph: np.ndarray) -> np.ndarray:
    """Where a photograph has more red than blue: the mask (height, width) int64 that networks are to find in grey."""
    return (photograph[..., 0] > photograph[..., 2]).astype(np.int64)


def patches(side: int = 92, depth: int = 2) -> Data:
    """Batches (grey patches (n, 1, side, side) in 0..1, masks (n, inside, inside)) of the two photographs.

    A mask says where the middle of a patch, which a U-Net of this depth keeps, has more red than blue: its grey values
    do not tell. Tests are in the right quarter of each photograph; training patches begin left of it.
    """
    pictures = photographs()
    greys, masks = [p.mean(-1) for p in pictures], [warm(p) for p in pictures]
    edge = 2 * (3 * 2**depth - 2)  # what the convolutions take off each side
    middle = slice(edge, side - edge)

    def cut(number: int, test: bool) -> Arrays:
        rng = np.random.default_rng((number, test))
        which = int(rng.integers(len(pictures)))
        height, width = greys[which].shape
        border = 3 * width // 4
        top = int(rng.integers(height - side + 1))
        left = int(rng.integers(border, width - side + 1) if test else rng.integers(border - side + 1))
        turned = slice(None, None, -1 if rng.integers(2) else 1)
        place = slice(top, top + side), slice(left, left + side)
        return greys[which][place][None, :, turned], masks[which][place][:, turned][middle, middle]

    def samples(count: int, test: bool) -> Samples:
        def make(indices: np.ndarray) -> Arrays:
            images, found = zip(*(cut(int(k), test) for k in indices), strict=True)
            return np.stack(images), np.stack(found)

        return Samples(count, make)

    about = f"grey patches ({side} x {side}) of scikit-learn's two photographs; to find: where red is above blue"
    return Data(about, samples(4000, False), samples(200, True))
