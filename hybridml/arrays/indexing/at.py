"""Functional updates: `x.at[key].set(value)` and its kin give a new tensor and leave x as it is.

As JAX's `.at`: where index arrays name an element twice, `add`, `subtract`, `multiply`, `divide`, `min` and `max` count
each of them, and of `set`, `power` and `apply` the last one stays. Unlike there an index out of range is an error. All
of them differentiate, and all keys of `x[key]` do (see index_plan.py). Keys without arrays, and masks with a value for
all that they choose, need no scatter: they fuse with what is around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.ops.shapes import broadcast
from hybridml_compiler.ops.table import OPS

from ...core.aliasing import is_python_float
from ...core.context import lift, literal, placed
from ...core.proxies.scalar import tensor_of
from ...core.tensor import StandIn, Tensor, constant
from ..creation import asarray, int_of_trace
from .index_plan import Plan, gathered, plan, sliced
from .selecting import lifted

# How -> (elementwise row, scatter row, the value that changes nothing; None where the row must not see x elsewhere).
_ROWS: dict[str, tuple[str | None, str, float | None]] = {
    "set": (None, "scatter_set", None),
    "add": ("add", "scatter_add", None),
    "subtract": ("subtract", "scatter_add", None),
    "multiply": ("multiply", "scatter_mul", 1.0),
    "divide": ("divide", "scatter_mul", 1.0),
    "min": ("minimum", "scatter_min", None),
    "max": ("maximum", "scatter_max", None),
}
# A sum of bools is a logical or, which is the greatest of them; a product is a logical and, the least.
_OF_BOOLS = {"scatter_add": "scatter_max", "scatter_mul": "scatter_min"}
OF_UFUNC = {row: how for how, (row, _, _) in _ROWS.items() if row is not None}  # as in `np.maximum.at`


@placed
def _written(x: Tensor, key: Any, how: str, value: Any) -> Tensor:
    return updated(x, key, how, as_value(value, x.dtype))


@placed
def updated(x: Tensor, key: Any, how: str, value: Tensor) -> Tensor:
    """x after an update at `key`: the one way in which every style writes through a key."""
    value = _fitting(x, how, value)
    chosen = _masked(x, key, how, value)
    if chosen is not None:
        return chosen
    p = plan(key, Aval(x.shape, x.dtype))
    view = sliced(x, p)
    if not p.arrays:
        return put_back(x, _combined(view, how, _stretched(value, view.shape, how)), p)
    part = gathered(view, p)
    value = _stretched(value, part.result, how)
    if how == "divide":
        ones = OPS["full"].fn(shape=part.x.shape, value=1, dtype=x.dtype)
        changed = OPS["divide"].fn(part.x, OPS["scatter_mul"].fn(ones, part.index, value, part.axis))
    else:
        value = OPS["negative"].fn(value) if how == "subtract" else value
        changed = scatter_row(_ROWS[how][1], part.x, part.index, value, part.axis)
    return put_back(x, part.back(changed), p)


def put_back(x: Tensor, view: Tensor, p: Plan) -> Tensor:
    """x with `view`, a value of the form that `sliced` gives, where its slices are."""
    if p.is_whole(x.shape):
        return view if view.shape == x.shape else OPS["reshape"].fn(view, x.shape)
    window = p.window
    fitted = view if view.shape == window else OPS["reshape"].fn(view, window)
    return OPS["slice_update"].fn(x, fitted, p.starts, p.stops, p.steps)


def scatter_row(row: str, x: Tensor, places: Tensor, updates: Tensor, axis: int) -> Tensor:
    """The scatter row of that name, on bools too."""
    if x.dtype.kind != "b" or row == "scatter_set":
        return OPS[row].fn(x, places, updates, axis)
    found = OPS[_OF_BOOLS.get(row, row)].fn(x.astype(dtypes.int8), places, updates.astype(dtypes.int8), axis)
    return found.astype(dtypes.bool_)


def _combined(x: Tensor, how: str, value: Tensor) -> Tensor:
    row = _ROWS[how][0]
    return value if row is None else OPS[row].fn(x, value)


def _fitting(x: Tensor, how: str, value: Tensor) -> Tensor:
    """The value in x's dtype; DTypeError if that would lose something."""
    weak = is_python_float(value)
    if value.dtype is x.dtype and not weak:
        return value
    if how == "divide" and x.dtype.kind not in "fV":
        raise DTypeError(f"x[key] {how}: a quotient does not fit a {x.dtype.name} tensor; cast it with astype first")
    if dtypes.result_type([(x.dtype, False), (value.dtype, weak)], f"x[key] {how}") is not x.dtype:
        raise DTypeError(
            f"x[key] {how}: a {value.dtype.name} value does not fit a {x.dtype.name} tensor; cast it with astype"
        )
    return OPS["astype"].fn(value, x.dtype)


def _stretched(value: Tensor, shape: tuple[int, ...], how: str) -> Tensor:
    """The value broadcast to the selected part; axes of size 1 in front of the part's are dropped, as NumPy does."""
    extra = value.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in value.shape[:extra]):
        value = OPS["reshape"].fn(value, value.shape[extra:])
    if value.shape == shape:
        return value
    try:
        fits = broadcast("index", Aval(value.shape, value.dtype), Aval(shape, value.dtype)) == shape
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(f"x[key] {how}: a value of shape {value.shape} does not fit the selected part, {shape}")
    return OPS["broadcast_to"].fn(value, shape)


def _masked(x: Tensor, key: Any, how: str, value: Tensor) -> Tensor | None:
    """The update through one mask, with a value for all that it chooses: the number of those does not matter."""
    key = key[0] if type(key) is tuple and len(key) == 1 else key
    if not isinstance(key, Tensor | np.ndarray | list):
        return None
    mask = lifted(key)
    return by_mask(x, mask, 0, how, value) if mask.dtype.kind == "b" else None


def by_mask(x: Tensor, mask: Tensor, lead: int, how: str, value: Tensor) -> Tensor | None:
    """The update through a mask of axes of x from `lead` on; None where the value is one element for each chosen."""
    after = lead + mask.ndim
    if mask.shape != x.shape[lead:after]:
        return None
    rest = x.ndim - after
    given: Any = value
    over = given._over(x, mask, lead) if issubclass(type(given), StandIn) else None
    if over is not None:
        wide, value = over
    else:
        wide = OPS["reshape"].fn(mask, mask.shape + (1,) * rest) if rest else mask
        if value.ndim > rest and any(n != 1 for n in value.shape[: value.ndim - rest]):
            return None
        value = _stretched(value, x.shape[after:], how)
    _, _, neutral = _ROWS[how]
    if neutral is not None:  # elsewhere the value could be one whose gradient rule gives nan
        return _combined(x, how, OPS["where"].fn(wide, value, neutral))
    return OPS["where"].fn(wide, _combined(x, how, value), x)


def as_value(value: Any, dtype: np.dtype) -> Tensor:
    """Value that an update writes, as a tensor; a number takes the dtype."""
    value = tensor_of(value)
    if isinstance(value, Tensor):
        return lift(value)
    if (of_loop := int_of_trace(value, dtype)) is not None:
        return of_loop
    real = not isinstance(value, complex | np.complexfloating)
    if isinstance(value, bool | int | float | complex | np.generic) and (real or dtype.kind == "c"):
        number: Any = value.item() if isinstance(value, np.generic) else value
        if dtype.kind in "iu" and isinstance(number, float) and not number.is_integer():
            raise ArgumentError(
                f"x[...] = value: {number} does not fit {dtype.name}; cast the tensor with astype first"
            )
        return literal(constant(int(number) if dtype.kind in "iu" else number, dtype))
    return asarray(value)


class _At:
    """Property `x.at` of a tensor: `x.at[key]` says where to update."""

    __slots__ = ("_x",)

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __getitem__(self, key: Any) -> Place:
        return Place(self._x, key)

    def __repr__(self) -> str:
        return f"{self._x!r}.at"


class Place:
    """`x.at[key]`: gives x with another value at `key`, as a new tensor.

    Source: JAX's `jax.numpy.ndarray.at`. A value broadcasts to the selected part (ShapeError) and must fit x's dtype
    (DTypeError); an index out of range raises OutOfBoundsError.

    >>> import hybridml as hm
    >>> x = hm.tensor([1.0, 2.0, 3.0])
    >>> x.at[[0, 0, 2]].add(1.0).tolist()
    [3.0, 2.0, 4.0]
    >>> x.at[x > 1.5].set(0.0).tolist(), x.tolist()
    ([1.0, 0.0, 0.0], [1.0, 2.0, 3.0])
    """

    __slots__ = ("_key", "_x")

    def __init__(self, x: Tensor, key: Any) -> None:
        self._x, self._key = x, key

    def get(self) -> Tensor:
        """The elements themselves, as `x[key]`, but never a view."""
        found = self._x[self._key]
        return found.clone()

    def set(self, value: Any) -> Tensor:
        """x with `value` there."""
        return self._update("set", value)

    def add(self, value: Any) -> Tensor:
        """x with `value` added there."""
        return self._update("add", value)

    def subtract(self, value: Any) -> Tensor:
        """x with `value` subtracted there."""
        return self._update("subtract", value)

    def multiply(self, value: Any) -> Tensor:
        """x multiplied by `value` there."""
        return self._update("multiply", value)

    def divide(self, value: Any) -> Tensor:
        """x divided by `value` there."""
        return self._update("divide", value)

    def min(self, value: Any) -> Tensor:
        """The lesser of x and `value` there."""
        return self._update("min", value)

    def max(self, value: Any) -> Tensor:
        """The greater of x and `value` there."""
        return self._update("max", value)

    def power(self, value: Any) -> Tensor:
        """x to the power of `value` there."""
        return self.apply(lambda part: part**value)

    def apply(self, fn: Callable[[Tensor], Tensor]) -> Tensor:
        """x with `fn(x[key])` there; once an element, however often index arrays name it."""
        return self._update("set", fn(self._x[self._key]))

    def __repr__(self) -> str:
        return f"{self._x!r}.at[{self._key!r}]"

    def _update(self, how: str, value: Any) -> Tensor:
        return _written(lift(self._x), self._key, how, value)


def _at(self: Tensor) -> _At:
    """Functional updates: `x.at[key].set(value)`, `.add`, `.subtract`, `.multiply`, `.divide`, `.power`, `.min`,
    `.max`, `.apply(fn)` and `.get()`; see `hybridml.arrays.indexing.at`.
    """
    return _At(self)


Tensor.at = property(_at)  # type: ignore[method-assign, assignment]
