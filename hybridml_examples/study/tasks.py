"""Small networks on real data, trained to a given loss: images of digits, and the text of Python's reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from .networks import Network, Size

Batches = Iterator[list[np.ndarray]]


class Task(NamedTuple):
    """A network on data until the mean of `window` losses is `target`; `quick` is a target that is near."""

    network: str
    title: str
    data: str  # what it is, in a sentence
    size: Size
    batches: Callable[[int], Batches]  # of a batch size
    target: float
    quick: float
    window: int = 10
    steps: int = 600  # at most
    row: Network = Network("", Size(1), Size(1))


def digits(batch: int) -> Batches:
    """Images (batch, 3, 32, 32) and labels: scanned digits of 8 x 8 points, each point 4 x 4, three equal channels."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    grey = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8).repeat(4, 2).repeat(4, 3)
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(len(labels))
        for start in range(0, len(order) - batch + 1, batch):
            picked = order[start : start + batch]
            yield [np.repeat(grey[picked], 3, 1), labels[picked].astype(np.int64)]


def characters(batch: int, length: int = 64) -> Batches:
    """Characters (batch, length) of Python's language reference, as numbers below 96."""
    from ..char_lm import encode, text

    codes, rng = encode(text()), np.random.default_rng(0)
    while True:
        starts = rng.integers(0, len(codes) - length, batch)
        yield [codes[starts[:, None] + np.arange(length)]]


# fmt: off
TASKS = (
    Task("resnet18", "ResNet-18 on digits",
         "The 1797 scanned digits of scikit-learn, enlarged to 32 × 32; ResNet-18 of a quarter of the width; SGD.",
         Size(32, {"num_classes": 10, "width": 16}, {"side": 32, "classes": 10}), digits, target=0.3, quick=1.5,
         row=Network("vision", Size(1), Size(1), "adam")),
    Task("gpt2", "GPT-2 on Python's reference",
         "The text of Python's language reference, character by character; GPT-2 of 4 layers of width 128; Adam.",
         Size(16, {"vocab_size": 96, "width": 128, "layers": 4, "heads": 4, "positions": 64},
              {"length": 64, "vocab_size": 96}), characters, target=3.0, quick=4.0,
         row=Network("text", Size(1), Size(1), "adam")),
)
# fmt: on
