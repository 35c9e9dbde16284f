"""Dropout layers: they drop in training and do nothing in evaluation."""

from __future__ import annotations

from .. import functional as F
from ..core.tensor import Tensor
from ..functional.dropouts import check_probability
from .function_module import FunctionModule, Spatial


class Dropout(FunctionModule):
    """Zeros in place of elements, with probability `p`, in training (Srivastava et al. 2014): (...) -> (...).

    The rest is scaled by ``1 / (1 - p)``; in evaluation the input is returned as it is. Raises ArgumentError unless 0
    <= p <= 1. `inplace` is accepted for PyTorch's sake and has no effect. See `functional.dropout`.

    >>> Dropout(0.5).eval()(hm.ones(2)).tolist()
    [1.0, 1.0]
    """

    function = staticmethod(F.dropout)

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        check_probability(type(self).__name__, p)
        super().__init__(p=p)

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = type(self).function(input, self.p, self.training)
        return found


class _ChannelDropout(Spatial, Dropout):
    """Zeros in place of whole channels, with probability `p`, in training (Tompson et al. 2015).

    Shapes {layout} -> the same shape;
    the rest is scaled by ``1 / (1 - p)``. Raises ArgumentError unless 0 <= p <= 1, and ShapeError for another number of
    axes. `inplace` is accepted for PyTorch's sake and has no effect.

    >>> Dropout{dims}d(0.5)(hm.ones((1, 2, {times[3]}))).shape
    (1, 2, {times[3]})
    """

    functions = (F.dropout1d, F.dropout2d, F.dropout3d)


class Dropout1d(_ChannelDropout, dims=1): ...


class Dropout2d(_ChannelDropout, dims=2): ...


class Dropout3d(_ChannelDropout, dims=3): ...


class AlphaDropout(Dropout):
    """Saturated elements, with probability `p`, that keep mean 0 and variance 1 after a `SELU` (Klambauer et al. 2017).

    Shapes (...) -> (...); in evaluation the input is returned as it is. Raises ArgumentError unless 0 <= p <= 1.
    `inplace` is accepted for PyTorch's sake and has no effect. See `functional.alpha_dropout`.

    >>> AlphaDropout(0.5)(hm.ones((2, 3))).shape
    (2, 3)
    """

    function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(Dropout):
    """`AlphaDropout` of whole channels: (n, c, ...) -> (n, c, ...).

    Raises ArgumentError unless 0 <= p <= 1, and ShapeError in training for an input of fewer than two axes. `inplace`
    is accepted for PyTorch's sake and has no effect. See `functional.feature_alpha_dropout`.

    >>> FeatureAlphaDropout(0.5)(hm.ones((1, 3, 2))).shape
    (1, 3, 2)
    """

    function = staticmethod(F.feature_alpha_dropout)


__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]
