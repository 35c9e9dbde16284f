"""Losses that ask for a margin: between two scores, two embeddings, or a class and the others."""

from __future__ import annotations

from collections.abc import Callable

from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError

from .. import arrays as xp
from ..arrays.indexing.selecting import from_zero
from ..core.context import placed
from ..core.library import compiled
from ..core.tensor import Tensor
from .activations import logsigmoid, relu, softplus
from .distances import pairwise_distance
from .losses import reduce, same_shape


@compiled
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """Ranking loss ``max(0, -target (input1 - input2) + margin)``: target 1 ranks input1 higher, -1 input2.

    Shapes (...) each -> (), or (...) with ``reduction="none"``.

    >>> margin_ranking_loss(hm.asarray([1.0]), hm.asarray([3.0]), hm.asarray([1.0])).item()
    2.0
    """
    return reduce(relu(margin - target * (input1 - input2)), reduction)


@compiled
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, *, reduction: str = "mean") -> Tensor:
    """Hinge loss: `input` where `target` is 1, ``max(0, margin - input)`` where it is -1; shapes broadcast.

    Shapes (...) -> (), or (...) with ``reduction="none"``.

    >>> hinge_embedding_loss(hm.asarray([0.25, 0.25]), hm.asarray([1, -1]), reduction="none").tolist()
    [0.25, 0.75]
    """
    apart = xp.where(xp.equal(target, -1), relu(margin - input), 0)
    return reduce(xp.where(xp.equal(target, 1), input, 0) + apart, reduction)


@compiled
def soft_margin_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """Logistic loss ``log(1 + exp(-target input))`` for targets 1 and -1, without overflow.

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they
    differ, ArgumentError for another `reduction`.

    >>> round(soft_margin_loss(hm.asarray([0.0]), hm.asarray([1.0])).item(), 4)
    0.6931
    """
    same_shape("soft_margin_loss", input, target)
    return reduce(-logsigmoid(target * input), reduction)


@compiled
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """Cosine loss of (n, k) or (k,) vectors: ``1 - cos`` where `target` is 1, ``max(0, cos - margin)`` where it is -1.

    Raises ShapeError unless `target` is (n,) or ().

    >>> x = hm.asarray([[1.0, 0.0]])
    >>> cosine_embedding_loss(x, x, hm.asarray([-1]), margin=0.25).item()
    0.75
    """
    if input1.ndim not in (1, 2) or input1.shape != input2.shape or target.shape != input1.shape[:-1]:
        raise ShapeError(
            f"cosine_embedding_loss: inputs must both be (n, k) with target (n,), or (k,) with target (), got "
            f"{input1.shape}, {input2.shape} and {target.shape}"
        )
    product = (input1 * input2).sum(axis=-1)
    # PyTorch adds to the squares here, where `cosine_similarity` holds the lengths
    squares = ((input1 * input1).sum(axis=-1) + 1e-12) * ((input2 * input2).sum(axis=-1) + 1e-12)
    cosine = product * xp.rsqrt(squares)
    apart = xp.where(xp.equal(target, -1), relu(cosine - margin), 0)
    return reduce(xp.where(xp.equal(target, 1), 1 - cosine, 0) + apart, reduction)


@compiled
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, |anchor - positive| - |anchor - negative| + margin)`` along the last axis (Balntas et al. 2016).

    With `swap` the negative is compared with the nearer of anchor and positive. Raises ArgumentError for a `margin`
    that is not positive, ShapeError for different numbers of axes. Shapes (..., k) each -> (), or (...) with
    ``reduction="none"``.

    >>> x, y = hm.zeros((1, 2)), hm.asarray([[3.0, 4.0]])
    >>> round(triplet_margin_loss(x, y, x).item(), 4)
    6.0
    """

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return pairwise_distance(x, y, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin, swap=swap, reduction=reduction
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Triplet loss of `triplet_margin_loss` by any distance of two tensors; `pairwise_distance` if none is given.

    Raises ArgumentError for a `margin` that is not positive, ShapeError for different numbers of axes. Shapes (..., k)
    each -> (), or (...) with ``reduction="none"``.

    >>> x, y = hm.zeros((2,)), hm.ones((2,))
    >>> triplet_margin_with_distance_loss(x, y, y, distance_function=lambda a, b: abs(a - b).sum(axis=-1)).item()
    1.0
    """
    if margin <= 0:
        raise ArgumentError(f"triplet_margin_loss: margin must be positive, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            f"triplet_margin_loss: anchor {anchor.shape}, positive {positive.shape} and negative {negative.shape} must "
            "have as many axes"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = xp.minimum(far, distance(positive, negative))
    return reduce(relu(near - far + margin), reduction)


@compiled
@placed
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
) -> Tensor:
    """``sum over i != y of max(0, margin - input[y] + input[i])^p / c`` for classes y of (n, c) or (c,).

    `weight` (c,) weights the classes. Raises ShapeError for other shapes or a `p` other than 1 and 2, DTypeError for
    targets that are not integers.

    >>> multi_margin_loss(hm.asarray([[0.0, 1.0]]), hm.asarray([0])).item()
    1.0
    """
    if p not in (1, 2) or input.ndim not in (1, 2) or target.shape != input.shape[:-1]:
        raise ShapeError(
            f"multi_margin_loss: p must be 1 or 2, input (n, c) with target (n,), or (c,) with (), got p={p}, "
            f"{input.shape} and {target.shape}"
        )
    classes = input.shape[-1]
    index = from_zero(_classes("multi_margin_loss", target), classes)[..., None]
    apart = relu(margin - xp.take_along_axis(input, index, axis=-1) + input)
    apart = apart if p == 1 else apart * apart
    if weight is not None:
        apart = apart * xp.take(weight, index, axis=0)
    others = xp.arange(classes) != index
    return reduce(xp.where(others, apart, 0).sum(axis=-1) / classes, reduction)


@compiled
@placed
def multilabel_margin_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """``sum of max(0, 1 - (input[y] - input[i])) / c`` over the classes y that `target` lists and i that it does not.

    Both are (n, c) or (c,); a list of class indices ends at its first -1. Raises ShapeError for other shapes,
    DTypeError for targets that are not integers.

    >>> multilabel_margin_loss(hm.asarray([0.0, 1.0, 0.5]), hm.asarray([1, -1, 0])).item()
    0.1666666716337204
    """
    same_shape("multilabel_margin_loss", input, target)
    if input.ndim not in (1, 2):
        raise ShapeError(f"multilabel_margin_loss: input must be (n, c) or (c,), got shape {input.shape}")
    classes = input.shape[-1]
    listed = xp.cumulative_sum(xp.astype(_classes("multilabel_margin_loss", target) < 0, xp.int64), axis=-1) == 0
    index = from_zero(xp.where(listed, target, 0), classes)
    named = (listed[..., None] & (xp.arange(classes) == index[..., None])).any(axis=-2)
    apart = relu(1 - xp.take_along_axis(input, index, axis=-1)[..., None] + input[..., None, :])
    counted = listed[..., None] & ~named[..., None, :]
    return reduce(xp.where(counted, apart, 0).sum(axis=(-2, -1)) / classes, reduction)


@compiled
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """Mean over the classes (the last axis) of the binary cross entropy of ``sigmoid(input)``.

    Shapes: input and target (..., c) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they
    differ.

    >>> round(multilabel_soft_margin_loss(hm.zeros((1, 3)), hm.ones((1, 3))).item(), 4)
    0.6931
    """
    same_shape("multilabel_soft_margin_loss", input, target)
    loss = target * softplus(-input) + (1 - target) * softplus(input)
    return reduce((loss if weight is None else loss * weight).mean(axis=-1), reduction)


def _classes(what: str, target: Tensor) -> Tensor:
    if not xp.isdtype(target.dtype, "integral"):
        raise DTypeError(f"{what}: class indices must be integers, got {target.dtype.name}; use .astype(hm.int64)")
    return target


__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "soft_margin_loss", "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]  # fmt: skip
