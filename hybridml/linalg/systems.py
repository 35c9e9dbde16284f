"""Linear systems, inverses and least squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from hybridml_compiler.errors import ShapeError
from hybridml_compiler.ops.shapes import axis_index
from hybridml_compiler.ops.table import OPS

from ..core.tensor import Tensor
from .factorizations import svdvals
from .functions import matrix_rank
from .operands import described, floating, matrices, precision, tensor


class LstsqResult(NamedTuple):
    """Result of `lstsq`: the `solution`, `residuals` (sums of squares), `rank` and `singular_values`.

    >>> hm.linalg.lstsq(hm.eye(2), hm.ones(2)).solution.tolist()
    [1.0, 1.0]
    """

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Solution z of ``x1 @ z = x2``, by elimination with partial pivoting.

    x1 (..., n, n); x2 is one vector (n,), or matrices (..., n, k), with which the result (..., n, k) has the batch
    that both broadcast to. Raises LinAlgError, which names the matrix, for a singular one, ShapeError for shapes that
    do not fit.

    >>> import hybridml as hm
    >>> hm.linalg.solve(hm.asarray([[2.0, 0.0], [0.0, 4.0]]), hm.asarray([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    found: Tensor = OPS["solve"].fn(x1, x2)
    return found


def solve_triangular(
    x1: Tensor, x2: Tensor, /, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Solution z of ``x1 @ z = x2`` (of ``z @ x1 = x2`` with ``left=False``) for triangular x1, by substitution.

    Only the triangle that `upper` names is read, and with `unitriangular` not its diagonal either, which counts as
    ones. Shapes as of `solve`; the signature is PyTorch's. Raises ShapeError for shapes that do not fit, LinAlgError
    for a zero on the diagonal.

    >>> import hybridml as hm
    >>> hm.linalg.solve_triangular(hm.asarray([[2.0, 7.0], [1.0, 1.0]]), hm.asarray([2.0, 3.0]), upper=False).tolist()
    [1.0, 2.0]
    """
    fn = OPS["solve_triangular"].fn
    if left:
        found: Tensor = fn(x1, x2, upper=upper, unit=unitriangular)
        return found
    x1, x2 = matrices("solve_triangular", x1), tensor(x2)
    found = fn(x1.mT, x2.mT if x2.ndim > 1 else x2, upper=not upper, unit=unitriangular)
    return found.mT if x2.ndim > 1 else found


def inv(x: Tensor, /) -> Tensor:
    """Inverse of square matrices (..., n, n). Raises LinAlgError, which names the matrix, for a singular one.

    Raises ShapeError where they are not square. `solve(x, y)` is faster and more accurate than ``inv(x) @ y``.

    >>> import hybridml as hm
    >>> hm.linalg.inv(hm.asarray([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    found: Tensor = OPS["inv"].fn(x)
    return found


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """Pseudo-inverse (..., n, m) of matrices (..., m, n) (Moore 1920, Penrose 1955).

    Singular values below `rtol` (a number, or one for each matrix) times the largest count as zero; ``max(m, n)``
    times the precision of the dtype where it is None. Raises LinAlgError for infinities and nans, ShapeError for less
    than two axes. Gradient, for matrices that keep their rank: Golub and Pereyra, The differentiation of
    pseudo-inverses, 1973.

    >>> import hybridml as hm
    >>> hm.linalg.pinv(hm.asarray([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    x = floating(matrices("pinv", x))
    found: Tensor = OPS["pinv"].fn(x, precision(x) if rtol is None else rtol)
    return found


def lstsq(a: Tensor, b: Tensor, /, rcond: Any = None) -> LstsqResult:
    """Least-squares solution: the z that makes the norm of ``a @ z - b`` least, and of those the shortest.

    a (..., m, n); b is one vector (m,), or matrices (..., m, k). Gives the solution, the sums of squares of what is
    left (of each column; unlike NumPy's for any rank), the rank and the singular values of a. `rcond` as `rtol` of
    `pinv`, with which it is computed, and differentiated. Raises ShapeError for shapes that do not fit, LinAlgError for
    infinities and nans.

    >>> import hybridml as hm
    >>> line = hm.linalg.lstsq(hm.asarray([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]), hm.asarray([1.0, 3.0, 5.0]))
    >>> [round(v, 3) for v in line.solution.tolist()], line.rank.item()
    ([2.0, 1.0], 2)
    """
    a, b = floating(matrices("lstsq", a)), floating(b)
    if b.ndim == 0 or b.shape[-min(b.ndim, 2)] != a.shape[-2]:
        raise ShapeError(
            f"lstsq: {described(a)} needs a right side of shape ({a.shape[-2]},) or (..., {a.shape[-2]}, columns), "
            f"got {described(b)}"
        )
    solution = pinv(a, rtol=rcond) @ b
    rest = a @ solution - b
    squares = OPS["square"].fn(OPS["abs"].fn(rest)).sum(axis=-1 if b.ndim == 1 else -2)
    return LstsqResult(solution, squares, matrix_rank(a, rtol=rcond), svdvals(a))


def tensorinv(a: Tensor, /, ind: int = 2) -> Tensor:
    """Inverse of the tensor `a` as a map between tensors: the first `ind` of its axes are those of results.

    Shapes (*s, *t) -> (*t, *s), where s are `ind` axes. Raises ShapeError unless `ind` is at least 1 and the map is
    square, LinAlgError for a singular one.

    >>> import hybridml as hm
    >>> hm.linalg.tensorinv(hm.eye(6).reshape((2, 3, 6)), ind=2).shape
    (6, 2, 3)
    """
    a = tensor(a)
    if ind <= 0:
        raise ShapeError(f"tensorinv: ind is the number of axes of a result, at least 1, got {ind}")
    rows = math.prod(a.shape[:ind])
    return inv(a.reshape((rows, -1))).reshape((*a.shape[ind:], *a.shape[:ind]))


def tensorsolve(a: Tensor, b: Tensor, /, axes: Sequence[int] | None = None) -> Tensor:
    """Solution z of ``tensordot(a, z, z.ndim) = b``; `axes` of a are moved to its end first.

    Shapes (*s, *t) and (*s,) -> (*t,). Raises ShapeError where a is no square map, LinAlgError for a singular one.

    >>> import hybridml as hm
    >>> hm.linalg.tensorsolve(hm.eye(6).reshape((2, 3, 6)), hm.ones((2, 3))).shape
    (6,)
    """
    a, b = tensor(a), tensor(b)
    if axes is not None:
        moved = [axis_index("tensorsolve", k, described(a)) for k in axes]
        a = a.permute_dims(axes=(*(k for k in range(a.ndim) if k not in moved), *moved))
    shape = a.shape[b.ndim :]
    if math.prod(shape) != b.numel() or a.numel() != b.numel() ** 2:
        raise ShapeError(f"tensorsolve: {described(a)} is no square map to {described(b)}")
    return solve(a.reshape((b.numel(), b.numel())), b.reshape((b.numel(),))).reshape(shape)
