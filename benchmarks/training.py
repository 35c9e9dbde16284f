"""The training steps: which model on which data, with which loss and optimizer, and the weights it starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Arrays = dict[str, np.ndarray]
RATES = {"adam": 1e-3, "sgd": 0.01}  # Adam with PyTorch's defaults; SGD with momentum 0.9


@dataclass(frozen=True)
class Training:
    """A step is zero_grad, forward, loss, backward, update, on one batch."""

    module: str  # of `models`
    name: str  # of the class in it
    arguments: dict[str, Any]
    data: Callable[[np.random.Generator], Arrays]  # the model's inputs in order, then `labels`
    loss: Literal["cross_entropy", "binary_cross_entropy"] = "cross_entropy"
    optimizer: Literal["adam", "sgd"] = "adam"

    def model(self, library: str = "hybridml") -> Any:
        from .models import model

        return getattr(model(self.module, library), self.name)(**self.arguments)

    def arrays(self, rng: np.random.Generator) -> Arrays:
        """The data, and the first weights by name (a name of a weight has a dot, a name of data has none)."""
        found = self.data(rng)
        for name, parameter in self.model().named_parameters():
            found[name] = start(name, tuple(parameter.shape), rng)
        return found


def start(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Matrices and filters keep the size of what passes through, scales are one, biases zero."""
    if len(shape) < 2:
        return np.full(shape, float("bias" not in name.rpartition(".")[2]), np.float32)
    width = np.prod(shape[1:])
    return rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(width))


def split(arrays: Arrays) -> tuple[list[np.ndarray], np.ndarray, Arrays]:
    """The inputs of the model, the labels, the weights."""
    inputs = [a for name, a in arrays.items() if "." not in name and name != "labels"]
    return inputs, arrays["labels"], {name: a for name, a in arrays.items() if "." in name}


def mlp(batch: int = 128, width: int = 512) -> Training:
    def data(rng: np.random.Generator) -> Arrays:
        return {"x": rng.standard_normal((batch, 784), np.float32), "labels": rng.integers(0, 10, batch)}

    return Training("mlp", "MLP", {"widths": (784, width, width, 10)}, data)


def gpt(batch: int = 8, length: int = 128, width: int = 256, layers: int = 4, vocabulary: int = 1024) -> Training:
    def data(rng: np.random.Generator) -> Arrays:
        tokens = rng.integers(0, vocabulary, (batch, length + 1))
        return {"tokens": tokens[:, :-1].copy(), "labels": tokens[:, 1:].copy()}

    sizes = {"vocabulary": vocabulary, "context": length, "width": width, "heads": width // 32, "layers": layers}
    return Training("gpt", "GPT", sizes, data)


def lstm(batch: int = 32, length: int = 64, width: int = 256, inputs: int = 128) -> Training:
    def data(rng: np.random.Generator) -> Arrays:
        return {"x": rng.standard_normal((batch, length, inputs), np.float32), "labels": rng.integers(0, 10, batch)}

    return Training("lstm", "LSTMClassifier", {"features": inputs, "hidden": width, "classes": 10}, data)


def _images(batch: int, side: int, classes: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: {
        "x": rng.standard_normal((batch, 3, side, side), np.float32),
        "labels": rng.integers(0, classes, batch),
    }


def resnet18(batch: int = 8, side: int = 64, classes: int = 1000, width: int = 64) -> Training:
    sizes = {"classes": classes, "width": width}
    return Training("resnet", "ResNet18", sizes, _images(batch, side, classes), optimizer="sgd")


def alexnet(batch: int = 16, side: int = 224, classes: int = 1000, hidden: int = 4096) -> Training:
    """Without dropout: its masks would differ between libraries, and with them the results that are compared."""
    sizes = {"classes": classes, "dropout": 0.0, "hidden": hidden}
    return Training("alexnet", "AlexNet", sizes, _images(batch, side, classes), optimizer="sgd")


def ncf(batch: int = 1024, users: int = 60000, items: int = 3700, width: int = 64) -> Training:
    def data(rng: np.random.Generator) -> Arrays:
        picked = {"users": rng.integers(0, users, batch), "items": rng.integers(0, items, batch)}
        return picked | {"labels": rng.integers(0, 2, batch).astype(np.float32)}

    return Training("ncf", "NCF", {"users": users, "items": items, "width": width}, data, "binary_cross_entropy")
