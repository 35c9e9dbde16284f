"""Losses, with PyTorch's reductions: "mean" (the default), "sum" and "none".

Arguments that stand behind the deprecated `size_average` and `reduce` in PyTorch are by keyword only.
"""

from __future__ import annotations

import math

from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError

from .. import arrays as xp
from ..arrays.indexing.selecting import from_zero
from ..core.library import compiled
from ..core.precision.composites import in_float32
from ..core.tensor import Tensor
from .activations import log_softmax
from .arguments import real_numbers
from .basics import linear


@compiled
@in_float32
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Negative log-likelihood of `target` under ``softmax(input)``.

    input (n, c), (c,) or (n, c, ...); target: class indices (n,), () or (n, ...), or probabilities shaped as `input`.
    Targets equal to `ignore_index` count neither in the sum nor in the mean. `weight` (c,) weights the classes. Raises
    ArgumentError for another `reduction` or a `label_smoothing` outside of 0 .. 1, ShapeError and DTypeError for
    targets that do not fit.

    >>> round(cross_entropy(hm.zeros((2, 4)), hm.asarray([0, 3])).item(), 4)
    1.3863
    """
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"cross_entropy: label_smoothing must be between 0 and 1, got {label_smoothing}")
    axis = _class_axis("cross_entropy", input)
    classes = input.shape[axis]
    log_p = log_softmax(input, axis)
    if target.shape == input.shape and xp.isdtype(target.dtype, "real floating"):
        smooth = target * (1 - label_smoothing) + label_smoothing / classes if label_smoothing else target
        loss = -(_weighted(log_p, weight, axis) * smooth).sum(axis=axis)
        return reduce(loss, reduction, input.numel() // classes)
    loss = nll_loss(log_p, target, weight, ignore_index=ignore_index, reduction=reduction)
    if not label_smoothing:
        return loss
    counts = xp.not_equal(target, ignore_index)
    uniform = xp.where(counts, -_weighted(log_p, weight, axis).sum(axis=axis), 0)
    spread = reduce(uniform, reduction, _total_weight(target, counts, weight, input.dtype))
    return loss * (1 - label_smoothing) + spread * (label_smoothing / classes)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """`cross_entropy` of ``linear(input, linear_weight, linear_bias)``: the last layer of a classifier and its loss.

    input (n, in) or (in,), linear_weight (c, in), or (c, ..., in) for targets (n, ...); the rest as `cross_entropy`.
    Source: PyTorch.

    >>> round(linear_cross_entropy(hm.zeros((2, 3)), hm.ones((4, 3)), hm.asarray([0, 3])).item(), 4)
    1.3863
    """
    *classes, width = linear_weight.shape
    bias = None if linear_bias is None else linear_bias.reshape((-1,))
    if bias is not None and len(classes) > 1 and bias.size == classes[0]:
        bias = xp.repeat(bias, math.prod(classes[1:]))
    logits = linear(input, linear_weight.reshape((-1, width)), bias).reshape((*input.shape[:-1], *classes))
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )


@compiled
@in_float32
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """Negative log-likelihood: minus the log-probability in `input` of each class index in `target`.

    input (n, c), (c,) or (n, c, ...) of log-probabilities; integer target (n,), () or (n, ...). `weight` (c,) weights
    the classes. Raises DTypeError for targets that are not integers, ShapeError where the shapes do not fit.

    >>> nll_loss(hm.asarray([[-1.0, -2.0]]), hm.asarray([1])).item()
    2.0
    """
    axis = _class_axis("nll_loss", input)
    real_numbers("nll_loss", input)
    expected = input.shape[:axis] + input.shape[axis + 1 :]
    if not xp.isdtype(target.dtype, "integral"):
        got = Aval(target.shape, target.dtype)
        raise DTypeError(f"nll_loss: class indices must be integers, got {got}; cast them with .astype(hm.int64)")
    if target.shape != expected:
        raise ShapeError(
            f"nll_loss: target must be class indices of shape {expected} for input {input.shape}, got {target.shape}"
        )
    counts = xp.not_equal(target, ignore_index)
    index = from_zero(xp.where(counts, target, 0), input.shape[axis])
    picked = -xp.take_along_axis(input, xp.expand_dims(index, axis=axis), axis=axis).squeeze(axis)
    if weight is not None:
        picked = picked * xp.take(weight, index, axis=0)
    loss = xp.where(counts, picked, 0)
    return reduce(loss, reduction, _total_weight(target, counts, weight, input.dtype))


@compiled
@in_float32
def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Mean of ``(input - target) ** 2``, or with a `weight` per element their weighted mean.

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they
    differ, ArgumentError for another `reduction`.

    >>> mse_loss(hm.asarray([1.0, 3.0]), hm.asarray([1.0, 1.0])).item()
    2.0
    """
    difference = _difference("mse_loss", input, target)
    return _weighed("mse_loss", difference * difference, weight, reduction)


@compiled
@in_float32
def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Mean of ``|input - target|``, or with a `weight` per element their weighted mean.

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they
    differ, ArgumentError for another `reduction`.

    >>> l1_loss(hm.asarray([1.0, 3.0]), hm.asarray([1.0, 1.0])).item()
    1.0
    """
    return _weighed("l1_loss", xp.abs(_difference("l1_loss", input, target)), weight, reduction)


@compiled
@in_float32
def smooth_l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Smooth absolute error: ``d^2 / (2 beta)`` where ``|d| < beta``, ``|d| - beta / 2`` elsewhere (Girshick 2015).

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they
    differ, ArgumentError for another `reduction` or a negative `beta`.

    >>> smooth_l1_loss(hm.asarray([0.0]), hm.asarray([3.0])).item()
    2.5
    """
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return reduce(_huber(_difference("smooth_l1_loss", input, target), beta) / beta, reduction)


@compiled
@in_float32
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Huber loss: ``d^2 / 2`` where ``|d| < delta``, ``delta (|d| - delta / 2)`` elsewhere (Huber 1964).

    A `weight` for each multiplies it; as in PyTorch "mean" still divides by their number here. Shapes: input and
    target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they differ, ArgumentError
    for another `reduction` or a `delta` that is not positive.

    >>> huber_loss(hm.asarray([0.0]), hm.asarray([3.0]), delta=2.0).item()
    4.0
    """
    if delta <= 0:
        raise ArgumentError(f"huber_loss: delta must be positive, got {delta}")
    return _weighed("huber_loss", _huber(_difference("huber_loss", input, target), delta), weight, reduction, False)


@compiled
@in_float32
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """Binary cross entropy ``-(y log p + (1 - y) log(1 - p))`` of probabilities.

    Logarithms are at least -100, as in PyTorch. Shapes: input and target (...) alike -> (), or (...) with
    ``reduction="none"``. Raises ShapeError where they differ, ArgumentError for another `reduction`.

    >>> round(binary_cross_entropy(hm.asarray([0.5]), hm.asarray([1.0])).item(), 4)
    0.6931
    """
    same_shape("binary_cross_entropy", input, target)
    loss = -(target * _clamped_log(input) + (1 - target) * _clamped_log(1 - input))
    return reduce(loss if weight is None else loss * weight, reduction)


@compiled
@in_float32
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross entropy of ``sigmoid(input)``, as ``(1 - y) x + log(1 + exp(-x))`` without overflow.

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they
    differ, ArgumentError for another `reduction`.

    >>> round(binary_cross_entropy_with_logits(hm.asarray([0.0]), hm.asarray([1.0])).item(), 4)
    0.6931
    """
    same_shape("binary_cross_entropy_with_logits", input, target)
    negative = input < 0
    softplus_minus = xp.log1p(xp.exp(xp.where(negative, input, -input))) - xp.where(negative, input, 0)
    if pos_weight is not None:
        softplus_minus = softplus_minus * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * input + softplus_minus
    return reduce(loss if weight is None else loss * weight, reduction)


@compiled
@in_float32
def kl_div(input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Kullback-Leibler divergence ``target (log target - input)`` of log-probabilities `input`.

    It is 0 where the target is 0. ``reduction="batchmean"`` divides the sum by the first axis: the mathematical
    definition. Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where
    they differ, ArgumentError for another `reduction`.

    >>> kl_div(hm.asarray([0.0, -1.0]), hm.asarray([0.0, 0.0])).item()
    0.0
    """
    same_shape("kl_div", input, target)
    if log_target:
        loss = xp.exp(target) * (target - input)
    else:
        positive = target > 0
        safe = xp.where(positive, target, 1)
        loss = xp.where(positive, safe * xp.log(safe), 0) - target * input
    if reduction == "batchmean":
        return loss.sum() / (input.shape[0] if input.ndim else 1)
    return reduce(loss, reduction)


def reduce(loss: Tensor, reduction: str, count: Tensor | int | None = None) -> Tensor:
    """Applies a reduction; `count` is what "mean" divides by, the number of elements if not given."""
    match reduction:
        case "none":
            return loss
        case "sum":
            return loss.sum()
        case "mean":
            return loss.mean() if count is None else loss.sum() / count
    raise ArgumentError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")


def _weighed(what: str, loss: Tensor, weight: Tensor | None, reduction: str, by_weight: bool = True) -> Tensor:
    if weight is None:
        return reduce(loss, reduction)
    if weight.shape != loss.shape:
        raise ShapeError(f"{what}: weight {weight.shape} must have the shape {loss.shape} of the input")
    return reduce(loss * weight, reduction, weight.sum() if by_weight else None)


def _class_axis(what: str, input: Tensor) -> int:
    if input.ndim == 0:
        raise ShapeError(f"{what}: input must be (c,), (n, c) or (n, c, ...), got a scalar")
    return 0 if input.ndim == 1 else 1


def _total_weight(target: Tensor, counts: Tensor, weight: Tensor | None, dtype: object) -> Tensor:
    if weight is None:
        return xp.astype(counts, dtype).sum()
    return xp.where(counts, xp.take(weight, xp.where(counts, target, 0), axis=0), 0).sum()


def _weighted(log_p: Tensor, weight: Tensor | None, axis: int) -> Tensor:
    return log_p if weight is None else log_p * weight.reshape((-1, *(1,) * (log_p.ndim - axis - 1)))


def _huber(difference: Tensor, delta: float) -> Tensor:
    size = xp.abs(difference)
    return xp.where(size < delta, difference * difference * 0.5, (size - delta / 2) * delta)


def _clamped_log(p: Tensor) -> Tensor:
    # Where the logarithm is held, the argument is 1: no infinite slope reaches the gradient.
    held = p < 3.720076e-44  # exp(-100)
    return xp.where(held, -100, xp.log(xp.where(held, 1, p)))


def _difference(what: str, input: Tensor, target: Tensor) -> Tensor:
    same_shape(what, input, target)
    if what != "l1_loss":  # moduli are real
        real_numbers(what, input, target)
    return input - target


def same_shape(what: str, input: Tensor, target: Tensor) -> None:
    """Raises a ShapeError unless both have one shape."""
    if input.shape != target.shape:
        raise ShapeError(f"{what}: input {input.shape} and target {target.shape} must have one shape; reshape one")


__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "huber_loss", "kl_div", "l1_loss",
    "linear_cross_entropy", "mse_loss", "nll_loss", "smooth_l1_loss",
]  # fmt: skip
