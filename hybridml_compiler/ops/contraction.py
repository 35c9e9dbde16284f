"""Matrix multiplication: the one contraction, which all others are written with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..aval import Aval
from ..errors import ShapeError
from ..hooks import hooks
from .indexing import Index, Load, Scalar, at
from .op import Op
from .samples import cases, fails
from .shapes import Shape, broadcast


def _infer(x: Aval, y: Aval) -> Aval:
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError(f"matmul: cannot multiply {x} by {y}: a scalar has no inner dimension; use * for scaling")
    inner, other = x.shape[-1], y.shape[-2] if y.ndim > 1 else y.shape[0]
    if inner != other:
        raise ShapeError(
            f"matmul: cannot multiply {x} by {y}: inner dimensions {inner} and {other} differ; "
            "transpose one of them or check the order"
        )
    batch = broadcast("matmul", Aval(x.shape[:-2], x.dtype), Aval(y.shape[:-2], y.dtype))
    return Aval((*batch, *x.shape[-2:-1], *(y.shape[-1:] if y.ndim > 1 else ())), x.dtype)


def _eager(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    product = hooks.matmul  # read first: a call of an attribute in one goes a slower way in Python 3.11
    return product(x, y)


def _lower(s: Any, i: Index, x: Load, y: Load) -> Scalar:
    xn, yn = len(x.shape), len(y.shape)
    batch = i[: len(i) - (xn > 1) - (yn > 1)]
    row = (i[len(batch)],) if xn > 1 else ()
    column = (i[-1],) if yn > 1 else ()

    def body(r: Index) -> Scalar:
        left, right = (*batch, *row, *r), (*batch, *r, *column)
        return s.mul(at(x, left), at(y, right))

    return s.reduce("add", (x.shape[-1],), body)


def _transposed(t: Any) -> Any:
    n = len(t.shape)
    return t.permute_dims(axes=(*range(n - 2), n - 1, n - 2))


def _as_matrices(g: Any, x_shape: Shape, y_shape: Shape) -> Any:
    """The cotangent with the axes that 1-D operands dropped put back, as size 1."""
    if len(x_shape) > 1 and len(y_shape) > 1:
        return g
    shape: Shape = tuple(g.shape)
    if len(y_shape) == 1:
        shape = (*shape, 1)
    if len(x_shape) == 1:
        shape = (*shape[:-1], 1, shape[-1])
    return g.reshape(shape=shape)


def _dx(g: Any, y: Any, x_shape: Shape, y_shape: Shape) -> Any:
    g = _as_matrices(g, x_shape, y_shape)
    if len(y_shape) == 1:
        return g * y  # outer product: (..., m, 1) by (k,)
    return matmul(g, _transposed(y))


def _dy(g: Any, x: Any, x_shape: Shape, y_shape: Shape) -> Any:
    g = _as_matrices(g, x_shape, y_shape)
    if len(x_shape) == 1:
        x = x.reshape(shape=(1, *x_shape))
    if len(y_shape) <= 2 and len(x_shape) > 2:
        # One matrix for the whole batch: fold the batch into the rows; summing batched products would store them all.
        rows = math.prod(x_shape[:-1])  # not -1: an axis of size 0 leaves it open
        x, g = x.reshape(shape=(rows, x_shape[-1])), g.reshape(shape=(rows, g.shape[-1]))
    out = matmul(_transposed(x), g)
    return out.reshape(shape=tuple(out.shape)[:-1]) if len(y_shape) == 1 else out


matmul: Op = Op(
    "matmul",
    "contraction",
    inputs=("x", "y"),
    infer=_infer,
    eager=_eager,
    lower=_lower,
    vjp=(_dx, _dy),
    reorders="sum",
    samples=cases(
        ([(3, 4), (4, 5)], {}),
        ([(17,), (17,)], {}),
        ([(3, 4), (4,)], {}),
        ([(4,), (4, 3)], {}),
        ([(2, 3, 4), (4, 5)], {}),
        ([(2, 1, 3, 4), (3, 4, 2)], {}),
        ([(4,), (2, 4, 3)], {}),
        ([(2, 3, 4), (4,)], {}),
        ([(3, 0), (0, 2)], {}),
        ([(0, 3), (3, 2)], {}),
        ([(1, 1), (1, 1)], {}),
        dtypes="f8 f4 i8 i4 u1 c16",
    ),
    error_samples=lambda: (
        fails(
            ShapeError,
            "matmul: cannot multiply f32[3,4] by f32[5,6]: inner dimensions 4 and 5 differ",
            (3, 4),
            (5, 6),
        ),
        fails(ShapeError, "matmul: cannot multiply f32[] by f32[3]", (), (3,)),
        fails(ShapeError, "matmul: shapes f32[2] and f32[3] do not broadcast", (2, 3, 4), (3, 4, 5)),
    ),
    accepts="number",
    unify=(0, 1),
    method="matmul",
    operator="matmul",
    doc="Matrix product; leading axes broadcast, a 1-D operand is a row on the left and a column on the right. "
    "Sums run in the operands' dtype; integers wrap.",
)

ROWS = (matmul,)
