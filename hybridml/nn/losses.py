"""Losses as modules: each holds the options of its function."""

from __future__ import annotations

from collections.abc import Callable

from hybridml_compiler.errors import ArgumentError

from .. import functional as F
from ..core.tensor import Tensor
from .held import Held


class _Loss(Held):
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
    """`functional.cross_entropy`."""

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
    """`functional.nll_loss`."""

    function = staticmethod(F.nll_loss)

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight, reduction=reduction)
        self._hold(ignore_index=ignore_index)


class MSELoss(_Loss):
    """`functional.mse_loss`."""

    function = staticmethod(F.mse_loss)


class L1Loss(_Loss):
    """`functional.l1_loss`."""

    function = staticmethod(F.l1_loss)


class SmoothL1Loss(_Loss):
    """`functional.smooth_l1_loss`."""

    function = staticmethod(F.smooth_l1_loss)

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self._hold(beta=beta)


class HuberLoss(_Loss):
    """`functional.huber_loss`."""

    function = staticmethod(F.huber_loss)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self._hold(delta=delta)


class BCELoss(_WeightedLoss):
    """`functional.binary_cross_entropy`."""

    function = staticmethod(F.binary_cross_entropy)


class BCEWithLogitsLoss(_WeightedLoss):
    """`functional.binary_cross_entropy_with_logits`."""

    function = staticmethod(F.binary_cross_entropy_with_logits)

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self._options += ("pos_weight",)
        self.register_buffer("pos_weight", pos_weight)


class KLDivLoss(_Loss):
    """`functional.kl_div`."""

    function = staticmethod(F.kl_div)
    reductions = ("mean", "sum", "none", "batchmean")

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction)
        self._hold(log_target=log_target)


class PoissonNLLLoss(_Loss):
    """`functional.poisson_nll_loss`."""

    function = staticmethod(F.poisson_nll_loss)

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self._hold(log_input=log_input, full=full, eps=eps)


class GaussianNLLLoss(_Loss):
    """`functional.gaussian_nll_loss` of (input, target, var)."""

    function = staticmethod(F.gaussian_nll_loss)

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self._hold(full=full, eps=eps)


class CTCLoss(_Loss):
    """`functional.ctc_loss` of (log_probs, targets, input_lengths, target_lengths)."""

    function = staticmethod(F.ctc_loss)

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self._hold(blank=blank, zero_infinity=zero_infinity)


class MarginRankingLoss(_Loss):
    """`functional.margin_ranking_loss`."""

    function = staticmethod(F.margin_ranking_loss)

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self._hold(margin=margin)


class HingeEmbeddingLoss(_Loss):
    """`functional.hinge_embedding_loss`."""

    function = staticmethod(F.hinge_embedding_loss)

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self._hold(margin=margin)


class CosineEmbeddingLoss(_Loss):
    """`functional.cosine_embedding_loss`."""

    function = staticmethod(F.cosine_embedding_loss)

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self._hold(margin=margin)


class SoftMarginLoss(_Loss):
    """`functional.soft_margin_loss`."""

    function = staticmethod(F.soft_margin_loss)


class MultiMarginLoss(_WeightedLoss):
    """`functional.multi_margin_loss`."""

    function = staticmethod(F.multi_margin_loss)

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self._hold(p=p, margin=margin)


class MultiLabelMarginLoss(_Loss):
    """`functional.multilabel_margin_loss`."""

    function = staticmethod(F.multilabel_margin_loss)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """`functional.multilabel_soft_margin_loss`."""

    function = staticmethod(F.multilabel_soft_margin_loss)


class TripletMarginLoss(_Loss):
    """`functional.triplet_margin_loss`."""

    function = staticmethod(F.triplet_margin_loss)

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self._hold(margin=margin, p=p, eps=eps, swap=swap)


class TripletMarginWithDistanceLoss(_Loss):
    """`functional.triplet_margin_with_distance_loss`."""

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
