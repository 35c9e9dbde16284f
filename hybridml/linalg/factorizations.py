"""Factorisations of matrices: Cholesky, LU, QR, singular values, eigenvalues.

Vectors are defined up to their sign (their phase, where they are complex), and those of equal values up to a rotation
in their space. A loss that depends on which ones came out has no gradient.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from hybridml_compiler.ops.table import OPS

from ..core.library import compiled_when_small
from ..core.tensor import Tensor
from .operands import adjoint, matrices, one_of


class LUResult(NamedTuple):
    """Result of `lu`: permutation `P`, lower triangular `L` and upper triangular `U`.

    >>> hm.linalg.lu(hm.eye(2)).U.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    P: Tensor
    L: Tensor
    U: Tensor


class QRResult(NamedTuple):
    """Result of `qr`: orthonormal columns `Q` and upper triangular `R`.

    >>> abs(hm.linalg.qr(hm.eye(2)).R).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """Result of `svd`: orthonormal `U` and `Vh`, and the singular values `S`, falling.

    >>> hm.linalg.svd(hm.eye(2)).S.tolist()
    [1.0, 1.0]
    """

    U: Tensor
    S: Tensor
    Vh: Tensor


class EighResult(NamedTuple):
    """Result of `eigh`: real `eigenvalues`, rising, and orthonormal `eigenvectors`, the columns.

    >>> hm.linalg.eigh(hm.eye(2)).eigenvalues.tolist()
    [1.0, 1.0]
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """Result of `eig`: complex `eigenvalues`, in no order, and `eigenvectors`, the columns.

    >>> hm.linalg.eig(hm.eye(2)).eigenvalues.tolist()
    [(1+0j), (1+0j)]
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """Lower triangular L with ``L @ L^H = x``, or the upper U with ``U^H @ U = x``.

    x (..., n, n) is Hermitian and positive definite, of a floating dtype; the factor of ``(x + x^H) / 2`` is computed,
    so that its gradient is Hermitian too. Raises LinAlgError, which names the matrix and its smallest eigenvalue,
    where that is not positive, and ShapeError where x is not square. Gradient: Giles, An extended collection of matrix
    derivative results, 2008.

    >>> import hybridml as hm
    >>> hm.linalg.cholesky(hm.asarray([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    factor: Tensor = OPS["cholesky"].fn(x)
    return adjoint(factor) if upper else factor


@compiled_when_small
def lu(x: Tensor, /) -> LUResult:
    """Permutation P, lower triangular L with ones on its diagonal and upper triangular U with ``P @ L @ U = x``.

    Of x (..., m, n) with k = min(m, n): P (..., m, m), L (..., m, k) and U (..., k, n), by elimination with partial
    pivoting. Raises LinAlgError for infinities and nans, ShapeError for less than two axes. The gradient needs a
    leading square of U that has an inverse (LinAlgError); P has none. Source: Golub and Van Loan, Matrix Computations.

    >>> import hybridml as hm
    >>> p, lower, upper = hm.linalg.lu(hm.asarray([[1.0, 2.0], [2.0, 2.0]]))
    >>> p.tolist(), lower.tolist(), upper.tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.5, 1.0]], [[2.0, 2.0], [0.0, 1.0]])
    """
    return LUResult(*OPS["lu"].fn(x))


@compiled_when_small
def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Orthonormal columns Q and upper triangular R with ``Q @ R = x``, by Householder reflections.

    Of x (..., m, n) with k = min(m, n): Q (..., m, k) and R (..., k, n); with mode "complete" Q (..., m, m) and R (...,
    m, n). Raises ShapeError for less than two axes, ArgumentError for another mode. Gradient: Walter and Lehmann,
    Algorithmic differentiation of linear algebra functions, 2010; it needs a leading square of R that has an inverse
    (LinAlgError).

    >>> import hybridml as hm
    >>> q, r = hm.linalg.qr(hm.asarray([[3.0], [4.0]]))
    >>> q.shape, hm.abs(r).tolist()
    ((2, 1), [[5.0]])
    """
    return QRResult(*OPS["qr"].fn(x, mode=mode))


@compiled_when_small
def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular values S, falling, and orthonormal U and Vh with ``(U * S) @ Vh = x``.

    Of x (..., m, n) with k = min(m, n): S (..., k) real, U (..., m, m) and Vh (..., n, n), or without `full_matrices`
    their first k columns and rows, which are those of the product. Raises LinAlgError for infinities and nans,
    ShapeError for less than two axes. Gradient: Giles, An extended collection of matrix derivative results, 2008; that
    of values alone is `svdvals`'s.

    >>> import hybridml as hm
    >>> u, s, vh = hm.linalg.svd(hm.asarray([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]]), full_matrices=False)
    >>> u.shape, s.tolist(), vh.shape
    ((3, 2), [3.0, 2.0], (2, 2))
    """
    return SVDResult(*OPS["svd"].fn(x, full_matrices=full_matrices))


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values (..., min(m, n)) of x (..., m, n), real and falling.

    Raises LinAlgError for infinities and nans, ShapeError for less than two axes.

    >>> import hybridml as hm
    >>> hm.linalg.svdvals(hm.asarray([[0.0, 2.0], [3.0, 0.0]])).tolist()
    [3.0, 2.0]
    """
    found: Tensor = OPS["svdvals"].fn(x)
    return found


def _hermitian(name: str, x: Tensor, triangle: str | None) -> Tensor:
    """x, or the Hermitian matrix of which x holds a triangle."""
    if triangle is None:
        return x
    x = matrices(name, x)
    strict = x.tril(k=-1) if one_of(name, "UPLO", triangle, ("L", "U")) == "L" else x.triu(k=1)
    return strict + adjoint(strict) + (x.tril() - x.tril(k=-1)).triu()


@compiled_when_small
def eigh(x: Tensor, /, *, UPLO: Literal["L", "U"] | None = None) -> EighResult:
    """Eigenvalues (..., n), real and rising, and orthonormal eigenvectors (columns) of Hermitian matrices (..., n, n).

    Those of ``(x + x^H) / 2`` are computed, so that gradients are Hermitian too; with `UPLO` those of the matrix of
    which x holds the lower ("L") or the upper ("U") triangle, as in NumPy, and the other triangle has no gradient.
    Raises LinAlgError for infinities and nans, ShapeError where x is not square, ArgumentError for another `UPLO`.
    Gradient: Giles, An extended collection of matrix derivative results, 2008.

    >>> import hybridml as hm
    >>> hm.linalg.eigh(hm.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return EighResult(*OPS["eigh"].fn(_hermitian("eigh", x, UPLO)))


def eigvalsh(x: Tensor, /, *, UPLO: Literal["L", "U"] | None = None) -> Tensor:
    """Eigenvalues (..., n) of Hermitian matrices, real and rising; arguments as of `eigh`.

    Raises LinAlgError for infinities and nans, ShapeError where x is not square, ArgumentError for another `UPLO`.

    >>> import hybridml as hm
    >>> hm.linalg.eigvalsh(hm.asarray([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 2.0]
    """
    found: Tensor = OPS["eigvalsh"].fn(_hermitian("eigvalsh", x, UPLO))
    return found


def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues (..., n), in no order, and eigenvectors (columns of norm 1) of square matrices (..., n, n).

    Both are complex, whatever x is and whatever the eigenvalues are: a dtype does not depend on values. Raises
    LinAlgError for infinities and nans, ShapeError where x is not square. Gradient: Boeddeker et al., On the
    computation of complex-valued gradients, 2017; it needs eigenvectors that are independent (LinAlgError).

    >>> import hybridml as hm
    >>> hm.linalg.eig(hm.asarray([[0.0, -1.0], [1.0, 0.0]])).eigenvalues.tolist()
    [1j, -1j]
    """
    return EigResult(*OPS["eig"].fn(x))


def eigvals(x: Tensor, /) -> Tensor:
    """Eigenvalues (..., n) of square matrices, complex and in no order.

    Raises LinAlgError for infinities and nans, ShapeError where x is not square.

    >>> import hybridml as hm
    >>> hm.linalg.eigvals(hm.asarray([[2.0, 1.0], [0.0, 3.0]])).tolist()
    [(2+0j), (3+0j)]
    """
    found: Tensor = OPS["eigvals"].fn(x)
    return found
