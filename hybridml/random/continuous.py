"""Distributions whose numbers are smooth functions of uniform or normal numbers and of their parameters, which have
gradients through them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError

from ..arrays.creation import asarray
from ..core import ops
from ..core.tensor import Tensor
from .generator import Generator, shape_of
from .sampling import Draw, Parameter, anything, common_shape, drawn, not_negative, of_vectors, positive, sampler


@sampler(low=anything, high=anything)
def uniform(
    shape: Any = None,
    low: Parameter = 0.0,
    high: Parameter = 1.0,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform numbers in [low, high); with a complex `dtype` both parts are, as in PyTorch.

    float16 and bfloat16 are rounded from float32, so that `high` itself may occur. The result has `shape`, by default
    the one that the parameters (numbers or tensors, differentiable) broadcast to. Raises ArgumentError for a `shape`
    that is no size, ShapeError for parameters that do not broadcast to `shape`, DTypeError for an integer `dtype`.

    >>> hm.random.uniform((2, 3), -1.0, 1.0).shape
    (2, 3)
    """
    if _is_complex(dtype):
        real, shape = _two_parts("uniform", shape, dtype, low, high)
        return ops.complex(*uniform(shape, low, high, dtype=real, generator=generator))
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
    """Normal (Gaussian) numbers with `mean` and standard deviation `std`.

    By the transform of Box and Muller (1958). With a complex `dtype` both parts are normal, with half of the variance
    each, as in PyTorch. The result has `shape`, by default the one that the parameters (numbers or tensors,
    differentiable) broadcast to. Raises ArgumentError for a negative `std`, ShapeError for parameters that do not
    broadcast to `shape`, DTypeError for an integer `dtype`.

    >>> hm.random.normal(std=hm.tensor([0.0, 0.0])).tolist()
    [0.0, 0.0]
    """
    if _is_complex(dtype):
        real, shape = _two_parts("normal", shape, dtype, mean, std)
        parts = Draw("normal", shape, real, generator).normal() * math.sqrt(0.5)
        return ops.astype(ops.complex(parts[0], parts[1]) * std + mean, dtypes.canonical(dtype))
    d = Draw("normal", shape, dtype, generator, mean, std)
    mean, std = d.params
    z = d.normal()
    return d.give(z if _is_number(mean, 0.0) and _is_number(std, 1.0) else z * std + mean)


def _is_complex(dtype: Any) -> bool:
    return dtype is not None and dtypes.canonical(dtype).kind == "c"


def _two_parts(name: str, shape: Any, dtype: Any, *params: Any) -> tuple[np.dtype, tuple[int, ...]]:
    """The dtype of the parts of complex numbers, and the shape of both."""
    given = [asarray(p) for p in params if not isinstance(p, int | float)]
    return dtypes.real_of(dtypes.canonical(dtype)), (2, *common_shape(name, shape, given))


def _is_number(value: Any, number: float) -> bool:
    return isinstance(value, int | float) and value == number


@sampler()
def standard_normal(shape: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """Normal numbers of mean 0 and standard deviation 1; `shape`, `dtype` and errors as of `normal`.

    >>> hm.random.standard_normal((2, 3)).shape
    (2, 3)
    """
    return normal(shape, dtype=dtype, generator=generator)


@drawn
def rand(
    *shape: int, size: Any = None, dtype: Any = None, device: Any = None, generator: Generator | None = None
) -> Tensor:
    """Uniform numbers in [0, 1), with the sizes of the shape as arguments: ``rand(2, 3)``.

    Sizes may also be one tuple, or `size=`. `dtype` and errors as of `uniform`; computed on `device`.

    >>> hm.random.rand(2, 3).shape
    (2, 3)
    """
    return _unplaced(uniform, shape if size is None else (size,), dtype, generator)


@drawn
def randn(
    *shape: int, size: Any = None, dtype: Any = None, device: Any = None, generator: Generator | None = None
) -> Tensor:
    """Standard normal numbers, with the sizes of the shape as arguments: ``randn(2, 3)``.

    Sizes may also be one tuple, or `size=`. `dtype` and errors as of `normal`; computed on `device`.

    >>> hm.random.randn(2, 3).shape
    (2, 3)
    """
    return _unplaced(normal, shape if size is None else (size,), dtype, generator)


@drawn
def rand_like(x: Tensor, *, dtype: Any = None, device: Any = None, generator: Generator | None = None) -> Tensor:
    """Uniform numbers in [0, 1), with the shape of the tensor `x` and, unless another `dtype` is given, its dtype.

    Raises DTypeError where that dtype is an integer.

    >>> hm.random.rand_like(hm.ones((2, 3), dtype=hm.float64)).dtype.name
    'float64'
    """
    return uniform(x.shape, dtype=x.dtype if dtype is None else dtype, generator=generator)


@drawn
def randn_like(x: Tensor, *, dtype: Any = None, device: Any = None, generator: Generator | None = None) -> Tensor:
    """Standard normal numbers, with the shape of the tensor `x` and, unless another `dtype` is given, its dtype.

    Raises DTypeError where that dtype is of integers.

    >>> hm.random.randn_like(hm.ones((2, 3), dtype=hm.float64)).dtype.name
    'float64'
    """
    return normal(x.shape, dtype=x.dtype if dtype is None else dtype, generator=generator)


def _unplaced(draw: Any, shape: tuple[Any, ...], dtype: Any, generator: Generator | None) -> Tensor:
    """The numbers of a distribution, where `rand` and `randn` have looked for the device."""
    sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if dtype is generator is None:
        return draw.__wrapped__(sizes)
    return draw.__wrapped__(sizes, dtype=dtype, generator=generator)


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
    """Normal numbers with `mean` and `std` conditioned to be in [low, high].

    By the inverse distribution function, in float64: it reaches 37 standard deviations; beyond, all numbers are the
    end that is nearer to the mean. The result has `shape`, by default the one that the parameters (numbers or tensors,
    differentiable) broadcast to. Raises ArgumentError for a `std` that is not positive, ShapeError for parameters that
    do not broadcast to `shape`, DTypeError for a `dtype` that is not a float.

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
    """Log-normal numbers, whose logarithm is normal with this mean and standard deviation `sigma`.

    The result has `shape`, by default the one that the parameters (numbers or tensors, differentiable) broadcast to.
    Raises ArgumentError for a negative `sigma`, ShapeError for parameters that do not broadcast to `shape`, DTypeError
    for a `dtype` that is not a float.

    >>> hm.random.lognormal(sigma=0.0, shape=(2,)).tolist()
    [1.0, 1.0]
    """
    d = Draw("lognormal", shape, dtype, generator, mean, sigma)
    mean, sigma = d.params
    return d.give(ops.exp(d.normal() * sigma + mean))


@sampler(scale=not_negative)
def exponential(
    scale: Parameter = 1.0, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Exponential numbers with mean `scale`, that is with rate 1 / scale.

    The result has `shape`, by default the one that the parameters (numbers or tensors, differentiable) broadcast to.
    Raises ArgumentError for a negative `scale`, ShapeError for parameters that do not broadcast to `shape`, DTypeError
    for a `dtype` that is not a float.

    >>> bool((hm.random.exponential(2.0, (100,)) >= 0).all())
    True
    """
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
    """Laplace numbers with density exp(-abs(x - loc) / scale) / (2 scale).

    The result has `shape`, by default the one that the parameters (numbers or tensors, differentiable) broadcast to.
    Raises ArgumentError for a negative `scale`, ShapeError for parameters that do not broadcast to `shape`, DTypeError
    for a `dtype` that is not a float.

    >>> hm.random.laplace(hm.zeros(3), 2.0).shape
    (3,)
    """
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
    """Gumbel numbers, with probability exp(-exp(-(x - loc) / scale)) below x.

    It is the distribution of the largest of many numbers. The result has `shape`, by default the one that the
    parameters (numbers or tensors, differentiable) broadcast to. Raises ArgumentError for a negative `scale`,
    ShapeError for parameters that do not broadcast to `shape`, DTypeError for a `dtype` that is not a float.

    >>> hm.random.gumbel(hm.zeros(3), 2.0).shape
    (3,)
    """
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
    """Logistic numbers, with probability sigmoid((x - loc) / scale) below x.

    The result has `shape`, by default the one that the parameters (numbers or tensors, differentiable) broadcast to.
    Raises ArgumentError for a negative `scale`, ShapeError for parameters that do not broadcast to `shape`, DTypeError
    for a `dtype` that is not a float.

    >>> hm.random.logistic(hm.zeros(3), 2.0).shape
    (3,)
    """
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
    """Cauchy (Lorentz) numbers with median `loc`, half of them within `scale` of it.

    They have no mean. The result has `shape`, by default the one that the parameters (numbers or tensors,
    differentiable) broadcast to. Raises ArgumentError for a negative `scale`, ShapeError for parameters that do not
    broadcast to `shape`, DTypeError for a `dtype` that is not a float.

    >>> hm.random.cauchy(hm.zeros(3), 2.0).shape
    (3,)
    """
    d = Draw("cauchy", shape, dtype, generator, loc, scale)
    loc, scale = d.params
    return d.give(ops.tan((d.open_unit() - 0.5) * math.pi) * scale + loc)


@sampler(scale=not_negative)
def rayleigh(
    scale: Parameter = 1.0, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Rayleigh numbers: lengths of pairs of normal numbers with standard deviation `scale`.

    The result has `shape`, by default the one that the parameters (numbers or tensors, differentiable) broadcast to.
    Raises ArgumentError for a negative `scale`, ShapeError for parameters that do not broadcast to `shape`, DTypeError
    for a `dtype` that is not a float.

    >>> bool((hm.random.rayleigh(2.0, (100,)) >= 0).all())
    True
    """
    d = Draw("rayleigh", shape, dtype, generator, scale)
    return d.give(ops.sqrt(ops.log(d.open_unit()) * -2.0) * d.params[0])


@sampler(a=positive, scale=not_negative)
def weibull(
    a: Parameter, scale: Parameter = 1.0, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Weibull numbers, with probability exp(-(x / scale) ** a) above x.

    Unlike NumPy's it has a `scale`. The result has `shape`, by default the one that the parameters (numbers or
    tensors, differentiable) broadcast to. Raises ArgumentError for an `a` that is not positive or a negative `scale`,
    ShapeError for parameters that do not broadcast to `shape`, DTypeError for a `dtype` that is not a float.

    >>> bool((hm.random.weibull(2.0, shape=(100,)) >= 0).all())
    True
    """
    d = Draw("weibull", shape, dtype, generator, a, scale)
    a, scale = d.params
    return d.give(ops.exp(ops.log(-ops.log(d.open_unit())) / a) * scale)


@sampler(a=positive)
def pareto(a: Parameter, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """Pareto numbers of the second kind (Lomax), with probability (1 + x) ** -a above x.

    As in NumPy; add 1 for the first kind. The result has `shape`, by default the one that the parameters (numbers or
    tensors, differentiable) broadcast to. Raises ArgumentError for an `a` that is not positive, ShapeError for
    parameters that do not broadcast to `shape`, DTypeError for a `dtype` that is not a float.

    >>> bool((hm.random.pareto(3.0, (100,)) >= 0).all())
    True
    """
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
    """Normal vectors with `mean` (..., k) and covariance `cov` (..., k, k), or its Cholesky factor `scale_tril`.

    The result has `shape` + (..., k). Raises LinAlgError for a covariance that is not positive definite, ArgumentError
    unless one of the two is given, ShapeError where they do not fit the mean. Styles may differ by rounding, as matrix
    products do.

    >>> hm.random.multivariate_normal(hm.zeros(2), hm.eye(2), (5,)).shape
    (5, 2)
    """
    if (cov is None) == (scale_tril is None):
        raise ArgumentError("multivariate_normal: takes the covariance, or its Cholesky factor as scale_tril")
    d = of_vectors("multivariate_normal", dtype, generator, mean, scale_tril if cov is None else cov)
    mean, factor = d.params[0], d.params[1] if cov is None else ops.cholesky(d.params[1])
    d.shape = (*shape_of(shape), *d.shape[:-1], 1)
    return d.give((mean + ops.matmul(factor, d.normal()))[..., 0])
