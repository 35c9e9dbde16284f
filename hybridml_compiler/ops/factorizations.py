"""Factorisations: Cholesky, LU, QR, singular values, eigenvalues. A target's routine or NumPy computes them
([Note: LAPACK]).

Rules are in the usual convention (`conjugated`). Sources: Giles, An extended collection of matrix derivative results,
2008; Seeger et al., Auto-differentiating linear algebra, 2017; Walter and Lehmann, Algorithmic differentiation of
linear algebra functions, 2010 (QR). Vectors are defined up to a sign or phase, and those of equal values up to a
rotation: a loss that depends on which ones LAPACK has chosen has no gradient (see `over`).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ArgumentError, ShapeError
from . import movement
from .complex import real
from .contraction import matmul
from .matrices import (
    Array,
    adjoint,
    column,
    conj,
    conjugated,
    diagonal_of,
    diagonalizable,
    endless,
    finite,
    general,
    half_real,
    matrices,
    on,
    over,
    over_gaps,
    positive,
    row,
    samples,
    square,
    symmetric,
)
from .op import Op
from .routines import of_matrices, of_qr, of_square, of_svd, of_values
from .samples import fails
from .systems import solve, solve_triangular

_SQUARE = ((3, 3), (2, 2, 2), (1, 1), (0, 0), (0, 2, 2))
_SHAPES = ((3, 3), (2, 4, 2), (2, 3), (1, 1), (0, 2), (2, 0), (0, 2, 2))

# ---------------------------------------------------------------- Cholesky


def _symmetrised(x: Array) -> Array:
    found: Array = (x + x.conj().mT) * x.real.dtype.type(0.5)
    return found


def _not_positive(x: Array) -> str:
    least = np.linalg.eigvalsh(_symmetrised(x))[0]
    return f"is not positive definite: its smallest eigenvalue is {least:.3g}; add a multiple of the identity"


def _half(x: Any) -> Any:
    """The lower triangle, with half of the diagonal."""
    return x.tril(k=-1) + on(diagonal_of(x)) * 0.5


@conjugated
def _cholesky_rule(g: Any, out: Any) -> Any:
    lower = adjoint(out)
    inner = _solve_upper(lower, _half(matmul(lower, g)))
    return half_real(adjoint(_solve_upper(lower, adjoint(inner))))


def _solve_upper(x: Any, y: Any) -> Any:
    return solve_triangular(x, y, upper=True)


cholesky = Op(
    "cholesky",
    "opaque",
    inputs=("x",),
    infer=lambda x: Aval((*square("cholesky", x)[0], *x.shape[-2:]), x.dtype),
    fails=True,
    eager=finite(
        "cholesky",
        lambda x: np.linalg.cholesky(_symmetrised(x)),
        lambda x: np.linalg.cholesky(_symmetrised(x)),
        _not_positive,
    ),
    vjp=(_cholesky_rule,),
    samples=samples(*(([(positive, shape)], {}) for shape in _SQUARE)),
    error_samples=lambda: (
        fails(ShapeError, "cholesky: needs square matrices, got f32[2,3]", (2, 3)),
        fails(
            np.linalg.LinAlgError,
            "cholesky: matrix 1 of f64[2,1,1] is not positive definite: its smallest eigenvalue is -2",
            np.array([[[1.0]], [[-2.0]]]),
        ),
        fails(np.linalg.LinAlgError, "cholesky: f64[1,1] holds nan or infinity", np.array([[np.nan]])),
    ),
    routine=of_square,
    accepts="inexact",
    doc="The lower triangular L with L L^H = (x + x^H) / 2, which is x for a Hermitian matrix. It must be "
    "positive definite.",
)

# ---------------------------------------------------------------- LU


def _infer_lu(x: Aval) -> tuple[Aval, Aval, Aval]:
    batch, rows, columns = matrices("lu", x)
    inner = rows if rows < columns else columns
    return (
        Aval((*batch, rows, rows), x.dtype),
        Aval((*batch, rows, inner), x.dtype),
        Aval((*batch, inner, columns), x.dtype),
    )


def _lu(x: Array) -> tuple[Array, Array, Array]:
    """Column by column, in all matrices at once: of LAPACK's NumPy has `solve` alone, which drops the factors."""
    rows, columns = x.shape[-2:]
    a = x.reshape(math.prod(x.shape[:-2]), rows, columns).copy()
    every, order = np.arange(len(a)), np.tile(np.arange(rows), (len(a), 1))
    for k in range(min(rows, columns)):
        pivot = k + abs(a[:, k:, k]).argmax(axis=1)
        for moved in (a, order):
            moved[every, pivot], moved[:, k] = moved[:, k].copy(), moved[every, pivot]
        top = a[:, k, k, None]
        a[:, k + 1 :, k] = np.divide(a[:, k + 1 :, k], top, out=np.zeros_like(a[:, k + 1 :, k]), where=top != 0)
        a[:, k + 1 :, k + 1 :] -= a[:, k + 1 :, k, None] * a[:, k, None, k + 1 :]
    inner, one = min(rows, columns), np.eye(rows, dtype=x.dtype)
    lower = np.tril(a[..., :inner], -1) + one[:, :inner]
    parts = one[order].mT, lower, np.triu(a[:, :inner])
    return tuple(part.reshape(*x.shape[:-2], *part.shape[-2:]) for part in parts)  # type: ignore[return-value]


@conjugated
def _lu_rule(g: Any, out: Any) -> Any:
    """Gradient of P^T x = L U: that of the leading square; parts beside or below it are solved for with the other
    factor."""
    (p, lower, upper), (_, by_lower, by_upper), k = out, g, out[1].shape[-1]
    by_lower = lower * 0 if by_lower is None else by_lower
    by_upper = upper * 0 if by_upper is None else by_upper
    first, last = lower[..., :k, :], upper[..., :k]
    below = _over(by_lower[..., k:, :], last)
    beside = _solve_upper(adjoint(first), by_upper[..., k:])
    by_first = by_lower[..., :k, :] - matmul(beside, adjoint(upper[..., k:]))
    by_last = by_upper[..., :k] - matmul(adjoint(lower[..., k:, :]), below)
    inner = matmul(adjoint(first), by_first).tril(k=-1) + matmul(by_last, adjoint(last)).triu(k=0)
    square_part = _over(_solve_upper(adjoint(first), inner), last)
    wide = movement.concat([square_part, beside], axis=-1)
    return matmul(p, movement.concat([wide, below], axis=-2) if lower.shape[-2] > k else wide)


lu = Op(
    "lu",
    "opaque",
    inputs=("x",),
    results=("P", "L", "U"),
    infer=_infer_lu,
    fails=True,
    eager=finite("lu", _lu, _lu, endless),
    vjp=(_lu_rule,),
    samples=samples(*(([(general, shape)], {}) for shape in _SHAPES)),
    error_samples=lambda: (fails(ShapeError, "lu: needs a matrix or a batch of them, got f32[2]", (2,)),),
    routine=of_matrices,
    accepts="inexact",
    doc="A permutation P, lower triangular L with ones on the diagonal and upper triangular U with P L U = x, by "
    "elimination with partial pivoting.",
)

# ---------------------------------------------------------------- QR


def _infer_qr(x: Aval, mode: str) -> tuple[Aval, Aval]:
    batch, rows, columns = matrices("qr", x)
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"qr: mode is 'reduced' or 'complete', got {mode!r}")
    inner = rows if mode == "complete" or rows < columns else columns
    return Aval((*batch, rows, inner), x.dtype), Aval((*batch, inner, columns), x.dtype)


@conjugated
def _qr_rule(g: Any, x: Any, out: Any) -> Any:
    (q, r), (by_q, by_r), (rows, columns) = out, g, x.shape[-2:]
    if rows < columns:  # r = [r1 r2] with r2 = q^H x2: the rest is square
        more = None if by_r is None else by_r[..., rows:]
        by_r = None if by_r is None else by_r[..., :rows]
        if more is not None:
            pulled = matmul(x[..., rows:], adjoint(more))
            by_q = pulled if by_q is None else by_q + pulled
        first = _tall(q, r[..., :rows], by_q, by_r)
        return movement.concat([first, x[..., rows:] * 0 if more is None else matmul(q, more)], axis=-1)
    if q.shape[-1] == columns:
        return _tall(q, r, by_q, by_r)
    # The other columns of q turn with the first ones alone: dq2 = -q1 r^-H dx^H q2.
    q, rest, r = q[..., :columns], q[..., columns:], r[..., :columns, :]
    by_rest = None if by_q is None else by_q[..., columns:]
    found = _tall(q, r, None if by_q is None else by_q[..., :columns], None if by_r is None else by_r[..., :columns, :])
    return found if by_rest is None else found - _over(matmul(rest, matmul(adjoint(by_rest), q)), r)


def _tall(q: Any, r: Any, by_q: Any, by_r: Any) -> Any:
    inner = None if by_r is None else matmul(by_r, adjoint(r))
    if by_q is not None:
        inner = -matmul(adjoint(q), by_q) if inner is None else inner - matmul(adjoint(q), by_q)
    half = adjoint(_half(adjoint(inner)))
    found = matmul(q, half + adjoint(half))
    return _over(found if by_q is None else found + by_q, r)


def _over(x: Any, r: Any) -> Any:
    """x r^-H for an upper triangular r."""
    return adjoint(_solve_upper(r, adjoint(x)))


qr = Op(
    "qr",
    "opaque",
    inputs=("x",),
    params={"mode": "reduced"},
    results=("Q", "R"),
    infer=_infer_qr,
    fails=True,
    eager=finite("qr", lambda x, mode: np.linalg.qr(x, mode), lambda x: np.linalg.qr(x), endless),
    vjp=(_qr_rule,),
    samples=lambda rng: itertools.chain(
        samples(
            *(([(general, shape)], {}) for shape in _SHAPES),
            ([(general, (2, 3))], {"mode": "complete"}),
        )(rng),
        samples(([(general, (3, 2))], {"mode": "complete"}), phases=False)(rng),
    ),
    error_samples=lambda: (
        fails(ShapeError, "qr: needs a matrix or a batch of them, got f32[2]", (2,)),
        fails(ArgumentError, "qr: mode is 'reduced' or 'complete', got 'full'", (2, 2), mode="full"),
    ),
    routine=of_qr,
    accepts="inexact",
    doc="Orthonormal columns Q and upper triangular R with Q R = x; with mode 'complete' Q is square.",
)

# ---------------------------------------------------------------- singular values


def _infer_svd(x: Aval, full_matrices: bool) -> tuple[Aval, Aval, Aval]:
    batch, rows, columns = matrices("svd", x)
    inner = rows if rows < columns else columns
    left, right = (rows, columns) if full_matrices else (inner, inner)
    real = dtypes.real_of(x.dtype)
    return Aval((*batch, rows, left), x.dtype), Aval((*batch, inner), real), Aval((*batch, right, columns), x.dtype)


@conjugated
def _svd_rule(g: Any, out: Any) -> Any:
    (u, s, v), (by_u, by_s, by_v), k = out, g, out[1].shape[-1]
    u1, v1, inner = u[..., :k], v[..., :k, :], None if by_s is None else on(by_s)
    squares = (row(s) - column(s)) * (row(s) + column(s))
    terms = []
    if by_u is not None:
        by_u1, by_u2 = by_u[..., :k], by_u[..., k:]
        pulled = matmul(adjoint(u1), by_u1)
        turn = over_gaps(pulled, squares)
        more = (turn + adjoint(turn)) * row(s)
        if u.dtype.kind == "c":  # phases: v turns by those of u
            along = diagonal_of(pulled)
            more = more + on(over(along - conj(along), 2 * s))
        inner = more if inner is None else inner + more
        if u.shape[-2] > k:
            beside = over(by_u1, row(s))
            terms.append(matmul(beside - matmul(u1, matmul(adjoint(u1), beside)), v1))
        if u.shape[-1] > k:  # columns for no singular value turn with the others alone
            terms.append(-matmul(matmul(u[..., k:], over(matmul(adjoint(by_u2), u1), row(s))), v1))
    if by_v is not None:
        by_v1, by_v2 = by_v[..., :k, :], by_v[..., k:, :]
        turn = over_gaps(matmul(v1, adjoint(by_v1)), squares)
        more = (turn + adjoint(turn)) * column(s)
        inner = more if inner is None else inner + more
        if v.shape[-1] > k:
            beside = over(by_v1, column(s))
            terms.append(matmul(u1, beside - matmul(matmul(beside, adjoint(v1)), v1)))
        if v.shape[-2] > k:
            terms.append(-matmul(u1, matmul(over(matmul(v1, adjoint(by_v2)), column(s)), v[..., k:, :])))
    total = matmul(matmul(u1, inner), v1)
    for term in terms:
        total = total + term
    return total


svd = Op(
    "svd",
    "opaque",
    inputs=("x",),
    params={"full_matrices": True},
    canon=lambda x, full_matrices: {"full_matrices": bool(full_matrices)},
    results=("U", "S", "Vh"),
    infer=_infer_svd,
    fails=True,
    eager=finite("svd", np.linalg.svd, np.linalg.svd, endless),
    vjp=(_svd_rule,),
    samples=samples(
        *(([(general, shape)], {"full_matrices": False}) for shape in _SHAPES),
        *(([(general, shape)], {}) for shape in [(3, 2), (2, 3)]),
        phases=False,
    ),
    error_samples=lambda: (
        fails(ShapeError, "svd: needs a matrix or a batch of them, got f32[2]", (2,)),
        fails(np.linalg.LinAlgError, "svd: f64[1,1] holds nan or infinity", np.array([[np.nan]])),
    ),
    routine=of_svd,
    accepts="inexact",
    doc="Orthonormal U and Vh and falling S with (U * S) Vh = x, of the first columns of U and rows of Vh; the others, "
    "with `full_matrices`, make both square.",
)


@conjugated
def _svdvals_rule(g: Any, x: Any) -> Any:
    u, _, v = svd(x, full_matrices=False)
    return matmul(u * row(g), v)


svdvals = Op(
    "svdvals",
    "opaque",
    inputs=("x",),
    infer=lambda x: _infer_svd(Aval(matrices("svdvals", x)[0] + x.shape[-2:], x.dtype), False)[1],
    fails=True,
    eager=finite("svdvals", np.linalg.svdvals, np.linalg.svdvals, endless),
    vjp=(_svdvals_rule,),
    samples=samples(*(([(general, shape)], {}) for shape in _SHAPES)),
    error_samples=lambda: (fails(ShapeError, "svdvals: needs a matrix or a batch of them, got f32[2]", (2,)),),
    routine=of_values,
    accepts="inexact",
    doc="The singular values of matrices, falling.",
)

# ---------------------------------------------------------------- eigenvalues


def _values(name: str, x: Aval, dtype: np.dtype) -> Aval:
    batch, n = square(name, x)
    return Aval((*batch, n), dtype)


@conjugated
def _eigh_rule(g: Any, out: Any) -> Any:
    (w, v), (by_w, by_v) = out, g
    inner = None if by_w is None else on(by_w)
    if by_v is not None:
        turn = over_gaps(matmul(adjoint(v), by_v), row(w) - column(w))
        inner = turn if inner is None else inner + turn
    return half_real(matmul(matmul(v, inner), adjoint(v)))


eigh = Op(
    "eigh",
    "opaque",
    inputs=("x",),
    results=("eigenvalues", "eigenvectors"),
    infer=lambda x: (_values("eigh", x, dtypes.real_of(x.dtype)), Aval(x.shape, x.dtype)),
    fails=True,
    eager=finite("eigh", lambda x: np.linalg.eigh(_symmetrised(x)), np.linalg.eigh, endless),
    vjp=(_eigh_rule,),
    samples=samples(*(([(symmetric, shape)], {}) for shape in _SQUARE), phases=False),
    error_samples=lambda: (
        fails(ShapeError, "eigh: needs square matrices, got f32[2,3]", (2, 3)),
        fails(np.linalg.LinAlgError, "eigh: f64[1,1] holds nan or infinity", np.array([[np.inf]])),
    ),
    routine=of_square,
    accepts="inexact",
    doc="Rising eigenvalues and orthonormal eigenvectors (columns) of (x + x^H) / 2, which is x for a Hermitian "
    "matrix.",
)


@conjugated
def _eigvalsh_rule(g: Any, x: Any) -> Any:
    _, v = eigh(x)
    return matmul(v * row(g), adjoint(v))


eigvalsh = Op(
    "eigvalsh",
    "opaque",
    inputs=("x",),
    infer=lambda x: _values("eigvalsh", x, dtypes.real_of(x.dtype)),
    fails=True,
    eager=finite("eigvalsh", lambda x: np.linalg.eigvalsh(_symmetrised(x)), np.linalg.eigvalsh, endless),
    vjp=(_eigvalsh_rule,),
    samples=samples(*(([(symmetric, shape)], {}) for shape in _SQUARE)),
    error_samples=lambda: (fails(ShapeError, "eigvalsh: needs square matrices, got f32[2,3]", (2, 3)),),
    routine=of_square,
    accepts="inexact",
    doc="The rising eigenvalues of (x + x^H) / 2, which is x for a Hermitian matrix.",
)


def _eig(x: Array) -> tuple[Array, Array]:
    w, v = np.linalg.eig(x)
    dtype = dtypes.complex_of(x.dtype)
    return w.astype(dtype), v.astype(dtype)


@conjugated
def _eig_rule(g: Any, out: Any, x_dtype: Any) -> Any:
    """Gradient for vectors of norm 1 (Boeddeker et al., On the computation of complex-valued gradients, 2017)."""
    (w, v), (by_w, by_v) = out, g
    inner = None if by_w is None else on(by_w)
    if by_v is not None:
        pulled = matmul(adjoint(v), by_v)
        along = diagonal_of(pulled)
        turn = over_gaps(pulled - matmul(adjoint(v), v) * row(real(along)), conj(row(w) - column(w)))
        inner = turn if inner is None else inner + turn
    return _between(v, inner, x_dtype)


def _between(v: Any, inner: Any, x_dtype: Any) -> Any:
    """v^-H inner v^H; its real part for a real matrix."""
    found = solve(adjoint(v), matmul(inner, adjoint(v)))
    return found if x_dtype.kind == "c" else real(found)


eig = Op(
    "eig",
    "opaque",
    inputs=("x",),
    results=("eigenvalues", "eigenvectors"),
    infer=lambda x: (_values("eig", x, dtypes.complex_of(x.dtype)), Aval(x.shape, dtypes.complex_of(x.dtype))),
    fails=True,
    eager=finite("eig", _eig, np.linalg.eig, endless),
    vjp=(_eig_rule,),
    samples=samples(*(([(diagonalizable, shape)], {}) for shape in _SQUARE), phases=False),
    error_samples=lambda: (
        fails(ShapeError, "eig: needs square matrices, got f32[2,3]", (2, 3)),
        fails(np.linalg.LinAlgError, "eig: f64[1,1] holds nan or infinity", np.array([[np.inf]])),
    ),
    accepts="inexact",
    doc="Eigenvalues, in no order, and eigenvectors (columns of norm 1) of square matrices; always complex.",
)


@conjugated
def _eigvals_rule(g: Any, x: Any, x_dtype: Any) -> Any:
    _, v = eig(x)
    return _between(v, on(g), x_dtype)


eigvals = Op(
    "eigvals",
    "opaque",
    inputs=("x",),
    infer=lambda x: _values("eigvals", x, dtypes.complex_of(x.dtype)),
    fails=True,
    eager=finite("eigvals", lambda x: np.linalg.eigvals(x).astype(dtypes.complex_of(x.dtype)), np.linalg.eig, endless),
    vjp=(_eigvals_rule,),
    samples=samples(*(([(diagonalizable, shape)], {}) for shape in _SQUARE)),
    error_samples=lambda: (fails(ShapeError, "eigvals: needs square matrices, got f32[2,3]", (2, 3)),),
    accepts="inexact",
    doc="The eigenvalues of square matrices, in no order; always complex.",
)

ROWS = (cholesky, lu, qr, svd, svdvals, eigh, eigvalsh, eig, eigvals)
