"""Symmetric systems that are not definite, by PyTorch's names: `ldl_factor`, `ldl_factor_ex`, `ldl_solve`."""

from __future__ import annotations

from typing import NamedTuple

from hybridml_compiler.errors import ShapeError
from hybridml_compiler.ops.ldl import standard
from hybridml_compiler.ops.table import OPS

from .. import arrays as xp
from ..core.context import placed
from ..core.tensor import Tensor
from .factored import rows_of
from .operands import adjoint, described, floating, matrices
from .systems import solve, solve_triangular


class LDLFactors(NamedTuple):
    """Result of `ldl_factor`: L and D in one matrix `LD` (..., n, n), and the exchanged rows `pivots` (int32).

    >>> hm.linalg.ldl_factor(hm.eye(2)).pivots.tolist()
    [1, 2]
    """

    LD: Tensor
    pivots: Tensor


class LDLFactorsEx(NamedTuple):
    """Result of `ldl_factor_ex`: that of `ldl_factor`, and `info` (...), the first column from 1 on where D is zero.

    >>> hm.linalg.ldl_factor_ex(hm.zeros((2, 2))).info.tolist()
    1
    """

    LD: Tensor
    pivots: Tensor
    info: Tensor


def ldl_factor(x: Tensor, /, *, hermitian: bool = False) -> LDLFactors:
    """L D L^T of symmetric matrices (..., n, n), L D L^H if `hermitian`; L and D in one lower triangle.

    D has blocks of 1 or 2 rows. Where ``pivots[k]`` is p > 0, D[k, k] is one, and row k was exchanged with row p,
    counted from 1; where both ``pivots[k]`` and ``pivots[k + 1]`` are -p, D has a block of rows k and k + 1, its
    element beside the diagonal in ``LD[k + 1, k]``, and row k + 1 was exchanged with p. Of a matrix that is not
    symmetric the factors are those of (x + x^T) / 2. Raises ShapeError for what is not square, LinAlgError for a zero
    in D, for infinities and nans. Source: LAPACK's sytrf and hetrf, PyTorch.

    >>> import hybridml as hm
    >>> f = hm.linalg.ldl_factor(hm.asarray([[0.0, 2.0], [2.0, 0.0]]))
    >>> f.LD.tolist(), f.pivots.tolist()
    ([[0.0, 0.0], [2.0, 0.0]], [-2, -2])
    """
    return LDLFactors(*OPS["ldl"].fn(floating(matrices("ldl_factor", x)), bool(hermitian), True)[:2])


def ldl_factor_ex(x: Tensor, /, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorsEx:
    """`ldl_factor` that tells of a zero in D by `info`, 0 where there is none, and raises with `check_errors` alone.

    >>> import hybridml as hm
    >>> hm.linalg.ldl_factor_ex(hm.asarray([[[1.0]], [[0.0]]])).info.tolist()
    [0, 1]
    """
    return LDLFactorsEx(*OPS["ldl"].fn(floating(matrices("ldl_factor_ex", x)), bool(hermitian), bool(check_errors)))


@placed
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, /, *, hermitian: bool = False) -> Tensor:
    """Solution z (..., n, k) of ``A @ z = B`` by the factors of A from `ldl_factor`, with the same `hermitian`.

    Batches broadcast. Raises ShapeError where the shapes do not fit, OutOfBoundsError for pivots that are none,
    LinAlgError where D is singular. Source: PyTorch.

    >>> import hybridml as hm
    >>> f = hm.linalg.ldl_factor(hm.asarray([[0.0, 2.0], [2.0, 0.0]]))
    >>> hm.linalg.ldl_solve(*f, hm.asarray([[2.0], [4.0]])).tolist()
    [[2.0], [1.0]]
    """
    x, b = matrices("ldl_solve", LD), matrices("ldl_solve", B)
    n, given = x.shape[-1], xp.asarray(pivots)
    if (x.shape[-2], b.shape[-2], given.shape[-1:]) != (n, n, (n,)):
        raise ShapeError(
            f"ldl_solve: needs LD (..., n, n), pivots (..., n) and B (..., n, k), got {described(x)}, "
            f"{described(given)} and {described(b)}"
        )
    lower, blocks, order, _, _ = standard(x, given, bool(hermitian))
    z = solve(blocks, solve_triangular(lower, rows_of(b, order), upper=False, unitriangular=True))
    z = solve_triangular(adjoint(lower) if hermitian else lower.mT, z, upper=True, unitriangular=True)
    return rows_of(z, xp.argsort(order, axis=-1))
