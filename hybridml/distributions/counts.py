"""Distributions of counts of events; samples are floats."""

from __future__ import annotations

import math
from typing import Any

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from .. import functional, random, special
from ..core.tensor import Tensor
from ..random.generator import Generator
from . import constraints
from .constraints import Constraint
from .discrete import OfCategories, given_odds
from .distribution import Distribution


def _times(count: Tensor, log_p: Tensor) -> Tensor:
    """count * log_p, 0 for a count of 0 even of what is impossible."""
    return xp.where(count == 0, 0.0, count * xp.where(count == 0, 0.0, log_p))


def _log_factorial(count: Any) -> Tensor:
    return xp.lgamma(xp.maximum(count, 0.0) + 1)


class Geometric(Distribution):
    """Geometric distribution: the number of failures before the first success of probability `probs`.

    `probs`, or `logits` for sigmoid(logits), is a number or a tensor, whose shape is `batch_shape`. Raises
    ArgumentError unless one of the two is given, and for a number `probs` of 0.

    >>> hm.distributions.Geometric(0.25).log_prob([0.0]).exp().item()
    0.25
    """

    arg_constraints = constraints.by_name(probs=constraints.LeftOpenInterval(0.0, 1.0), logits=constraints.real)
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        (self.probs, self.logits), _ = given_odds(self, probs, logits)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.geometric(self.probs, shape, dtype=self.probs.dtype, generator=generator) - 1

    def log_prob(self, value: Any) -> Tensor:
        k = xp.asarray(value)
        return xp.where(k >= 0, _times(k, -functional.softplus(self.logits)) + xp.log(self.probs), -math.inf)

    def entropy(self) -> Tensor:
        return (special.entr(self.probs) + special.entr(1 - self.probs)) / self.probs

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return xp.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs


class Binomial(Distribution):
    """Binomial distribution: how many of `total_count` independent events of probability `probs` happen.

    Parameters (`logits` for sigmoid(logits) instead of `probs`) are numbers or tensors that broadcast to
    `batch_shape`. Raises ArgumentError unless one of the two is given. Of a tensor `total_count` there are no entropy
    and no list of values.

    >>> hm.distributions.Binomial(2, 0.5).log_prob([0.0, 1.0, 2.0]).exp().tolist()
    [0.25, 0.5, 0.25]
    """

    has_enumerate_support = True
    arg_constraints = constraints.by_name(
        total_count=constraints.nonnegative_integer, probs=constraints.unit_interval, logits=constraints.real
    )

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None) -> None:
        (self.probs, self.logits), (self.total_count,) = given_odds(self, probs, logits, total_count=total_count)
        self._count = total_count if isinstance(total_count, int) else None

    @property
    def support(self) -> Constraint:
        """Whole numbers up to `total_count`."""
        return constraints.integer_interval(0, self.total_count)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.binomial(self.total_count, self.probs, shape, dtype=self.probs.dtype, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        k, n = xp.asarray(value), self.total_count
        ways = _log_factorial(n) - _log_factorial(k) - _log_factorial(n - k)
        shares = _times(k, -xp.logaddexp(-self.logits, xp.zeros_like(n)))
        shares = shares + _times(n - k, -xp.logaddexp(self.logits, xp.zeros_like(n)))
        return xp.where((k >= 0) & (k <= n), ways + shares, -math.inf)

    def entropy(self) -> Tensor:
        logs = self.log_prob(self.enumerate_support(False))
        return -_times(xp.exp(logs), logs).sum(axis=0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self._count is None:
            raise ArgumentError("Binomial: the values are listed for a total_count that is an int")
        return self._listed(xp.arange(self._count + 1, dtype=self.probs.dtype), expand)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return xp.minimum(xp.floor((self.total_count + 1) * self.probs), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)


class NegativeBinomial(Distribution):
    """Negative binomial distribution: successes, of probability `probs`, before `total_count` failures.

    Parameters (`logits` for sigmoid(logits) instead of `probs`) are numbers or tensors that broadcast to
    `batch_shape`; `total_count` need not be whole. Raises ArgumentError unless one of the two is given.

    >>> hm.distributions.NegativeBinomial(3.0, 0.5).mean.item()
    3.0
    """

    arg_constraints = constraints.by_name(
        total_count=constraints.nonnegative, probs=constraints.half_open_interval(0.0, 1.0), logits=constraints.real
    )
    support = constraints.nonnegative_integer

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None) -> None:
        (self.probs, self.logits), (self.total_count,) = given_odds(self, probs, logits, total_count=total_count)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        some = self.total_count > 0
        rate = random.gamma(xp.where(some, self.total_count, 1.0), xp.exp(self.logits), shape, generator=generator)
        return random.poisson(xp.where(some, rate, 0.0), dtype=self.probs.dtype, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        k, n = xp.asarray(value), self.total_count
        zero = xp.zeros_like(n)
        shares = _times(n, -xp.logaddexp(self.logits, zero)) + _times(k, -xp.logaddexp(-self.logits, zero))
        at = xp.maximum(k, 0.0)
        ways = xp.lgamma(xp.where(n + at == 0, 1.0, n + at)) - xp.lgamma(xp.where(n + at == 0, 1.0, n))
        return xp.where(k >= 0, ways - _log_factorial(k) + shares, -math.inf)

    @property
    def mean(self) -> Tensor:
        return self.total_count * xp.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return xp.maximum(xp.floor((self.total_count - 1) * xp.exp(self.logits)), 0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (1 - self.probs)


class Multinomial(OfCategories):
    """Multinomial distribution: how often each of k categories comes in `total_count` (an int) draws.

    `probs` (..., k), or `logits`, are those of `Categorical`; `batch_shape` is (...), `event_shape` (k,). Raises
    ArgumentError for a `total_count` that is not an int of 0 or more.

    >>> hm.distributions.Multinomial(8, [1.0, 3.0]).mean.tolist()
    [2.0, 6.0]
    """

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None) -> None:
        given: Any = total_count
        if not isinstance(given, int) or given < 0:
            raise ArgumentError(f"Multinomial: total_count must be an int of 0 or more, got {given!r}")
        super().__init__(probs, logits)
        self.total_count = total_count

    @property
    def support(self) -> Constraint:
        """Counts whose sum is `total_count` at most, as in PyTorch."""
        return constraints.multinomial(self.total_count)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        n, rows, k = self.total_count, math.prod(shape), self.event_shape[0]
        if not n:
            return xp.zeros((*shape, k), dtype=self.probs.dtype)
        shares = xp.broadcast_to(self.probs, (*shape, k)).reshape((rows, k))
        places = random.multinomial(shares, n, replacement=True, generator=generator) + xp.arange(rows)[:, None] * k
        return xp.bincount(places.reshape(-1), length=rows * k).reshape((*shape, k)).astype(self.probs.dtype)

    def log_prob(self, value: Any) -> Tensor:
        x = xp.asarray(value)
        shares = _times(x, self.logits) - _log_factorial(x)
        valid = (x >= 0).all(axis=-1) & (x.sum(axis=-1) == self.total_count)
        return xp.where(valid, shares.sum(axis=-1) + math.lgamma(self.total_count + 1), -math.inf)

    def entropy(self) -> Tensor:
        each = Binomial(self.total_count, self.probs)
        counts = each.enumerate_support(False)
        spread = (xp.exp(each.log_prob(counts)) * _log_factorial(counts)).sum(axis=(0, -1))
        return self.total_count * self._categorical.entropy() - math.lgamma(self.total_count + 1) + spread

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs) * self.total_count
