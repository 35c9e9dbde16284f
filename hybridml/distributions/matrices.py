"""Distributions of matrices, and of vectors whose covariance has a low rank."""

from __future__ import annotations

import math
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import linalg, random, special
from ..core.tensor import Tensor
from ..random.generator import Generator
from ..random.sampling import Draw
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .vectors import MultivariateNormal, OfCovariance, given_covariance


class LowRankMultivariateNormal(MultivariateNormal):
    """Normal distribution of vectors with covariance ``cov_factor @ cov_factor.T + diag(cov_diag)``.

    `loc` (..., k), `cov_factor` (..., k, m) and `cov_diag` (..., k) broadcast. Draws need m + k normal numbers and no
    factor of the k by k matrix. Raises ShapeError for sizes that do not fit.

    >>> p = hm.distributions.LowRankMultivariateNormal(hm.zeros(3), hm.ones((3, 1)), hm.ones(3))
    >>> p.variance.tolist(), p.sample((5,)).shape
    ([2.0, 2.0, 2.0], (5, 3))
    """

    arg_constraints = constraints.by_name(
        loc=constraints.real_vector,
        cov_factor=constraints.independent(constraints.real, 2),
        cov_diag=constraints.independent(constraints.positive, 1),
    )

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any) -> None:
        parts = xp.asarray(loc)[..., None], cov_factor, xp.asarray(cov_diag)[..., None]
        mean, factor, own = Draw("LowRankMultivariateNormal", None, None, None, *parts).params
        if min(mean.ndim, factor.ndim, own.ndim) < 2 or not mean.shape[-2] == factor.shape[-2] == own.shape[-2]:
            raise ShapeError(
                "LowRankMultivariateNormal: needs a mean and a diagonal of k numbers and a factor of k by m, got "
                f"shapes {mean.shape[:-1]}, {own.shape[:-1]} and {factor.shape}"
            )
        self.batch_shape = xp.broadcast_shapes(*(t.shape[:-2] for t in (mean, factor, own)))
        self.event_shape = factor.shape[-2:-1]
        wide = (*self.batch_shape, *self.event_shape)
        self.loc, self.cov_diag = (xp.broadcast_to(t[..., 0], wide) for t in (mean, own))
        self.cov_factor = xp.broadcast_to(factor, (*wide, factor.shape[-1]))
        scaled = self._transposed_over_diagonal()
        inner = xp.matmul(scaled, self.cov_factor) + xp.eye(factor.shape[-1], dtype=factor.dtype)
        self._inner_tril = linalg.cholesky(inner)  # of I + W.T D**-1 W, m by m

    def _transposed_over_diagonal(self) -> Tensor:
        return xp.matrix_transpose(self.cov_factor / self.cov_diag[..., None])

    @property
    def covariance_matrix(self) -> Tensor:
        """Covariance matrices of the distributions, (..., k, k)."""
        return xp.matmul(self.cov_factor, xp.matrix_transpose(self.cov_factor)) + xp.diag_embed(self.cov_diag)

    @property
    def scale_tril(self) -> Tensor:
        """Lower Cholesky factors of the covariance matrices, (..., k, k)."""
        return linalg.cholesky(self.covariance_matrix)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        dtype, m = self.loc.dtype, self.cov_factor.shape[-1]
        shared = random.normal((*shape, m), dtype=dtype, generator=generator)
        own = random.normal((*shape, *self.event_shape), dtype=dtype, generator=generator)
        return self.loc + (self.cov_factor * shared[..., None, :]).sum(axis=-1) + xp.sqrt(self.cov_diag) * own

    def log_prob(self, value: Any) -> Tensor:
        away = xp.asarray(value) - self.loc
        seen = (self._transposed_over_diagonal() * away[..., None, :]).sum(axis=-1)[..., None]
        factor = xp.broadcast_to(self._inner_tril, (*seen.shape[:-2], *self._inner_tril.shape[-2:]))
        shared = linalg.solve_triangular(factor, seen, upper=False)
        squares = (xp.square(away) / self.cov_diag).sum(axis=-1) - xp.square(shared).sum(axis=(-2, -1))
        return (squares + self.event_shape[0] * math.log(2 * math.pi)) * -0.5 - self.half_log_det()

    def half_log_det(self) -> Tensor:
        inner = xp.log(linalg.diagonal(self._inner_tril)).sum(axis=-1)
        return inner + 0.5 * xp.log(self.cov_diag).sum(axis=-1)

    @property
    def variance(self) -> Tensor:
        return xp.square(self.cov_factor).sum(axis=-1) + self.cov_diag


class LKJCholesky(Distribution):
    """Distribution of lower Cholesky factors of correlation matrices (dim, dim), by Lewandowski, Kurowicka and Joe.

    Of `concentration` 1 all matrices are as likely, of a larger one those near the identity are more so; its shape is
    `batch_shape`. Raises ArgumentError for a `dim` below 2 or a number `concentration` that is not positive.

    >>> hm.distributions.LKJCholesky(3, 0.5).sample((2,)).shape
    (2, 3, 3)
    """

    arg_constraints = constraints.by_name(concentration=constraints.positive)
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0) -> None:
        if dim < 2:
            raise ArgumentError(f"LKJCholesky: dim must be 2 or more, got {dim}")
        (self.concentration,) = self._given(concentration=concentration)
        self.dim, self.event_shape = dim, (dim, dim)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        dtype, d = self.concentration.dtype, self.dim
        row = xp.arange(1, d, dtype=dtype)
        ends = self.concentration[..., None] + 0.5 * (d - 2) - 0.5 * (row - 1)
        # Row k is a point of a ball: a direction among its k entries, and a squared length.
        lengths = random.beta(xp.broadcast_to(row * 0.5, ends.shape), ends, (*shape, d - 1), generator=generator)
        normal = xp.tril(random.normal((*shape, d - 1, d - 1), dtype=dtype, generator=generator))
        below = normal * xp.sqrt(lengths[..., None] / xp.square(normal).sum(axis=-1, keepdims=True))
        tiny = float(xp.finfo(dtype).tiny)
        diagonal = xp.sqrt(xp.maximum(1 - xp.square(below).sum(axis=-1), tiny))
        first = xp.ones((*shape, 1), dtype=dtype)
        corner = xp.concat([xp.zeros((*shape, 1, d - 1), dtype=dtype), below], axis=-2)
        padded = xp.concat([corner, xp.zeros((*shape, d, 1), dtype=dtype)], axis=-1)
        return padded + xp.diag_embed(xp.concat([first, diagonal], axis=-1))

    def log_prob(self, value: Any) -> Tensor:
        d, c = self.dim, self.concentration
        order = 2 * (c[..., None] - 1) + d - xp.arange(2, d + 1, dtype=c.dtype)
        inside = (order * xp.log(linalg.diagonal(xp.asarray(value))[..., 1:])).sum(axis=-1)
        alpha = c + 0.5 * (d - 1)
        scale = special.multigammaln(alpha - 0.5, d - 1) - xp.lgamma(alpha) * (d - 1)
        return inside - scale - 0.5 * (d - 1) * math.log(math.pi)


class Wishart(OfCovariance):
    """Wishart distribution of the sums of outer products of `df` normal vectors, positive definite (..., k, k).

    The covariance of the vectors is given as `covariance_matrix`, `precision_matrix` or `scale_tril`, as to
    `MultivariateNormal`; `df`, a number or a tensor, need not be whole. Raises ArgumentError for a number `df` of
    k - 1 or less and unless one matrix is given, ShapeError for a matrix that is not square. Draws are by Bartlett's
    factors (1933).

    >>> hm.distributions.Wishart(3.0, hm.eye(2)).mean.tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """

    has_rsample = True
    support = constraints.positive_definite

    def __init__(
        self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None
    ) -> None:
        matrix, factor_of = given_covariance(self, covariance_matrix, precision_matrix, scale_tril)
        (matrix,) = Draw("Wishart", None, None, None, matrix).params
        if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
            raise ShapeError(f"Wishart: needs square matrices, got shape {matrix.shape}")
        k = matrix.shape[-1]
        self._check("df", constraints.greater_than(k - 1), df)
        freedom = xp.asarray(df, dtype=matrix.dtype)
        self.event_shape = (k, k)
        self.batch_shape = xp.broadcast_shapes(freedom.shape, matrix.shape[:-2])
        self.df = xp.broadcast_to(freedom, self.batch_shape)
        self.scale_tril = xp.broadcast_to(factor_of(matrix), (*self.batch_shape, k, k))

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        """Constraints of the matrices, and of `df` by their size."""
        matrix = constraints.positive_definite
        of_matrices = {
            "covariance_matrix": matrix,
            "precision_matrix": matrix,
            "scale_tril": constraints.lower_cholesky,
        }
        return {**of_matrices, "df": constraints.greater_than(self.event_shape[-1] - 1)}

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        k, dtype = self.event_shape[0], self.df.dtype
        freedom = self.df[..., None] - xp.arange(k, dtype=dtype)
        diagonal = xp.sqrt(random.chi2(freedom, (*shape, k), generator=generator))
        below = xp.tril(random.normal((*shape, k, k), dtype=dtype, generator=generator), -1)
        factor = xp.matmul(self.scale_tril, below + xp.diag_embed(diagonal))
        return xp.matmul(factor, xp.matrix_transpose(factor))

    def _log_normalizer(self) -> Tensor:
        k = self.event_shape[0]
        return self.df * (k * math.log(2) / 2 + self.half_log_det()) + special.multigammaln(self.df / 2, k)

    def log_prob(self, value: Any) -> Tensor:
        x, k = xp.asarray(value), self.event_shape[0]
        shape = (*xp.broadcast_shapes(x.shape[:-2], self.batch_shape), k, k)
        factor, x = xp.broadcast_to(self.scale_tril, shape), xp.broadcast_to(x, shape)
        own = linalg.cholesky(x)
        squares = xp.square(linalg.solve_triangular(factor, own, upper=False)).sum(axis=(-2, -1))
        log_det = 2 * xp.log(linalg.diagonal(own)).sum(axis=-1)
        return (self.df - k - 1) / 2 * log_det - squares / 2 - self._log_normalizer()

    def entropy(self) -> Tensor:
        k, nu = self.event_shape[0], self.df
        digammas = xp.digamma((nu[..., None] - xp.arange(k, dtype=nu.dtype)) / 2).sum(axis=-1)
        mean_log_det = digammas + k * math.log(2) + 2 * self.half_log_det()
        return self._log_normalizer() - (nu - k - 1) / 2 * mean_log_det + nu * k / 2

    @property
    def mean(self) -> Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        above = self.df - self.event_shape[0] - 1
        return xp.where(above > 0, above, math.nan)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        matrix = self.covariance_matrix
        diagonal = linalg.diagonal(matrix)
        return self.df[..., None, None] * (xp.square(matrix) + diagonal[..., None] * diagonal[..., None, :])
