"""Distributions whose numbers are smooth functions of uniform or normal numbers and of their parameters, which have
gradients through them.
"""

from __future__ import annotations

import math
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, ShapeError

from ..arrays.creation import asarray
from ..core import ops
from ..core.tensor import Tensor
from .generator import Generator, shape_of
from .sampling import Draw, Parameter, anything, drawn, not_negative, positive, sampler


@sampler(low=anything, high=anything)
def uniform(
    shape: Any = None,
    low: Parameter = 0.0,
    high: Parameter = 1.0,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform in [low, high); for float16 and bfloat16 of float32's, rounded, so that `high` itself may occur.

    >>> import hybridml as hm
    >>> hm.random.uniform((2, 3), -1.0, 1.0).shape
    (2, 3)
    """
    d = Draw("uniform", shape, dtype, generator, low, high)
    low, high = d.params
    u = d.unit()
    return d.give(u if _is_number(low, 0.0) and _is_number(high, 1.0) else u * (high - low) + low)


@sampler(mean=anything, std=not_negative)
def normal(
    shape: Any = None,
    mean: Parameter = 0.0,
    std: Parameter = 1.0,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Normal, by the transform of Box and Muller (1958).

    Of a complex dtype both parts are normal, with half of the variance each, as in PyTorch.

    >>> import hybridml as hm
    >>> hm.random.normal(std=hm.tensor([0.0, 0.0])).tolist()
    [0.0, 0.0]
    """
    if dtype is not None and dtypes.canonical(dtype).kind == "c":
        real = dtypes.real_of(dtypes.canonical(dtype))
        d = Draw("normal", (2, *shape_of(() if shape is None else shape)), real, generator)
        parts = d.normal() * math.sqrt(0.5)
        return ops.complex(parts[0], parts[1]) * std + mean
    d = Draw("normal", shape, dtype, generator, mean, std)
    mean, std = d.params
    z = d.normal()
    return d.give(z if _is_number(mean, 0.0) and _is_number(std, 1.0) else z * std + mean)


def _is_number(value: Any, number: float) -> bool:
    return isinstance(value, int | float) and value == number


@sampler()
def standard_normal(shape: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """`normal` of mean 0 and standard deviation 1."""
    return normal(shape, dtype=dtype, generator=generator)


@drawn
def rand(*shape: int, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """`uniform` with the sizes as arguments."""
    return uniform(_sizes(shape), dtype=dtype, generator=generator)


@drawn
def randn(*shape: int, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """`normal` with the sizes as arguments."""
    return normal(_sizes(shape), dtype=dtype, generator=generator)


@drawn
def rand_like(x: Tensor, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """`uniform` numbers of x's shape and dtype."""
    return uniform(x.shape, dtype=x.dtype if dtype is None else dtype, generator=generator)


@drawn
def randn_like(x: Tensor, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """`normal` numbers of x's shape and dtype."""
    return normal(x.shape, dtype=x.dtype if dtype is None else dtype, generator=generator)


def _sizes(shape: tuple[Any, ...]) -> Any:
    return shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape


@sampler(low=anything, high=anything, mean=anything, std=positive)
def truncated_normal(
    low: Parameter = -2.0,
    high: Parameter = 2.0,
    mean: Parameter = 0.0,
    std: Parameter = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Normal of `mean` and `std`, given that it is in [low, high], by its inverse distribution function.

    Intervals of the upper tail are mirrored, where the distribution function has the digits. float32 is computed in
    float64, which reaches 37 standard deviations; beyond, all numbers are the end that is nearer to the mean.

    >>> import hybridml as hm
    >>> x = hm.random.truncated_normal(3.0, 4.0, shape=(100,))
    >>> bool(((x >= 3) & (x <= 4)).all())
    True
    """
    d = Draw("truncated_normal", shape, dtype, generator, low, high, mean, std)
    low, high, mean, std = d.tensors()
    a, b = (ops.astype((end - mean) / std, "float64") for end in (low, high))
    mirrored = a > 0
    a, b = ops.where(mirrored, -b, a), ops.where(mirrored, -a, b)
    below = ops.ndtr(a)
    u = ops.astype(d.open_unit(), "float64")
    z = ops.ndtri(ops.maximum(below + u * (ops.ndtr(b) - below), 1e-300))
    z = ops.astype(ops.where(mirrored, -z, z), d.dtype)
    return d.give(ops.clip(z * std + mean, low, high))


@sampler(mean=anything, sigma=not_negative)
def lognormal(
    mean: Parameter = 0.0,
    sigma: Parameter = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Numbers whose logarithm is normal with this mean and standard deviation."""
    d = Draw("lognormal", shape, dtype, generator, mean, sigma)
    mean, sigma = d.params
    return d.give(ops.exp(d.normal() * sigma + mean))


@sampler(scale=not_negative)
def exponential(
    scale: Parameter = 1.0, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Exponential with mean `scale`, that is with rate 1 / scale."""
    d = Draw("exponential", shape, dtype, generator, scale)
    return d.give(-ops.log(d.open_unit()) * d.params[0])


@sampler(loc=anything, scale=not_negative)
def laplace(
    loc: Parameter = 0.0,
    scale: Parameter = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Laplace: the density falls as exp(-abs(x - loc) / scale) on either side."""
    d = Draw("laplace", shape, dtype, generator, loc, scale)
    loc, scale = d.params
    u = d.open_unit() - 0.5
    return d.give(ops.copysign(ops.log1p(ops.abs(u) * -2.0), u) * scale + loc)


@sampler(loc=anything, scale=not_negative)
def gumbel(
    loc: Parameter = 0.0,
    scale: Parameter = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Gumbel's distribution of the largest of many: exp(-exp(-(x - loc) / scale)) is the probability below x."""
    d = Draw("gumbel", shape, dtype, generator, loc, scale)
    loc, scale = d.params
    return d.give(-ops.log(-ops.log(d.open_unit())) * scale + loc)


@sampler(loc=anything, scale=not_negative)
def logistic(
    loc: Parameter = 0.0,
    scale: Parameter = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Logistic: sigmoid((x - loc) / scale) is the probability below x."""
    d = Draw("logistic", shape, dtype, generator, loc, scale)
    loc, scale = d.params
    u = d.open_unit()
    return d.give((ops.log(u) - ops.log1p(-u)) * scale + loc)


@sampler(loc=anything, scale=not_negative)
def cauchy(
    loc: Parameter = 0.0,
    scale: Parameter = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Cauchy (Lorentz), with median `loc`; half of the numbers are within `scale` of it."""
    d = Draw("cauchy", shape, dtype, generator, loc, scale)
    loc, scale = d.params
    return d.give(ops.tan((d.open_unit() - 0.5) * math.pi) * scale + loc)


@sampler(scale=not_negative)
def rayleigh(
    scale: Parameter = 1.0, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Rayleigh: the length of a pair of normal numbers of standard deviation `scale`."""
    d = Draw("rayleigh", shape, dtype, generator, scale)
    return d.give(ops.sqrt(ops.log(d.open_unit()) * -2.0) * d.params[0])


@sampler(a=positive, scale=not_negative)
def weibull(
    a: Parameter, scale: Parameter = 1.0, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Weibull: exp(-(x / scale) ** a) is the probability above x."""
    d = Draw("weibull", shape, dtype, generator, a, scale)
    a, scale = d.params
    return d.give(ops.exp(ops.log(-ops.log(d.open_unit())) / a) * scale)


@sampler(a=positive)
def pareto(a: Parameter, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """Pareto's second distribution (Lomax), as NumPy: (1 + x) ** -a is the probability above x. Add 1 for the first."""
    d = Draw("pareto", shape, dtype, generator, a)
    return d.give(ops.expm1(-ops.log(d.open_unit()) / d.params[0]))


@sampler(mean=anything)
def multivariate_normal(
    mean: Parameter,
    cov: Parameter | None = None,
    shape: Any = (),
    *,
    scale_tril: Parameter | None = None,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Normal vectors of `mean` (..., k) and covariance `cov` (..., k, k), or its Cholesky factor `scale_tril`; gives
    `shape` + (..., k).

    LinAlgError for a covariance that is not positive definite. Styles may differ by rounding, as matrix products do.

    >>> import hybridml as hm
    >>> hm.random.multivariate_normal(hm.zeros(2), hm.eye(2), (5,)).shape
    (5, 2)
    """
    if (cov is None) == (scale_tril is None):
        raise ArgumentError("multivariate_normal: takes the covariance, or its Cholesky factor as scale_tril")
    d = Draw("multivariate_normal", None, dtype, generator, asarray(mean)[..., None], cov, scale_tril)
    mean, cov, factor = d.params
    if len(d.shape) < 2 or d.shape[-1] != d.shape[-2]:
        raise ShapeError(
            f"multivariate_normal: needs a mean of k numbers and matrices of k by k, got shapes {mean.shape[:-1]} and "
            f"{(factor if cov is None else cov).shape}"
        )
    factor = ops.cholesky(cov) if factor is None else factor
    d.shape = (*shape_of(shape), *d.shape[:-1], 1)
    return d.give((mean + ops.matmul(factor, d.normal()))[..., 0])
