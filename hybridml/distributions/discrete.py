"""Distributions of whole numbers and categories."""

from __future__ import annotations

import math
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import functional, random, special
from ..core.tensor import Tensor
from ..random.generator import Generator
from . import constraints
from .constraints import Constraint
from .distribution import Distribution


def one_of(name: str, probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ArgumentError(f"{name}: takes probs or logits, one of them")


def given_odds(
    self: Distribution, probs: Any, logits: Any, /, **others: Any
) -> tuple[tuple[Tensor, Tensor], list[Tensor]]:
    """(probs, logits) of which one is given, and other parameters of a distribution, broadcast with them."""
    one_of(type(self).__name__, probs, logits)
    if logits is None:
        self._computed, (share, *rest) = "logits", self._given(probs=probs, **others)
        return (share, xp.log(share) - xp.log1p(-share)), rest
    self._computed, (odds, *rest) = "probs", self._given(logits=logits, **others)
    return (xp.sigmoid(odds), odds), rest


class Bernoulli(Distribution):
    """Bernoulli distribution: 1 with probability `probs`, or sigmoid(`logits`), else 0; samples are floats.

    Either is a number or a tensor, whose shape is `batch_shape`. Raises ArgumentError unless one of the two is given,
    and for a number `probs` outside of 0 .. 1.

    >>> hm.distributions.Bernoulli(0.25).log_prob([0.0, 1.0]).exp().tolist()
    [0.75, 0.25]
    """

    has_enumerate_support = True
    arg_constraints = constraints.by_name(probs=constraints.unit_interval, logits=constraints.real)
    support = constraints.boolean

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        (self.probs, self.logits), _ = given_odds(self, probs, logits)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.bernoulli(self.probs, shape, dtype=self.probs.dtype, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        away = xp.where(xp.asarray(value) != 0, -self.logits, self.logits)
        return -xp.logaddexp(away, xp.zeros_like(away))

    def entropy(self) -> Tensor:
        return special.entr(self.probs) + special.entr(1 - self.probs)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._listed(xp.arange(2, dtype=self.probs.dtype), expand)

    @property
    def mode(self) -> Tensor:
        return xp.where(self.probs == 0.5, math.nan, xp.where(self.probs > 0.5, 1.0, 0.0)).astype(self.probs.dtype)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class Categorical(Distribution):
    """Categorical distribution over positions in the last axis of `probs`, or of `logits`, their logarithms.

    `probs` (..., k) are in proportion to the probabilities; `batch_shape` is (...), samples are int64. Raises
    ArgumentError unless one of the two is given, ShapeError for one without axes.

    >>> hm.distributions.Categorical([1.0, 3.0]).log_prob([0, 1]).exp().tolist()
    [0.25, 0.75]
    """

    has_enumerate_support = True
    arg_constraints = constraints.by_name(probs=constraints.simplex, logits=constraints.real_vector)

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        one_of("Categorical", probs, logits)
        (given,) = self._given(**({"probs": probs} if logits is None else {"logits": logits}))
        if not given.ndim:
            raise ShapeError("Categorical: needs an axis of categories, got a number; use Bernoulli")
        if logits is None:
            self.probs = given / given.sum(axis=-1, keepdims=True)
            self.logits = xp.log(self.probs)
        else:
            self.logits = functional.log_softmax(given, -1)
            self.probs = xp.exp(self.logits)
        self.batch_shape = given.shape[:-1]

    @property
    def support(self) -> Constraint:
        """Positions of the categories."""
        return constraints.integer_interval(0, self.probs.shape[-1] - 1)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.categorical(self.logits, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        places = xp.asarray(value)
        shape = xp.broadcast_shapes(places.shape, self.batch_shape)
        rows = xp.broadcast_to(self.logits, (*shape, self.logits.shape[-1]))
        return xp.take_along_axis(rows, xp.broadcast_to(places, shape)[..., None], axis=-1)[..., 0]

    def entropy(self) -> Tensor:
        return special.entr(self.probs).sum(axis=-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._listed(xp.arange(self.probs.shape[-1]), expand)

    @property
    def mode(self) -> Tensor:
        return xp.argmax(self.probs, axis=-1)

    @property
    def mean(self) -> Tensor:
        raise ArgumentError("Categorical has no mean: its values are names, not numbers")

    @property
    def variance(self) -> Tensor:
        raise ArgumentError("Categorical has no variance: its values are names, not numbers")


class OfCategories(Distribution):
    """Base class of distributions of vectors (..., k) that are made of a categorical one."""

    arg_constraints = constraints.by_name(probs=constraints.simplex, logits=constraints.real_vector)

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        self._categorical = Categorical(probs, logits)
        self.batch_shape, self.event_shape = self._categorical.batch_shape, self.probs.shape[-1:]

    @property
    def probs(self) -> Tensor:
        """Probabilities of the categories, (..., k)."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities, (..., k)."""
        return self._categorical.logits


class Poisson(Distribution):
    """Poisson distribution: the number of events in an interval with mean `rate`; samples are floats.

    `rate` is a number or a tensor, whose shape is `batch_shape`. Raises ArgumentError for a negative number.

    >>> round(hm.distributions.Poisson(2.0).log_prob(0.0).item(), 3)
    -2.0
    """

    arg_constraints = constraints.by_name(rate=constraints.nonnegative)
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any) -> None:
        (self.rate,) = self._given(rate=rate)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return random.poisson(self.rate, shape, dtype=self.rate.dtype, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        k = xp.asarray(value)
        inside = special.xlogy(k, self.rate) - self.rate - xp.lgamma(xp.maximum(k, 0) + 1.0)
        return xp.where(k >= 0, inside, -math.inf)

    @property
    def mode(self) -> Tensor:
        return xp.floor(self.rate)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate
