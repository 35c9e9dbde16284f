"""Factors L D L^T of symmetric matrices that are not definite, by the pivots of Bunch and Kaufman, in LAPACK's form.

LAPACK's sytrf and hetrf, of which NumPy has none. Source: Bunch and Kaufman, Some stable methods for calculating
inertia and solving symmetric linear systems, 1977.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import LinAlgError, OutOfBoundsError, ShapeError
from . import movement
from .contraction import matmul
from .elementwise import where
from .gather import take_along_axis
from .matrices import (
    Array,
    adjoint,
    check_finite,
    column,
    conj,
    conjugated,
    diagonal_of,
    on,
    samples,
    square,
    symmetric,
    turned,
    which,
)
from .op import Op, Sample
from .samples import fails
from .shapes import Shape
from .sorting import argsort
from .systems import solve, solve_triangular

_GROWTH = (1 + math.sqrt(17)) / 8  # which bounds the growth of elements best


def _size(x: Array) -> Array:
    """The size of elements as LAPACK takes it to choose pivots: no square root."""
    found: Array = abs(x.real) + abs(x.imag) if x.dtype.kind == "c" else abs(x)
    return found


def _pivot(a: Array, k: int) -> tuple[int, int]:
    """The row that is exchanged, and the size of the block of D: 1 or 2; row -1 where the column is zero."""
    column = _size(a[k:, k])
    here, below = column[0], column[1:]
    if not column.any():
        return -1, 1
    far = k + 1 + int(below.argmax()) if below.size else k
    most = column[far - k] if below.size else 0
    if here >= _GROWTH * most:
        return k, 1
    row = _size(a[far, k:])
    own, row[far - k] = row[far - k], 0
    largest = row.max()
    if here >= _GROWTH * most * (most / largest):
        return k, 1
    return far, 1 if own >= _GROWTH * largest else 2


def _factor(a: Array, hermitian: bool) -> tuple[Array, int]:
    """The pivots; `a` becomes the factors. And the first column, from 1 on, where D is zero; 0 for none."""
    pivots, zero, k = np.empty(len(a), np.int32), 0, 0
    while k < len(a):
        p, step = _pivot(a, k)
        end, q = k + step, k + step - 1
        if p < 0:
            p, zero = k, zero or k + 1
        else:
            a[[q, p], k:] = a[[p, q], k:]
            a[k:, [q, p]] = a[k:, [p, q]]
            part = a[end:, k:end].copy()
            a[end:, k:end] = np.linalg.solve(a[k:end, k:end].T, part.T).T if step == 2 else part / a[k, k]
            a[end:, end:] -= a[end:, k:end] @ (part.conj() if hermitian else part).T
            if hermitian and a.dtype.kind == "c":
                np.einsum("ii->i", a).imag[end:] = 0
        pivots[k:end] = p + 1 if step == 1 else -(p + 1)
        k = end
    return pivots, zero


def _ldl(x: Array, hermitian: bool, check: bool) -> tuple[Array, Array, Array]:
    check_finite("ldl_factor", x)
    a = (x + (x.conj() if hermitian else x).mT) * x.real.dtype.type(0.5)
    pivots, zeros = np.empty(x.shape[:-1], np.int32), np.empty(x.shape[:-2], np.int32)
    for index in np.ndindex(x.shape[:-2]):
        pivots[index], zeros[index] = _factor(a[index], hermitian)
        if check and zeros[index]:
            raise LinAlgError(f"ldl_factor: {which(x, index)} is singular: D is zero in column {zeros[index] - 1}")
    return np.ascontiguousarray(np.tril(a)), pivots, zeros


def _places(pivots: Array) -> tuple[Array, Array, Array]:
    n = pivots.shape[-1]
    order = np.tile(np.arange(n), (*pivots.shape[:-1], 1))
    places = np.tile(np.arange(n)[:, None], (*pivots.shape[:-1], 1, n))
    pairs = np.zeros(places.shape, bool)
    for index in np.ndindex(pivots.shape[:-1]):
        k = 0
        while k < n:
            q = k + int(pivots[index][k] < 0)
            p = abs(int(pivots[index][k])) - 1
            if not q <= p < n or pivots[index][min(q, n - 1)] != pivots[index][k]:
                raise OutOfBoundsError(f"ldl_places: pivot {k} is {pivots[index][k]}, which ldl_factor does not give")
            rows, swapped = [q, p], [p, q]
            order[index][rows] = order[index][swapped]
            places[index][rows, :k] = places[index][swapped, :k]
            pairs[index][q, k] = q > k
            k = q + 1
    return order, places, pairs


def _infer_places(pivots: Aval) -> tuple[Aval, Aval, Aval]:
    if not pivots.ndim:
        raise ShapeError(f"ldl_places: needs pivots (..., n), got {pivots}")
    square_shape: Shape = (*pivots.shape, pivots.shape[-1])
    return Aval(pivots.shape, dtypes.int64), Aval(square_shape, dtypes.int64), Aval(square_shape, dtypes.bool_)


def _samples(rng: np.random.Generator) -> Any:
    for pivots in ([1, 2, 3], [2, 2], [-2, -2, 3], [[1, -3, -3], [-3, -3, 3]], [1], np.zeros((2, 0))):
        yield Sample((np.array(pivots, np.int32),), grad=False)


ldl_places = Op(
    "ldl_places",
    "opaque",
    inputs=("pivots",),
    results=("order", "places", "pairs"),
    infer=_infer_places,
    fails=True,
    eager=_places,
    samples=_samples,
    error_samples=lambda: (
        fails(OutOfBoundsError, "ldl_places: pivot 0 is 3, which ldl_factor does not give", np.array([3, 1], np.int32)),
        fails(ShapeError, "ldl_places: needs pivots", np.array(1, np.int32)),
    ),
    vjp=(None,),
    accepts="integer",
    public=False,
    doc="The order of the rows that pivots of ldl stand for, the row of its column in which each element of L is, and "
    "which elements are those of D beside its diagonal.",
)


def strict(x: Any, pairs: Any) -> Any:
    """The elements below the blocks of D."""
    return where(pairs, 0.0, x).tril(k=-1)


def standard(ld: Any, pivots: Any, hermitian: bool) -> tuple[Any, Any, Any, Any, Any]:
    """L with its diagonal, D, and what `ldl_places` tells of the pivots."""
    order, places, pairs = ldl_places(pivots)
    diagonal, beside = diagonal_of(ld), where(pairs, ld, 0.0)
    if hermitian:
        diagonal = (diagonal + conj(diagonal)) * 0.5
    blocks = on(diagonal) + beside + (adjoint(beside) if hermitian else turned(beside))
    lower = strict(take_along_axis(ld, places, axis=-2), pairs) + on(diagonal * 0 + 1)
    return lower, blocks, order, places, pairs


@conjugated
def _rule(g: Any, out: Any, hermitian: bool) -> Any:
    """The gradient: of A = L D L^T, L^-1 dA L^-T is dD in the blocks, and L^-1 dL D below them."""
    by_factors = g[0]
    lower, blocks, order, places, pairs = standard(out[0], out[1], hermitian)
    by_lower = strict(take_along_axis(by_factors, places, axis=-2), pairs)
    by_blocks = where(pairs, by_factors, on(diagonal_of(by_factors)))
    inner = strict(matmul(adjoint(lower), by_lower), pairs)
    inner = strict(adjoint(solve(blocks, adjoint(inner))), pairs) + by_blocks
    left = _solve_upper(adjoint(lower), inner)
    whole = turned(_solve_upper(turned(lower if hermitian else conj(lower)), turned(left)))
    back = movement.broadcast_to(column(argsort(order, axis=-1)), shape=whole.shape)
    whole = turned(take_along_axis(turned(take_along_axis(whole, back, axis=-2)), back, axis=-2))
    return (whole + (adjoint(whole) if hermitian else turned(whole))) * 0.5


def _solve_upper(x: Any, y: Any) -> Any:
    return solve_triangular(x, y, upper=True)


def _infer(x: Aval, hermitian: bool, check: bool) -> tuple[Aval, Aval, Aval]:
    batch, n = square("ldl_factor", x)
    int32 = dtypes.int32
    return Aval((*batch, n, n), x.dtype), Aval((*batch, n), int32), Aval(tuple(batch), int32)


ldl = Op(
    "ldl",
    "opaque",
    inputs=("x",),
    results=("LD", "pivots", "info"),
    params={"hermitian": False, "check": True},
    infer=_infer,
    fails=True,
    eager=_ldl,
    vjp=(_rule,),
    samples=samples(*(([(symmetric, shape)], {}) for shape in ((3, 3), (2, 4, 4), (1, 1), (0, 0), (0, 2, 2)))),
    error_samples=lambda: (
        fails(ShapeError, "ldl_factor: needs square matrices, got f32[2,3]", (2, 3)),
        fails(LinAlgError, "ldl_factor: f64[1,1] is singular: D is zero in column 0", np.zeros((1, 1))),
    ),
    accepts="inexact",
    public=False,
    doc="L and D of (x + x^T) / 2, x^H if hermitian, in one lower triangle, the pivots of LAPACK's sytrf, and the "
    "first column, from 1 on, where D is zero, 0 for none, which raises LinAlgError with check.",
)

ROWS = (ldl, ldl_places)
