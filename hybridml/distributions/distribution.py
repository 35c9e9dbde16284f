"""Base class of all distributions: sampling, probabilities and moments."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from hybridml_compiler.errors import ArgumentError, GradientError

from .. import arrays as xp
from ..core.context import no_grad
from ..core.tensor import Tensor
from ..random.generator import Generator, shape_of
from ..random.sampling import Domain, Draw

D = TypeVar("D", bound="Distribution")


class Distribution:
    """Base class of distributions: `batch_shape` of them, each of numbers or of vectors of shape `event_shape`.

    Subclasses write `log_prob` and ``_draw(shape, generator)`` (NotImplementedError without them). `has_rsample` says
    whether samples have gradients of the parameters; `rsample` raises GradientError where they have not.

    >>> p = hm.distributions.Normal(hm.zeros(3), 1.0)
    >>> p.batch_shape, p.event_shape, p.sample((2,)).shape
    ((3,), (), (2, 3))
    """

    has_rsample = False  # whether samples have gradients of the parameters
    has_enumerate_support = False  # whether `enumerate_support` lists the values
    batch_shape: tuple[int, ...] = ()
    event_shape: tuple[int, ...] = ()

    def _given(self, **parameters: tuple[Any, Domain]) -> list[Tensor]:
        """The parameters as tensors of one shape and dtype, checked; sets `batch_shape` to that shape."""
        name = type(self).__name__
        for key, (value, domain) in parameters.items():
            domain.check(name, key, value)
        given = Draw(name, None, None, None, *(value for value, _ in parameters.values()))
        self.batch_shape = given.shape
        return [xp.broadcast_to(t, given.shape) for t in given.tensors()]

    def expand(self: D, batch_shape: Any) -> D:
        """The same distributions, broadcast to `batch_shape`.

        Every tensor of a distribution begins with the axes of its batch, and so do the distributions that it is made
        of.
        """
        wide, axes = shape_of(batch_shape), len(self.batch_shape)
        new = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(new, name, xp.broadcast_to(value, (*wide, *value.shape[axes:])))
            elif isinstance(value, Distribution):
                setattr(new, name, value.expand((*wide, *value.batch_shape[axes:])))
        new.batch_shape = wide
        return new

    def sample(self, sample_shape: Any = (), *, generator: Generator | None = None) -> Tensor:
        """Random numbers of shape `sample_shape` + batch_shape + event_shape, without history."""
        with no_grad():
            return self._draw((*shape_of(sample_shape), *self.batch_shape), generator)

    def rsample(self, sample_shape: Any = (), *, generator: Generator | None = None) -> Tensor:
        """`sample` with gradients of the parameters; GradientError for a distribution that has none."""
        if not self.has_rsample:
            raise GradientError(
                f"{type(self).__name__}.rsample: its samples are no smooth function of its parameters; use sample, and "
                "log_prob times what was reached as a loss"
            )
        return self._draw((*shape_of(sample_shape), *self.batch_shape), generator)

    def _lead(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The axes of a draw of `shape` that are in front of the batch's."""
        return shape[: len(shape) - len(self.batch_shape)]

    def _draw_of(self, part: Distribution, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        """A draw of a distribution that this one, which is asked for `shape`, is made of."""
        return part._draw((*self._lead(shape), *part.batch_shape), generator)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} needs a method _draw(shape, generator)")

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, at `value`; -inf where it is 0."""
        raise NotImplementedError(f"{type(self).__name__} needs a method log_prob(value)")

    def cdf(self, value: Any) -> Tensor:
        """The probability of numbers up to `value`."""
        raise ArgumentError(f"{type(self).__name__} has no cdf in closed form; count samples below the value")

    def icdf(self, value: Any) -> Tensor:
        """The number up to which the share `value` of the probability is: the inverse of `cdf`."""
        raise ArgumentError(f"{type(self).__name__} has no icdf in closed form; take a quantile of samples")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a new first axis; `expand` says whether for all of the batch, or with axes of 1 for it."""
        raise ArgumentError(f"{type(self).__name__} has no list of values: there is no end of them, or they differ")

    def _listed(self, values: Tensor, expand: bool) -> Tensor:
        """Values (n, *event_shape), as `enumerate_support` gives them."""
        n, event = values.shape[0], values.shape[1:]
        apart = values.reshape((n, *(1 for _ in self.batch_shape), *event))
        return xp.broadcast_to(apart, (n, *self.batch_shape, *event)) if expand else apart

    def entropy(self) -> Tensor:
        """The expected value of -log_prob, in nats."""
        raise ArgumentError(f"{type(self).__name__} has no entropy in closed form; average -log_prob over samples")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return xp.exp(self.entropy())

    @property
    def mean(self) -> Tensor:
        """Expected value of a draw."""
        raise ArgumentError(f"{type(self).__name__} has no mean in closed form; average samples, if they are numbers")

    @property
    def mode(self) -> Tensor:
        """The likeliest value; nan where there is none."""
        raise ArgumentError(f"{type(self).__name__} has no mode in closed form; maximize log_prob")

    @property
    def variance(self) -> Tensor:
        """The expected square of the distance from the mean."""
        raise ArgumentError(f"{type(self).__name__} has no variance in closed form; that of samples is near")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return xp.sqrt(self.variance)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={self.batch_shape}, event_shape={self.event_shape})"


def sum_rightmost(x: Tensor, axes: int) -> Tensor:
    """Sum over the last `axes` axes."""
    return x.sum(axis=tuple(range(-axes, 0))) if axes else x
