"""Linear systems: `solve` and `solve_triangular`, whose rules are solutions of the transposed system."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..aval import Aval
from ..errors import ShapeError
from .contraction import matmul
from .matrices import Array, Row, column, general, lapack, lower, row, samples, singular, square, turned
from .op import REQUIRED, Op
from .routines import of_system, of_triangle
from .samples import fails
from .shapes import Shape, broadcast


def _infer_system(name: str) -> Any:
    def infer(x: Aval, y: Aval, **params: Any) -> Aval:
        batch, n = square(name, x)
        if y.ndim == 0 or y.shape[-min(y.ndim, 2)] != n:
            raise ShapeError(f"{name}: {x} needs a right side of shape ({n},) or (..., {n}, columns), got {y}")
        if y.ndim == 1:
            return Aval((*batch, n), x.dtype)
        return Aval((*broadcast(name, Aval(batch, x.dtype), Aval(y.shape[:-2], y.dtype)), *y.shape[-2:]), x.dtype)

    return infer


def _columns(y: Any, by: Any, *more: Any, y_shape: Shape) -> Any:
    """`by` of matrices on a right side that may be a vector."""
    return by(*more, y) if len(y_shape) > 1 else by(*more, column(y))[..., 0]


def _outer(x: Any, y: Any, y_shape: Shape) -> Any:
    """x y^T; of vectors where the right side is one."""
    return matmul(x, turned(y)) if len(y_shape) > 1 else column(x) * row(y)


def _solve_x(g: Any, x: Any, out: Any, y_shape: Shape) -> Any:
    return -_outer(_solve_y(g, x, y_shape), out, y_shape)


def _solve_y(g: Any, x: Any, y_shape: Shape) -> Any:
    return _columns(g, solve, turned(x), y_shape=y_shape)


_SYSTEMS: tuple[Row, ...] = (
    ([(general, (3, 3)), (None, (3, 2))], {}),
    ([(general, (2, 3, 3)), (None, (3,))], {}),
    ([(general, (2, 1, 2, 2)), (None, (3, 2, 1))], {}),
    ([(general, (1, 1)), (None, (1, 1))], {}),
    ([(general, (0, 0)), (None, (0, 2))], {}),
    ([(general, (0, 2, 2)), (None, (2,))], {}),
)


def _system_errors(name: str, **params: Any) -> Any:
    return lambda: (
        fails(ShapeError, f"{name}: needs square matrices, got f32[2,3]", (2, 3), (2, 1), **params),
        fails(ShapeError, f"{name}: needs a matrix or a batch of them, got f32[2]", (2,), (2, 1), **params),
        fails(ShapeError, f"{name}: f32[3,3] needs a right side of shape (3,)", (3, 3), (2, 3), **params),
        fails(ShapeError, f"{name}: shapes f32[2] and f32[3] do not broadcast", (2, 3, 3), (3, 3, 1), **params),
        fails(np.linalg.LinAlgError, f"{name}: f32[2,2] is singular: its rank is 0 of 2", (2, 2), (2, 1), **params),
    )


solve = Op(
    "solve",
    "opaque",
    inputs=("x", "y"),
    infer=_infer_system("solve"),
    fails=True,
    eager=lapack("solve", np.linalg.solve, np.linalg.inv, singular),
    vjp=(_solve_x, _solve_y),
    samples=samples(*_SYSTEMS),
    error_samples=_system_errors("solve"),
    routine=of_system,
    accepts="inexact",
    unify=(0, 1),
    doc="The solution z of x z = y for square matrices x and a vector or matrices y, by elimination with partial "
    "pivoting; batches broadcast.",
)

_SMALL = 64  # unknowns from which a product for half of them costs less than LAPACK's general solver


def _substituted(x: Array, y: Array, upper: bool) -> Array:
    """Forward or backward substitution by halves, so that nearly all of it is products."""
    n = x.shape[-1]
    if n <= _SMALL:
        return np.linalg.solve(x, y)
    half = n // 2
    first, last = slice(0, half), slice(half, n)
    if upper:
        first, last = last, first
    head = _substituted(x[..., first, first], y[..., first, :], upper)
    tail = _substituted(x[..., last, last], y[..., last, :] - x[..., last, first] @ head, upper)
    return np.concatenate([tail, head] if upper else [head, tail], axis=-2)


def _triangle(x: Array, upper: bool, unit: bool) -> Array:
    x = np.triu(x) if upper else np.tril(x)
    if unit:
        x[..., range(x.shape[-1]), range(x.shape[-1])] = 1
    return x


def _solve_triangular(x: Array, y: Array, upper: bool, unit: bool) -> Array:
    x = _triangle(x, upper, unit)
    if y.ndim > 1:
        return _substituted(x, y, upper)
    return _substituted(x, y[:, None], upper)[..., 0]


def _triangular_x(g: Any, x: Any, out: Any, y_shape: Shape, upper: bool, unit: bool) -> Any:
    found = -_outer(_triangular_y(g, x, y_shape, upper, unit), out, y_shape)
    return found.triu(k=int(unit)) if upper else found.tril(k=-int(unit))


def _triangular_y(g: Any, x: Any, y_shape: Shape, upper: bool, unit: bool) -> Any:
    def by(x: Any, y: Any) -> Any:
        return solve_triangular(x, y, upper=not upper, unit=unit)

    return _columns(g, by, turned(x), y_shape=y_shape)


_infer_triangular = _infer_system("solve_triangular")
solve_triangular = Op(
    "solve_triangular",
    "opaque",
    inputs=("x", "y"),
    params={"upper": REQUIRED, "unit": False},
    canon=lambda x, y, upper, unit: {"upper": bool(upper), "unit": bool(unit)},
    infer=_infer_triangular,
    fails=True,
    eager=lapack(
        "solve_triangular", _solve_triangular, lambda x: np.linalg.inv(np.diag(np.diag(x))), lambda x: _zeros(x)
    ),
    vjp=(_triangular_x, _triangular_y),
    samples=samples(
        *(([(lower, a), (None, b)], {"upper": False}) for (_, a), (_, b) in [made for made, _ in _SYSTEMS]),
        ([(lower, (3, 3)), (None, (3,))], {"upper": True, "unit": True}),
        ([(None, (2, 3, 3)), (None, (3, 2))], {"upper": False, "unit": True}),
    ),
    error_samples=lambda: (
        *_system_errors("solve_triangular", upper=True)()[:-1],
        fails(
            np.linalg.LinAlgError,
            "solve_triangular: f32[2,2] is singular: element 0 of its diagonal is 0",
            (2, 2),
            (2, 1),
            upper=True,
        ),
    ),
    routine=of_triangle,
    accepts="inexact",
    unify=(0, 1),
    doc="The solution z of x z = y for triangular x: the other triangle (with `unit` the diagonal too, of ones) is not "
    "read; batches broadcast.",
)


def _zeros(x: Array) -> str:
    return f"is singular: element {np.flatnonzero(np.diag(x) == 0)[0]} of its diagonal is 0; use lstsq"


ROWS = (solve, solve_triangular)
