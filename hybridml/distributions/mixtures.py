"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from ..core.tensor import Tensor
from ..random.generator import Generator
from . import constraints
from .constraints import Constraint
from .discrete import Categorical
from .distribution import Distribution


class MixtureSameFamily(Distribution):
    """Mixture: `mixture_distribution` chooses one of those along the last axis of `component_distribution`'s batch.

    Raises ArgumentError for a mixture that is not Categorical, ShapeError for another number of components.

    >>> D = hm.distributions
    >>> p = D.MixtureSameFamily(D.Categorical([0.5, 0.5]), D.Normal(hm.tensor([-1.0, 1.0]), 0.5))
    >>> p.sample((3,)).shape, p.mean.item(), p.variance.item()
    ((3,), 0.0, 1.25)
    """

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ArgumentError(
                f"MixtureSameFamily: the mixture must be Categorical, got {type(mixture_distribution).__name__}"
            )
        parts, count = component_distribution.batch_shape, mixture_distribution.logits.shape[-1]
        if parts[-1:] != (count,):
            raise ShapeError(f"MixtureSameFamily: {count} components, of a distribution with a batch of shape {parts}")
        self.batch_shape = xp.broadcast_shapes(mixture_distribution.batch_shape, parts[:-1])
        self.event_shape = component_distribution.event_shape
        self.mixture_distribution = mixture_distribution.expand(self.batch_shape)
        self.component_distribution = component_distribution.expand((*self.batch_shape, count))

    @property
    def support(self) -> Constraint:
        """Values that the components have."""
        return constraints.MixtureSameFamilyConstraint(self.component_distribution.support)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        chosen = self._draw_of(self.mixture_distribution, shape, generator)
        every = self._draw_of(self.component_distribution, shape, generator)
        axis = every.ndim - len(self.event_shape) - 1
        places = chosen.reshape((*chosen.shape, *(1 for _ in range(every.ndim - axis))))
        wide = (*every.shape[:axis], 1, *every.shape[axis + 1 :])
        return xp.take_along_axis(every, xp.broadcast_to(places, wide), axis=axis).squeeze(axis)

    def _apart(self, value: Any) -> Tensor:
        """A value with an axis of components in front of those of an event."""
        return xp.expand_dims(xp.asarray(value), axis=-1 - len(self.event_shape))

    def _mixed(self, moment: Tensor) -> Tensor:
        """The mean over components of something (..., k, *event_shape)."""
        shares = self.mixture_distribution.probs
        shares = shares.reshape((*shares.shape, *(1 for _ in self.event_shape)))
        return (shares * moment).sum(axis=-1 - len(self.event_shape))

    def log_prob(self, value: Any) -> Tensor:
        logs = self.component_distribution.log_prob(self._apart(value)) + self.mixture_distribution.logits
        return xp.logsumexp(logs, axis=-1)

    def cdf(self, value: Any) -> Tensor:
        return (self.component_distribution.cdf(self._apart(value)) * self.mixture_distribution.probs).sum(axis=-1)

    @property
    def mean(self) -> Tensor:
        return self._mixed(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        parts = self.component_distribution
        return self._mixed(parts.variance + xp.square(parts.mean - self._apart(self.mean)))
