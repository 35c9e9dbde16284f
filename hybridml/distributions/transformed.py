"""Distributions of transformed numbers, and distributions whose batch is one event."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from ..core.tensor import Tensor
from ..random.generator import Generator
from .constraints import Constraint
from .distribution import Distribution, sum_rightmost
from .transforms.transform import ComposeTransform, Transform, of_axes


class Independent(Distribution):
    """Another distribution, the last `reinterpreted_batch_ndims` axes of whose batch are one event.

    Raises ShapeError for more axes than the batch has.

    >>> D = hm.distributions
    >>> p = D.Independent(D.Normal(hm.zeros((2, 3)), 1.0), 1)
    >>> p.batch_shape, p.event_shape, p.log_prob(hm.zeros((2, 3))).shape
    ((2,), (3,), (2,))
    """

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int) -> None:
        batch, axes = base_distribution.batch_shape, reinterpreted_batch_ndims
        if not 0 <= axes <= len(batch):
            raise ShapeError(f"Independent: {axes} axes of a batch of shape {batch}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, axes
        self.batch_shape = batch[: len(batch) - axes]
        self.event_shape = (*batch[len(batch) - axes :], *base_distribution.event_shape)
        self.has_rsample = base_distribution.has_rsample
        self.has_enumerate_support = base_distribution.has_enumerate_support and not axes

    @property
    def support(self) -> Constraint:
        """The values of the other distribution, several of them as one."""
        return of_axes(self.base_dist.support, len(self.event_shape))

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return self._draw_of(self.base_dist, shape, generator)

    def log_prob(self, value: Any) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise ArgumentError("Independent: values of several numbers are not listed; enumerate those of base_dist")
        return self.base_dist.enumerate_support(expand)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """Distribution of what numbers of `base_distribution` become by `transforms`, a transform or a list of them.

    Densities are by the inverses and Jacobians (NotImplementedError for transforms without them), -inf where no number
    comes to. Raises ShapeError for a distribution with fewer axes than the transforms need.

    >>> D = hm.distributions
    >>> parts = [D.SigmoidTransform().inv, D.AffineTransform(1.0, 2.0)]
    >>> logistic = D.TransformedDistribution(D.Uniform(0.0, 1.0), parts)
    >>> round(logistic.log_prob(1.0).exp().item(), 3), logistic.cdf(1.0).item()
    (0.125, 0.5)
    """

    def __init__(self, base_distribution: Distribution, transforms: Transform | Sequence[Transform]) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ArgumentError(f"TransformedDistribution: takes a transform or a list of them, got {transforms!r}")
        chain = ComposeTransform(self.transforms)
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        if len(shape) < chain.domain_event_dim:
            raise ShapeError(f"TransformedDistribution: {chain} needs {chain.domain_event_dim} axes, got shape {shape}")
        out = chain.forward_shape(shape)
        wide, base_axes = chain.inverse_shape(out), len(base_distribution.event_shape)
        if wide != shape:
            base_distribution = base_distribution.expand(wide[: len(wide) - base_axes])
        joined = chain.domain_event_dim - base_axes
        self.base_dist = Independent(base_distribution, joined) if joined > 0 else base_distribution
        axes = max(chain.codomain_event_dim, base_axes + chain.codomain_event_dim - chain.domain_event_dim)
        self.batch_shape, self.event_shape = out[: len(out) - axes], out[len(out) - axes :]
        self.has_rsample = base_distribution.has_rsample

    @property
    def support(self) -> Constraint:
        """The values of the last transform."""
        if not self.transforms:
            return self.base_dist.support
        return of_axes(self.transforms[-1].codomain, len(self.event_shape))

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return ComposeTransform(self.transforms)(self._draw_of(self.base_dist, shape, generator))

    def _backwards(self) -> list[Transform]:
        return [*ComposeTransform(self.transforms)._flat()][::-1]

    def log_prob(self, value: Any) -> Tensor:
        y, axes = xp.asarray(value), len(self.event_shape)
        total: Any = 0.0
        possible = None
        for t in self._backwards():
            bounds = t.codomain.numbers
            if bounds is not None:
                inside = bounds.inside(y)
                y = xp.where(inside, y, bounds.some)
                held = inside.all(axis=tuple(range(-axes, 0))) if axes else inside
                possible = held if possible is None else possible & held
            x = t.inv(y)
            axes += t.domain_event_dim - t.codomain_event_dim
            total = total - sum_rightmost(t.log_abs_det_jacobian(x, y), axes - t.domain_event_dim)
            y = x
        total = total + sum_rightmost(self.base_dist.log_prob(y), axes - len(self.base_dist.event_shape))
        return total if possible is None else xp.where(possible, total, -math.inf)

    def _risen(self, share: Tensor) -> Tensor:
        """A share of the base distribution, or what is left of it where the transforms fall."""
        sign = ComposeTransform(self.transforms).sign
        return share if isinstance(sign, int) and sign == 1 else (share - 0.5) * sign + 0.5

    def cdf(self, value: Any) -> Tensor:
        y = xp.asarray(value)
        for t in self._backwards():
            bounds = t.codomain.numbers
            y = t.inv(y if bounds is None else xp.clip(y, bounds.lower_bound, bounds.upper_bound))
        return self._risen(self.base_dist.cdf(y))

    def icdf(self, value: Any) -> Tensor:
        return ComposeTransform(self.transforms)(self.base_dist.icdf(self._risen(xp.asarray(value))))
