"""Base class of all distributions: sampling, probabilities and moments."""

from __future__ import annotations

from typing import Any

from hybridml_compiler.errors import ArgumentError, GradientError

from .. import arrays as xp
from ..core.context import no_grad
from ..core.tensor import Tensor
from ..random.generator import Generator, shape_of
from ..random.sampling import Domain, Draw


class Distribution:
    """Base class of distributions: `batch_shape` of them, each of numbers or of vectors of shape `event_shape`.

    Subclasses write `log_prob` and ``_draw(shape, generator)`` (NotImplementedError without them). `has_rsample` says
    whether samples have gradients of the parameters; `rsample` raises GradientError where they have not.

    >>> p = hm.distributions.Normal(hm.zeros(3), 1.0)
    >>> p.batch_shape, p.event_shape, p.sample((2,)).shape
    ((3,), (), (2, 3))
    """

    has_rsample = False  # whether samples have gradients of the parameters
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

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} needs a method _draw(shape, generator)")

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, at `value`; -inf where it is 0."""
        raise NotImplementedError(f"{type(self).__name__} needs a method log_prob(value)")

    def entropy(self) -> Tensor:
        """The expected value of -log_prob, in nats."""
        raise ArgumentError(f"{type(self).__name__} has no entropy in closed form; average -log_prob over samples")

    @property
    def mean(self) -> Tensor:
        """Expected value of a draw."""
        raise ArgumentError(f"{type(self).__name__} has no mean: its values are names, not numbers")

    @property
    def variance(self) -> Tensor:
        """The expected square of the distance from the mean."""
        raise ArgumentError(f"{type(self).__name__} has no variance: its values are names, not numbers")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return xp.sqrt(self.variance)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={self.batch_shape}, event_shape={self.event_shape})"
