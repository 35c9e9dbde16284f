"""Metrics of many batches: counts that each batch adds to, and the value of their sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.tensor import Tensor
from ..nn.module import Module
from . import functional as F


class Metric(Module):
    """Base of metrics: `update(...)` adds a batch's counts, of shapes (...), `compute()` gives the value of all since
    `reset()`.

    Calling it adds a batch and returns the value of that batch alone. A subclass gives `count(...)`, the counts of a
    batch, and `value(*counts)`; its counts start as those of `__init__`, and are buffers outside of the state dict.

    >>> mean = hm.metrics.Mean()
    >>> mean.update(hm.tensor([1.0, 2.0])); mean.update(hm.tensor(6.0)); mean.compute().item()
    3.0
    """

    count: Callable[..., tuple[Tensor, ...]]
    value: Callable[..., Tensor]

    def __init__(self, *counts: Tensor) -> None:
        super().__init__()
        self.names = [f"count{k}" for k in range(len(counts))]
        for name, start in zip(self.names, counts, strict=True):
            self.register_buffer(name, start, persistent=False)

    def update(self, *args: Any) -> None:
        """Adds the counts of a batch."""
        self._add(self.count(*args))

    def compute(self) -> Tensor:
        """The value of all batches since the last `reset()`."""
        return self.value(*[getattr(self, name) for name in self.names])

    def reset(self) -> None:
        """Forgets all batches."""
        for name in self.names:
            getattr(self, name).fill_(0)

    def forward(self, *args: Any) -> Tensor:
        counts = self.count(*args)
        self._add(counts)
        return self.value(*counts)

    def _add(self, counts: Sequence[Tensor]) -> None:
        for name, more in zip(self.names, counts, strict=True):
            getattr(self, name).add_(more.detach())


def _zero() -> Tensor:
    return xp.zeros((), dtype=dtypes.int64)


class Accuracy(Metric):
    """`hm.metrics.accuracy` of many batches: `update(preds, target)`, scores (n, C, ...) or classes (n, ...).

    >>> metric = hm.metrics.Accuracy()
    >>> metric.update(hm.tensor([0, 1]), hm.tensor([0, 0])); metric.update(hm.tensor([2, 1]), hm.tensor([2, 1]))
    >>> metric.compute().item()
    0.75
    """

    def __init__(self, top_k: int = 1, threshold: float = 0.5) -> None:
        super().__init__(_zero(), _zero())
        self.top_k, self.threshold = top_k, threshold

    def count(self, preds: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return F.hits(preds, target, self.top_k, self.threshold)

    def value(self, right: Tensor, total: Tensor) -> Tensor:
        return F.ratio(right, total)


class ConfusionMatrix(Metric):
    """`hm.metrics.confusion_matrix` of many batches: `update(preds, target)`, `compute()` of shape (C, C).

    >>> metric = hm.metrics.ConfusionMatrix(2)
    >>> metric(hm.tensor([0, 1, 1]), hm.tensor([0, 1, 0])).tolist()
    [[1, 1], [0, 1]]
    """

    def __init__(self, num_classes: int, threshold: float = 0.5) -> None:
        if num_classes < 2:
            raise ArgumentError(f"{type(self).__name__}: num_classes is 2 or more, got {num_classes}")
        super().__init__(xp.zeros((num_classes, num_classes), dtype=dtypes.int64))
        self.num_classes, self.threshold = num_classes, threshold

    def count(self, preds: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return (F.confusion_matrix(preds, target, self.num_classes, self.threshold),)

    def value(self, matrix: Tensor) -> Tensor:
        return matrix


class _Share(ConfusionMatrix):
    NAME = ""

    def __init__(self, num_classes: int = 2, average: str | None = None, threshold: float = 0.5) -> None:
        super().__init__(num_classes, threshold)
        self.average = average or ("binary" if num_classes == 2 else "macro")

    def value(self, matrix: Tensor) -> Tensor:
        return F.share(self.NAME, matrix, self.average)


class Precision(_Share):
    """`hm.metrics.precision` of many batches: `update(preds, target)`, scores (n, C, ...) or classes (n, ...).

    average: as there; left out, "binary" for 2 classes and "macro" for more.

    >>> hm.metrics.Precision()(hm.tensor([0.9, 0.8, 0.3]), hm.tensor([1, 0, 1])).item()
    0.5
    """

    NAME = "precision"


class Recall(_Share):
    """`hm.metrics.recall` of many batches: `update(preds, target)`, scores (n, C, ...) or classes (n, ...).

    average: as there; left out, "binary" for 2 classes and "macro" for more.

    >>> hm.metrics.Recall(3)(hm.tensor([0, 1, 2, 2]), hm.tensor([0, 1, 1, 2])).item()
    0.8333333134651184
    """

    NAME = "recall"


class F1Score(_Share):
    """`hm.metrics.f1_score` of many batches: `update(preds, target)`, scores (n, C, ...) or classes (n, ...).

    average: as there; left out, "binary" for 2 classes and "macro" for more.

    >>> hm.metrics.F1Score()(hm.tensor([0.9, 0.8, 0.3]), hm.tensor([1, 0, 1])).item()
    0.5
    """

    NAME = "f1_score"


class AUROC(Metric):
    """`hm.metrics.auroc` of many batches of probabilities: `update(preds, target)` (n, ...), classes 0 and 1.

    Probabilities are counted in `bins` equal parts of 0 .. 1, those in one part as ties: memory does not grow with the
    samples, and the value is off by less than the share of pairs that fall into one part.

    >>> hm.metrics.AUROC()(hm.tensor([0.1, 0.4, 0.35, 0.8]), hm.tensor([0, 0, 1, 1])).item()
    0.75
    """

    def __init__(self, bins: int = 1000) -> None:
        if bins < 1:
            raise ArgumentError(f"AUROC: bins is 1 or more, got {bins}")
        super().__init__(xp.zeros((bins,), dtype=dtypes.int64), xp.zeros((bins,), dtype=dtypes.int64))
        self.bins = bins

    def count(self, preds: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return F.binned(preds, target, self.bins)

    def value(self, negative: Tensor, positive: Tensor) -> Tensor:
        return F.area(negative, positive)


class Perplexity(Metric):
    """`hm.metrics.perplexity` of many batches: `update(preds, target)`, scores (..., V) and tokens (...).

    >>> round(hm.metrics.Perplexity()(hm.zeros((2, 3, 8)), hm.zeros((2, 3), dtype="int64")).item(), 3)
    8.0
    """

    def __init__(self, ignore_index: int | None = None) -> None:
        super().__init__(xp.zeros((), dtype=dtypes.float64), _zero())
        self.ignore_index = ignore_index

    def count(self, preds: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        loss, count = F.token_losses(preds, target, self.ignore_index)
        return loss.astype(dtypes.float64), count

    def value(self, loss: Tensor, count: Tensor) -> Tensor:
        return xp.exp(loss / count)


class Mean(Metric):
    """The mean of all values (...), as of losses: `update(values, weight)`; a weight may be the size of a batch.

    >>> mean = hm.metrics.Mean()
    >>> mean.update(hm.tensor(1.0), 3); mean.update(hm.tensor(5.0), 1); mean.compute().item()
    2.0
    """

    def __init__(self) -> None:
        super().__init__(xp.zeros((), dtype=dtypes.float64), xp.zeros((), dtype=dtypes.float64))

    def count(self, values: Any, weight: Any = 1.0) -> tuple[Tensor, ...]:
        values = xp.asarray(values).astype(dtypes.float64)
        weight = xp.broadcast_to(xp.asarray(weight).astype(dtypes.float64), values.shape)
        return xp.sum(values * weight), xp.sum(weight)

    def value(self, total: Tensor, weight: Tensor) -> Tensor:
        return F.ratio(total, weight)


__all__ = ["AUROC", "Accuracy", "ConfusionMatrix", "F1Score", "Mean", "Metric", "Perplexity", "Precision", "Recall"]
