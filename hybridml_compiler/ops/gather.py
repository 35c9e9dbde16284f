"""Rows with data-dependent indices: take, their adjoint scatters, one_hot.

Negative indices count from the end. An index out of range raises OutOfBoundsError in both styles: compiled code checks
before it loads, instead of clamping in silence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ArgumentError, DTypeError, OutOfBoundsError, ShapeError
from ..hooks import hooks
from .conversion import convert
from .creation import full
from .indexing import Index, Load, Scalar, replace
from .op import REQUIRED, Op
from .samples import cases, fails
from .shapes import Shape, axis_index, integer


def _check_integers(name: str, indices: Aval) -> None:
    if indices.dtype.kind not in "iu":
        raise DTypeError(f"{name}: indices must be integers, got {indices}; use astype('int64'), or x[mask] for a mask")


def _check_bounds(name: str, indices: np.ndarray, size: int, axis: int) -> None:
    if indices.size and not (-size <= int(indices.min()) and int(indices.max()) < size):
        bad = next(int(v) for v in indices.ravel() if not -size <= v < size)
        raise OutOfBoundsError(
            f"{name}: index {bad} is out of range for axis {axis} of size {size}; use {-size} to {size - 1}"
            if size
            else f"{name}: index {bad} into axis {axis}, which is empty; check its size first"
        )


def _axis(name: str, x: Aval | Shape, axis: Any) -> int:
    ndim = x.ndim if isinstance(x, Aval) else len(x)
    if axis is None and ndim != 1:
        raise ShapeError(f"{name}: {x} has {ndim} axes, so an axis is needed; say which, as axis=-1")
    return axis_index(name, 0 if axis is None else axis, x)


def _zeros(x_shape: Shape, x_dtype: Any) -> Any:
    return full(shape=x_shape, value=0.0, dtype=x_dtype)


# ---------------------------------------------------------------- take, scatter_add: indices replace an axis


def _taken(x: Shape, indices: Shape, axis: int) -> Shape:
    return (*x[:axis], *indices, *x[axis + 1 :])


def _take_infer(x: Aval, indices: Aval, axis: Any) -> Aval:
    _check_integers("take", indices)
    return Aval(_taken(x.shape, indices.shape, _axis("take", x, axis)), x.dtype)


def _take_eager(x: np.ndarray, indices: np.ndarray, axis: Any) -> Any:
    k = _axis("take", x.shape, axis)
    if not x.size:  # of which NumPy takes any
        _check_bounds("take", indices, x.shape[k], k)
    try:
        return x.take(indices, k)
    except IndexError:
        _check_bounds("take", indices, x.shape[k], k)
        raise


def _take_lower(s: Any, i: Index, x: Load, indices: Load, axis: int) -> Scalar:
    n = len(indices.shape)
    position = s.index(indices(i[axis : axis + n]), x.shape[axis], "take")
    return s.checked(x((*i[:axis], position, *i[axis + n :])), position)


take = Op(
    "take",
    "gather",
    inputs=("x", "indices"),
    params={"axis": None},
    canon=lambda x, indices, axis: {"axis": _axis("take", x, axis)},
    infer=_take_infer,
    eager=_take_eager,
    lower=_take_lower,
    vjp=(
        lambda g, indices, x_shape, x_dtype, axis: scatter_add(_zeros(x_shape, x_dtype), indices, g, axis=axis),
        None,
    ),
    samples=cases(
        ([(5,), np.array([0, 4, 4, -1, -5])], {}),
        ([(5, 3), np.array([[0, 2], [1, -1]])], {"axis": 0}),
        ([(2, 3, 4), np.array([3, 0], "i4")], {"axis": -1}),
        ([(4, 3), np.array(2, "u1")], {"axis": 0}),
        ([(4, 3), np.zeros((0,), "i8")], {"axis": 1}),
        ([np.array([1 + 2j, 3j, 0.5]), np.array([2, 0, 2])], {}),
    ),
    error_samples=lambda: (
        fails(DTypeError, "take: indices must be integers, got f32[2]", (3,), (2,)),
        fails(ShapeError, "take: f32[3,4] has 2 axes, so an axis is needed", (3, 4), np.array([0])),
        fails(ShapeError, "take: axis 2 does not exist", (3, 4), np.array([0]), axis=2),
        fails(OutOfBoundsError, "take: index 3 is out of range for axis 0 of size 3", (3,), np.array([0, 3])),
        fails(OutOfBoundsError, "take: index -4 is out of range", (3,), np.array([[0], [-4]])),
        fails(OutOfBoundsError, "which is empty", (0,), np.array([0])),
        fails(OutOfBoundsError, "take: index 3 is out of range for axis 1 of size 3", (0, 3), np.array(3), axis=1),
    ),
    cost=0.3,  # gathered loads
    doc="Elements of x at integer `indices` of `axis`; the axes of indices (any number) replace it.",
)


def _scatter_infer(x: Aval, indices: Aval, updates: Aval, axis: Any) -> Aval:
    _check_integers("scatter_add", indices)
    expected = _taken(x.shape, indices.shape, _axis("scatter_add", x, axis))
    if updates.shape != expected:
        raise ShapeError(
            f"scatter_add: updates {updates} for {x} at indices {indices} must have shape {expected}; broadcast_to it"
        )
    return Aval(x.shape, x.dtype)


def _scatter_eager(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: Any) -> np.ndarray:
    k = _axis("scatter_add", x.shape, axis)
    _check_bounds("scatter_add", indices, x.shape[k], k)
    out = hooks.materialized(x)
    add_at(out, indices, updates, k)
    return out


_LONG = 128  # elements from which a row is added in one call of 0.7 us; np.add.at takes 10 ns for each


def add_at(out: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int) -> None:
    """Adds `updates` to the slices of `out` at positions of an axis, one after the other."""
    if updates.size < _LONG * max(1, indices.size):
        where: Any = (*(slice(None),) * axis, indices)
        np.add.at(out, where, updates)
        return
    parts = updates.reshape((*out.shape[:axis], indices.size, *out.shape[axis + 1 :]))
    order = axis, *range(axis), *range(axis + 1, out.ndim)
    rows, added = out.transpose(order), parts.transpose(order)
    for k, position in enumerate(indices.reshape(-1).tolist()):
        row = rows[position, ...]
        np.add(row, added[k], row)


def _scatter_lower(s: Any, i: Index, x: Load, indices: Load, updates: Load, axis: int) -> tuple[Index, Scalar]:
    n = len(indices.shape)
    position = s.index(indices(i[axis : axis + n]), x.shape[axis], "scatter_add")
    return (*i[:axis], position, *i[axis + n :]), updates(i)


scatter_add: Op = Op(
    "scatter_add",
    "scatter",
    inputs=("x", "indices", "updates"),
    params={"axis": None},
    canon=lambda x, indices, updates, axis: {"axis": _axis("scatter_add", x, axis)},
    infer=_scatter_infer,
    eager=_scatter_eager,
    lower=_scatter_lower,
    vjp=(lambda g: g, None, lambda g, indices, axis: take(g, indices, axis=axis)),
    reorders="sum",
    samples=cases(
        ([(5,), np.array([0, 4, 4, -1, 0]), (5,)], {}),
        ([(5, 3), np.array([[0, 2], [2, -1]]), (2, 2, 3)], {"axis": 0}),
        ([(2, 4), np.array([3, 3], "i4"), (2, 2)], {"axis": -1}),
        ([(4, 3), np.array(2), (3,)], {"axis": 0}),
        ([(4, 3), np.zeros((0,), "i8"), (4, 0)], {"axis": 1}),
        ([np.array([1 + 2j, 3j, 0.5]), np.array([2, 0, 2]), np.array([1j, 2, 0.5 - 1j])], {}),
    ),
    error_samples=lambda: (
        fails(DTypeError, "scatter_add: indices must be integers", (3,), (2,), (2,)),
        fails(ShapeError, "scatter_add: updates f32[3]", (3,), np.array([0, 1]), (3,)),
        fails(OutOfBoundsError, "scatter_add: index 3 is out of range", (3,), np.array([3]), (1,)),
    ),
    accepts="number",
    unify=(0, 2),
    combine="add",
    complex_kernels=True,
    doc="x with `updates` added at `indices` of `axis`; equal indices add up in index order, so runs repeat exactly.",
)

# ---------------------------------------------------------------- along an axis: one index per element


def _along(name: str, x: Aval, indices: Aval, axis: Any) -> int:
    _check_integers(name, indices)
    k = _axis(name, x, axis)
    if indices.ndim != x.ndim or any(
        n != m for j, (n, m) in enumerate(zip(x.shape, indices.shape, strict=True)) if j != k
    ):
        raise ShapeError(
            f"{name}: indices {indices} must have the shape of {x} except at axis {k}; use broadcast_to or expand_dims"
        )
    return k


def _take_along_eager(x: np.ndarray, indices: np.ndarray, axis: Any) -> np.ndarray:
    k = _axis("take_along_axis", x.shape, axis)
    try:
        return np.take_along_axis(x, indices, k)
    except IndexError:
        _check_bounds("take_along_axis", indices, x.shape[k], k)
        raise


def _take_along_lower(s: Any, i: Index, x: Load, indices: Load, axis: int) -> Scalar:
    position = s.index(indices(i), x.shape[axis], "take_along_axis")
    return s.checked(x(replace(i, axis, position)), position)


take_along_axis = Op(
    "take_along_axis",
    "gather",
    inputs=("x", "indices"),
    params={"axis": -1},
    canon=lambda x, indices, axis: {"axis": _axis("take_along_axis", x, axis)},
    infer=lambda x, indices, axis: (
        Aval(indices.shape, x.dtype) if _along("take_along_axis", x, indices, axis) >= 0 else x
    ),
    eager=_take_along_eager,
    lower=_take_along_lower,
    vjp=(
        lambda g, indices, x_shape, x_dtype, axis: scatter_along_axis_add(
            _zeros(x_shape, x_dtype), indices, g, axis=axis
        ),
        None,
    ),
    memory_order="operands",
    samples=cases(
        ([(3, 4), np.array([[0], [3], [-1]])], {}),
        ([(3, 4), np.array([[2, 0, 0, -3], [1, 1, 2, 0]])], {"axis": 0}),
        ([(5,), np.array([4, 4, 0], "i4")], {"axis": None}),
        ([(2, 3), np.zeros((2, 0), "i8")], {}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "take_along_axis: indices i64[1,2]", (3, 4), np.array([[0, 1]])),
        fails(DTypeError, "take_along_axis: indices must be integers", (3, 4), (3, 1)),
        fails(OutOfBoundsError, "take_along_axis: index 4 is out of range", (1, 4), np.array([[4]])),
    ),
    cost=0.5,
    doc="For each element of `indices` the element of x at that position of `axis` and the same place elsewhere.",
)


def _scatter_along_infer(x: Aval, indices: Aval, updates: Aval, axis: Any) -> Aval:
    _along("scatter_along_axis_add", x, indices, axis)
    if updates.shape != indices.shape:
        raise ShapeError(
            f"scatter_along_axis_add: updates {updates} and indices {indices} must have one shape; broadcast_to it"
        )
    return Aval(x.shape, x.dtype)


def _scatter_along_eager(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: Any) -> np.ndarray:
    k = _axis("scatter_along_axis_add", x.shape, axis)
    _check_bounds("scatter_along_axis_add", indices, x.shape[k], k)
    out = hooks.materialized(x)
    np.add.at(out, replace(tuple(np.indices(indices.shape, sparse=True)), k, indices), updates)
    return out


def _scatter_along_lower(s: Any, i: Index, x: Load, indices: Load, updates: Load, axis: int) -> tuple[Index, Scalar]:
    return replace(i, axis, s.index(indices(i), x.shape[axis], "scatter_along_axis_add")), updates(i)


scatter_along_axis_add: Op = Op(
    "scatter_along_axis_add",
    "scatter",
    public=False,
    inputs=("x", "indices", "updates"),
    params={"axis": -1},
    canon=lambda x, indices, updates, axis: {"axis": _axis("scatter_along_axis_add", x, axis)},
    infer=_scatter_along_infer,
    eager=_scatter_along_eager,
    lower=_scatter_along_lower,
    vjp=(lambda g: g, None, lambda g, indices, axis: take_along_axis(g, indices, axis=axis)),
    reorders="sum",
    samples=cases(
        ([(3, 4), np.array([[0, 0], [3, -4], [-1, 2]]), (3, 2)], {}),
        ([(3, 2), np.array([[2, 0], [2, -3]]), (2, 2)], {"axis": 0}),
        ([(5,), np.array([4, 4, 0], "i4"), (3,)], {"axis": None}),
        ([(2, 3), np.zeros((2, 0), "i8"), (2, 0)], {}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "scatter_along_axis_add: updates f32[1,1]", (1, 4), np.array([[0, 1]]), (1, 1)),
        fails(OutOfBoundsError, "scatter_along_axis_add: index 4", (1, 4), np.array([[4]]), (1, 1)),
    ),
    accepts="number",
    unify=(0, 2),
    combine="add",
    complex_kernels=True,
    doc="x with `updates` added at `indices` along `axis`, the adjoint of take_along_axis; equal indices add in order.",
)

# ---------------------------------------------------------------- one_hot


def _one_hot_canon(indices: Aval, num_classes: Any, dtype: Any) -> dict[str, Any]:
    classes = integer("one_hot", "num_classes", num_classes)
    if classes < 0:
        raise ArgumentError(f"one_hot: num_classes must be 0 or more, got {classes}")
    return {"num_classes": classes, "dtype": dtypes.default_float() if dtype is None else dtypes.canonical(dtype)}


def _one_hot_infer(indices: Aval, num_classes: Any, dtype: Any) -> Aval:
    _check_integers("one_hot", indices)
    p = _one_hot_canon(indices, num_classes, dtype)
    return Aval((*indices.shape, p["num_classes"]), p["dtype"])


def _one_hot_eager(indices: np.ndarray, num_classes: Any, dtype: Any) -> np.ndarray:
    wanted = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    return np.asarray(indices[..., None] == np.arange(num_classes)).astype(wanted)


one_hot = Op(
    "one_hot",
    "movement",
    inputs=("indices",),
    params={"num_classes": REQUIRED, "dtype": None},
    canon=_one_hot_canon,
    infer=_one_hot_infer,
    eager=_one_hot_eager,
    lower=lambda s, i, indices, num_classes, dtype: convert(
        s, s.eq(s.cast(indices(i[:-1]), dtypes.int64), i[-1]), dtypes.bool_, dtype
    ),
    vjp=(None,),
    memory_order="operands",
    covers=("indices",),
    samples=cases(
        ([np.array([[0, 2], [1, -1]])], {"num_classes": 3}),
        ([np.array(1, "u1")], {"num_classes": 2, "dtype": "int64"}),
        ([np.zeros((0,), "i4")], {"num_classes": 4, "dtype": "bool"}),
        dtypes="f8",
    ),
    error_samples=lambda: (
        fails(DTypeError, "one_hot: indices must be integers", (3,), num_classes=3),
        fails(ArgumentError, "one_hot: num_classes must be 0 or more", np.array([0]), num_classes=-1),
    ),
    doc="A last axis of `num_classes` with 1 at the index and 0 elsewhere. An index outside is a row of zeros, as JAX: "
    "that is how a class to ignore (-1) is written.",
)

ROWS = (take, scatter_add, take_along_axis, scatter_along_axis_add, one_hot)
