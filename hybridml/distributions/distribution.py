"""Base class of all distributions: sampling, probabilities and moments."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from hybridml_compiler.errors import ArgumentError, GradientError

from .. import arrays as xp
from ..core.context import no_grad
from ..core.tensor import Tensor
from ..random.generator import Generator, shape_of
from ..random.sampling import Draw, check_array
from .constraints import Constraint, real

D = TypeVar("D", bound="Distribution")


class _Validating(type):
    """Class of distributions: calls take `validate_args`, after which tensors are checked."""

    def __call__(cls, *args: Any, validate_args: bool | None = None, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        if made._validate_args if validate_args is None else validate_args:
            made._check_tensors()
        if validate_args is not None:
            made._validate_args = validate_args
        return made

    @property
    def __signature__(cls) -> inspect.Signature:
        own: Any = inspect.signature(cls.__init__)  # type: ignore[misc]
        added = inspect.Parameter(
            "validate_args", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="bool | None"
        )
        given = [p for p in [*own.parameters.values()][1:] if p.name != added.name]
        return own.replace(parameters=sorted((*given, added), key=lambda p: p.kind))


class Distribution(metaclass=_Validating):
    """Base class of distributions: `batch_shape` of them, each of numbers or of vectors of shape `event_shape`.

    Python numbers are checked by `arg_constraints`. With ``validate_args=True``, which all subclasses take, so are
    tensors, and by `support` the values that `log_prob` gets: ArgumentError for those outside.

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
    _validate_args = False
    _computed = ""  # the parameter that was not given: rounding may have put it out of its constraint

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None) -> None:
        self.batch_shape, self.event_shape = shape_of(batch_shape), shape_of(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "log_prob" in vars(cls):
            cls.log_prob = _validated(cls.log_prob)  # type: ignore[method-assign, assignment]

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check tensors where nobody says ``validate_args=``; they do not at first.

        Programs that are there keep to what was set when they were traced.
        """
        Distribution._validate_args = value

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        """The constraint of each parameter, by name."""
        return {}

    @property
    def support(self) -> Constraint:
        """The constraint of draws."""
        raise NotImplementedError(f"{type(self).__name__} does not say its support")

    def _check(self, key: str, constraint: Constraint, value: Any) -> None:
        """Raises ArgumentError for a Python number that a parameter cannot be, DTypeError for what is no number."""
        if isinstance(value, int | float):
            self._must_hold(key, constraint, value)
        else:
            check_array(type(self).__name__, key, value)

    def _check_tensors(self) -> None:
        """Raises ArgumentError for parameters whose constraints do not hold, also of the distributions inside."""
        for key, constraint in self.arg_constraints.items():
            if key in vars(self) and key != self._computed:
                self._must_hold(key, constraint, vars(self)[key])
        for part in vars(self).values():
            if isinstance(part, Distribution):
                part._check_tensors()

    def _must_hold(self, key: str, constraint: Constraint, value: Any) -> None:
        found = constraint.check(value)
        if not (found if isinstance(found, bool) else found.all()):
            raise ArgumentError(f"{type(self).__name__}: {key} must be {constraint.words}, got {value}")

    def _given(self, **parameters: Any) -> list[Tensor]:
        """The parameters as tensors of one shape and dtype, numbers checked; sets `batch_shape` to that shape."""
        known: Any = type(self).arg_constraints
        for key, value in parameters.items():
            constraint = known.get(key, real) if isinstance(known, dict) else real  # some depend on other parameters
            self._check(key, real if constraint.event_dim else constraint, value)
        given = Draw(type(self).__name__, None, None, None, *parameters.values())
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

    def _extended_shape(self, sample_shape: Any = ()) -> tuple[int, ...]:
        """Shape of draws: `sample_shape` + batch_shape + event_shape."""
        return (*shape_of(sample_shape), *self.batch_shape, *self.event_shape)

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


def _validated(log_prob: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    @functools.wraps(log_prob)
    def checked(self: Distribution, value: Any) -> Tensor:
        if self._validate_args:
            self._must_hold("value", self.support, xp.asarray(value))
        return log_prob(self, value)

    return checked


def sum_rightmost(x: Tensor, axes: int) -> Tensor:
    """Sum over the last `axes` axes."""
    return x.sum(axis=tuple(range(-axes, 0))) if axes else x
