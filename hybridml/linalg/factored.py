"""Systems whose matrix has been factored before, by PyTorch's names: `lu_factor`, `lu_solve`, `cholesky_solve`, ..."""

from __future__ import annotations

from typing import Any, NamedTuple

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from ..control_flow import scan
from ..core.context import placed
from ..core.tensor import Tensor
from .factorizations import LUResult, lu
from .operands import adjoint, described, floating, matrices
from .systems import pinv, solve_triangular


class LUFactors(NamedTuple):
    """Result of `lu_factor`: L and U in one matrix `LU` (..., m, n), and the exchanged rows `pivots` (int32).

    >>> hm.linalg.lu_factor(hm.eye(2)).pivots.tolist()
    [1, 2]
    """

    LU: Tensor
    pivots: Tensor


class TriangularResult(NamedTuple):
    """Result of `triangular_solve`: the `solution` and, as in PyTorch, the matrix as `cloned_coefficient`.

    >>> hm.linalg.triangular_solve(hm.ones((2, 1)), hm.eye(2)).solution.tolist()
    [[1.0], [1.0]]
    """

    solution: Tensor
    cloned_coefficient: Tensor


@placed
def lu_factor(x: Tensor, /, *, pivot: bool = True) -> LUFactors:
    """L, without its diagonal of ones, and U of `lu` in one matrix (..., m, n), and the exchanged rows as int32.

    ``pivots[..., k]`` (min(m, n) of them) is the row, counted from 1 as LAPACK does, that was exchanged with row k.
    Gradients as of `lu`. Raises ShapeError for less than two axes, LinAlgError for infinities and nans, ArgumentError
    for ``pivot=False``. Source: LAPACK's getrf, PyTorch.

    >>> import hybridml as hm
    >>> f = hm.linalg.lu_factor(hm.asarray([[1.0, 2.0], [2.0, 2.0]]))
    >>> f.LU.tolist(), f.pivots.tolist()
    ([[2.0, 2.0], [0.5, 1.0]], [2, 2])
    """
    if not pivot:
        raise ArgumentError("lu_factor: pivot=False is not stable and not supported; leave it out")
    p, lower, upper = lu(floating(matrices("lu_factor", x)))
    rows, inner = lower.shape[-2:]
    columns = upper.shape[-1]
    below = _padded(lower.tril(k=-1), 0, columns - inner)
    order = xp.argmax(xp.equal(p.mT, 1), axis=-1) if rows else xp.zeros(p.shape[:-1], dtype=xp.int64)
    return LUFactors(below + _padded(upper, rows - inner, 0), _pivots(order, inner))


def _padded(x: Tensor, rows: int, columns: int) -> Tensor:
    return xp.pad(x, ((0, 0),) * (x.ndim - 2) + ((0, rows), (0, columns))) if rows or columns else x


@placed
def _exchanged(rows: Tensor, k: Any, other: Tensor) -> Tensor:
    """`rows` (..., m) with the elements at positions k and `other` (...,) exchanged."""
    places = xp.stack([xp.broadcast_to(xp.asarray(k), other.shape), other], axis=-1)
    return xp.put_along_axis(rows, places, xp.flip(xp.take_along_axis(rows, places, axis=-1), axis=-1), -1)


@placed
def _pivots(order: Tensor, count: int) -> Tensor:
    """The exchanges, one after the other, that put the rows 0, 1, ... in `order` (..., m)."""

    def step(rows: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        wanted = xp.take(order, k, axis=-1)
        found = xp.argmax(xp.equal(rows, xp.expand_dims(wanted, -1)), axis=-1)
        return _exchanged(rows, k, found), found + 1

    if not count or not order.numel():
        return xp.zeros((*order.shape[:-1], count), dtype=xp.int32)
    start = xp.broadcast_to(xp.arange(order.shape[-1]), order.shape)
    pivots: Tensor = scan(step, start, xp.arange(count))[1]
    return xp.moveaxis(pivots, 0, -1).astype(xp.int32)


@placed
def _order(pivots: Tensor, rows: int) -> Tensor:
    """The order (..., rows) in which the exchanges put the rows 0, 1, ..."""

    def step(order: Tensor, k: Tensor) -> tuple[Tensor, None]:
        return _exchanged(order, k, xp.take(pivots, k, axis=-1).astype(xp.int64) - 1), None

    start = xp.broadcast_to(xp.arange(rows), (*pivots.shape[:-1], rows))
    count = pivots.shape[-1]
    order: Tensor = scan(step, start, xp.arange(count))[0] if count and start.numel() else start
    return order


@placed
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> LUResult:
    """Factors P, L and U, as of `lu`, from the result of `lu_factor`; empty tensors for those not asked for.

    LU_data (..., m, n), LU_pivots (..., min(m, n)). Raises ShapeError for less than two axes of data or one of pivots,
    OutOfBoundsError for a pivot that is no row. Source: PyTorch.

    >>> import hybridml as hm
    >>> [t.tolist() for t in hm.linalg.lu_unpack(*hm.linalg.lu_factor(hm.asarray([[0.0, 2.0], [1.0, 1.0]])))]
    [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.0, 2.0]]]
    """
    x = matrices("lu_unpack", LU_data)
    rows, columns = x.shape[-2:]
    inner = min(rows, columns)
    p = lower = upper = xp.zeros((0,), dtype=x.dtype)
    if unpack_pivots:
        pivots = xp.asarray(LU_pivots)
        if pivots.ndim == 0:
            raise ShapeError(f"lu_unpack: needs pivots (..., {inner}), got {described(pivots)}")
        order = _order(pivots, rows)
        p = xp.equal(xp.expand_dims(order, -2), xp.expand_dims(xp.arange(rows), -1)).astype(x.dtype)
    if unpack_data:
        lower = x[..., :, :inner].tril(k=-1) + xp.eye(rows, inner, dtype=x.dtype)
        upper = x[..., :inner, :].triu()
    return LUResult(p, lower, upper)


@placed
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, /, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """Solution z of ``A @ z = B`` (``z @ A = B`` without `left`) by the factors of A from `lu_factor`.

    A (..., n, n), B (..., n, k); with `adjoint` A^H is in A's place. Batches broadcast. Raises ShapeError for other
    shapes, LinAlgError where U is singular. Source: PyTorch.

    >>> import hybridml as hm
    >>> f = hm.linalg.lu_factor(hm.asarray([[2.0, 0.0], [0.0, 4.0]]))
    >>> hm.linalg.lu_solve(*f, hm.asarray([[2.0], [2.0]])).tolist()
    [[1.0], [0.5]]
    """
    x, b = matrices("lu_solve", LU), matrices("lu_solve", B)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"lu_solve: needs the factors of square matrices, got {described(x)}")
    if not left:  # the adjoint of the system
        return _adjoint(lu_solve(x, pivots, _adjoint(b), adjoint=not adjoint))
    order = _order(xp.asarray(pivots), x.shape[-1])
    if adjoint:
        z = solve_triangular(_adjoint(x), b, upper=False)
        z = solve_triangular(_adjoint(x), z, upper=True, unitriangular=True)
        return rows_of(z, xp.argsort(order, axis=-1))
    z = solve_triangular(x, rows_of(b, order), upper=False, unitriangular=True)
    return solve_triangular(x, z, upper=True)


_adjoint = adjoint  # which is the name of a parameter above


def rows_of(x: Tensor, order: Tensor) -> Tensor:
    """Matrices x (..., n, k) with their rows in the order (..., n)."""
    batch = xp.broadcast_shapes(x.shape[:-2], order.shape[:-1])
    x = xp.broadcast_to(x, (*batch, *x.shape[-2:]))
    order = xp.expand_dims(xp.broadcast_to(order, (*batch, order.shape[-1])), -1)
    return xp.take_along_axis(x, xp.broadcast_to(order, x.shape), axis=-2)


def cholesky_solve(B: Tensor, L: Tensor, /, upper: bool = False) -> Tensor:
    """Solution z (..., n, k) of ``L @ L^H @ z = B`` (``L^H @ L`` with `upper`), for the factor L of `cholesky`.

    B (..., n, k), L (..., n, n). Raises ShapeError where they do not fit, LinAlgError for a zero on L's diagonal.
    Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.linalg.cholesky_solve(hm.asarray([[4.0]]), hm.asarray([[2.0]])).tolist()
    [[1.0]]
    """
    b, factor = matrices("cholesky_solve", B), matrices("cholesky_solve", L)
    first, second = (adjoint(factor), factor) if upper else (factor, adjoint(factor))
    return solve_triangular(second, solve_triangular(first, b, upper=False), upper=True)


@placed
def cholesky_inverse(L: Tensor, /, upper: bool = False) -> Tensor:
    """Inverse of ``L @ L^H`` (``L^H @ L`` with `upper`), for the factor L (..., n, n) of `cholesky`.

    Raises ShapeError where L is not square, LinAlgError for a zero on its diagonal. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.linalg.cholesky_inverse(hm.asarray([[2.0]])).tolist()
    [[0.25]]
    """
    factor = matrices("cholesky_inverse", L)
    if factor.shape[-1] != factor.shape[-2]:
        raise ShapeError(f"cholesky_inverse: needs square matrices, got {described(factor)}")
    return cholesky_solve(xp.eye(factor.shape[-1], dtype=factor.dtype), factor, upper)


def triangular_solve(
    b: Tensor, A: Tensor, /, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularResult:
    """Solution z of ``A @ z = b`` (A^T with `transpose`), and A: PyTorch's older name of `solve_triangular`.

    b (..., n, k), A (..., n, n). Raises ShapeError where they do not fit, LinAlgError for a zero on A's diagonal.

    >>> import hybridml as hm
    >>> hm.linalg.triangular_solve(hm.asarray([[4.0]]), hm.asarray([[2.0]])).solution.tolist()
    [[2.0]]
    """
    x = matrices("triangular_solve", A)
    turned, up = (x.mT, not upper) if transpose else (x, upper)
    return TriangularResult(solve_triangular(turned, b, upper=up, unitriangular=unitriangular), x.clone())


def pinverse(x: Tensor, /, rcond: Any = 1e-15) -> Tensor:
    """Pseudo-inverse (..., n, m) of (..., m, n): PyTorch's older name of `pinv`.

    Singular values below `rcond` times the largest count as zero. Raises ShapeError for less than two axes, LinAlgError
    for infinities and nans.

    >>> import hybridml as hm
    >>> hm.linalg.pinverse(hm.asarray([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    return pinv(x, rtol=rcond)
