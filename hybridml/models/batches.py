"""Random batches of the shapes that the architectures train on: NumPy arrays, a model's inputs first, then targets."""

from __future__ import annotations

import numpy as np

Batch = tuple[np.ndarray, ...]


def labelled_images(rng: np.random.Generator, n: int, side: int = 224, classes: int = 1000, channels: int = 3) -> Batch:
    """Images (n, channels, side, side) float32, labels (n,) int64."""
    images = rng.standard_normal((n, channels, side, side), np.float32)
    return images, rng.integers(0, classes, n)
