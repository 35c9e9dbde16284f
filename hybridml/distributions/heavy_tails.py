"""Distributions whose tails are heavier than the normal distribution's."""

from __future__ import annotations

import math
from typing import Any

from .. import arrays as xp
from .. import random, special
from ..core.tensor import Tensor
from ..random.generator import Generator
from . import constraints
from .constraints import Constraint
from .continuous import Exponential
from .distribution import Distribution
from .transformed import TransformedDistribution
from .transforms import AffineTransform, ExpTransform

EULER = 0.5772156649015329


class Cauchy(Distribution):
    """Cauchy (Lorentz) distribution with median `loc`, half of it within `scale` of that; mean and variance are nan.

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number `scale` that
    is not positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.Cauchy(0.0, 2.0).cdf(2.0).item()
    0.75
    """

    has_rsample = True
    arg_constraints = constraints.by_name(loc=constraints.real, scale=constraints.positive)
    support = constraints.real

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale = self._given(loc=loc, scale=scale)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.cauchy(self.loc, self.scale, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        z = (xp.asarray(value) - self.loc) / self.scale
        return -xp.log(self.scale * math.pi) - xp.log1p(z * z)

    def cdf(self, value: Any) -> Tensor:
        return xp.arctan((xp.asarray(value) - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Any) -> Tensor:
        return xp.tan((xp.asarray(value) - 0.5) * math.pi) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return xp.log(self.scale * (4 * math.pi))

    @property
    def mean(self) -> Tensor:
        return xp.full_like(self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return xp.full_like(self.loc, math.inf)


class StudentT(Distribution):
    """Student's t distribution with `df` degrees of freedom, times `scale`, plus `loc`.

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number `df` or
    `scale` that is not positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.StudentT(4.0).variance.item()
    2.0
    """

    has_rsample = True
    arg_constraints = constraints.by_name(df=constraints.positive, loc=constraints.real, scale=constraints.positive)
    support = constraints.real

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> None:
        self.df, self.loc, self.scale = self._given(df=df, loc=loc, scale=scale)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.student_t(self.df, self.loc, self.scale, shape, generator=generator)

    def _log_normalizer(self) -> Tensor:
        return special.betaln(self.df * 0.5, xp.full_like(self.df, 0.5)) + 0.5 * xp.log(self.df)

    def log_prob(self, value: Any) -> Tensor:
        z = (xp.asarray(value) - self.loc) / self.scale
        return -0.5 * (self.df + 1) * xp.log1p(z * z / self.df) - xp.log(self.scale) - self._log_normalizer()

    def entropy(self) -> Tensor:
        half, above = self.df * 0.5, (self.df + 1) * 0.5
        return xp.log(self.scale) + above * (xp.digamma(above) - xp.digamma(half)) + self._log_normalizer()

    @property
    def mean(self) -> Tensor:
        return xp.where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        wide = xp.square(self.scale) * self.df / (self.df - 2)
        return xp.where(self.df > 2, wide, xp.where(self.df > 1, math.inf, math.nan))


class Gumbel(Distribution):
    """Gumbel distribution, of the largest of many numbers: probability exp(-exp(-(x - loc) / scale)) below x.

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number `scale` that
    is not positive, ShapeError for shapes that do not broadcast.

    >>> round(hm.distributions.Gumbel(0.0, 1.0).mean.item(), 3)
    0.577
    """

    has_rsample = True
    arg_constraints = constraints.by_name(loc=constraints.real, scale=constraints.positive)
    support = constraints.real

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale = self._given(loc=loc, scale=scale)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.gumbel(self.loc, self.scale, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        z = (self.loc - xp.asarray(value)) / self.scale
        return z - xp.exp(z) - xp.log(self.scale)

    def cdf(self, value: Any) -> Tensor:
        return xp.exp(-xp.exp((self.loc - xp.asarray(value)) / self.scale))

    def icdf(self, value: Any) -> Tensor:
        return self.loc - self.scale * xp.log(-xp.log(xp.asarray(value)))

    def entropy(self) -> Tensor:
        return xp.log(self.scale) + (1 + EULER)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return xp.square(self.scale) * (math.pi**2 / 6)


class Pareto(TransformedDistribution):
    """Pareto distribution of the first kind, with probability (scale / x) ** alpha above x, from `scale` on.

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number that is not
    positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.Pareto(2.0, 3.0).mean.item()
    3.0
    """

    arg_constraints = constraints.by_name(scale=constraints.positive, alpha=constraints.positive)

    def __init__(self, scale: Any, alpha: Any) -> None:
        self.scale, self.alpha = self._given(scale=scale, alpha=alpha)
        super().__init__(Exponential(self.alpha), [ExpTransform(), AffineTransform(0.0, self.scale)])

    @property
    def support(self) -> Constraint:
        """Numbers from `scale` on."""
        return constraints.greater_than_eq(self.scale)

    def entropy(self) -> Tensor:
        return xp.log(self.scale / self.alpha) + 1 + 1 / self.alpha

    @property
    def mean(self) -> Tensor:
        return xp.where(self.alpha > 1, self.alpha * self.scale / (self.alpha - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha
        return xp.where(a > 2, xp.square(self.scale / (a - 1)) * a / (a - 2), math.inf)


class GeneralizedPareto(Distribution):
    """Generalized Pareto distribution of what is above a high limit, from `loc` on.

    Probability (1 + concentration (x - loc) / scale) ** (-1 / concentration) is above x. Of concentration 0 it is
    exponential, of a negative one it ends. Parameters are numbers or tensors that broadcast to `batch_shape`. Raises
    ArgumentError for a number `scale` that is not positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.GeneralizedPareto(0.0, 1.0, 0.5).mean.item()
    2.0
    """

    has_rsample = True
    arg_constraints = constraints.by_name(
        loc=constraints.real, scale=constraints.positive, concentration=constraints.real
    )

    def __init__(self, loc: Any, scale: Any, concentration: Any) -> None:
        self.loc, self.scale, self.concentration = self._given(loc=loc, scale=scale, concentration=concentration)

    @property
    def support(self) -> Constraint:
        """Numbers from `loc` on, of a negative concentration up to its end."""
        c = self.concentration
        end = self.loc - self.scale / xp.where(c < 0, c, 1.0)
        return constraints.interval(self.loc, xp.where(c < 0, end, math.inf))

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return self.icdf(random.uniform(shape, dtype=self.loc.dtype, generator=generator))

    def _shaped(self) -> tuple[Tensor, Tensor]:
        """Whether the concentration is nearly 0, where series of first order are taken, and one to divide by."""
        flat = xp.abs(self.concentration) < 1e-8
        return flat, xp.where(flat, 1.0, self.concentration)

    def log_survival_function(self, value: Any) -> Tensor:
        """The logarithm of the probability above `value`."""
        flat, shape = self._shaped()
        z = xp.maximum((xp.asarray(value) - self.loc) / self.scale, 0.0)
        left = 1 + shape * z
        logs = xp.where(left > 0, -xp.log1p(xp.where(left > 0, shape * z, 0.0)) / shape, -math.inf)
        return xp.where(flat, (self.concentration * z * 0.5 - 1) * z, logs)

    def log_cdf(self, value: Any) -> Tensor:
        """The logarithm of the probability below `value`."""
        return xp.log1p(-xp.exp(self.log_survival_function(value)))

    def log_prob(self, value: Any) -> Tensor:
        x = xp.asarray(value)
        inside = self.log_survival_function(x) * (1 + self.concentration) - xp.log(self.scale)
        z = (x - self.loc) / self.scale
        return xp.where((z >= 0) & (1 + self.concentration * z > 0), inside, -math.inf)

    def cdf(self, value: Any) -> Tensor:
        return -xp.expm1(self.log_survival_function(value))

    def icdf(self, value: Any) -> Tensor:
        flat, shape = self._shaped()
        log_left = xp.log1p(-xp.asarray(value))
        near = self.concentration * 0.5 * xp.square(xp.maximum(log_left, -1e3)) - log_left  # infinite at a share of 1
        return self.loc + self.scale * xp.where(flat, near, xp.expm1(-shape * log_left) / shape)

    def entropy(self) -> Tensor:
        return xp.log(self.scale) + self.concentration + 1

    @property
    def mean(self) -> Tensor:
        return xp.where(self.concentration < 1, self.loc + self.scale / (1 - self.concentration), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        return xp.where(c < 0.5, xp.square(self.scale / (1 - c)) / (1 - 2 * c), math.nan)
