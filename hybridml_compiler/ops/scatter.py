"""Rows that combine updates with the elements at an index: set, multiply, minimum, maximum (add is in gather.py, as the
adjoint of take), and the row that checks an index.

Equal indices are taken in the order of the updates: the last one sets, products and extrema see each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import DTypeError, OutOfBoundsError, ShapeError
from ..hooks import hooks
from .creation import arange, full
from .elementwise import where
from .gather import _axis, _check_bounds, _check_integers, _scatter_lower, _taken, _zeros, scatter_add, take
from .indexing import Index, Load, Scalar
from .op import REQUIRED, Accepts, Op, Rule
from .samples import cases, fails
from .shapes import integer

# ---------------------------------------------------------------- index


def _wrap_infer(indices: Aval, size: Any, axis: Any) -> Aval:
    _check_integers("index", indices)
    return Aval(indices.shape, dtypes.int64)


def _wrap_eager(indices: np.ndarray, size: Any, axis: Any) -> np.ndarray:
    _check_bounds("index", indices, size, axis)
    wide = indices.astype(np.int64)
    return np.where(wide < 0, wide + size, wide)


index = Op(
    "index",
    "gather",
    public=False,
    inputs=("indices",),
    params={"size": REQUIRED, "axis": 0},
    canon=lambda indices, size, axis: {
        "size": integer("index", "size", size),
        "axis": integer("index", "axis", axis),
    },
    infer=_wrap_infer,
    eager=_wrap_eager,
    lower=lambda s, i, indices, size, axis: s.checked(position := s.index(indices(i), size, "index"), position),
    vjp=(None,),
    samples=cases(
        ([np.array([0, 2, -1, -3])], {"size": 3}),
        ([np.array([[1], [-2]], "i4")], {"size": 2, "axis": 1}),
        ([np.array(3, "u1")], {"size": 4}),
        ([np.zeros((0, 2), "i8")], {"size": 0}),
        dtypes="f8",
    ),
    error_samples=lambda: (
        fails(DTypeError, "index: indices must be integers", (3,), size=3),
        fails(OutOfBoundsError, "index: index 3 is out of range for axis 1 of size 3", np.array([3]), size=3, axis=1),
    ),
    doc="Positions 0 to size - 1 from indices that may count from the end; OutOfBoundsError for any other. `axis` is "
    "the one that the message names.",
)

# ---------------------------------------------------------------- scatter_set, _mul, _min, _max


def _infer(name: str) -> Callable[..., Aval]:
    def infer(x: Aval, indices: Aval, updates: Aval, axis: Any) -> Aval:
        _check_integers(name, indices)
        expected = _taken(x.shape, indices.shape, _axis(name, x, axis))
        if updates.shape != expected:
            raise ShapeError(
                f"{name}: updates {updates} for {x} at indices {indices} must have shape {expected}; broadcast_to it"
            )
        return Aval(x.shape, x.dtype)

    return infer


def _eager(name: str, combine: Callable[[np.ndarray, Any, np.ndarray], None]) -> Callable[..., np.ndarray]:
    def eager(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: Any) -> np.ndarray:
        k = _axis(name, x.shape, axis)
        _check_bounds(name, indices, x.shape[k], k)
        out = hooks.materialized(x)
        combine(out, (*(slice(None),) * k, indices), updates)
        return out

    return eager


def _assign(out: np.ndarray, where: Any, updates: np.ndarray) -> None:
    out[where] = updates


def _lower(name: str) -> Callable[..., tuple[Index, Scalar]]:
    def lower(s: Any, i: Index, x: Load, indices: Load, updates: Load, axis: int) -> tuple[Index, Scalar]:
        return _scatter_lower(s, i, x, indices, updates, axis)

    return lower


def _row(name: str, combine: str, eager: Any, rules: tuple[Rule, Rule], accepts: Accepts, doc: str) -> Op:
    return Op(
        name,
        "scatter",
        inputs=("x", "indices", "updates"),
        params={"axis": None},
        canon=lambda x, indices, updates, axis: {"axis": _axis(name, x, axis)},
        infer=_infer(name),
        eager=_eager(name, eager),
        lower=_lower(name),
        vjp=(rules[0], None, rules[1]),
        samples=cases(
            ([(5,), np.array([0, 4, 4, -1, 0]), (5,)], {}),
            ([(5, 3), np.array([[0, 2], [2, -1]]), (2, 2, 3)], {"axis": 0}),
            ([(2, 4), np.array([3, 3], "i4"), (2, 2)], {"axis": -1}),
            ([(4, 3), np.array(2), (3,)], {"axis": 0}),
            ([(4, 3), np.zeros((0,), "i8"), (4, 0)], {"axis": 1}),
        ),
        error_samples=lambda: (
            fails(DTypeError, f"{name}: indices must be integers", (3,), (2,), (2,)),
            fails(ShapeError, f"{name}: updates f32[3]", (3,), np.array([0, 1]), (3,)),
            fails(OutOfBoundsError, f"{name}: index 3 is out of range", (3,), np.array([3]), (1,)),
        ),
        accepts=accepts,
        unify=(0, 2),
        combine=combine,
        reorders="any" if combine == "mul" else "",
        doc=doc,
    )


def _set_x(g: Any, indices: Any, updates_shape: Any, x_dtype: Any, axis: Any) -> Any:
    return scatter_set(g, indices, _zeros(updates_shape, x_dtype), axis=axis)


def _set_updates(g: Any, indices: Any, x_shape: Any, axis: Any) -> Any:
    """Gradient of updates that set: of updates to one element only the last has an effect."""
    taken = take(g, indices, axis=axis)
    if not indices.shape:
        return taken
    number = arange(indices.size).reshape(indices.shape)
    last = scatter_set(full(shape=(x_shape[axis],), value=-1, dtype=dtypes.int64), indices, number, axis=0)
    stays = take(last, indices, axis=0) == number
    return where(_along(stays, taken, axis), taken, 0.0)


def _along(per_index: Any, taken: Any, axis: int) -> Any:
    """A value for each index, shaped so that it broadcasts over the result of `take`."""
    return per_index.reshape((*per_index.shape, *(1,) * (len(taken.shape) - axis - len(per_index.shape))))


def _mul_x(g: Any, x: Any, indices: Any, updates: Any, axis: Any) -> Any:
    return g * scatter_mul(_zeros(x.shape, x.dtype) + 1, indices, updates, axis=axis)


def _mul_updates(g: Any, x: Any, indices: Any, updates: Any, axis: Any) -> Any:
    """The product of all other factors of the element: without a division by a factor that is 0."""
    zero = updates == 0
    factors = where(zero, 1.0, updates)
    rest = g * scatter_mul(x, indices, factors, axis=axis)
    zeros = scatter_add(_zeros(x.shape, x.dtype), indices, zero.astype(x.dtype), axis=axis)
    others = take(zeros, indices, axis=axis) - zero.astype(x.dtype)
    return where(others == 0, take(rest, indices, axis=axis) / factors, 0.0)


def _ties(x: Any, indices: Any, updates: Any, out: Any, axis: Any) -> tuple[Any, Any, Any]:
    """(whether x is the extremum, whether an update is, how many are)."""
    of_x = (x == out).astype(x.dtype)
    of_updates = (updates == take(out, indices, axis=axis)).astype(x.dtype)
    return of_x, of_updates, scatter_add(of_x, indices, of_updates, axis=axis)


def _extremum_x(g: Any, x: Any, indices: Any, updates: Any, out: Any, axis: Any) -> Any:
    of_x, _, count = _ties(x, indices, updates, out, axis)
    return g * of_x / count


def _extremum_updates(g: Any, x: Any, indices: Any, updates: Any, out: Any, axis: Any) -> Any:
    _, of_updates, count = _ties(x, indices, updates, out, axis)
    return take(g / count, indices, axis=axis) * of_updates


scatter_set = _row(
    "scatter_set", "set", _assign, (_set_x, _set_updates), "any",
    "x with `updates` at `indices` of `axis`; of equal indices the last counts.",
)  # fmt: skip
scatter_mul = _row(
    "scatter_mul", "mul", np.multiply.at, (_mul_x, _mul_updates), "number",
    "x multiplied by `updates` at `indices` of `axis`; equal indices multiply in order.",
)  # fmt: skip
scatter_min = _row(
    "scatter_min", "min", np.minimum.at, (_extremum_x, _extremum_updates), "numeric",
    "The lesser of x and the `updates` at `indices` of `axis`. Equal ones share the gradient; NaN wins, as in minimum.",
)  # fmt: skip
scatter_max = _row(
    "scatter_max", "max", np.maximum.at, (_extremum_x, _extremum_updates), "numeric",
    "The greater of x and the `updates` at `indices` of `axis`. Equal ones share the gradient; NaN wins as in maximum.",
)  # fmt: skip

ROWS = (index, scatter_set, scatter_mul, scatter_min, scatter_max)
