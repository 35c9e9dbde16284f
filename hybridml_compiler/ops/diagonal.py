"""The row that reads a diagonal, a view in eager code, and its adjoint, which is written with others."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ShapeError
from . import movement
from .creation import arange, full
from .elementwise import where
from .indexing import Index, Load, Scalar
from .op import Op
from .samples import cases, fails
from .shapes import Shape, axis_index, integer


def _axes(x: Aval | Shape, axis1: Any, axis2: Any) -> tuple[int, int]:
    ndim = x.ndim if isinstance(x, Aval) else len(x)
    if ndim < 2:
        raise ShapeError(f"diagonal: {x} has {ndim} axes, and a diagonal lies in two; use diag to make a matrix")
    first, second = axis_index("diagonal", axis1, x), axis_index("diagonal", axis2, x)
    if first == second:
        raise ShapeError(f"diagonal: axis1 and axis2 are both axis {first} of {x}; name two different axes")
    return first, second


def diagonal_length(rows: int, columns: int, offset: int) -> int:
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


def _infer(x: Aval, offset: Any, axis1: Any, axis2: Any) -> Aval:
    axes = _axes(x, axis1, axis2)
    length = diagonal_length(x.shape[axes[0]], x.shape[axes[1]], integer("diagonal", "offset", offset))
    return Aval((*(n for k, n in enumerate(x.shape) if k not in axes), length), x.dtype)


def _canon(x: Aval, offset: Any, axis1: Any, axis2: Any) -> dict[str, Any]:
    first, second = _axes(x, axis1, axis2)
    return {"offset": integer("diagonal", "offset", offset), "axis1": first, "axis2": second}


def _eager(x: np.ndarray, offset: int, axis1: int, axis2: int) -> np.ndarray:
    view = np.diagonal(x, offset, axis1, axis2)
    if x.flags.writeable:  # NumPy makes every diagonal read-only
        view.flags.writeable = True
    return view


def _lower(s: Any, i: Index, x: Load, offset: int, axis1: int, axis2: int) -> Scalar:
    rest, k = iter(i[:-1]), i[-1]
    row, column = max(-offset, 0), max(offset, 0)
    at = {axis1: s.add(k, row) if row else k, axis2: s.add(k, column) if column else k}
    return x(tuple(at[axis] if axis in at else next(rest) for axis in range(len(x.shape))))


def on_diagonal(g: Any, x_shape: Shape, x_dtype: Any, offset: int, axis1: int, axis2: int) -> Any:
    """Zeros of `x_shape` with g on that diagonal."""
    axis1, axis2 = _axes(x_shape, axis1, axis2)
    rows, columns, length = x_shape[axis1], x_shape[axis2], g.shape[-1]
    before = min(max(-offset, 0), rows)
    column = movement.pad(g, widths=((0, 0),) * (len(g.shape) - 1) + ((before, rows - before - length),))
    row_of, column_of = (arange(start=0, stop=n, dtype=dtypes.int64) for n in (rows, columns))
    here = row_of.reshape(shape=(rows, 1)) + offset == column_of
    zero = full(shape=(), value=0, dtype=x_dtype)
    matrices = where(here, column.reshape(shape=(*column.shape, 1)), zero)
    lead = [k for k in range(len(x_shape)) if k not in (axis1, axis2)]
    return matrices.permute_dims(axes=movement.inverse((*lead, axis1, axis2)))


diagonal = Op(
    "diagonal",
    "movement",
    inputs=("x",),
    params={"offset": 0, "axis1": 0, "axis2": 1},
    canon=_canon,
    infer=_infer,
    eager=_eager,
    lower=_lower,
    vjp=(on_diagonal,),
    is_view=True,
    samples=cases(
        ([(4, 4)], {}),
        ([(3, 5)], {"offset": 1}),
        ([(2, 5, 3)], {"offset": -2, "axis1": 1, "axis2": 2}),
        ([(4, 2, 3)], {"offset": 1, "axis1": -1, "axis2": 0}),
        ([(3, 2)], {"offset": 4}),
        ([(3, 2)], {"offset": -9}),
        ([(0, 3)], {}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "diagonal: f32[3] has 1 axes", (3,)),
        fails(ShapeError, "diagonal: axis1 and axis2 are both axis 0", (3, 3), axis2=-2),
        fails(ShapeError, "diagonal: axis 2 does not exist", (3, 3), axis2=2),
    ),
    method="diagonal",
    doc="The elements of two axes whose second index is the first plus `offset`, as a new last axis; a view.",
)

ROWS = (diagonal,)
