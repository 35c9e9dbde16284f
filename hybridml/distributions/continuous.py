"""Distributions of real numbers."""

from __future__ import annotations

import math
from typing import Any

from .. import arrays as xp
from .. import random, special
from ..core.tensor import Tensor
from ..random.generator import Generator
from . import constraints
from .constraints import Constraint
from .distribution import Distribution

_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


class Normal(Distribution):
    """Normal (Gaussian) distribution with mean `loc` and standard deviation `scale`.

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number `scale` that
    is not positive, ShapeError for shapes that do not broadcast.

    >>> p = hm.distributions.Normal(0.0, hm.tensor([1.0, 2.0]))
    >>> p.sample((5,)).shape, p.variance.tolist()
    ((5, 2), [1.0, 4.0])
    """

    has_rsample = True
    arg_constraints = constraints.by_name(loc=constraints.real, scale=constraints.positive)
    support = constraints.real

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale = self._given(loc=loc, scale=scale)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.normal(shape, self.loc, self.scale, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        z = (xp.asarray(value) - self.loc) / self.scale
        return z * z * -0.5 - xp.log(self.scale) - _LOG_ROOT_2PI

    def cdf(self, value: Any) -> Tensor:
        """The probability below `value`."""
        return xp.ndtr((xp.asarray(value) - self.loc) / self.scale)

    def icdf(self, share: Any) -> Tensor:
        """The number below which `share` of the probability is."""
        return xp.ndtri(xp.asarray(share)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return xp.log(self.scale) + (0.5 + _LOG_ROOT_2PI)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return xp.square(self.scale)


class Uniform(Distribution):
    """Uniform distribution over [low, high).

    Parameters are numbers or tensors that broadcast to `batch_shape`; ShapeError if they do not.

    >>> hm.distributions.Uniform(0.0, 4.0).log_prob([1.0, 5.0]).exp().tolist()
    [0.25, 0.0]
    """

    has_rsample = True

    def __init__(self, low: Any, high: Any) -> None:
        self.low, self.high = self._given(low=low, high=high)

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        """Constraints of the bounds, each of which depends on the other one."""
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @property
    def support(self) -> Constraint:
        """Numbers from `low` to `high`."""
        return constraints.interval(self.low, self.high)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.uniform(shape, self.low, self.high, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        x = xp.asarray(value)
        return xp.where((x >= self.low) & (x < self.high), -xp.log(self.high - self.low), -math.inf)

    def entropy(self) -> Tensor:
        return xp.log(self.high - self.low)

    def cdf(self, value: Any) -> Tensor:
        return xp.clip((xp.asarray(value) - self.low) / (self.high - self.low), 0.0, 1.0)

    def icdf(self, value: Any) -> Tensor:
        return xp.asarray(value) * (self.high - self.low) + self.low

    @property
    def mode(self) -> Tensor:
        return self.low * math.nan  # all are as likely

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) * 0.5

    @property
    def variance(self) -> Tensor:
        return xp.square(self.high - self.low) / 12


class Exponential(Distribution):
    """Exponential distribution with `rate` events per unit, so with mean 1 / rate.

    `rate` is a number or a tensor, whose shape is `batch_shape`. Raises ArgumentError for a number that is not
    positive.

    >>> hm.distributions.Exponential(4.0).mean.item()
    0.25
    """

    has_rsample = True
    arg_constraints = constraints.by_name(rate=constraints.positive)
    support = constraints.nonnegative

    def __init__(self, rate: Any) -> None:
        (self.rate,) = self._given(rate=rate)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.exponential(1 / self.rate, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        x = xp.asarray(value)
        return xp.where(x >= 0, xp.log(self.rate) - self.rate * x, -math.inf)

    def entropy(self) -> Tensor:
        return 1 - xp.log(self.rate)

    def cdf(self, value: Any) -> Tensor:
        return -xp.expm1(-self.rate * xp.maximum(xp.asarray(value), 0.0))

    def icdf(self, value: Any) -> Tensor:
        return -xp.log1p(-xp.asarray(value)) / self.rate

    @property
    def mode(self) -> Tensor:
        return xp.zeros_like(self.rate)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return 1 / xp.square(self.rate)


class Laplace(Distribution):
    """Laplace distribution with density exp(-abs(x - loc) / scale) / (2 scale).

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number `scale` that
    is not positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.Laplace(0.0, 0.5).log_prob(0.0).exp().item()
    1.0
    """

    has_rsample = True
    arg_constraints = constraints.by_name(loc=constraints.real, scale=constraints.positive)
    support = constraints.real

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale = self._given(loc=loc, scale=scale)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.laplace(self.loc, self.scale, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        return -xp.log(self.scale * 2) - xp.abs(xp.asarray(value) - self.loc) / self.scale

    def entropy(self) -> Tensor:
        return xp.log(self.scale * 2) + 1

    def cdf(self, value: Any) -> Tensor:
        away = xp.asarray(value) - self.loc
        return 0.5 - 0.5 * xp.sign(away) * xp.expm1(-xp.abs(away) / self.scale)

    def icdf(self, value: Any) -> Tensor:
        away = xp.asarray(value) - 0.5
        return self.loc - self.scale * xp.sign(away) * xp.log1p(-2 * xp.abs(away))

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return xp.square(self.scale) * 2


class Gamma(Distribution):
    """Gamma distribution with density proportional to x**(concentration - 1) exp(-rate x).

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number that is not
    positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.Gamma(3.0, 2.0).mean.item()
    1.5
    """

    has_rsample = True
    arg_constraints = constraints.by_name(concentration=constraints.positive, rate=constraints.positive)
    support = constraints.nonnegative

    def __init__(self, concentration: Any, rate: Any) -> None:
        self.concentration, self.rate = self._given(concentration=concentration, rate=rate)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.gamma(self.concentration, 1 / self.rate, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        x, a = xp.asarray(value), self.concentration
        inside = special.xlogy(a - 1, xp.maximum(x, 0.0)) - self.rate * x
        return xp.where(x >= 0, a * xp.log(self.rate) - xp.lgamma(a) + inside, -math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - xp.log(self.rate) + xp.lgamma(a) + (1 - a) * xp.digamma(a)

    def cdf(self, value: Any) -> Tensor:
        return special.gammainc(self.concentration, self.rate * xp.maximum(xp.asarray(value), 0.0))

    @property
    def mode(self) -> Tensor:
        return xp.maximum(self.concentration - 1, 0.0) / self.rate

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def variance(self) -> Tensor:
        return self.concentration / xp.square(self.rate)


class Beta(Distribution):
    """Beta distribution over [0, 1], density proportional to x**(concentration1 - 1) (1 - x)**(concentration0 - 1).

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number that is not
    positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.Beta(1.0, 3.0).mean.item()
    0.25
    """

    has_rsample = True
    arg_constraints = constraints.by_name(concentration1=constraints.positive, concentration0=constraints.positive)
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any) -> None:
        self.concentration1, self.concentration0 = self._given(
            concentration1=concentration1, concentration0=concentration0
        )

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.beta(self.concentration1, self.concentration0, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        given = xp.asarray(value)
        x, a, b = xp.clip(given, 0.0, 1.0), self.concentration1, self.concentration0
        inside = special.xlogy(a - 1, x) + special.xlog1py(b - 1, -x) - special.betaln(a, b)
        return xp.where(given == x, inside, -math.inf)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        spread = (a - 1) * xp.digamma(a) + (b - 1) * xp.digamma(b) - (a + b - 2) * xp.digamma(a + b)
        return special.betaln(a, b) - spread

    def cdf(self, value: Any) -> Tensor:
        return special.betainc(self.concentration1, self.concentration0, xp.clip(xp.asarray(value), 0.0, 1.0))

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        flat = (a == 1) & (b == 1)
        inside = (a > 1) & (b > 1)
        middle = (a - 1) / xp.where(inside, a + b - 2, 1.0)
        return xp.where(inside, middle, xp.where(flat | (a == b), math.nan, xp.where(a > b, 1.0, 0.0)))

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (xp.square(total) * (total + 1))
