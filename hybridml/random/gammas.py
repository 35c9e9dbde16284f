"""The gamma distribution and what is made of it: beta, Dirichlet, chi-squared, Student's t.

Gamma by Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. Its gradient with respect to the
concentration is implicit: the number moves so that its share of the distribution stays (Figurnov, Mohamed, Mnih,
"Implicit reparameterization gradients", 2018).
"""

from __future__ import annotations

import math
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import GradientError, ShapeError

from ..arrays.creation import ones_like, zeros, zeros_like
from ..autograd import Function
from ..control_flow import while_loop
from ..core import ops
from ..core.tensor import Tensor
from .generator import Generator, open_unit, shape_of, unit
from .sampling import Draw, Parameter, anything, not_negative, positive, sampler, until_accepted

# From here on the cube root of a gamma number is taken as normal (Wilson, Hilferty 1931), whose derivative is within
# 1e-6 of the series', which takes 6 * sqrt(concentration) terms.
_MANY = 1e4


def _log_gamma_draw(d: Draw, alpha: Tensor) -> Tensor:
    """The logarithm of gamma numbers of concentration alpha (below 1 of alpha + 1, times a uniform ** (1 / alpha)),
    which is finite where the number itself would be 0 by rounding.
    """
    raised = alpha < 1
    shift = ops.where(raised, alpha + 1, alpha) - 1 / 3
    slope = ops.sqrt(shift * 9)
    invalid = ops.logical_not(alpha > 0)

    def propose() -> tuple[Tensor, Tensor]:
        z = d.normal()
        root = z / slope + 1
        cube = ops.log(ops.where(root > 0, root, 1.0)) * 3
        u = unit(d.shape, d.dtype, d.generator)
        accepted = (root > 0) & (ops.log(1 - u) < 0.5 * z * z + shift * (1 - root * root * root + cube))
        return cube, accepted | invalid

    number = until_accepted(propose, d.shape, d.dtype) + ops.log(shift)
    lift = ops.log(open_unit(d.shape, d.dtype, d.generator)) / alpha
    return ops.where(invalid, math.nan, ops.where(raised, number + lift, number))


class LogGamma(Function):
    """Logarithm of gamma numbers, with the implicit gradient of the concentration."""

    @staticmethod
    def forward(ctx: Any, alpha: Any, d: Any) -> Tensor:
        out = _log_gamma_draw(d, ops.broadcast_to(alpha, d.shape))
        ctx.save_for_backward(alpha, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        alpha, out = ctx.saved_tensors
        moved = _Slope.apply(ops.broadcast_to(alpha, out.shape), out)
        return _summed(g * moved, alpha.shape), None


def _summed(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum over the axes along which a tensor of `shape` was broadcast."""
    lead = x.ndim - len(shape)
    axes = (*range(lead), *(k + lead for k, n in enumerate(shape) if n == 1 and x.shape[k + lead] != 1))
    return x.sum(axis=axes, keepdims=True).reshape(shape) if axes else x


class _Slope(Function):
    """Derivative d log(x) / d alpha of a gamma number x that keeps its place in the distribution."""

    @staticmethod
    def forward(ctx: Any, alpha: Any, log_x: Any) -> Tensor:
        return _slope(ops.astype(alpha, dtypes.float64), ops.astype(log_x, dtypes.float64)).astype(alpha.dtype)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        raise GradientError("gamma: the gradient of its concentration has no gradient; detach one of the two")


def _slope(alpha: Tensor, log_x: Tensor) -> Tensor:
    """Derivative of log(x) by a. With S = sum of x**n / ((a + 1) ... (a + n)), the share below x is
    x**a exp(-x) S / gamma(a + 1), so that dx/da = -x/a (S (log x - digamma(a + 1)) + dS/da).
    """
    x = ops.exp(log_x)
    few = alpha < _MANY
    a, at = ops.where(few, alpha, 1.0), ops.where(few, x, 0.0)

    def going(carry: Any) -> Tensor:
        return (carry[1] > carry[3] * 1e-17).any()

    def step(carry: Any) -> Any:
        n, term, slope, total, total_slope = carry
        n = n + 1
        factor = at / (a + n)
        slope = (slope - term / (a + n)) * factor
        term = term * factor
        return n, term, slope, total + term, total_slope + slope

    one, zero = ones_like(a), zeros_like(a)
    _, _, _, total, total_slope = while_loop(going, step, (zeros((), dtype=a.dtype), one, zero, one, zero))
    series = -(total * (ops.where(few, log_x, 0.0) - ops.digamma(a + 1)) + total_slope) / a
    root = ops.exp((log_x - ops.log(alpha)) / 3)
    inverse = 1 / (alpha * 9)
    cubes = 1 / alpha + (3 / root) * (inverse / alpha - (root - 1 + inverse) / (alpha * 2))
    return ops.where(few, series, cubes)


def _log_gamma(d: Draw, alpha: Tensor) -> Tensor:
    return LogGamma.apply(alpha, d)


@sampler(concentration=positive, scale=not_negative)
def gamma(
    concentration: Parameter,
    scale: Parameter = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Gamma numbers with density proportional to x**(concentration - 1) exp(-x / scale).

    Source: Marsaglia and Tsang 2000. The gradient of the concentration is implicit (Figurnov et al. 2018); it has no
    gradient itself (GradientError). The result has `shape`, by default the one that the parameters (numbers or
    tensors, differentiable) broadcast to. Raises ArgumentError for a `concentration` that is not positive or a
    negative `scale`, ShapeError for parameters that do not broadcast to `shape`, DTypeError for a `dtype` that is not
    a float.

    >>> x = hm.random.gamma(3.0, 2.0, shape=(10000,))
    >>> 5.8 < x.mean().item() < 6.2
    True
    """
    d = Draw("gamma", shape, dtype, generator, concentration, scale)
    return d.give(ops.exp(_log_gamma(d, d.tensors()[0])) * d.params[1])


@sampler(df=positive)
def chi2(df: Parameter, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """Chi-squared numbers with `df` degrees of freedom.

    For a whole number `df` each is the sum of that many squares of standard normal numbers. The result has `shape`, by
    default the one that the parameters (numbers or tensors, differentiable) broadcast to. Raises ArgumentError for a
    `df` that is not positive, ShapeError for parameters that do not broadcast to `shape`, DTypeError for a `dtype`
    that is not a float.

    >>> bool((hm.random.chi2(3.0, (100,)) >= 0).all())
    True
    """
    d = Draw("chi2", shape, dtype, generator, df)
    return d.give(ops.exp(_log_gamma(d, d.tensors()[0] * 0.5)) * 2.0)


@sampler(df=positive, loc=anything, scale=not_negative)
def student_t(
    df: Parameter,
    loc: Parameter = 0.0,
    scale: Parameter = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Student's t numbers with `df` degrees of freedom, times `scale`, plus `loc`.

    Each is a standard normal number over the root of an independent `chi2(df) / df`. The result has `shape`, by
    default the one that the parameters (numbers or tensors, differentiable) broadcast to. Raises ArgumentError for a
    `df` that is not positive or a negative `scale`, ShapeError for parameters that do not broadcast to `shape`,
    DTypeError for a `dtype` that is not a float.

    >>> hm.random.student_t(hm.full((3,), 5.0)).shape
    (3,)
    """
    d = Draw("student_t", shape, dtype, generator, df, loc, scale)
    half = d.tensors()[0] * 0.5
    z = d.normal()
    return d.give(z * ops.exp((ops.log(half) - _log_gamma(d, half)) * 0.5) * d.params[2] + d.params[1])


@sampler(a=positive, b=positive)
def beta(
    a: Parameter, b: Parameter, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Beta numbers in [0, 1] with density proportional to x**(a - 1) (1 - x)**(b - 1).

    The result has `shape`, by default the one that the parameters (numbers or tensors, differentiable) broadcast to.
    Raises ArgumentError for an `a` or `b` that is not positive, ShapeError for parameters that do not broadcast to
    `shape`, DTypeError for a `dtype` that is not a float.

    >>> x = hm.random.beta(2.0, 3.0, (100,))
    >>> bool(((x >= 0) & (x <= 1)).all())
    True
    """
    d = Draw("beta", shape, dtype, generator, a, b)
    first, second = d.tensors()
    return d.give(ops.sigmoid(_log_gamma(d, first) - _log_gamma(d, second)))


@sampler(alpha=anything)
def dirichlet(alpha: Parameter, shape: Any = (), *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """Dirichlet shares, which sum to 1 along the last axis.

    `alpha` (..., k), concentrations above 0 with gradients as those of `gamma`, gives `shape` + (..., k). Raises
    ShapeError for an `alpha` without axes, DTypeError for a `dtype` that is not a float.

    >>> hm.random.dirichlet(hm.ones(3), (5,)).shape
    (5, 3)
    """
    d = Draw("dirichlet", None, dtype, generator, alpha)
    if not d.shape:
        raise ShapeError("dirichlet: alpha needs an axis, that of the shares; give a vector of concentrations")
    d.shape = (*shape_of(shape), *d.shape)
    logs = _log_gamma(d, d.tensors()[0])
    shares = ops.exp(logs - logs.max(axis=-1, keepdims=True))
    return d.give(shares / ops.cumsum(shares, axis=-1)[..., -1:])  # in order, so with the same bits in every style
