"""Sets of the values of parameters and of draws, by PyTorch's names; `check` says which values are in a set.

>>> C = hm.distributions.constraints
>>> C.positive.check(hm.tensor([-1.0, 2.0])).tolist(), C.interval(0, 4), C.simplex.event_dim
([False, True], Interval(lower_bound=0, upper_bound=4), 1)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from .. import arrays as xp
from .. import linalg
from ..core.tensor import Tensor


class Constraint:
    """A set of values whose last `event_dim` axes are one value; ``check(value)`` gives a bool for each.

    >>> hm.distributions.constraints.real_vector.check(hm.tensor([[1.0, 2.0], [3.0, hm.nan]])).tolist()
    [True, False]
    """

    is_discrete = False
    event_dim: int = 0
    numbers: Between | None = None  # the bounds of every number of a value, where there are some

    def check(self, value: Any) -> Any:
        """Whether each value is in the set: shape of `value` without the last `event_dim` axes."""
        raise NotImplementedError(f"{type(self).__name__} needs a method check(value)")

    @property
    def words(self) -> str:
        """Text for messages: a value must be this."""
        return f"in {self!r}"

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({given})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and equal(vars(self), vars(other))

    def __hash__(self) -> int:
        return hash(type(self))


class Between(Constraint):
    """Base class of the constraints to numbers between two bounds, each of which is in the set where `closed` says so.

    >>> hm.distributions.constraints.half_open_interval(0.0, 1.0).check(1.0)
    False
    """

    lower_bound: Any = -math.inf
    upper_bound: Any = math.inf
    closed: ClassVar[tuple[bool, bool]] = (True, True)

    def check(self, value: Any) -> Any:
        above = value >= self.lower_bound if self.closed[0] else value > self.lower_bound
        below = value <= self.upper_bound if self.closed[1] else value < self.upper_bound
        return above & below & (value % 1 == 0) if self.is_discrete else above & below

    @property
    def numbers(self) -> Between | None:  # type: ignore[override]
        return self if vars(self) else None

    def inside(self, value: Tensor) -> Tensor:
        """Whether numbers are between the bounds and none of them."""
        return (value > self.lower_bound) & (value < self.upper_bound)

    @property
    def some(self) -> Any:
        """A number of the set that is no bound."""
        given = vars(self)
        if len(given) == 2:
            return (self.lower_bound + self.upper_bound) / 2
        return self.lower_bound + 1 if "lower_bound" in given else self.upper_bound - 1 if given else 0.0

    @property
    def words(self) -> str:
        given = vars(self)
        low, high = (f"{x:g}" if isinstance(x, int | float) else x for x in (self.lower_bound, self.upper_bound))
        whole = "a whole number " if self.is_discrete else ""
        if not given:
            return "a number"
        if "upper_bound" not in given:
            return whole + (f"{low} or more" if self.closed[0] else f"above {low}")
        if "lower_bound" not in given:
            return f"below {high}"
        start = f"from {low} to" if self.closed[0] else f"above {low}, up to"
        return f"{whole}{start} {high}" if self.closed[1] else f"{whole}{start} below {high}"


class _From(Between):
    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _Within(Between):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class Real(Between):
    """All numbers, infinite ones too, but nan."""


class GreaterThan(_From):
    """Numbers above a bound.

    >>> GreaterThan(1.0).check(hm.tensor([1.0, 2.0]))
    Tensor([False,  True])
    """

    closed = (False, True)


class GreaterThanEq(_From):
    """Numbers from a bound on.

    >>> GreaterThanEq(1.0).check(hm.tensor([1.0, 0.0]))
    Tensor([ True, False])
    """


class LessThan(Between):
    """Numbers below a bound.

    >>> LessThan(1.0).check(hm.tensor([1.0, 0.0]))
    Tensor([False,  True])
    """

    closed = (True, False)

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class Interval(_Within):
    """Numbers from one bound to the other.

    >>> Interval(0.0, 1.0).check(hm.tensor([1.0, 2.0]))
    Tensor([ True, False])
    """


class HalfOpenInterval(_Within):
    """Numbers from one bound to below the other.

    >>> HalfOpenInterval(0.0, 1.0).check(hm.tensor([0.0, 1.0]))
    Tensor([ True, False])
    """

    closed = (True, False)


class LeftOpenInterval(_Within):
    """Numbers above one bound up to the other."""

    closed = (False, True)


class IntegerGreaterThan(_From):
    """Whole numbers from a bound on."""

    is_discrete = True


class IntegerInterval(_Within):
    """Whole numbers from one bound to the other.

    >>> IntegerInterval(0, 2).check(hm.tensor([2.0, 1.5]))
    Tensor([ True, False])
    """

    is_discrete = True


class Boolean(Constraint):
    """The numbers 0 and 1."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)

    @property
    def words(self) -> str:
        return "0 or 1"


class IndependentConstraint(Constraint):
    """Another constraint, of whose values the last `reinterpreted_batch_ndims` axes are one value.

    >>> IndependentConstraint(Interval(0.0, 1.0), 1).check(hm.tensor([[0.0, 1.0], [0.0, 2.0]]))
    Tensor([ True, False])
    """

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    @property
    def numbers(self) -> Between | None:  # type: ignore[override]
        return self.base_constraint.numbers

    @property
    def words(self) -> str:
        return self.base_constraint.words

    def check(self, value: Tensor) -> Tensor:
        return _all(self.base_constraint.check(value), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(IndependentConstraint):
    """Values that each component of a mixture may have.

    >>> MixtureSameFamilyConstraint(Interval(0.0, 1.0)).check(hm.tensor([0.5, 2.0]))
    Tensor([ True, False])
    """

    def __init__(self, base_constraint: Constraint) -> None:
        super().__init__(base_constraint, 0)

    def check(self, value: Tensor) -> Tensor:
        return _all(self.base_constraint.check(xp.expand_dims(value, axis=-1 - self.event_dim)), 1)


class Simplex(Constraint):
    """Shares: vectors of numbers from 0 on whose sum is 1, but for rounding."""

    event_dim = 1
    numbers = Interval(0.0, 1.0)

    def check(self, value: Tensor) -> Tensor:
        return _all(value >= 0, 1) & (xp.abs(value.sum(axis=-1) - 1) < 1e-6 + _rounding(value))


class Multinomial(Constraint):
    """Vectors of counts whose sum is `upper_bound` at most.

    >>> Multinomial(3).check(hm.tensor([[1.0, 2.0], [2.0, 2.0]]))
    Tensor([ True, False])
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return _all((value >= 0) & (value % 1 == 0), 1) & (value.sum(axis=-1) <= self.upper_bound)


class OneHot(Constraint):
    """Vectors of a single 1 and zeros."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return _all((value == 0) | (value == 1), 1) & (value.sum(axis=-1) == 1)


class LowerTriangular(Constraint):
    """Square matrices whose elements above the diagonal are 0."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return _all(xp.tril(value) == value, 2)


class LowerCholesky(LowerTriangular):
    """Lower triangular matrices with a positive diagonal."""

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & _all(linalg.diagonal(value) > 0, 1)


class CorrCholesky(LowerCholesky):
    """Lower triangular matrices with a positive diagonal, whose rows have the length 1, but for rounding."""

    def check(self, value: Tensor) -> Tensor:
        lengths = xp.sqrt(xp.square(value).sum(axis=-1))
        return super().check(value) & _all(xp.abs(lengths - 1) <= _rounding(value), 1)


class Square(Constraint):
    """Matrices with as many rows as columns."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return xp.full(value.shape[:-2], value.shape[-1] == value.shape[-2])


class Symmetric(Square):
    """Symmetric matrices, but for rounding."""

    _least = -math.inf  # what the smallest eigenvalue must be above

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-1] != value.shape[-2]:
            return super().check(value)
        found = _all(xp.isclose(value, xp.matrix_transpose(value), atol=1e-6), 2)
        if self._least == -math.inf:
            return found
        found = found & _all(xp.isfinite(value), 2)
        finite = xp.where(found[..., None, None], value, xp.eye(value.shape[-1], dtype=value.dtype))
        return found & (linalg.eigvalsh(finite)[..., 0] > self._least)


class PositiveSemidefinite(Symmetric):
    """Symmetric matrices without a negative eigenvalue, but for rounding."""

    _least = -1e-6


class PositiveDefinite(Symmetric):
    """Symmetric matrices whose eigenvalues are positive."""

    _least = 0.0


class Stack(Constraint):
    """Constraints `cseq`, each of its index of axis `dim`.

    >>> Stack([Interval(0.0, 1.0), GreaterThan(0.0)]).check(hm.tensor([2.0, 2.0]))
    Tensor([False,  True])
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return max((c.event_dim for c in self.cseq), default=0)

    def check(self, value: Tensor) -> Tensor:
        parts = xp.unstack(value, axis=self.dim)
        return xp.stack([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], axis=self.dim)


class Cat(Stack):
    """Constraints `cseq`, each of its part of axis `dim`: `lengths` (by default 1 each) say how long they are.

    >>> Cat([Interval(0.0, 1.0), GreaterThan(0.0)], lengths=[1, 2]).check(hm.tensor([2.0, 2.0, 3.0]))
    Tensor([False,  True,  True])
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)

    def check(self, value: Tensor) -> Tensor:
        parts = xp.split(value, self.lengths, axis=self.dim)
        return xp.concat([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], axis=self.dim)


class Dependent(Constraint):
    """Stands for a constraint that depends on other parameters."""


class DependentProperty(property, Dependent):
    """Property whose value, a constraint, depends on the parameters: a decorator, with or without arguments.

    >>> class Ordered:
    ...     @DependentProperty
    ...     def support(self):
    ...         return GreaterThan(1.0)
    >>> is_dependent(Ordered.support), Ordered().support
    (True, GreaterThan(lower_bound=1.0))
    """

    def __init__(self, fn: Any = None, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> DependentProperty:
        return DependentProperty(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: Any) -> bool:
    """Whether a constraint depends on other parameters, and cannot be checked by itself.

    >>> is_dependent(dependent), is_dependent(real)
    (True, False)
    """
    return isinstance(constraint, Dependent | property)


def by_name(**constraints: Constraint) -> dict[str, Constraint]:
    """Dict of the constraints of parameters."""
    return constraints


def equal(a: Any, b: Any) -> bool:
    """Whether two values are equal, tensors and dicts of them by their elements."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        first, second = xp.asarray(a), xp.asarray(b)
        return first is second or (first.shape == second.shape and bool((first == second).all()))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return bool(a == b)


def _all(found: Tensor, axes: int) -> Tensor:
    return found.all(axis=tuple(range(-axes, 0))) if axes else found


def _rounding(value: Tensor) -> float:
    is_float = xp.isdtype(value.dtype, "real floating")
    return float(xp.finfo(value.dtype).eps) * value.shape[-1] * 10 if is_float else 0.0


real, boolean, simplex, one_hot, dependent = Real(), Boolean(), Simplex(), OneHot(), Dependent()
greater_than, greater_than_eq, less_than = GreaterThan, GreaterThanEq, LessThan
interval, half_open_interval, integer_interval = Interval, HalfOpenInterval, IntegerInterval
independent, multinomial, stack, cat, dependent_property = (
    IndependentConstraint, Multinomial, Stack, Cat, DependentProperty,
)  # fmt: skip
positive, nonnegative, unit_interval = GreaterThan(0.0), GreaterThanEq(0.0), Interval(0.0, 1.0)
nonnegative_integer, positive_integer = IntegerGreaterThan(0), IntegerGreaterThan(1)
real_vector = IndependentConstraint(real, 1)
lower_triangular, lower_cholesky, corr_cholesky = LowerTriangular(), LowerCholesky(), CorrCholesky()
square, symmetric = Square(), Symmetric()
positive_semidefinite, positive_definite = PositiveSemidefinite(), PositiveDefinite()

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval",
    "is_dependent", "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative",
    "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer", "positive_semidefinite",
    "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip
