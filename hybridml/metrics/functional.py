"""Metrics of one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError

from .. import arrays as xp
from .. import functional
from ..core.precision.composites import wide
from ..core.tensor import Tensor

AVERAGES = ("macro", "micro", "weighted", "none", "binary")


def accuracy(preds: Tensor, target: Tensor, top_k: int = 1, threshold: float = 0.5) -> Tensor:
    """The share of samples whose class is predicted.

    preds: scores (n, C, ...) for `target` (n, ...), classes of the target's shape, or floats of that shape,
    probabilities of class 1, which is predicted above `threshold`. top_k: how many of the best scores may be the
    class's. Raises ShapeError for other shapes, DTypeError for targets that are no integers or bools.

    >>> hm.metrics.accuracy(hm.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), hm.tensor([0, 1, 1])).item()
    0.6666666865348816
    """
    right, total = hits(preds, target, top_k, threshold)
    return ratio(right, total)


def confusion_matrix(preds: Tensor, target: Tensor, num_classes: int | None = None, threshold: float = 0.5) -> Tensor:
    """Counts (C, C) of samples by class, the row, and predicted class, the column (int64).

    `preds` and `target` as for `accuracy`. num_classes: of classes that are integers; scores tell it, and
    probabilities have 2. Classes outside of the range are not counted. Raises ArgumentError where it is not known.

    >>> hm.metrics.confusion_matrix(hm.tensor([0, 1, 1, 0]), hm.tensor([0, 1, 0, 0]), num_classes=2).tolist()
    [[2, 1], [0, 1]]
    """
    found, target = classes(preds, target, threshold)
    count = _count_of(preds, target, num_classes)
    inside = (found >= 0) & (found < count) & (target >= 0) & (target < count)
    places = xp.where(inside, target * count + found, count * count)  # the last is dropped
    return xp.bincount(places, length=count * count).reshape(count, count)


def precision(
    preds: Tensor, target: Tensor, average: str | None = None, num_classes: int | None = None, threshold: float = 0.5
) -> Tensor:
    """The share of right ones among the samples that are predicted to be of a class; 0 where there are none.

    `preds` and `target` as for `accuracy`. average: "binary" for class 1 alone, "macro" for the mean over the classes
    that occur, "weighted" for that mean by their samples, "micro" for all samples together, "none" for each class
    (C,); left out, "binary" for probabilities and "macro" for others. Source: scikit-learn's `precision_score`.

    >>> hm.metrics.precision(hm.tensor([0.9, 0.8, 0.3]), hm.tensor([1, 0, 1])).item()
    0.5
    """
    return _averaged("precision", preds, target, average, num_classes, threshold)


def recall(
    preds: Tensor, target: Tensor, average: str | None = None, num_classes: int | None = None, threshold: float = 0.5
) -> Tensor:
    """The share of the samples of a class that are predicted to be of it. Arguments as for `precision`.

    >>> hm.metrics.recall(hm.tensor([0.9, 0.8, 0.3]), hm.tensor([1, 0, 1])).item()
    0.5
    """
    return _averaged("recall", preds, target, average, num_classes, threshold)


def f1_score(
    preds: Tensor, target: Tensor, average: str | None = None, num_classes: int | None = None, threshold: float = 0.5
) -> Tensor:
    """The harmonic mean of precision and recall, 2 tp / (2 tp + fp + fn). Arguments as for `precision`.

    >>> hm.metrics.f1_score(hm.tensor([0, 1, 2, 2]), hm.tensor([0, 1, 1, 2]), num_classes=3).item()
    0.7777778506278992
    """
    return _averaged("f1_score", preds, target, average, num_classes, threshold)


def auroc(preds: Tensor, target: Tensor) -> Tensor:
    """The area under the receiver operating characteristic: how often a sample of class 1 has a higher score than one
    of class 0, ties by half.

    Scores (n,) for `target` (n,), or (n, C) for classes: the mean of each class against all others. nan where a class
    has no samples, or all. Source: Hanley and McNeil 1982, by ranks.

    >>> hm.metrics.auroc(hm.tensor([0.1, 0.4, 0.35, 0.8]), hm.tensor([0, 0, 1, 1])).item()
    0.75
    """
    if preds.ndim == 2 and target.ndim == 1:
        one = [auroc(preds[:, c], target == c) for c in range(preds.shape[1])]
        return xp.mean(xp.stack(one))
    if preds.ndim != 1 or preds.shape != target.shape:
        raise ShapeError(f"auroc: takes scores (n,) or (n, C) and targets (n,), got {preds.shape} and {target.shape}")
    order = xp.sort(preds)
    # The mean rank of a score among all, from 1 on: equal ones share it.
    rank = (xp.searchsorted(order, preds) + xp.searchsorted(order, preds, side="right") + 1) / 2
    positive = _integers(target) != 0
    first = xp.sum(positive)
    above = xp.sum(xp.where(positive, rank, 0)) - first * (first + 1) / 2
    return above / (first * (positive.shape[0] - first))


def perplexity(preds: Tensor, target: Tensor, ignore_index: int | None = None) -> Tensor:
    """The exponential of the mean cross-entropy of scores (..., V) for the tokens `target` (...).

    ignore_index: a token that is left out, as padding.

    >>> round(hm.metrics.perplexity(hm.zeros((2, 3, 8)), hm.zeros((2, 3), dtype="int64")).item(), 3)
    8.0
    """
    loss, count = token_losses(preds, target, ignore_index)
    return xp.exp(loss / count)


# -- parts, of modules as well


def hits(preds: Tensor, target: Tensor, top_k: int = 1, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
    """Returns the numbers of samples that are predicted, and of all (int64)."""
    if top_k == 1:
        found, target = classes(preds, target, threshold)
        right = found == target
    else:
        _check(preds, target)
        if preds.ndim != target.ndim + 1 or not 0 < top_k <= preds.shape[1]:
            raise ArgumentError(f"accuracy: top_k={top_k} needs scores (n, C, ...), C of it or more, got {preds.shape}")
        best = xp.topk(preds, top_k, 1).indices
        right = xp.any(best == xp.expand_dims(_integers(target), axis=1), axis=1)
    return xp.sum(right, dtype=dtypes.int64), xp.full((), right.numel(), dtype=dtypes.int64)


def classes(preds: Tensor, target: Tensor, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
    """The predicted and the true classes, in one shape (int64)."""
    _check(preds, target)
    if preds.ndim == target.ndim + 1:
        found = xp.argmax(preds, axis=1)
    elif preds.dtype.kind in "fV":
        found = preds > threshold
    else:
        found = preds
    return _integers(found), _integers(target)


def _check(preds: Tensor, target: Tensor) -> None:
    if target.dtype.kind not in "iub":
        raise DTypeError(f"metrics: targets are classes, integers or bools, got {target.dtype.name}; use astype")
    if preds.ndim == target.ndim + 1:
        if (preds.shape[0], *preds.shape[2:]) == target.shape:
            return
    elif preds.shape == target.shape:
        return
    raise ShapeError(
        f"metrics: predictions are scores (n, C, ...) or have the shape (n, ...) of the targets, got {preds.shape} and "
        f"{target.shape}"
    )


def _integers(x: Tensor) -> Tensor:
    return x.astype(dtypes.int64)


def _count_of(preds: Tensor, target: Tensor, num_classes: int | None) -> int:
    scores = preds.ndim == target.ndim + 1
    known = preds.shape[1] if scores else 2 if preds.dtype.kind in "fVb" else num_classes
    if known is None:
        raise ArgumentError("metrics: classes do not say how many there are; give num_classes")
    if num_classes not in (None, known):
        raise ArgumentError(f"metrics: num_classes={num_classes}, and the predictions are for {known}")
    return int(known)


_SHARES: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "precision": lambda hit, taken, given: ratio(hit, taken),
    "recall": lambda hit, taken, given: ratio(hit, given),
    "f1_score": lambda hit, taken, given: ratio(2 * hit, taken + given),
}


def share(name: str, matrix: Tensor, average: str) -> Tensor:
    """Precision, recall or the F1 score of a confusion matrix."""
    if average not in AVERAGES:
        raise ArgumentError(f"{name}: average is one of {', '.join(AVERAGES)}, got {average!r}")
    hit, taken, given = xp.diagonal(matrix), xp.sum(matrix, axis=0), xp.sum(matrix, axis=1)
    if average == "micro":
        hit, taken, given = xp.sum(hit), xp.sum(taken), xp.sum(given)
    each = _SHARES[name](hit, taken, given)
    if average in ("none", "micro"):
        return each
    if average == "binary":
        if matrix.shape[0] != 2:
            raise ArgumentError(f"{name}: average='binary' is for 2 classes, got {matrix.shape[0]}")
        return each[1]
    weight = given if average == "weighted" else taken + given > 0
    return ratio(xp.sum(each * weight), xp.sum(weight))


def _averaged(
    name: str, preds: Tensor, target: Tensor, average: str | None, num_classes: int | None, threshold: float
) -> Tensor:
    binary = preds.ndim == target.ndim and preds.dtype.kind in "fV"
    matrix = confusion_matrix(preds, target, num_classes, threshold)
    return share(name, matrix, average or ("binary" if binary else "macro"))


def ratio(x: Tensor, y: Tensor) -> Tensor:
    """x / y as floats, 0 where y is 0."""
    return xp.where(y == 0, 0, x / xp.where(y == 0, 1, y))


def token_losses(preds: Tensor, target: Tensor, ignore_index: int | None) -> tuple[Tensor, Tensor]:
    """The sum of the cross-entropies of the tokens that count, and their number."""
    if preds.shape[:-1] != target.shape:
        raise ShapeError(f"perplexity: takes scores (..., V) for tokens (...), got {preds.shape} and {target.shape}")
    flat = _integers(target).reshape(-1)
    kept = flat != ignore_index if ignore_index is not None else xp.ones_like(flat, dtype=dtypes.bool_)
    tokens = xp.where(kept, flat, 0)
    losses = functional.cross_entropy(wide(preds).reshape(-1, preds.shape[-1]), tokens, reduction="none")
    return xp.sum(xp.where(kept, losses, 0)), xp.sum(kept, dtype=dtypes.int64)


def binned(preds: Tensor, target: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Counts of the probabilities of samples of class 0, and of class 1, in equal bins of 0 .. 1 (bins,)."""
    if preds.shape != target.shape:
        raise ShapeError(f"AUROC: takes probabilities of the targets' shape, got {preds.shape} and {target.shape}")
    place = xp.clip((wide(preds) * bins).astype(dtypes.int64), 0, bins - 1)
    counts = xp.bincount((place + bins * (_integers(target) != 0)).reshape(-1), length=2 * bins)
    return counts[:bins], counts[bins:]


def area(negative: Tensor, positive: Tensor) -> Tensor:
    """The area under the curve of counts in bins, whose samples are ties."""
    below = xp.cumulative_sum(negative) - negative
    return xp.sum(positive * (below + negative / 2)) / (xp.sum(positive) * xp.sum(negative))


__all__ = ["accuracy", "auroc", "confusion_matrix", "f1_score", "perplexity", "precision", "recall"]
