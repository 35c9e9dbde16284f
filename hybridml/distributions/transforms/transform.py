"""Base class of transforms, their inverses and chains of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from ... import arrays as xp
from ...core.tensor import Tensor
from .. import constraints
from ..constraints import Constraint
from ..distribution import sum_rightmost

Shape = tuple[int, ...]


class Transform:
    """Function of tensors that a distribution's numbers go through, with an inverse and a Jacobian.

    Subclasses write ``_call(x)``, ``_inverse(y)`` and ``log_abs_det_jacobian(x, y)`` (NotImplementedError without
    them), say whether they are `bijective` and, of functions of numbers, their `sign`: 1 if they rise, -1 if they
    fall. `domain` and `codomain` are the constraints of arguments and values, all numbers by default;
    `domain_event_dim` and `codomain_event_dim` are numbers of axes (at the end) of one argument and value.

    >>> t = hm.distributions.ExpTransform()
    >>> t.inv(t(hm.tensor([0.0, 2.0]))).tolist(), t.inv.inv is t
    ([0.0, 2.0], True)
    """

    bijective = False
    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real

    @property
    def domain_event_dim(self) -> int:
        """The number of axes of one argument."""
        return self.domain.event_dim

    @property
    def codomain_event_dim(self) -> int:
        """The number of axes of one value."""
        return self.codomain.event_dim

    @property
    def event_dim(self) -> int:
        """The number of axes of one argument, where values have as many (ArgumentError otherwise)."""
        if self.domain_event_dim != self.codomain_event_dim:
            raise ArgumentError(
                f"{type(self).__name__}.event_dim: arguments have {self.domain_event_dim} axes and values "
                f"{self.codomain_event_dim}; ask for domain_event_dim or codomain_event_dim"
            )
        return self.domain_event_dim

    @property
    def inv(self) -> Transform:
        """The inverse, a transform itself; the inverse of that is this one."""
        return _Inverse(self)

    @property
    def sign(self) -> Any:
        """1 for a function of numbers that rises, -1 for one that falls."""
        raise NotImplementedError(f"{type(self).__name__} has no sign: it is no monotone function of numbers")

    def __call__(self, x: Any) -> Tensor:
        return self._call(xp.asarray(x))

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} needs a method _call(x)")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} needs a method _inverse(y)")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of abs(dy / dx), or of the determinant's, at argument `x` and value `y`."""
        raise NotImplementedError(f"{type(self).__name__} has no Jacobian with a determinant")

    def forward_shape(self, shape: Shape) -> Shape:
        """Shape of the value of an argument of `shape`."""
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        """Shape of the argument of a value of `shape`."""
        return shape

    def _flat(self) -> Iterator[Transform]:
        """The transforms that are applied one after the other."""
        yield self

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and constraints.equal(vars(self), vars(other))

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def of_axes(constraint: Constraint, axes: int) -> Constraint:
    """The constraint of values that have so many axes, or more where its own have."""
    more = axes - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


def needs_axes(transform: Transform, shape: Shape, axes: int) -> None:
    """Raises ShapeError for an argument with fewer axes than a transform needs."""
    if len(shape) < axes:
        raise ShapeError(f"{type(transform).__name__}: needs {axes} axes or more, got shape {shape}")


class _Inverse(Transform):
    """Inverse of a transform that has no name of its own."""

    def __init__(self, of: Transform) -> None:
        self.of = of
        self.bijective = of.bijective
        self.domain, self.codomain = of.codomain, of.domain

    @property
    def domain_event_dim(self) -> int:
        return self.of.codomain_event_dim

    @property
    def codomain_event_dim(self) -> int:
        return self.of.domain_event_dim

    @property
    def inv(self) -> Transform:
        return self.of

    @property
    def sign(self) -> Any:
        return self.of.sign

    def _call(self, x: Tensor) -> Tensor:
        return self.of._inverse(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.of._call(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self.of.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Shape) -> Shape:
        return self.of.inverse_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self.of.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{self.of!r}.inv"


class ComposeTransform(Transform):
    """Transforms one after the other, the first of `parts` first; of no parts, the identity.

    >>> D = hm.distributions
    >>> t = D.ComposeTransform([D.AffineTransform(1.0, 2.0), D.ExpTransform()])
    >>> t.log_abs_det_jacobian(hm.tensor(0.0), t(hm.tensor(0.0))).item() == 1 + hm.log(hm.tensor(2.0)).item()
    True
    """

    def __init__(self, parts: Sequence[Transform]) -> None:
        self.parts = list(parts)
        self.bijective = all(t.bijective for t in self.parts)
        if not self.parts:
            return
        # Axes that one part takes together belong together for all: what it needs, seen from either end.
        before = after = 0
        for t in reversed(self.parts):
            before = max(before + t.domain_event_dim - t.codomain_event_dim, t.domain_event_dim)
        for t in self.parts:
            after = max(after + t.codomain_event_dim - t.domain_event_dim, t.codomain_event_dim)
        first, last = self.parts[0], self.parts[-1]
        self.domain = of_axes(first.domain, before)
        self.codomain = of_axes(last.codomain, after)

    @property
    def inv(self) -> Transform:
        return ComposeTransform([t.inv for t in reversed(self.parts)])

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for t in self.parts:
            sign = sign * t.sign
        return sign

    def _flat(self) -> Iterator[Transform]:
        for t in self.parts:
            yield from t._flat()

    def _call(self, x: Tensor) -> Tensor:
        for t in self.parts:
            x = t(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for t in reversed(self.parts):
            y = t.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x, total, axes = xp.asarray(x), None, self.domain_event_dim
        for k, t in enumerate(self.parts):
            out = xp.asarray(y) if k == len(self.parts) - 1 else t(x)
            term = sum_rightmost(t.log_abs_det_jacobian(x, out), axes - t.domain_event_dim)
            total = term if total is None else total + term
            axes += t.codomain_event_dim - t.domain_event_dim
            x = out
        return xp.zeros_like(x) if total is None else total

    def forward_shape(self, shape: Shape) -> Shape:
        for t in self.parts:
            shape = t.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        for t in reversed(self.parts):
            shape = t.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts!r})"


identity_transform = ComposeTransform([])
