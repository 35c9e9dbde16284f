"""Distributions of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import functional, linalg, random, special
from ..core.tensor import Tensor
from ..random.generator import Generator
from ..random.sampling import of_vectors
from . import constraints
from .distribution import Distribution


class Dirichlet(Distribution):
    """Dirichlet distribution over shares that sum to 1 along the last axis.

    `concentration` (..., k) gives `batch_shape` (...) and `event_shape` (k,). Raises ShapeError for a number.

    >>> hm.distributions.Dirichlet([1.0, 3.0]).mean.tolist()
    [0.25, 0.75]
    """

    has_rsample = True
    arg_constraints = constraints.by_name(concentration=constraints.independent(constraints.positive, 1))
    support = constraints.simplex

    def __init__(self, concentration: Any) -> None:
        (self.concentration,) = self._given(concentration=concentration)
        if not self.batch_shape:
            raise ShapeError("Dirichlet: needs an axis of shares, got a number; give a vector of concentrations")
        self.batch_shape, self.event_shape = self.batch_shape[:-1], self.batch_shape[-1:]

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        a = self.concentration
        return random.dirichlet(a, shape[: len(shape) - len(self.batch_shape)], generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        a = self.concentration
        return special.xlogy(a - 1, xp.asarray(value)).sum(axis=-1) - self.log_normalizer()

    def log_normalizer(self) -> Tensor:
        """The logarithm of the integral that the density is divided by."""
        a = self.concentration
        return xp.lgamma(a).sum(axis=-1) - xp.lgamma(a.sum(axis=-1))

    def entropy(self) -> Tensor:
        a = self.concentration
        total = a.sum(axis=-1)
        spread = (total - a.shape[-1]) * xp.digamma(total) - ((a - 1) * xp.digamma(a)).sum(axis=-1)
        return self.log_normalizer() + spread

    @property
    def mode(self) -> Tensor:
        above = xp.maximum(self.concentration - 1, 0.0)
        most = functional.one_hot(xp.argmax(self.concentration, axis=-1), self.concentration.shape[-1])
        corner = (self.concentration < 1).all(axis=-1, keepdims=True)
        shares = above / above.sum(axis=-1, keepdims=True)
        return xp.where(corner, most.astype(shares.dtype), shares)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(axis=-1, keepdims=True)

    @property
    def variance(self) -> Tensor:
        mean = self.mean
        return mean * (1 - mean) / (self.concentration.sum(axis=-1, keepdims=True) + 1)


def _factor_of_inverse(matrix: Tensor) -> Tensor:
    """Lower Cholesky factor of a matrix's inverse: the factor of the matrix from its other end, inverted."""
    ends = linalg.cholesky(xp.flip(matrix, axis=(-2, -1)))
    lower = xp.matrix_transpose(xp.flip(ends, axis=(-2, -1)))
    one = xp.broadcast_to(xp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    return linalg.solve_triangular(lower, one, upper=False)


def given_covariance(
    self: OfCovariance, covariance_matrix: Any, precision_matrix: Any, scale_tril: Any
) -> tuple[Any, Callable[[Tensor], Tensor]]:
    """The one matrix that is given, and the function that makes the lower Cholesky factor of the covariance of it."""
    forms = (covariance_matrix, linalg.cholesky), (precision_matrix, _factor_of_inverse), (scale_tril, lambda m: m)
    names = "covariance_matrix", "precision_matrix", "scale_tril"
    given: list[tuple[str, Any, Any]] = [(n, *f) for n, f in zip(names, forms, strict=True) if f[0] is not None]
    if len(given) != 1:
        raise ArgumentError(
            f"{type(self).__name__}: takes covariance_matrix or scale_tril or precision_matrix, one of them"
        )
    self._matrix = given[0][:2]
    return given[0][1:]


class OfCovariance(Distribution):
    """Base class of distributions with a covariance (..., k, k), by its lower Cholesky factor `scale_tril`."""

    scale_tril: Any  # a tensor, or a property
    _matrix: tuple[str, Any] | None = None  # what was given, by name

    def _check_tensors(self) -> None:
        super()._check_tensors()
        if self._matrix is not None:  # its factor is made of one triangle
            name, matrix = self._matrix
            self._must_hold(name, self.arg_constraints[name], xp.asarray(matrix))

    @property
    def covariance_matrix(self) -> Tensor:
        """Covariance matrices, (..., k, k)."""
        return xp.matmul(self.scale_tril, xp.matrix_transpose(self.scale_tril))

    @property
    def precision_matrix(self) -> Tensor:
        """Inverses of the covariance matrices, (..., k, k)."""
        return linalg.cholesky_inverse(self.scale_tril)

    def half_log_det(self) -> Tensor:
        """Half the logarithm of the covariance's determinant."""
        return xp.log(linalg.diagonal(self.scale_tril)).sum(axis=-1)


class MultivariateNormal(OfCovariance):
    """Normal distribution of vectors with mean `loc` (..., k) and a covariance (..., k, k).

    The covariance is given as `covariance_matrix`, by its inverse `precision_matrix` or by its Cholesky factor
    `scale_tril` (ArgumentError unless one of the three is). Raises LinAlgError for a covariance that is not positive
    definite, ShapeError for sizes that do not fit.

    >>> p = hm.distributions.MultivariateNormal(hm.zeros(2), hm.eye(2) * 4.0)
    >>> p.sample((5,)).shape, p.variance.tolist()
    ((5, 2), [4.0, 4.0])
    """

    has_rsample = True
    arg_constraints = constraints.by_name(
        loc=constraints.real_vector,
        covariance_matrix=constraints.positive_definite,
        precision_matrix=constraints.positive_definite,
        scale_tril=constraints.lower_cholesky,
    )
    support = constraints.real_vector

    def __init__(
        self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None
    ) -> None:
        matrix, factor_of = given_covariance(self, covariance_matrix, precision_matrix, scale_tril)
        given = of_vectors("MultivariateNormal", None, None, loc, matrix)
        loc, matrix = given.params
        self.batch_shape, self.event_shape = given.shape[:-2], given.shape[-1:]
        self.loc = xp.broadcast_to(loc[..., 0], (*self.batch_shape, *self.event_shape))
        self.scale_tril = xp.broadcast_to(factor_of(matrix), given.shape)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        lead = shape[: len(shape) - len(self.batch_shape)]
        return random.multivariate_normal(self.loc, scale_tril=self.scale_tril, shape=lead, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        away = xp.asarray(value) - self.loc
        squares = xp.square(self._whitened(away[..., None])).sum(axis=(-2, -1))
        return (squares + self.event_shape[0] * math.log(2 * math.pi)) * -0.5 - self.half_log_det()

    def _whitened(self, x: Tensor) -> Tensor:
        """The columns of x (..., k, n), solved for by the factor."""
        shape = xp.broadcast_shapes(x.shape[:-2], self.batch_shape)
        factor = xp.broadcast_to(self.scale_tril, (*shape, *self.scale_tril.shape[-2:]))
        return linalg.solve_triangular(factor, xp.broadcast_to(x, (*shape, *x.shape[-2:])), upper=False)

    def entropy(self) -> Tensor:
        return self.half_log_det() + 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi))

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return xp.square(self.scale_tril).sum(axis=-1)
