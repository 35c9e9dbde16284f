"""Indexing: `x[key]` and `x[key] = value`.

Keys: integers, slices with any step, None, Ellipsis (a view of the same memory), one integer array or list (`take`),
and, when a program runs eagerly, a boolean mask, whose result has a shape that depends on data.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, OutOfBoundsError, ShapeError, TraceError
from hybridml_compiler.ops.shapes import Positions, count, positions
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import Dim, is_dim, is_symbolic

from . import aliasing
from .context import clock, current_interpreter, grad_is_off, interpreter
from .dispatch import constant
from .tape import KEPT
from .tensor import Tensor, adopt, method, values, wrap

_ndarray = np.ndarray
_BASIC = (int, Dim, slice, np.integer, type(None), type(Ellipsis))


@dataclass(frozen=True, slots=True)
class Plan:
    """A basic key as rows: a slice of every axis, then a reshape that drops and adds axes."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]
    shape: tuple[int, ...]  # of the result
    axis: int | None  # where the integer array goes, an axis of the result
    index: Any  # the integer array


def _is_basic(key: Any) -> bool:
    if type(key) is tuple:
        return all(isinstance(k, _BASIC) and type(k) is not bool for k in key)
    return isinstance(key, _BASIC) and type(key) is not bool


def plan(key: Any, aval: Aval) -> Plan:
    """Rows for a key; `OutOfBoundsError` for an index that does not exist, `ArgumentError` for a key of another
    kind.
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    taken = sum(1 for k in parts if k is not None and k is not Ellipsis)
    if taken > aval.ndim:
        raise OutOfBoundsError(f"index: {taken} indices for {aval}, which has {aval.ndim} axes")
    dots = [i for i, k in enumerate(parts) if k is Ellipsis]
    if len(dots) > 1:
        raise ArgumentError("index: an index can have one '...' only")
    at = dots[0] if dots else len(parts)
    parts[at : at + 1] = [slice(None)] * (aval.ndim - taken)
    ranges: list[Positions] = []
    shape: list[int] = []
    where, index = None, None
    for k in parts:
        if k is None:
            shape.append(1)
            continue
        axis, size = len(ranges), aval.shape[len(ranges)]
        if isinstance(k, slice):
            try:
                r = _positions(k, size)
            except TypeError:
                raise ArgumentError(f"index: {k} has bounds that are not integers; use int()") from None
            except ValueError:
                raise ArgumentError(f"index: a slice step cannot be 0, got {k}") from None
            ranges.append(r)
            shape.append(count(r))
        elif isinstance(k, int | np.integer | Dim) and not isinstance(k, bool):
            i = k if is_dim(k) else int(k)
            i = i + size if i < 0 else i
            if not 0 <= i < size:
                raise OutOfBoundsError(f"index: {k} is out of bounds for axis {axis} of {aval}")
            ranges.append(positions(i, i + 1, 1))
        elif index is None and isinstance(k, Tensor | _ndarray | list):
            index, where = k, len(shape)
            ranges.append(positions(0, size, 1))
            shape.append(size)
        else:
            if index is not None and isinstance(k, Tensor | _ndarray | list):
                raise ArgumentError(
                    f"index: two index arrays cannot index {aval}; pick an element of each row with "
                    "hm.take_along_axis, or index x.reshape(-1) with one array of positions"
                )
            raise ArgumentError(
                f"index: {k!r} cannot index {aval}; use integers, slices, None, ... and one integer array"
            )
    return Plan(
        tuple(r.start for r in ranges), tuple(r.stop for r in ranges), tuple(r.step for r in ranges),
        tuple(shape), where, index,
    )  # fmt: skip


def _positions(k: slice, size: Any) -> Positions:
    """`range(size)[k]`, for sizes that come with the call as well (see hybridml_compiler.sizes)."""
    if not is_symbolic((size, k.start, k.stop)):
        return range(size)[k]
    step = 1 if k.step is None else operator.index(k.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def end(value: Any, default: Any) -> Any:
        if value is None:
            return default
        value = value if is_dim(value) else operator.index(value)
        value = value + size if value < 0 else value
        return low if value < low else high if value > high else value

    first, last = (low, high) if step > 0 else (high, low)
    return positions(end(k.start, first), end(k.stop, last), step)


def _integers(k: Any) -> Tensor:
    """An index array as a tensor of integers (an empty list counts as one)."""
    from .creation import asarray

    t = k if isinstance(k, Tensor) else asarray(np.asarray(k, dtype=np.int64) if isinstance(k, list) and not k else k)
    if t.dtype.kind not in "iu":
        raise ArgumentError(f"index: an index array must hold integers (or bool, for a mask), got {t.dtype.name}")
    return t


def _mask(key: Any) -> Any:
    """The boolean mask that `key` is, or None."""
    if isinstance(key, Tensor | _ndarray):
        return key if key.dtype.kind == "b" else None
    if isinstance(key, bool | np.bool_):
        raise ArgumentError("index: a Python bool is not an index; use where, or a mask of the tensor's shape")
    if isinstance(key, list) and key and all(isinstance(k, bool) for k in key):
        return np.asarray(key)
    return None


def _keep_array(key: Any) -> Any:
    """With `...` NumPy gives a 0-d view where it would give a scalar."""
    if type(key) is tuple:
        return key if ... in key else (*key, ...)
    return key if key is ... else (key, ...)


class _Getitem:
    """Stands for the rows of a basic key in `Tensor._view`, so that an eager `x[0]` costs one NumPy call."""

    name = "getitem"

    @staticmethod
    def fn(parent: Tensor, key: Any) -> Tensor:
        return by_rows(parent, plan(key, Aval(parent.shape, parent.dtype)))

    @staticmethod
    def put_back(parent: Tensor, value: Tensor, key: Any) -> Tensor:
        """The parent with `value` at `key`."""
        p = plan(key, Aval(parent.shape, parent.dtype))
        window = tuple(len(range(*bounds)) for bounds in zip(p.starts, p.stops, p.steps, strict=True))
        fitted = value if value.shape == window else OPS["reshape"].fn(value, window)
        return OPS["slice_update"].fn(parent, fitted, p.starts, p.stops, p.steps)


_GETITEM: Any = _Getitem()


def pull_getitem(g: Tensor, node: list[Any]) -> Any:
    """The reverse step of an eager `x[key]` (see tape.py): zeros with the cotangent at `key`."""
    key, shape, dtype = node[KEPT + 1 :]
    return ((node[KEPT], _GETITEM.put_back(OPS["full"].fn(shape=shape, value=0.0, dtype=dtype), g, key)),)


@method
def __getitem__(self: Tensor, key: Any) -> Tensor:
    """`x[key]`; see the module for the keys. Raises OutOfBoundsError, ArgumentError."""
    eager = interpreter() is None and type(self) is Tensor
    if eager and _is_basic(key):
        try:
            array = self._array[_keep_array(key)]
        except (IndexError, TypeError, ValueError):
            plan(key, Aval(self.shape, self.dtype))
            raise
        t = wrap(array)
        if self._node is not None and not grad_is_off():
            t._node = [clock(), pull_getitem, array.shape, self._node, key, self._array.shape, array.dtype]
        aliasing.link(self, t, _GETITEM, {"key": key})
        return t
    x = self
    interp = current_interpreter()
    if interp is not None:
        x = interp.lift(self)
    mask = _mask(key)
    if mask is not None:
        return _select(x, mask)
    return by_rows(x, plan(key, Aval(x.shape, x.dtype)))


def by_rows(x: Tensor, p: Plan) -> Tensor:
    out = x
    if p.stops != x.shape or any(p.starts) or any(step != 1 for step in p.steps):
        out = OPS["slice"].fn(out, p.starts, p.stops, p.steps)
    if out.shape != p.shape:
        out = OPS["reshape"].fn(out, p.shape)
    if p.axis is not None:
        out = OPS["take"].fn(out, _integers(p.index), p.axis)
    elif out is x:
        out = OPS["reshape"].fn(x, x.shape)  # `x[...]` is a view, not x itself
    return out


def _select(x: Tensor, mask: Any) -> Tensor:
    interp = current_interpreter()  # a trace asks for the values of the mask, on which the shape depends
    if isinstance(mask, np.ndarray) and interp is not None:
        mask = interp.lift(adopt(mask), source=mask)
    chosen = values(mask, "x[mask]") if isinstance(mask, Tensor) else mask
    n = chosen.ndim
    if chosen.shape != x.shape[:n]:
        raise ShapeError(f"index: a mask of shape {chosen.shape} does not fit {Aval(x.shape, x.dtype)}")
    flat = OPS["reshape"].fn(x, (-1, *x.shape[n:])) if x.size else OPS["reshape"].fn(x, (chosen.size, *x.shape[n:]))
    index = wrap(np.flatnonzero(chosen))
    return OPS["take"].fn(flat, index if interp is None else interp.constant(index), 0)


@method
def __setitem__(self: Tensor, key: Any, value: Any) -> None:
    """`x[key] = value`, in place; the value broadcasts to the selected part and keeps x's dtype."""
    interp = current_interpreter()
    x = self if interp is None else interp.lift(self)
    mask = _mask(key)
    if not isinstance(value, Tensor):
        value = _value(value, x.dtype, interp)
    elif interp is not None:
        value = interp.lift(value)
    if mask is not None:
        aliasing.assign(x, _masked(x, mask, value), "x[mask] = value")
        return
    p = plan(key, Aval(x.shape, x.dtype))
    if p.axis is not None:
        _scatter(x, key, p, value)
        return
    part = x[key]
    if not _same_memory(part, value):
        aliasing.assign(part, value, "x[...] = value")


def _value(value: Any, dtype: np.dtype, interp: Any) -> Tensor:
    from .creation import asarray

    if isinstance(value, bool | int | float | np.generic):
        number = value.item() if isinstance(value, np.generic) else value
        if dtype.kind in "iu" and isinstance(number, float) and not number.is_integer():
            raise ArgumentError(
                f"x[...] = value: {number} does not fit {dtype.name}; cast the tensor with astype first"
            )
        t = constant(int(number) if dtype.kind in "iu" else number, dtype)
        return t if interp is None else interp.constant(t)
    return asarray(value)


def _same_memory(part: Tensor, value: Tensor) -> bool:
    """After `x[k] += v` Python stores the updated view back into x: nothing is left to do."""
    a, b = part._array, value._array
    if type(a) is not _ndarray or type(b) is not _ndarray:
        return a is b
    return (
        type(part._version) is list and part._version is value._version
        and a.shape == b.shape and a.strides == b.strides and a.ctypes.data == b.ctypes.data
    )  # fmt: skip


def _masked(x: Tensor, mask: Any, value: Tensor) -> Tensor:
    if value.size != 1:
        if current_interpreter() is not None or x._node is not None or value._node is not None:
            raise ShapeError(
                f"x[mask] = value: in a traced or recorded program the value must be a single element, got shape "
                f"{value.shape}; write hm.where(mask, value, x)"
            )
        out = x._array.copy()
        try:
            out[values(mask, "index") if isinstance(mask, Tensor) else mask] = value._array
        except (IndexError, ValueError) as error:
            raise ShapeError(f"x[mask] = value: {error}") from None
        return wrap(out)
    condition = mask if isinstance(mask, Tensor) else adopt(mask)
    if condition.shape != x.shape[: condition.ndim]:
        raise ShapeError(f"index: a mask of shape {condition.shape} does not fit {Aval(x.shape, x.dtype)}")
    if condition.ndim < x.ndim:
        condition = OPS["reshape"].fn(condition, condition.shape + (1,) * (x.ndim - condition.ndim))
    return OPS["where"].fn(condition, OPS["reshape"].fn(value, ()), x)


def _scatter(x: Tensor, key: Any, p: Plan, value: Tensor) -> None:
    if current_interpreter() is not None or ((x._node is not None or value._node is not None) and not grad_is_off()):
        raise TraceError(
            "x[indices] = value: only basic keys (integers, slices, None, ...) and masks can be written to in a "
            "traced or recorded program; use hm.scatter_add or hm.where"
        )
    index = _integers(p.index)
    parts = key if isinstance(key, tuple) else (key,)
    where = tuple(index.numpy() if k is p.index else k for k in parts)
    copy = x._array.copy()
    try:
        copy[where] = value._array
    except IndexError as error:
        raise OutOfBoundsError(f"index: {error}") from None
    except ValueError as error:
        raise ShapeError(f"x[indices] = value: {error}") from None
    aliasing.assign(x, wrap(copy), "x[indices] = value")
