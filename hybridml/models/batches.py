"""Random batches of the shapes that the architectures train on: NumPy arrays, a model's inputs first, then targets."""

from __future__ import annotations

import numpy as np

Batch = tuple[np.ndarray, ...]


def labelled_images(rng: np.random.Generator, n: int, side: int = 224, classes: int = 1000, channels: int = 3) -> Batch:
    """Images (n, channels, side, side) float32, labels (n,) int64."""
    images = rng.standard_normal((n, channels, side, side), np.float32)
    return images, rng.integers(0, classes, n)


def large_images(rng: np.random.Generator, n: int, side: int = 299, classes: int = 1000) -> Batch:
    """Images (n, 3, side, side) float32, labels (n,) int64."""
    return labelled_images(rng, n, side, classes)


def labelled_pixels(
    rng: np.random.Generator, n: int, side: int = 572, classes: int = 2, channels: int = 1, depth: int = 4
) -> Batch:
    """Images (n, channels, side, side) float32, labels (n, inside, inside) int64 of the pixels that a U-Net keeps."""
    inside = side - 4 * (3 * 2**depth - 2)  # each of two convolutions takes 2 pixels, on the way down and on that up
    images = rng.standard_normal((n, channels, side, side), np.float32)
    return images, rng.integers(0, classes, (n, inside, inside))


def noise_and_images(rng: np.random.Generator, n: int, latent: int = 100, channels: int = 3) -> Batch:
    """Normal noise (n, latent, 1, 1) float32, images (n, channels, 64, 64) float32 between -1 and 1."""
    noise = rng.standard_normal((n, latent, 1, 1), np.float32)
    return noise, rng.uniform(-1, 1, (n, channels, 64, 64)).astype(np.float32)


def digits(rng: np.random.Generator, n: int, pixels: int = 784) -> Batch:
    """Flat images (n, pixels) float32 between 0 and 1."""
    return (rng.random((n, pixels), np.float32),)
