"""Handwritten digits: a multi-layer perceptron and a small convolutional network, eagerly and traced.

The data are the 1797 scanned digits (8 x 8 grey values) that come with scikit-learn.
``python -m hybridml_examples.digits``
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import hybridml as hm
from hybridml import nn

from .training import STYLES, Run, print_summary, train

TRAINING = 1500  # of 1797; the rest tests
BATCH = 60


def load(seed: int = 0) -> tuple[hm.data.TensorDataset, hm.data.TensorDataset]:
    """(training, test) data: images (n, 1, 8, 8) float32 in 0..1 and labels (n,) int64."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit("this example needs scikit-learn for its data: pip install 'hybridml[demo]'") from None
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x = (images[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = labels[order].astype(np.int64)
    parts = [slice(None, TRAINING), slice(TRAINING, None)]
    training, test = (hm.data.TensorDataset(hm.asarray(x[part].copy()), hm.asarray(y[part].copy())) for part in parts)
    return training, test


def mlp() -> nn.Module:
    """Two hidden layers, with dropout: the random bits are the same in both styles."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 256),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def convnet() -> nn.Module:
    """Two convolutions, with batch normalisation: its running statistics are state that the traced step updates."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 10),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {"digits MLP": mlp, "digits convnet": convnet}


def run(name: str, style: str, epochs: int = 6, seed: int = 0) -> Run:
    """Train one model in one style. The same seed gives the same start, the same batches and the same dropout."""
    training, test = load()
    hm.manual_seed(seed)
    model = MODELS[name]()
    optimizer = hm.optim.Adam(model.parameters(), lr=1e-3)
    loader = hm.data.DataLoader(training, batch_size=BATCH, shuffle=True, drop_last=True, generator=seed)

    def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = hm.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    batches = (batch for _ in range(epochs) for batch in loader)
    result = train(name, style, step, batches, epochs * len(loader))
    result.notes["test accuracy"] = f"{accuracy(model, test):.3f}"
    return result


def accuracy(model: nn.Module, data: hm.data.TensorDataset) -> float:
    """Share of the images whose most likely class is the label."""
    images, labels = data.tensors
    model.eval()
    with hm.no_grad():
        predicted = hm.argmax(model(images), axis=-1)
    model.train()
    return float((predicted == labels).numpy().mean())


def runs(epochs: int = 6, seed: int = 0) -> list[Run]:
    """Both models in both styles."""
    return [run(name, style, epochs, seed) for name in MODELS for style in STYLES]


if __name__ == "__main__":
    print_summary(runs())
