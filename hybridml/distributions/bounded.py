"""Distributions of shares and of angles."""

from __future__ import annotations

import math
from typing import Any

from .. import arrays as xp
from .. import random, special
from ..core.tensor import Tensor
from ..random.generator import Generator
from ..random.sampling import Draw, until_accepted
from . import constraints
from .continuous import Normal, Uniform
from .discrete import given_odds
from .distribution import Distribution
from .heavy_tails import EULER
from .transformed import TransformedDistribution
from .transforms import AffineTransform, PowerTransform, StickBreakingTransform


class Kumaraswamy(TransformedDistribution):
    """Kumaraswamy distribution over [0, 1], with probability (1 - x ** concentration1) ** concentration0 above x.

    Parameters are numbers or tensors that broadcast to `batch_shape`. Raises ArgumentError for a number that is not
    positive, ShapeError for shapes that do not broadcast.

    >>> hm.distributions.Kumaraswamy(1.0, 1.0).mean.item()
    0.5
    """

    arg_constraints = constraints.by_name(concentration1=constraints.positive, concentration0=constraints.positive)
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any) -> None:
        self.concentration1, self.concentration0 = a, b = self._given(
            concentration1=concentration1, concentration0=concentration0
        )
        flat = Uniform(xp.zeros_like(a), xp.ones_like(a))
        super().__init__(flat, [PowerTransform(1 / b), AffineTransform(1.0, -1.0), PowerTransform(1 / a)])

    def log_prob(self, value: Any) -> Tensor:
        given, a, b = xp.asarray(value), self.concentration1, self.concentration0
        x = xp.clip(given, 0.0, 1.0)
        inside = xp.log(a * b) + special.xlogy(a - 1, x) + special.xlog1py(b - 1, -(x**a))
        return xp.where(given == x, inside, -math.inf)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (1 - 1 / b) + (1 - 1 / a) * (xp.digamma(b + 1) + EULER) - xp.log(a * b)

    def _moment(self, n: int) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return b * xp.exp(special.betaln(1 + n / a, b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inside = (a >= 1) & (b >= 1) & (a * b > 1)
        return xp.where(inside, ((a - 1) / xp.where(inside, a * b - 1, 1.0)) ** (1 / a), math.nan)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - xp.square(self._moment(1))


class LogisticNormal(TransformedDistribution):
    """Distribution of shares (..., k + 1) that break off a stick by the sigmoids of normal numbers (..., k).

    `loc` and `scale` broadcast to (..., k): `batch_shape` is (...), `event_shape` (k + 1,).

    >>> p = hm.distributions.LogisticNormal(hm.zeros(3), 1.0)
    >>> p.event_shape, round(p.sample().sum().item(), 5)
    ((4,), 1.0)
    """

    arg_constraints = constraints.by_name(loc=constraints.real, scale=constraints.positive)
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any) -> None:
        base = Normal(loc, scale)
        super().__init__(base if base.batch_shape else base.expand((1,)), StickBreakingTransform())
        normal: Any = self.base_dist
        self.loc, self.scale = normal.base_dist.loc, normal.base_dist.scale


class ContinuousBernoulli(Distribution):
    """Continuous Bernoulli distribution over [0, 1], with density proportional to probs ** x (1 - probs) ** (1 - x).

    `probs` or `logits` is a number or a tensor, whose shape is `batch_shape`; between `lims` around 1/2 series are
    taken. Raises ArgumentError unless one of the two is given. Source: Loaiza-Ganem and Cunningham 2019.

    >>> hm.distributions.ContinuousBernoulli(0.5).mean.item()
    0.5
    """

    has_rsample = True
    arg_constraints = constraints.by_name(probs=constraints.unit_interval, logits=constraints.real)
    support = constraints.unit_interval

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501)) -> None:
        (share, _), _ = given_odds(self, probs, logits)
        eps = float(xp.finfo(share.dtype).eps)
        self.probs = xp.clip(share, eps, 1 - eps)
        self.logits = xp.log(self.probs) - xp.log1p(-self.probs)
        self.lims = lims

    def _parted(self) -> tuple[Tensor, Tensor]:
        """Whether formulas hold, and shares for which they do; elsewhere, near 1/2, series are taken."""
        apart = (self.probs <= self.lims[0]) | (self.probs > self.lims[1])
        return apart, xp.where(apart, self.probs, self.lims[0])

    def log_normalizer(self) -> Tensor:
        """The logarithm of the factor that makes the density integrate to 1."""
        apart, p = self._parted()
        away = xp.square(self.probs - 0.5)
        formula = xp.log((xp.log1p(-p) - xp.log(p)) / (1 - 2 * p))
        return xp.where(apart, formula, math.log(2.0) + (4 / 3 + 104 / 45 * away) * away)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return self.icdf(random.uniform(shape, dtype=self.probs.dtype, generator=generator))

    def log_prob(self, value: Any) -> Tensor:
        x = xp.asarray(value)
        inside = x * self.logits + xp.log1p(-self.probs) + self.log_normalizer()
        return xp.where((x >= 0) & (x <= 1), inside, -math.inf)

    def cdf(self, value: Any) -> Tensor:
        (apart, p), x = self._parted(), xp.clip(xp.asarray(value), 0.0, 1.0)
        return xp.where(apart, (p**x * (1 - p) ** (1 - x) + p - 1) / (2 * p - 1), x)

    def icdf(self, value: Any) -> Tensor:
        (apart, p), share = self._parted(), xp.asarray(value)
        odds = xp.log(p) - xp.log1p(-p)
        return xp.where(apart, (xp.log1p(share * (2 * p - 1) - p) - xp.log1p(-p)) / odds, share)

    def entropy(self) -> Tensor:
        return -self.mean * self.logits - xp.log1p(-self.probs) - self.log_normalizer()

    @property
    def mean(self) -> Tensor:
        (apart, p), away = self._parted(), self.probs - 0.5
        formula = p / (2 * p - 1) + 1 / (xp.log1p(-p) - xp.log(p))
        return xp.where(apart, formula, 0.5 + (1 / 3 + 16 / 45 * xp.square(away)) * away)

    @property
    def variance(self) -> Tensor:
        (apart, p), away = self._parted(), xp.square(self.probs - 0.5)
        formula = p * (p - 1) / xp.square(1 - 2 * p) + 1 / xp.square(xp.log1p(-p) - xp.log(p))
        return xp.where(apart, formula, 1 / 12 - (1 / 15 - 128 / 945 * away) * away)


class VonMises(Distribution):
    """Von Mises distribution of angles, density proportional to exp(concentration cos(x - loc)); samples in [-pi, pi).

    Parameters are numbers or tensors that broadcast to `batch_shape`; the variance is the circular one. Raises
    ArgumentError for a number `concentration` that is not positive. Source: Best and Fisher 1979.

    >>> bool((hm.abs(hm.distributions.VonMises(3.0, 1.0).sample((100,))) < 3.15).all())
    True
    """

    arg_constraints = constraints.by_name(loc=constraints.real, concentration=constraints.positive)
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any) -> None:
        self.loc, self.concentration = self._given(loc=loc, concentration=concentration)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        # In float64: near 0 and for large concentrations differences of like numbers are taken.
        loc, k = (xp.broadcast_to(t.astype("float64"), shape) for t in (self.loc, self.concentration))
        d = Draw("VonMises", shape, "float64", generator)
        tau = 1 + xp.sqrt(1 + 4 * k * k)
        rho = (tau - xp.sqrt(2 * tau)) / (2 * k)
        r = xp.where(k < 1e-5, 1 / k + k, (1 + rho * rho) / (2 * rho))

        def propose() -> tuple[Tensor, Tensor]:
            z = xp.cos(math.pi * d.unit())
            f = xp.clip((1 + r * z) / (r + z), -1.0, 1.0)
            c, u = k * (r - f), d.open_unit()
            accepted = (c * (2 - c) > u) | (xp.log(c / u) + 1 - c >= 0)
            return xp.sign(d.open_unit() - 0.5) * xp.arccos(f), accepted | xp.isnan(k)

        angle = until_accepted(propose, d.shape, d.dtype)
        turned = xp.remainder(angle + math.pi + loc, 2 * math.pi) - math.pi
        return turned.astype(self.loc.dtype)

    def log_prob(self, value: Any) -> Tensor:
        k = self.concentration
        return k * (xp.cos(xp.asarray(value) - self.loc) - 1) - math.log(2 * math.pi) - xp.log(special.i0e(k))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 1 - special.i1e(self.concentration) / special.i0e(self.concentration)
