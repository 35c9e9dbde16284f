"""Losses as modules: each holds the options of its function."""

from __future__ import annotations

from collections.abc import Callable

from hybridml_compiler.errors import ArgumentError

from .. import functional as F
from ..core.tensor import Tensor
from .function_module import FunctionModule


class _Loss(FunctionModule):
    reductions: tuple[str, ...] = ("mean", "sum", "none")

    def __init__(self, *, reduction: str = "mean") -> None:
        if reduction not in self.reductions:
            raise ArgumentError(f"{type(self).__name__}: reduction must be one of {self.reductions}, got {reduction!r}")
        super().__init__(reduction=reduction)


class _WeightedLoss(_Loss):
    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self._options += ("weight",)
        self.register_buffer("weight", weight)


class CrossEntropyLoss(_WeightedLoss):
    """Mean cross entropy of class logits with class indices or probabilities.

    Shapes: input (n, c), (c,) or (n, c, ...) of logits; target integers (n,), () or (n, ...), or probabilities shaped
    as the input. The result is (), or with ``reduction="none"`` one loss per target. `weight` (c,) weights the
    classes, `ignore_index` is a class that does not count. Raises ArgumentError for another `reduction` or a
    `label_smoothing` outside of 0 .. 1, ShapeError and DTypeError for targets that do not fit. See
    `functional.cross_entropy`.

    >>> round(CrossEntropyLoss()(hm.zeros((2, 4)), hm.asarray([0, 3])).item(), 4)
    1.3863
    """

    function = staticmethod(F.cross_entropy)

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self._hold(ignore_index=ignore_index, label_smoothing=label_smoothing)


class NLLLoss(_WeightedLoss):
    """Negative log-likelihood of class indices under log-probabilities, as `LogSoftmax` returns them.

    Shapes: input (n, c), (c,) or (n, c, ...); target integers (n,), () or (n, ...). `weight` (c,) weights the classes,
    `ignore_index` is a class that does not count. Raises DTypeError for targets that are not integers, ShapeError
    where the shapes do not fit, ArgumentError for another `reduction`. See `functional.nll_loss`.

    >>> NLLLoss()(hm.asarray([[-1.0, -2.0]]), hm.asarray([1])).item()
    2.0
    """

    function = staticmethod(F.nll_loss)

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight, reduction=reduction)
        self._hold(ignore_index=ignore_index)


class MSELoss(_Loss):
    """Mean of the squared differences of input and target.

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they
    differ: unlike PyTorch's, they do not broadcast. See `functional.mse_loss`.

    >>> MSELoss()(hm.asarray([1.0, 3.0]), hm.asarray([1.0, 1.0])).item()
    2.0
    """

    function = staticmethod(F.mse_loss)


class L1Loss(_Loss):
    """Mean of the absolute differences of input and target.

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they
    differ: unlike PyTorch's, they do not broadcast. See `functional.l1_loss`.

    >>> L1Loss()(hm.asarray([1.0, 3.0]), hm.asarray([1.0, 1.0])).item()
    1.0
    """

    function = staticmethod(F.l1_loss)


class SmoothL1Loss(_Loss):
    """Mean of ``d^2 / (2 beta)`` for differences below `beta`, of ``|d| - beta / 2`` for others (Girshick 2015).

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they
    differ, ArgumentError when it is called and `beta` is negative. See `functional.smooth_l1_loss`.

    >>> SmoothL1Loss()(hm.asarray([0.0]), hm.asarray([3.0])).item()
    2.5
    """

    function = staticmethod(F.smooth_l1_loss)

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self._hold(beta=beta)


class HuberLoss(_Loss):
    """Mean of ``d^2 / 2`` for differences below `delta`, of ``delta (|d| - delta / 2)`` for others (Huber 1964).

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they
    differ, ArgumentError when it is called and `delta` is not positive. See `functional.huber_loss`.

    >>> HuberLoss(delta=2.0)(hm.asarray([0.0]), hm.asarray([3.0])).item()
    4.0
    """

    function = staticmethod(F.huber_loss)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self._hold(delta=delta)


class BCELoss(_WeightedLoss):
    """Mean binary cross entropy of probabilities with targets between 0 and 1.

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``; `weight` broadcasts to them.
    Logarithms are at least -100, as in PyTorch. Raises ShapeError where the shapes differ. See
    `functional.binary_cross_entropy`.

    >>> round(BCELoss()(hm.asarray([0.5]), hm.asarray([1.0])).item(), 4)
    0.6931
    """

    function = staticmethod(F.binary_cross_entropy)


class BCEWithLogitsLoss(_WeightedLoss):
    """Mean binary cross entropy of ``sigmoid(input)`` with targets between 0 and 1, without overflow.

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``; `weight` (per element) and
    `pos_weight` (of the positive targets) broadcast to them. Raises ShapeError where the shapes of input and target
    differ. See `functional.binary_cross_entropy_with_logits`.

    >>> round(BCEWithLogitsLoss()(hm.asarray([0.0]), hm.asarray([1.0])).item(), 4)
    0.6931
    """

    function = staticmethod(F.binary_cross_entropy_with_logits)

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self._options += ("pos_weight",)
        self.register_buffer("pos_weight", pos_weight)


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence of a target from log-probabilities `input`: mean of ``target (log target - input)``.

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. ``reduction="batchmean"``, the
    mathematical definition, divides the sum by the first axis; with `log_target` the target is log-probabilities too.
    Raises ShapeError where the shapes differ. See `functional.kl_div`.

    >>> KLDivLoss(reduction="sum", log_target=True)(hm.asarray([0.0]), hm.asarray([0.0])).item()
    0.0
    """

    function = staticmethod(F.kl_div)
    reductions = ("mean", "sum", "none", "batchmean")

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction)
        self._hold(log_target=log_target)


class PoissonNLLLoss(_Loss):
    """Negative log-likelihood of counts `target` under Poisson distributions with rates ``exp(input)``.

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. With ``log_input=False`` the input
    is the rate, `eps` is added inside of its logarithm; `full` adds Stirling's formula for ``log(target!)``. Raises
    ShapeError where the shapes differ. See `functional.poisson_nll_loss`.

    >>> PoissonNLLLoss()(hm.asarray([0.0]), hm.asarray([3.0])).item()
    1.0
    """

    function = staticmethod(F.poisson_nll_loss)

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self._hold(log_input=log_input, full=full, eps=eps)


class GaussianNLLLoss(_Loss):
    """Negative log-likelihood of `target` under normal distributions of means `input` and variances `var`.

    Called with (input, target, var): input and target (...) alike, var a number, of the same shape, with a last axis
    of 1 or without it. `var` is at least `eps`; `full` adds the constant ``log(2 pi) / 2``. Raises ShapeError for a
    `var` of another shape, ArgumentError for a negative number. See `functional.gaussian_nll_loss`.

    >>> GaussianNLLLoss()(hm.asarray([1.0]), hm.asarray([3.0]), hm.asarray([1.0])).item()
    2.0
    """

    function = staticmethod(F.gaussian_nll_loss)

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self._hold(full=full, eps=eps)


class CTCLoss(_Loss):
    """Connectionist temporal classification: minus the log-likelihood of labels over all alignments.

    Source: Graves et al. 2006. Called with (log_probs, targets, input_lengths, target_lengths): log_probs (t, n, c)
    or (t, c), integer targets (n, s) or (sum of lengths,), lengths (n,). `blank` is the class of no label;
    `zero_infinity` makes the loss of an impossible target 0. Raises ShapeError, DTypeError or ArgumentError for
    what does not fit. See `functional.ctc_loss`.

    >>> loss = CTCLoss()(hm.full((3, 1, 2), -0.6931), hm.asarray([[1]]), [3], [1])
    >>> round(loss.item(), 3)
    0.288
    """

    function = staticmethod(F.ctc_loss)

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self._hold(blank=blank, zero_infinity=zero_infinity)


class MarginRankingLoss(_Loss):
    """Mean of ``max(0, -target (input1 - input2) + margin)``: target 1 ranks input1 higher, -1 input2.

    Shapes: input1, input2 and target (...) that broadcast -> (), or (...) with ``reduction="none"``. Raises
    ArgumentError for another `reduction`. See `functional.margin_ranking_loss`.

    >>> MarginRankingLoss()(hm.asarray([1.0]), hm.asarray([3.0]), hm.asarray([1.0])).item()
    2.0
    """

    function = staticmethod(F.margin_ranking_loss)

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self._hold(margin=margin)


class HingeEmbeddingLoss(_Loss):
    """Mean of `input` where `target` is 1 and of ``max(0, margin - input)`` where it is -1.

    Shapes: input and target (...) that broadcast -> (), or (...) with ``reduction="none"``. Raises ArgumentError for
    another `reduction`. See `functional.hinge_embedding_loss`.

    >>> HingeEmbeddingLoss()(hm.asarray([0.5, 0.5]), hm.asarray([1.0, -1.0])).item()
    0.5
    """

    function = staticmethod(F.hinge_embedding_loss)

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self._hold(margin=margin)


class CosineEmbeddingLoss(_Loss):
    """Mean of ``1 - cos`` of two vectors where `target` is 1 and of ``max(0, cos - margin)`` where it is -1.

    Called with (input1, input2, target) of shapes (n, k), (n, k) and (n,), or (k,), (k,) and (); ShapeError for
    others. See `functional.cosine_embedding_loss`.

    >>> CosineEmbeddingLoss()(hm.asarray([1.0, 0.0]), hm.asarray([0.0, 1.0]), hm.asarray(1)).item()
    1.0
    """

    function = staticmethod(F.cosine_embedding_loss)

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self._hold(margin=margin)


class SoftMarginLoss(_Loss):
    """Mean of ``log(1 + exp(-target input))`` for targets 1 and -1, without overflow.

    Shapes: input and target (...) alike -> (), or (...) with ``reduction="none"``. Raises ShapeError where they
    differ. See `functional.soft_margin_loss`.

    >>> round(SoftMarginLoss()(hm.asarray([0.0]), hm.asarray([1.0])).item(), 4)
    0.6931
    """

    function = staticmethod(F.soft_margin_loss)


class MultiMarginLoss(_WeightedLoss):
    """Hinge loss of classes: sum over the other classes i of ``max(0, margin - input[y] + input[i])^p / c``.

    Shapes: input (n, c) with integer target (n,), or (c,) with (), -> (). `p` is 1 or 2, `weight` (c,) weights the
    classes. Raises ShapeError for other shapes or `p`, DTypeError for targets that are not integers. See
    `functional.multi_margin_loss`.

    >>> MultiMarginLoss()(hm.asarray([[1.0, 1.0]]), hm.asarray([0])).item()
    0.5
    """

    function = staticmethod(F.multi_margin_loss)

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self._hold(p=p, margin=margin)


class MultiLabelMarginLoss(_Loss):
    """Hinge loss of several classes per sample: sum of ``max(0, 1 - (input[y] - input[i])) / c``.

    Here y are the classes that `target` lists and i those that it does not. Shapes: input and integer target (n, c) or
    (c,) -> (); a list of classes ends at its first -1. Raises ShapeError for other shapes, DTypeError for targets that
    are not integers. See `functional.multilabel_margin_loss`.

    >>> MultiLabelMarginLoss()(hm.asarray([1.0, 1.0]), hm.asarray([0, -1])).item()
    0.5
    """

    function = staticmethod(F.multilabel_margin_loss)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Mean over classes (the last axis) and samples of the binary cross entropy of ``sigmoid(input)``.

    Shapes: input and target (n, c) or (c,) alike -> (), or (n,) with ``reduction="none"``; `weight` (c,). Raises
    ShapeError where input and target differ. See `functional.multilabel_soft_margin_loss`.

    >>> round(MultiLabelSoftMarginLoss()(hm.zeros((2, 3)), hm.ones((2, 3))).item(), 4)
    0.6931
    """

    function = staticmethod(F.multilabel_soft_margin_loss)


class TripletMarginLoss(_Loss):
    """Mean of ``max(0, |anchor - positive| - |anchor - negative| + margin)`` (Balntas et al. 2016).

    Called with (anchor, positive, negative), each (..., k), with norms of order `p` along the last axis. `swap` takes
    the distance of positive and negative where it is smaller. Raises ArgumentError when it is called and `margin` is
    not positive, ShapeError for different numbers of axes. See `functional.triplet_margin_loss`.

    >>> x = hm.zeros((2, 3))
    >>> TripletMarginLoss(margin=0.5)(x, x, x).item()
    0.5
    """

    function = staticmethod(F.triplet_margin_loss)

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self._hold(margin=margin, p=p, eps=eps, swap=swap)


class TripletMarginWithDistanceLoss(_Loss):
    """Triplet loss by any distance of two tensors, `functional.pairwise_distance` unless one is given.

    Called with (anchor, positive, negative), each (..., k); `distance_function` maps two of them to one number per
    row. Raises ArgumentError when it is called and `margin` is not positive, ShapeError for different numbers of axes.
    See `functional.triplet_margin_with_distance_loss`.

    >>> distance = lambda a, b: (a - b).abs().max(axis=-1)
    >>> x = hm.zeros((2, 3))
    >>> TripletMarginWithDistanceLoss(distance_function=distance)(x, x, x).item()
    1.0
    """

    function = staticmethod(F.triplet_margin_with_distance_loss)

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self._hold(distance_function=distance_function, margin=margin, swap=swap)


__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss",
    "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
    "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip
