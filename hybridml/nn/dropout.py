"""Dropout layers: they drop in training and do nothing in evaluation."""

from __future__ import annotations

from .. import functional as F
from ..core.tensor import Tensor
from ..functional.dropouts import check_probability
from .held import Held


class Dropout(Held):
    """`functional.dropout` in training, nothing in evaluation. `inplace` has no effect."""

    function = staticmethod(F.dropout)

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        check_probability(type(self).__name__, p)
        super().__init__(p=p)

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = type(self).function(input, self.p, self.training)
        return found


class Dropout1d(Dropout):
    """`functional.dropout1d` in training, nothing in evaluation. `inplace` has no effect."""

    function = staticmethod(F.dropout1d)


class Dropout2d(Dropout):
    """`functional.dropout2d` in training, nothing in evaluation. `inplace` has no effect."""

    function = staticmethod(F.dropout2d)


class Dropout3d(Dropout):
    """`functional.dropout3d` in training, nothing in evaluation. `inplace` has no effect."""

    function = staticmethod(F.dropout3d)


class AlphaDropout(Dropout):
    """`functional.alpha_dropout` in training, nothing in evaluation. `inplace` has no effect."""

    function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(Dropout):
    """`functional.feature_alpha_dropout` in training, nothing in evaluation. `inplace` has no effect."""

    function = staticmethod(F.feature_alpha_dropout)
