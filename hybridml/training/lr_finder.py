"""A range test of learning rates (Smith 2017, "Cyclical learning rates for training neural networks")."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ..core.tensor import Tensor
from ..nn.module import Module
from ..optim import Optimizer
from ..tracing.decorator import trace
from .fit import batches_of


@dataclass(frozen=True, repr=False)
class LRFinder:
    """Learning rates that were tried, rising, and the smoothed loss at each.

    >>> LRFinder([0.01, 0.1, 1.0], [3.0, 1.0, 9.0]).suggestion
    0.01
    """

    rates: list[float]
    losses: list[float]

    @property
    def suggestion(self) -> float:
        """The rate at which the loss falls most steeply: the middle of the eighth of the rates with the largest fall.

        Less is the difference of two batches, and so are the means at the first ten rates (or a quarter of them).
        """
        first, span = min(10, len(self.losses) // 4), max(1, len(self.losses) // 8)
        falls = [b - a for a, b in zip(self.losses[first:-span], self.losses[first + span :], strict=True)]
        return self.rates[first + span // 2 + falls.index(min(falls))]

    def __repr__(self) -> str:
        rates = f"{len(self.rates)} rates from {self.rates[0]:.3g} to {self.rates[-1]:.3g}"
        return f"LRFinder({rates}, suggestion={self.suggestion:.3g})"

    def plot(self) -> Any:
        """A figure of matplotlib's: the loss over the rate, with the suggestion."""
        from matplotlib import pyplot

        figure, axes = pyplot.subplots()
        axes.plot(self.rates, self.losses)
        axes.axvline(self.suggestion, linestyle="--", label=f"suggestion {self.suggestion:.2g}")
        axes.set(xscale="log", xlabel="learning rate", ylabel="loss, smoothed")
        axes.legend()
        return figure


def lr_finder(
    model: Module,
    loss: Callable[..., Tensor],
    optimizer: Optimizer,
    loader: Iterable[Any],
    start_lr: float = 1e-7,
    end_lr: float = 10.0,
    steps: int = 100,
    smoothing: float = 0.9,
) -> LRFinder:
    """Trains with rates that rise from `start_lr` to `end_lr` in equal factors, and tells the loss at each.

    Batches ``(*inputs, target)`` are those of `fit`; a loader with fewer begins again. It ends early where the loss is
    more than four times the best, or not finite. smoothing: the weight of the running mean. Model and optimizer are as
    before afterwards. Raises ArgumentError for rates that do not rise, fewer than 2 steps, or a loader without batches.

    >>> model = hm.nn.Linear(2, 1)
    >>> loader = [(hm.ones((4, 2)), hm.zeros((4, 1)))]
    >>> found = lr_finder(model, hm.nn.MSELoss(), hm.optim.SGD(model.parameters(), lr=0.1), loader, steps=20)
    >>> 1e-7 <= found.suggestion <= 10.0
    True
    """
    if not 0 < start_lr < end_lr or steps < 2:
        raise ArgumentError(f"lr_finder: takes 0 < start_lr < end_lr and steps > 1, got {start_lr}, {end_lr}, {steps}")
    before = model.state_dict(), optimizer.state_dict()
    saved = [{name: value.clone() for name, value in before[0].items()}, _copied(before[1])]

    @trace
    def step(*batch: Any) -> Tensor:
        *inputs, target = batch
        value = loss(model(*inputs), target)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value.detach()

    rates: list[float] = []
    losses: list[float] = []
    mean = 0.0
    try:
        for k, batch in enumerate(itertools.islice(_again(loader), steps)):
            rate = start_lr * (end_lr / start_lr) ** (k / (steps - 1))
            for group in optimizer.param_groups:
                group["lr"] = rate
            mean = smoothing * mean + (1 - smoothing) * step(*batch).item()
            smooth = mean / (1 - smoothing ** (k + 1))
            if not math.isfinite(smooth) or (losses and smooth > 4 * min(losses)):
                break
            rates.append(rate)
            losses.append(smooth)
    finally:
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        optimizer.zero_grad()
    if len(losses) < 2:
        raise ArgumentError(f"lr_finder: the loss is not finite, or grows, from start_lr={start_lr} on; begin lower")
    return LRFinder(rates, losses)


def _again(loader: Iterable[Any]) -> Iterator[Sequence[Any]]:
    while True:
        yield from batches_of(loader, "lr_finder: the loader")


def _copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map(_copied, tree))
    return tree.clone() if isinstance(tree, Tensor) else tree


__all__ = ["LRFinder", "lr_finder"]
