"""Rows that order elements: sort, argsort, lexsort, argtopk, searchsorted; and the positions of true ones. NumPy's
functions are their meaning, and routines compute most of it ([Note: Sorting]).

nan is greater than every number, as in NumPy, PyTorch and JAX: at the end of ascending order, first in descending one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ArgumentError, ShapeError
from .creation import full
from .gather import scatter_along_axis_add
from .op import REQUIRED, Op
from .routines import of_extremes, of_lines, of_long_lines, of_positions, of_searches
from .samples import Case, cases, fails
from .shapes import Shape, axis_index, integer

_TIES = np.array([[2.0, -1.0, 2.0, -1.0, 0.5, -0.0, 0.0], [3.0, 3.0, 3.0, 1.0, 1.0, 2.0, 2.0]])
_EDGES = np.array([[np.nan, 1.0, -np.inf, np.inf, np.nan, 0.0], [np.inf, np.nan, -1.0, 5.0, -np.inf, 2.0]])


def _canon(name: str, x: Aval, axis: Any, descending: Any) -> dict[str, Any]:
    return {"axis": axis_index(name, axis, x), "descending": bool(descending)}


# ---------------------------------------------------------------- sort, argsort


def _sort_eager(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    ascending = np.sort(x, axis)
    return np.flip(ascending, axis).copy() if descending else ascending


def _argsort_eager(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    return np.ascontiguousarray(_order(x, axis, descending))


def _order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    if not descending:
        return np.argsort(x, axis, kind="stable")
    # Equal elements keep their order: sorted from the end, and read from the end.
    back: Any = (..., slice(None, None, -1), *(slice(None),) * (x.ndim - 1 - axis % x.ndim))
    found: np.ndarray = (x.shape[axis] - 1 - np.argsort(x[back], axis, kind="stable"))[back]
    return found


_CASES: tuple[Case, ...] = (
    ([(17,)], {}),
    ([(5, 3)], {"axis": 0}),
    ([(2, 4, 3)], {"axis": 1, "descending": True}),
    ([(3, 1)], {}),
    ([(3, 0)], {"descending": True}),
)
_ORDER = {"axis": -1, "descending": False}

argsort = Op(
    "argsort",
    "opaque",
    inputs=("x",),
    params=_ORDER,
    canon=lambda x, axis, descending: _canon("argsort", x, axis, descending),
    infer=lambda x, axis, descending: Aval(x.shape if axis_index("argsort", axis, x) >= 0 else (), dtypes.int64),
    eager=_argsort_eager,
    routine=of_lines,
    vjp=(None,),
    samples=cases(
        *_CASES, ([_TIES], {}), ([_TIES], {"descending": True}), ([_EDGES], {}), ([_EDGES], {"descending": True}),
        dtypes="f8 f4 i4 u1 ? c16",
    ),
    error_samples=lambda: (
        fails(ShapeError, "argsort: axis 2 does not exist in f32[2,3]", (2, 3), axis=2),
        fails(ShapeError, "argsort: axis -1 does not exist", ()),
    ),
    doc="int64 positions that put the elements along `axis` in ascending (or `descending`) order; equal ones stay in "
    "theirs. Complex numbers by their real parts, then by the imaginary ones.",
)  # fmt: skip


def _sort_rule(g: Any, x: Any, x_shape: Shape, x_dtype: Any, axis: int, descending: bool) -> Any:
    zeros = full(shape=x_shape, value=0.0, dtype=x_dtype)
    return scatter_along_axis_add(zeros, argsort(x, axis=axis, descending=descending), g, axis=axis)


sort = Op(
    "sort",
    "opaque",
    inputs=("x",),
    params=_ORDER,
    canon=lambda x, axis, descending: _canon("sort", x, axis, descending),
    infer=lambda x, axis, descending: Aval(x.shape if axis_index("sort", axis, x) >= 0 else (), x.dtype),
    eager=_sort_eager,
    routine=of_long_lines,
    vjp=(_sort_rule,),
    memory_order="operands",
    samples=cases(
        *_CASES, values=[([_TIES], {}), ([_EDGES], {}), ([_EDGES], {"descending": True})], dtypes="f8 f4 i4 u1 ? c16"
    ),
    error_samples=lambda: (
        fails(ShapeError, "sort: axis 2 does not exist in f32[2,3]", (2, 3), axis=2),
        fails(ShapeError, "sort: axis -1 does not exist", ()),
    ),
    doc="The elements along `axis` in ascending (or `descending`) order. Zeros of both signs are equal: which of them "
    "comes first is open. Complex numbers by their real parts, then by the imaginary ones. The gradient goes where the "
    "element came from.",
)

# ---------------------------------------------------------------- lexsort


def _lexsort_axis(keys: Aval, axis: Any) -> int:
    if keys.ndim < 2 or keys.shape[0] == 0:
        raise ShapeError(f"lexsort: keys must be stacked along a first axis, with axes of their own, got {keys}")
    return axis_index("lexsort", axis, Aval(keys.shape[1:], keys.dtype))


lexsort = Op(
    "lexsort",
    "opaque",
    inputs=("keys",),
    params={"axis": -1},
    canon=lambda keys, axis: {"axis": _lexsort_axis(keys, axis)},
    infer=lambda keys, axis: Aval(keys.shape[1:] if _lexsort_axis(keys, axis) >= 0 else (), dtypes.int64),
    eager=lambda keys, axis: np.lexsort(keys, axis),
    vjp=(None,),
    samples=cases(
        ([np.array([[2.0, 1.0, 1.0, 2.0, 0.0], [1.0, 1.0, 0.0, 0.0, 1.0]])], {}),
        ([(2, 3, 4)], {"axis": 0}),
        ([(3, 0)], {}),
        dtypes="f8 f4 i8",
    ),
    error_samples=lambda: (
        fails(ShapeError, "lexsort: keys must be stacked", (3,)),
        fails(ShapeError, "lexsort: axis 1 does not exist", (2, 3), axis=1),
    ),
    accepts="ordered",
    doc="int64 positions that order by the last of the stacked keys, equal ones by the one before it, and so on.",
)

# ---------------------------------------------------------------- argtopk


def _count(x: Aval, k: Any, axis: Any) -> int:
    n, wanted = x.shape[axis_index("argtopk", axis, x)], integer("argtopk", "k", k)
    if not 0 <= wanted <= n:
        raise ArgumentError(f"argtopk: k must be 0 to {n}, the size of axis {axis} of {x}, got {wanted}")
    return wanted


def _argtopk_infer(x: Aval, k: Any, axis: Any, largest: Any) -> Aval:
    at, wanted = axis_index("argtopk", axis, x), _count(x, k, axis)
    return Aval((*x.shape[:at], wanted, *x.shape[at + 1 :]), dtypes.int64)


def _argtopk_eager(x: np.ndarray, k: int, axis: int, largest: bool) -> np.ndarray:
    rows = x.swapaxes(axis, -1)
    places = _candidates(rows.reshape(-1, rows.shape[-1]), k, largest) if rows.size and k else None
    if places is None:
        found = argsort.eager(rows, axis=rows.ndim - 1, descending=largest)[..., :k]
    else:
        found = places.reshape(*rows.shape[:-1], k)
    return np.ascontiguousarray(found.swapaxes(-1, axis))


def _candidates(rows: np.ndarray, k: int, largest: bool) -> np.ndarray | None:
    """Positions of the k extreme elements of each row by sorting few of them; None where that is no gain.

    The k-th best of the extremes of 8 k blocks is a bound that k elements reach, and few more
    ([Note: Opaque operations]). nan, the greatest, is never less than the bound.
    """
    count, n = rows.shape
    width = min(n // (8 * k), 128)
    if width < 2:
        return None
    blocks = rows[:, : n // width * width].reshape(count, width, n // width)  # elements of one are n // width apart
    extremes = (np.maximum if largest else np.minimum).reduce(blocks, axis=1)
    at = extremes.shape[1] - k if largest else k - 1
    bound = np.partition(extremes, at, -1)[:, at, None]
    flat = np.flatnonzero(~(rows < bound) if largest else rows <= bound)
    row = flat // n
    starts = np.searchsorted(row, np.arange(count + 1))
    found = np.diff(starts)
    most = int(found.max())
    if most > n // 4 or int(found.min()) < k:
        return None
    places = np.zeros((count, most), np.int64)
    values = np.full((count, most), _least(rows.dtype) if largest else _most(rows.dtype), rows.dtype)
    column = np.arange(flat.size) - starts[row]
    places[row, column] = flat - row * n
    values[row, column] = rows.reshape(-1)[flat]
    # Elements that fill a row come after its own equal ones.
    order = argsort.eager(values, axis=1, descending=largest)[:, :k]
    return np.take_along_axis(places, order, -1)


def _least(dtype: np.dtype) -> Any:
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def _most(dtype: np.dtype) -> Any:
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


argtopk = Op(
    "argtopk",
    "opaque",
    public=False,
    inputs=("x",),
    params={"k": REQUIRED, "axis": -1, "largest": True},
    canon=lambda x, k, axis, largest: {
        "k": _count(x, k, axis),
        "axis": axis_index("argtopk", axis, x),
        "largest": bool(largest),
    },
    infer=_argtopk_infer,
    eager=_argtopk_eager,
    routine=of_extremes,
    vjp=(None,),
    samples=cases(
        ([(17,)], {"k": 3}),
        ([(2, 70)], {"k": 3}),
        ([(40, 3)], {"k": 4, "axis": 0, "largest": False}),
        ([(3, 4)], {"k": 4}),
        ([(3, 4)], {"k": 0}),
        ([_TIES], {"k": 1}),
        ([np.tile(_TIES, 3)], {"k": 4}),
        ([np.tile(_TIES, 3)], {"k": 4, "largest": False}),
        ([np.tile(_EDGES, 3)], {"k": 4}),
        ([np.tile(_EDGES, 3)], {"k": 3, "largest": False}),
        ([(0, 5)], {"k": 1}),
        dtypes="f8 f4 i4 u1 ?",
    ),
    error_samples=lambda: (
        fails(ArgumentError, "argtopk: k must be 0 to 3, the size of axis -1 of f32[2,3], got 4", (2, 3), k=4),
        fails(ShapeError, "argtopk: axis 1 does not exist", (3,), k=1, axis=1),
    ),
    accepts="ordered",
    doc="int64 positions of the k largest elements along `axis` (smallest with `largest=False`), the most extreme "
    "first, and of equal ones the first.",
)

# ---------------------------------------------------------------- searchsorted


def _search_infer(x1: Aval, x2: Aval, right: Any) -> Aval:
    if x1.ndim == 0 or (x1.ndim > 1 and x1.shape[:-1] != x2.shape[:-1]):
        raise ShapeError(
            f"searchsorted: sorted rows {x1} are for values with the same axes in front, got {x2}; one row is for any"
        )
    return Aval(x2.shape, dtypes.int64)


def _search_eager(x1: np.ndarray, x2: np.ndarray, right: bool) -> np.ndarray:
    side: Any = "right" if right else "left"
    if x1.ndim == 1:
        return np.asarray(np.searchsorted(x1, x2, side))
    lead = math.prod(x1.shape[:-1])
    rows, values = x1.reshape(lead, x1.shape[-1]), x2.reshape(lead, x2.shape[-1])
    found = [np.searchsorted(row, wanted, side) for row, wanted in zip(rows, values, strict=True)]
    return np.array(found, np.int64).reshape(x2.shape)


searchsorted = Op(
    "searchsorted",
    "opaque",
    inputs=("x1", "x2"),
    params={"right": False},
    canon=lambda x1, x2, right: {"right": bool(right)},
    infer=_search_infer,
    eager=_search_eager,
    routine=of_searches,
    vjp=(None, None),
    samples=cases(
        ([np.array([-1.0, 0.0, 0.0, 2.0]), (3, 4)], {}),
        ([np.array([-1.0, 0.0, 0.0, 2.0]), np.array([0.0, -1.0, 2.0, 3.0, -2.0])], {"right": True}),
        ([np.array([[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 5.0]])], {}),
        ([np.array([0.0, 1.0, np.inf, np.nan]), np.array([np.nan, np.inf, 0.5])], {}),
        ([(0,), (2,)], {}),
        ([np.array([1.0, 2.0]), ()], {}),
        ([(3, 0), (3, 0)], {}),
        dtypes="f8 f4",
    ),
    error_samples=lambda: (
        fails(ShapeError, "searchsorted: sorted rows f32[2,3] are for values", (2, 3), (4,)),
        fails(ShapeError, "searchsorted: sorted rows f32[]", (), (4,)),
    ),
    accepts="ordered",
    unify=(0, 1),
    doc="For each element of x2 the int64 position in sorted x1 before which it belongs (with `right` behind equal "
    "ones). Rows of x1 are for the rows of x2.",
)

# ---------------------------------------------------------------- true_positions


true_positions = Op(
    "true_positions",
    "opaque",
    public=False,
    inputs=("mask",),
    params={"count": REQUIRED},
    canon=lambda mask, count: {"count": integer("true_positions", "count", count)},
    infer=lambda mask, count: Aval((count,), dtypes.int64),
    eager=lambda mask, count: np.flatnonzero(mask),
    routine=of_positions,
    vjp=(None,),
    samples=cases(
        ([np.array([False, True, True])], {"count": 2}),
        ([np.arange(200).reshape(10, 20) % 3 == 1], {"count": 67}),
        ([np.zeros((3,), bool)], {"count": 0}),
        dtypes="f8",
    ),
    error_samples=lambda: (fails(ArgumentError, "true_positions: count must be", np.array([True]), count=0.5),),
    accepts="bool",
    doc="int64 positions of the true elements in row-major order, which are `count`.",
)

ROWS = (sort, argsort, lexsort, argtopk, searchsorted, true_positions)
