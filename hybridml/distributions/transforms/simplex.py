"""Transforms of free numbers to shares that sum to 1 and to factors of matrices."""

from __future__ import annotations

import math

from hybridml_compiler.errors import ShapeError

from ... import arrays as xp
from ... import functional, linalg
from ...core.tensor import Tensor
from .. import constraints
from .elementwise import clipped_sigmoid
from .transform import Shape, Transform, needs_axes, of_axes

_MATRIX = of_axes(constraints.real, 2)


def _edged(x: Tensor, *, before: bool) -> Tensor:
    """A 1 before or after the last axis."""
    one = xp.ones((*x.shape[:-1], 1), dtype=x.dtype)
    return xp.concat([one, x] if before else [x, one], axis=-1)


class SoftmaxTransform(Transform):
    """Shares ``exp(x) / sum(exp(x))`` along the last axis; not a bijection, as x and x + 1 have the same shares.

    >>> hm.distributions.SoftmaxTransform()(hm.zeros(4)).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return functional.softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return xp.log(y)

    def forward_shape(self, shape: Shape) -> Shape:
        needs_axes(self, shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """Shares (..., n + 1) of numbers (..., n): each breaks its part off what is left of a stick.

    Zeros give equal shares. Source: Stan's reference manual.

    >>> [round(share, 3) for share in hm.distributions.StickBreakingTransform()(hm.zeros(3)).tolist()]
    [0.25, 0.25, 0.25, 0.25]
    """

    bijective = True
    domain, codomain = constraints.real_vector, constraints.simplex

    def _offset(self, x: Tensor) -> Tensor:
        n = x.shape[-1]
        return xp.log(xp.arange(n, 0, -1).astype(x.dtype))

    def _call(self, x: Tensor) -> Tensor:
        broken = clipped_sigmoid(x - self._offset(x))
        return _edged(broken, before=False) * _edged(xp.cumprod(1 - broken, axis=-1), before=True)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = y[..., :-1]
        left = xp.maximum(1 - xp.cumsum(parts, axis=-1), float(xp.finfo(y.dtype).tiny))
        return xp.log(parts) - xp.log(left) + self._offset(parts)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        at = x - self._offset(x)
        return (xp.log(y[..., :-1]) - at - functional.softplus(-at)).sum(axis=-1)

    def forward_shape(self, shape: Shape) -> Shape:
        needs_axes(self, shape, 1)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Shape) -> Shape:
        needs_axes(self, shape, 1)
        return (*shape[:-1], shape[-1] - 1)


class LowerCholeskyTransform(Transform):
    """Lower triangular matrices of any matrices (..., k, k), with the exponential of the diagonal.

    >>> hm.distributions.LowerCholeskyTransform()(hm.zeros((2, 2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain, codomain = _MATRIX, constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return xp.tril(x, -1) + xp.diag_embed(xp.exp(linalg.diagonal(x)))

    def _inverse(self, y: Tensor) -> Tensor:
        return xp.tril(y, -1) + xp.diag_embed(xp.log(linalg.diagonal(y)))


class PositiveDefiniteTransform(Transform):
    """Positive definite matrices of any matrices (..., k, k): products of their `LowerCholeskyTransform`.

    >>> hm.distributions.PositiveDefiniteTransform()(hm.zeros((2, 2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain, codomain = _MATRIX, constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return xp.matmul(factor, xp.matrix_transpose(factor))

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """Cholesky factors of correlation matrices (..., k, k) of numbers (..., k * (k - 1) / 2), row by row.

    Rows are vectors of length 1: each number's tangent breaks off a part of what is left of it. The Jacobian is of the
    entries below the diagonal. Source: Stan's reference manual.

    >>> hm.distributions.CorrCholeskyTransform()(hm.zeros(1)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    bijective = True
    domain, codomain = constraints.real_vector, constraints.corr_cholesky

    def _call(self, x: Tensor) -> Tensor:
        k = self.forward_shape(x.shape)[-1]
        eps = float(xp.finfo(x.dtype).eps)
        rows, columns = xp.tril_indices(k, -1)
        turned = xp.clip(xp.tanh(x), eps - 1, 1 - eps)
        r = xp.zeros((*x.shape[:-1], k, k), dtype=x.dtype).at[..., rows, columns].set(turned)
        left = xp.cumprod(xp.sqrt(1 - r * r), axis=-1)
        return (r + xp.eye(k, dtype=x.dtype)) * _edged(left[..., :-1], before=True)

    def _inverse(self, y: Tensor) -> Tensor:
        rows, columns = xp.tril_indices(y.shape[-1], -1)
        left = _edged((1 - xp.cumsum(y * y, axis=-1))[..., :-1], before=True)
        return xp.atanh(y[..., rows, columns] / xp.sqrt(left[..., rows, columns]))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        rows, columns = xp.tril_indices(y.shape[-1], -2)
        left = (1 - xp.cumsum(y * y, axis=-1))[..., rows, columns]
        return 0.5 * xp.log(left).sum(axis=-1) - 2 * (x + functional.softplus(-2 * x) - math.log(2.0)).sum(axis=-1)

    def forward_shape(self, shape: Shape) -> Shape:
        needs_axes(self, shape, 1)
        k = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if k * (k - 1) // 2 != shape[-1]:
            raise ShapeError(f"CorrCholeskyTransform: {shape[-1]} numbers are not those below a diagonal (1, 3, 6, 10)")
        return (*shape[:-1], k, k)

    def inverse_shape(self, shape: Shape) -> Shape:
        needs_axes(self, shape, 2)
        if shape[-1] != shape[-2]:
            raise ShapeError(f"CorrCholeskyTransform: needs square matrices, got shape {shape}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)
