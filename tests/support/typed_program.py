"""A user's program with types: a classifier with its data, loss, training and statistics, eagerly and traced.

`tests/test_surface.py` has mypy check it in strict mode, and runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_type

import numpy as np

import hybridml as hm
from hybridml import Tensor, nn, optim


class Block(nn.Module):
    """A layer with a residual connection: (n, width) to (n, width)."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = nn.Parameter(hm.ones((width,), hm.float32))
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = nn.functional.relu(self.linear(x))
        return x + self.scale * nn.functional.dropout(hidden, self.dropout, self.training)


class Classifier(nn.Module):
    def __init__(self, features: int, classes: int, depth: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(features) for _ in range(depth)])
        self.head = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


def made(count: int, features: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = np.random.default_rng(0)
    centers = generator.standard_normal((classes, features))
    labels = generator.integers(0, classes, count)
    data = centers[labels] + 0.1 * generator.standard_normal((count, features))
    return hm.asarray(data, hm.float32), hm.asarray(labels)


def batches(x: Tensor, labels: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    for start in range(0, x.shape[0], size):
        yield x[start : start + size], labels[start : start + size]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    shifted = logits - hm.max(logits, 1, True)
    log_sum = hm.log(hm.sum(hm.exp(shifted), axis=1))
    chosen = hm.take_along_axis(shifted, labels.reshape(-1, 1), 1).squeeze(1)
    return (log_sum - chosen).mean()


def standardized(x: Tensor) -> Tensor:
    mean, deviation = x.mean(0), x.std(axis=0)
    return hm.clip((x - mean) / (deviation + 1e-6), -3.0, 3.0)


def accuracy(model: Callable[[Tensor], Tensor], x: Tensor, labels: Tensor) -> float:
    with hm.no_grad():
        predicted = model(x).argmax(1)
    return float((predicted == labels).astype(hm.float32).mean())


@hm.trace
def spectrum(x: Tensor) -> Tensor:
    left, values, right = hm.svd(x, full_matrices=False)
    product: Tensor = (left * values) @ right
    return hm.concatenate([values, hm.abs(product - x).max().reshape(1)])


class Counter:
    """A traced method, which has the signature of its function without `self`."""

    def __init__(self) -> None:
        self.calls = hm.zeros((), hm.int64)

    @hm.trace(dynamic=False)
    def count(self, x: Tensor, by: int = 1) -> tuple[Tensor, int]:
        self.calls += by
        return x * by, by


def train(steps: int = 20) -> float:
    hm.manual_seed(0)
    x, labels = made(64, 8, 3)
    x = standardized(x)
    model = Classifier(8, 3)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        for inputs, wanted in batches(x, labels, 32):
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), wanted)
            loss.backward()
            optimizer.step()
    return accuracy(model, x, labels)


def main() -> float:
    x = hm.linspace(0, 1, 12).reshape(3, 4).requires_grad_()
    assert_type(hm.exp(x), Tensor)
    assert_type(2.0**-x @ x.mT, Tensor)
    assert_type(x > 0.5, Tensor)
    assert_type(hm.split(x, 2, 1), tuple[Tensor, ...])
    assert_type(x.grad, Tensor | None)
    assert_type(hm.roll(x, 1, 0).at[0].set(0.0), Tensor)
    assert_type(spectrum(x), Tensor)
    assert_type(spectrum.ir, str)
    assert_type(spectrum.cache_info().hits, int)
    assert_type(Counter().count(x, by=2), tuple[Tensor, int])
    assert_type(hm.trace(nn.Linear(2, 3), strict=True), nn.Linear)
    assert_type(hm.trace(nn.Linear(2, 3)).weight, nn.Parameter)
    assert_type(nn.Linear(4, 3)(x), Tensor)
    assert_type(hm.trace(nn.ReLU())(x), Tensor)
    assert_type(hm.where(x > 0, x, 0.0), Tensor)
    assert_type(hm.compare(spectrum, x, repeats=2).results.ulp, int)
    assert_type(hm.summary(nn.Linear(4, 3), x).parameters, int)
    gradient: Tensor = hm.grad(lambda t: (t * t).sum())(x)
    shape: tuple[int, ...] = gradient.shape
    assert shape == x.shape and spectrum(hm.tensor([[2.0, 0.0], [0.0, 1.0]])).tolist()[0] == 2.0
    x.sum().backward()
    return train()


if __name__ == "__main__":
    print(main())
