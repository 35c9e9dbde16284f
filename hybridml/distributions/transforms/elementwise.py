"""Transforms of single numbers."""

from __future__ import annotations

import math
from typing import Any

from ... import arrays as xp
from ... import functional
from ...core.tensor import Tensor
from .. import constraints
from ..distribution import Distribution, sum_rightmost
from .transform import Shape, Transform, of_axes


class _Rising(Transform):
    """Bijection of numbers that rises."""

    bijective = True

    @property
    def sign(self) -> Any:
        return 1


class ExpTransform(_Rising):
    """Exponential function ``y = exp(x)``.

    >>> hm.distributions.ExpTransform()(hm.tensor([0.0])).tolist()
    [1.0]
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return xp.exp(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return xp.log(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """Power ``y = x ** exponent`` of positive numbers; `exponent` is a number or a tensor that broadcasts.

    >>> hm.distributions.PowerTransform(2.0)(hm.tensor([3.0])).tolist()
    [9.0]
    """

    bijective = True
    domain = codomain = constraints.positive

    def __init__(self, exponent: Any) -> None:
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        return _sign(self.exponent)

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return xp.log(xp.abs(self.exponent * y / x))

    def forward_shape(self, shape: Shape) -> Shape:
        return xp.broadcast_shapes(shape, getattr(self.exponent, "shape", ()))

    inverse_shape = forward_shape


def _sign(value: Any) -> Any:
    return (value > 0) - (value < 0) if isinstance(value, int | float) else xp.sign(value)


def clipped_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, kept within the open interval."""
    limits = xp.finfo(x.dtype)
    return xp.clip(xp.sigmoid(x), float(limits.tiny), 1.0 - float(limits.eps))


class SigmoidTransform(_Rising):
    """Logistic function ``y = 1 / (1 + exp(-x))``, kept within (0, 1).

    >>> hm.distributions.SigmoidTransform()(hm.tensor([0.0])).tolist()
    [0.5]
    """

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        limits = xp.finfo(y.dtype)
        y = xp.clip(y, float(limits.tiny), 1.0 - float(limits.eps))
        return xp.log(y) - xp.log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -functional.softplus(-x) - functional.softplus(x)


class SoftplusTransform(_Rising):
    """Smooth rectifier ``y = log(1 + exp(x))``.

    >>> t = hm.distributions.SoftplusTransform()
    >>> round(t.inv(t(hm.tensor([3.0]))).item(), 5)
    3.0
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return functional.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return xp.log(-xp.expm1(-y)) + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -functional.softplus(-x)


class TanhTransform(_Rising):
    """Hyperbolic tangent ``y = tanh(x)``.

    >>> hm.distributions.TanhTransform()(hm.tensor([0.0])).tolist()
    [0.0]
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return xp.tanh(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return xp.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (math.log(2.0) - x - functional.softplus(-2.0 * x)) * 2.0


class AbsTransform(Transform):
    """Absolute value ``y = abs(x)``, of whose two inverses it takes the positive one.

    >>> hm.distributions.AbsTransform()(hm.tensor([-2.0])).tolist()
    [2.0]
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return xp.abs(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """Linear function ``y = loc + scale * x``; the last `event_dim` axes are of one value.

    >>> hm.distributions.AffineTransform(1.0, 2.0)(hm.tensor([3.0])).tolist()
    [7.0]
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0) -> None:
        self.loc, self.scale = loc, scale
        self.domain = self.codomain = of_axes(constraints.real, event_dim)

    @property
    def sign(self) -> Any:
        return _sign(self.scale)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slope = xp.log(xp.abs(xp.asarray(self.scale, dtype=x.dtype)))
        return sum_rightmost(xp.broadcast_to(slope, y.shape), self.domain_event_dim)

    def forward_shape(self, shape: Shape) -> Shape:
        return xp.broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape


class CumulativeDistributionTransform(_Rising):
    """The share of a distribution's probability below a number, by its `cdf` and `icdf`.

    >>> D = hm.distributions
    >>> D.CumulativeDistributionTransform(D.Uniform(0.0, 4.0))(hm.tensor([1.0])).tolist()
    [0.25]
    """

    codomain = constraints.unit_interval

    def __init__(self, distribution: Distribution) -> None:
        self.distribution, self.domain = distribution, distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
