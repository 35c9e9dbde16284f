"""Distributions of positive numbers."""

from __future__ import annotations

import math
from typing import Any

from .. import arrays as xp
from .. import random, special
from ..core.tensor import Tensor
from ..random.generator import Generator
from . import constraints
from .continuous import Gamma, Normal
from .distribution import Distribution
from .heavy_tails import EULER, Cauchy
from .transformed import TransformedDistribution
from .transforms import AbsTransform, ExpTransform, PowerTransform


class LogNormal(TransformedDistribution):
    """Distribution of numbers whose logarithm is normal with mean `loc` and standard deviation `scale`.

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number `scale` that
    is not positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.LogNormal(0.0, 1.0).cdf(1.0).item()
    0.5
    """

    arg_constraints = constraints.by_name(loc=constraints.real, scale=constraints.positive)
    support = constraints.positive

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale = self._given(loc=loc, scale=scale)
        super().__init__(Normal(self.loc, self.scale), ExpTransform())

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc

    @property
    def mean(self) -> Tensor:
        return xp.exp(self.loc + xp.square(self.scale) * 0.5)

    @property
    def mode(self) -> Tensor:
        return xp.exp(self.loc - xp.square(self.scale))

    @property
    def variance(self) -> Tensor:
        spread = xp.square(self.scale)
        return xp.expm1(spread) * xp.exp(self.loc * 2 + spread)


class _Half(TransformedDistribution):
    """Absolute values of a distribution that is symmetric about 0."""

    scale: Tensor
    arg_constraints = constraints.by_name(scale=constraints.positive)
    support = constraints.nonnegative

    def log_prob(self, value: Any) -> Tensor:
        x = xp.asarray(value)
        return xp.where(x >= 0, self.base_dist.log_prob(x) + math.log(2), -math.inf)

    def cdf(self, value: Any) -> Tensor:
        return xp.maximum(self.base_dist.cdf(value) * 2 - 1, 0.0)

    def icdf(self, value: Any) -> Tensor:
        return self.base_dist.icdf((xp.asarray(value) + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)

    @property
    def mode(self) -> Tensor:
        return xp.zeros_like(self.scale)


class HalfNormal(_Half):
    """Distribution of absolute values of normal numbers with mean 0 and standard deviation `scale`.

    `scale` is a number or a tensor, whose shape is `batch_shape`. Raises ArgumentError for a number that is not
    positive.

    >>> hm.distributions.HalfNormal(1.0).log_prob([-1.0]).item()
    -inf
    """

    def __init__(self, scale: Any) -> None:
        (self.scale,) = self._given(scale=scale)
        super().__init__(Normal(xp.zeros_like(self.scale), self.scale), AbsTransform())

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return xp.square(self.scale) * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """Distribution of absolute values of Cauchy numbers with median 0, half of them below `scale`.

    Its mean is infinite. `scale` is a number or a tensor, whose shape is `batch_shape`. Raises ArgumentError for a
    number that is not positive.

    >>> hm.distributions.HalfCauchy(2.0).cdf(2.0).item()
    0.5
    """

    def __init__(self, scale: Any) -> None:
        (self.scale,) = self._given(scale=scale)
        super().__init__(Cauchy(xp.zeros_like(self.scale), self.scale), AbsTransform())

    @property
    def mean(self) -> Tensor:
        return xp.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return xp.full_like(self.scale, math.inf)


class Chi2(Gamma):
    """Chi-squared distribution with `df` degrees of freedom: of the sum of that many squares of normal numbers.

    `df` is a number or a tensor, whose shape is `batch_shape`. Raises ArgumentError for a number that is not positive.

    >>> hm.distributions.Chi2(3.0).mean.item()
    3.0
    """

    arg_constraints = constraints.by_name(df=constraints.positive)

    def __init__(self, df: Any) -> None:
        (self.df,) = self._given(df=df)
        super().__init__(self.df * 0.5, xp.full_like(self.df, 0.5))


class FisherSnedecor(Distribution):
    """Fisher's F distribution, of the ratio of two chi-squared numbers, each over its degrees of freedom.

    `df1` and `df2` are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number that is
    not positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.FisherSnedecor(2.0, 4.0).mean.item()
    2.0
    """

    has_rsample = True
    arg_constraints = constraints.by_name(df1=constraints.positive, df2=constraints.positive)
    support = constraints.positive

    def __init__(self, df1: Any, df2: Any) -> None:
        self.df1, self.df2 = self._given(df1=df1, df2=df2)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        above, below = (random.chi2(df, shape, generator=generator) / df for df in (self.df1, self.df2))
        tiny = float(xp.finfo(above.dtype).tiny)
        return xp.maximum(above / xp.maximum(below, tiny), tiny)

    def log_prob(self, value: Any) -> Tensor:
        given, a, b, ratio = xp.asarray(value), self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        x = xp.maximum(given, 0.0)
        inside = a * xp.log(ratio) + special.xlogy(a - 1, x) - (a + b) * xp.log1p(ratio * x) - special.betaln(a, b)
        return xp.where(given >= 0, inside, -math.inf)

    @property
    def mean(self) -> Tensor:
        return xp.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        return xp.where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), math.nan)

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        return xp.where(b > 4, 2 * xp.square(b) * (a + b - 2) / (a * xp.square(b - 2) * (b - 4)), math.nan)


class InverseGamma(TransformedDistribution):
    """Distribution of the inverses of gamma numbers with these parameters.

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number that is not
    positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.InverseGamma(3.0, 4.0).mean.item()
    2.0
    """

    arg_constraints = constraints.by_name(concentration=constraints.positive, rate=constraints.positive)
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any) -> None:
        self.concentration, self.rate = self._given(concentration=concentration, rate=rate)
        super().__init__(Gamma(self.concentration, self.rate), PowerTransform(-1.0))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + xp.log(self.rate) + xp.lgamma(a) - (1 + a) * xp.digamma(a)

    @property
    def mean(self) -> Tensor:
        return xp.where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return xp.where(a > 2, xp.square(self.rate / (a - 1)) / (a - 2), math.inf)


class Weibull(Distribution):
    """Weibull distribution, with probability exp(-(x / scale) ** concentration) above x.

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number that is not
    positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.Weibull(2.0, 1.0).mean.item()
    2.0
    """

    has_rsample = True
    arg_constraints = constraints.by_name(scale=constraints.positive, concentration=constraints.positive)
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any) -> None:
        self.scale, self.concentration = self._given(scale=scale, concentration=concentration)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.weibull(self.concentration, self.scale, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        x, k = xp.asarray(value), self.concentration
        z = xp.maximum(x, 0.0) / self.scale
        return xp.where(x >= 0, xp.log(k / self.scale) + special.xlogy(k - 1, z) - z**k, -math.inf)

    def cdf(self, value: Any) -> Tensor:
        return -xp.expm1(-((xp.maximum(xp.asarray(value), 0.0) / self.scale) ** self.concentration))

    def icdf(self, value: Any) -> Tensor:
        return (-xp.log1p(-xp.asarray(value))) ** (1 / self.concentration) * self.scale

    def entropy(self) -> Tensor:
        return EULER * (1 - 1 / self.concentration) + xp.log(self.scale / self.concentration) + 1

    def _moment(self, n: int) -> Tensor:
        return xp.exp(xp.lgamma(1 + n / self.concentration)) * self.scale**n

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * (xp.maximum(k - 1, 0.0) / k) ** (1 / k)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - xp.square(self._moment(1))
