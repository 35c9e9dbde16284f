"""Transforms of free numbers to the values of a constraint: `transform_to`, and `biject_to` by bijections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import constraints as C
from . import transforms as T

Factory = Callable[[Any], T.Transform]


class ConstraintRegistry:
    """Table of functions that make a transform to the values of a constraint, by the constraint's class.

    A constraint is taken by its class or by the next base class that is known; NotImplementedError for others.
    ``register(constraint, factory)`` adds one, also as a decorator.

    >>> D = hm.distributions
    >>> D.transform_to(D.Exponential.support)(hm.tensor([0.0])).tolist()
    [1.0]
    """

    def __init__(self) -> None:
        self._factories: dict[type, Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Adds the function that makes transforms to a class of constraints, given as one of them or as the class."""
        if factory is None:
            return lambda made: self.register(constraint, made)
        kind = constraint if isinstance(constraint, type) else type(constraint)
        if not issubclass(kind, C.Constraint):
            raise TypeError(f"register takes a constraint or a class of them, got {constraint!r}")
        self._factories[kind] = factory
        return factory

    def __call__(self, constraint: C.Constraint) -> T.Transform:
        for kind in type(constraint).__mro__:
            if kind in self._factories:
                return self._factories[kind](constraint)
        raise NotImplementedError(f"no transform to the values of {constraint!r} is registered")


transform_to, biject_to = ConstraintRegistry(), ConstraintRegistry()


def _moved(part: T.Transform, loc: Any, scale: Any) -> T.Transform:
    """A transform and a linear function of its values, which may be the identity."""
    plain = all(isinstance(number, int | float) for number in (loc, scale)) and (loc, scale) == (0, 1)
    return part if plain else T.ComposeTransform([part, T.AffineTransform(loc, scale)])


def _register_all(to: ConstraintRegistry) -> None:
    """The transforms that are bijections in both tables."""
    to.register(C.Real, lambda c: T.identity_transform)
    to.register(C.GreaterThan, lambda c: _moved(T.ExpTransform(), c.lower_bound, 1))
    to.register(C.GreaterThanEq, lambda c: _moved(T.ExpTransform(), c.lower_bound, 1))
    to.register(C.LessThan, lambda c: _moved(T.ExpTransform(), c.upper_bound, -1))
    for kind in (C.Interval, C.HalfOpenInterval, C.LeftOpenInterval):
        to.register(kind, lambda c: _moved(T.SigmoidTransform(), c.lower_bound, c.upper_bound - c.lower_bound))
    to.register(C.CorrCholesky, lambda c: T.CorrCholeskyTransform())
    to.register(
        C.IndependentConstraint,
        lambda c: T.IndependentTransform(to(c.base_constraint), c.reinterpreted_batch_ndims),
    )
    to.register(C.Stack, lambda c: T.StackTransform([to(part) for part in c.cseq], c.dim))
    to.register(C.Cat, lambda c: T.CatTransform([to(part) for part in c.cseq], c.dim, c.lengths))


_register_all(transform_to)
_register_all(biject_to)
transform_to.register(C.Simplex, lambda c: T.SoftmaxTransform())
biject_to.register(C.Simplex, lambda c: T.StickBreakingTransform())
transform_to.register(C.LowerCholesky, lambda c: T.LowerCholeskyTransform())
transform_to.register(C.PositiveDefinite, lambda c: T.PositiveDefiniteTransform())
transform_to.register(C.PositiveSemidefinite, lambda c: T.PositiveDefiniteTransform())

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]
