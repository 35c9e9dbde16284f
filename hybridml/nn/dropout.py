"""Dropout layers: they drop in training and do nothing in evaluation."""

from __future__ import annotations

from .. import functional as F
from ..core.tensor import Tensor
from ..functional.dropouts import check_probability
from .held import Held


class Dropout(Held):
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


class Dropout1d(Dropout):
    """Zeros in place of whole channels, with probability `p`, in training.

    Shapes (n, c, l) or (c, l) -> the same shape; the rest is scaled by ``1 / (1 - p)``. Raises ArgumentError unless 0
    <= p <= 1, and ShapeError for another number of axes. `inplace` is accepted for PyTorch's sake and has no effect.

    >>> Dropout1d(0.5)(hm.ones((1, 2, 3))).shape
    (1, 2, 3)
    """

    function = staticmethod(F.dropout1d)


class Dropout2d(Dropout):
    """Zeros in place of whole channels, with probability `p`, in training (Tompson et al. 2015).

    Shapes (n, c, h, w) or (c, h, w) -> the same shape; the rest is scaled by ``1 / (1 - p)``. Raises ArgumentError
    unless 0 <= p <= 1, and ShapeError for another number of axes. `inplace` is accepted for PyTorch's sake and has no
    effect.

    >>> Dropout2d(0.5)(hm.ones((1, 2, 3, 3))).shape
    (1, 2, 3, 3)
    """

    function = staticmethod(F.dropout2d)


class Dropout3d(Dropout):
    """Zeros in place of whole channels, with probability `p`, in training.

    Shapes (n, c, d, h, w) or (c, d, h, w) -> the same shape; the rest is scaled by ``1 / (1 - p)``. Raises
    ArgumentError unless 0 <= p <= 1, and ShapeError for another number of axes. `inplace` is accepted for PyTorch's
    sake and has no effect.

    >>> Dropout3d(0.5)(hm.ones((1, 2, 3, 3, 3))).shape
    (1, 2, 3, 3, 3)
    """

    function = staticmethod(F.dropout3d)


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
