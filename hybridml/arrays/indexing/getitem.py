"""Indexing: `x[key]` and `x[key] = value`, with NumPy's keys (see index_plan.py).

Integers, slices, None and ... give a view of the same memory. Index arrays (a tensor, also a 0-d one, an array, a list)
and masks give a copy. Both can be assigned to, in each style: the update is a functional one (at.py), whose
result the tensor takes in place.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.compile_policy import OPERATION as LARGE
from hybridml_compiler.ops.gather import add_at
from hybridml_compiler.ops.table import OPS

from ...core import aliasing
from ...core.autodiff.tape import Node, kept_by, make_node, make_step, parents_of, stale
from ...core.context import beside, grad_is_off, lift, placed
from ...core.device_tensor import transfer
from ...core.dispatch import count
from ...core.interpreter import interpreter_stack
from ...core.source_location import here
from ...core.tensor import CPU, StandIn, Tensor, method, place_of, place_var, wrap
from .at import as_value, by_mask, put_back, updated
from .index_plan import MaskPlace, Plan, at_data, gathered, is_basic, mask_in, plan, sliced
from .selecting import lifted

_ndarray = np.ndarray
_SUMMED_BY_NUMPY = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)  # as the rows do


def _keep_array(key: Any) -> Any:
    """A key with `...`, for which NumPy gives a 0-d view where it would give a scalar."""
    if type(key) is tuple:
        return key if ... in key else (*key, ...)
    return key if key is ... else (key, ...)


class _Getitem:
    """Marker in place of the ops of a basic key in `Tensor._view`, so that an eager `x[0]` costs one NumPy call."""

    name = "getitem"

    @staticmethod
    def fn(parent: Tensor, key: Any) -> Tensor:
        return sliced(parent, plan(key, Aval(parent.shape, parent.dtype)))

    @staticmethod
    def put_back(parent: Tensor, value: Tensor, key: Any) -> Tensor:
        """The parent with `value` at `key`."""
        return put_back(parent, value, plan(key, Aval(parent.shape, parent.dtype)))


class _AtData:
    """The same for a basic key with ints that data decides, which the key of a trace has as tensors."""

    name, is_view, element_map, of_data = "getitem", True, "", True

    @staticmethod
    def fn(parent: Tensor, key: Any) -> Tensor:
        return by_rows(parent, plan(key, Aval(parent.shape, parent.dtype)))

    @staticmethod
    def eager(array: np.ndarray, key: Any) -> np.ndarray:
        """A view that has the memory layout of any such."""
        return array[(*(0 if isinstance(k, Tensor) else k for k in key), ...)]

    @staticmethod
    def put_back(parent: Tensor, value: Tensor, key: Any) -> Tensor:
        return updated(parent, key, "set", value)


_GETITEM: Any = _Getitem()
AT_DATA: Any = _AtData()
aliasing.by_key.append(_GETITEM)


def pull_getitem(g: Tensor, node: Node) -> Any:
    """The reverse step of an eager `x[key]` (see tape.py): zeros with the cotangent at `key`."""
    key, shape, dtype = kept_by(node)
    if type(g._array) is _ndarray and grad_is_off() and interpreter_stack() is None:
        if _selects_all(key) and g._array.size == math.prod(shape):
            return ((parents_of(node)[0], wrap(g._array.reshape(shape))),)
        zeros = OPS["full"].fn(shape=shape, value=0.0, dtype=dtype)
        zeros._array[_keep_array(key)] = g._array
        return ((parents_of(node)[0], zeros),)
    return ((parents_of(node)[0], _GETITEM.put_back(OPS["full"].fn(shape=shape, value=0.0, dtype=dtype), g, key)),)


def _selects_all(key: Any) -> bool:
    """Whether a basic key keeps the order of elements; one that gives as many as there are then gives all of them."""
    return all([type(k) is not slice or k.step is None for k in (key if type(key) is tuple else (key,))])


def _pull_selected(g: Tensor, node: Node) -> Any:
    """The reverse step of an eager `x[key]` with index arrays: zeros, to which the cotangent is added at `key`."""
    place, key, shape, dtype = kept_by(node)
    for k in key:
        if type(k) is Tensor:
            stale("x[key]", "index array", k._version, node, place)
    (parent,) = parents_of(node)
    direct = type(g._array) is _ndarray and grad_is_off() and interpreter_stack() is None
    zeros = OPS["full"].fn(shape=shape, value=0.0, dtype=dtype)
    if direct and dtype in _SUMMED_BY_NUMPY and g._array.size < LARGE:
        first, *others = where = _arrays(key)
        if others or type(first) is not _ndarray or first.dtype.kind == "b":
            np.add.at(zeros._array, where, g._array)
        else:
            add_at(zeros._array, first, g._array, 0)
        return ((parent, zeros),)
    return ((parent, updated(zeros, key, "add", g)),)


@method
def __getitem__(self: Tensor, key: Any) -> Tensor:
    """`x[key]`; see the module for the keys. Raises OutOfBoundsError, ShapeError, ArgumentError."""
    count()
    eager = interpreter_stack() is None and type(self) is Tensor
    plain = type(key) is int or type(key) is slice
    if eager and (plain or is_basic(key)):
        try:
            array = self._array[(key, ...) if plain else _keep_array(key)]
        except (IndexError, TypeError, ValueError):
            pass  # the rows say what is wrong
        else:
            t = Tensor()
            t._array, t._version = array, 0
            if self._node is None or grad_is_off():
                t._node = None
            else:
                t._node = make_step(pull_getitem, array.shape, self._node, key, self._array.shape, array.dtype)
            aliasing.link(self, t, key)
            return t
    elif eager:
        arrays = _arrays(key)
        if arrays is not None:
            try:
                t = wrap(_selected(self._array, arrays))
            except (IndexError, ValueError):
                pass  # the rows say what is wrong
            else:
                if self._node is not None and not grad_is_off():
                    kept = here(), _kept(key), self._array.shape, self._array.dtype
                    t._node = make_node(_pull_selected, t._array.shape, [self._node], *kept)
                return t
    return _chosen(lift(self), key)


@placed
def _chosen(x: Tensor, key: Any) -> Tensor:
    given: Any = x
    kind: Any = type(x)
    if issubclass(kind, StandIn):
        part: Tensor | None = given._part(key)
        if part is not None:
            return part
        key = given._placed(key)
        place = mask_in(key, x.ndim)
        if place is not None:
            select = partial(_by_mask, place)
            found = kind._selected(x, lifted(place.mask), place.lead(x.ndim), place.part, select)
            if found is not None:
                return found
    return _chosen_now(x, key)


def _by_mask(place: MaskPlace, x: Tensor, mask: Tensor) -> Tensor:
    return _chosen_now(x, place.key(mask))


@placed
def _chosen_now(x: Tensor, key: Any) -> Tensor:
    rows = at_data(key)
    if rows is None:
        return by_rows(x, plan(key, Aval(x.shape, x.dtype)))
    found = AT_DATA.fn(x, rows)
    if is_basic(key):
        aliasing.link(x, found, (AT_DATA, {"key": rows}))
    return found


def by_rows(x: Tensor, p: Plan) -> Tensor:
    out = sliced(x, p)
    if not p.arrays:
        return out
    found = gathered(out, p)
    return OPS["take"].fn(found.x, found.index, found.axis)


def _arrays(key: Any) -> Any:
    """A key with index arrays as NumPy takes it; None where it is not a plain one, and the rows check it."""
    parts = key if type(key) is tuple else (key,)
    found: list[Any] = []
    for k in parts:
        if isinstance(k, Tensor | list):
            k = k._array if isinstance(k, Tensor) else np.asarray(k) if k else np.zeros(0, np.int64)
        if isinstance(k, bool | np.bool_) or not isinstance(
            k, (int, slice, np.integer, _ndarray, type(None), type(...))
        ):
            return None
        if type(k) is _ndarray and k.dtype.kind not in "iub":
            return None
        found.append(k)
    return tuple(found)


def _kept(key: Any) -> tuple[Any, ...]:
    """The parts of a key for the backward, which sees what becomes of a tensor, and not of a list or an array."""
    parts = key if type(key) is tuple else (key,)
    return tuple([np.array(k) if isinstance(k, list | _ndarray) else k for k in parts])


def _selected(x: np.ndarray, key: tuple[Any, ...]) -> np.ndarray:
    """`x[key]` as a copy. A mask by the positions of its elements: 1.2 ms where NumPy's takes 2.7 (50,000 rows of 64
    float32), 2.0 where it takes 12.9 (a million elements).
    """
    mask = key[0] if len(key) == 1 else None
    if type(mask) is _ndarray and mask.dtype.kind == "b" and mask.ndim and mask.shape == x.shape[: mask.ndim]:
        return x.reshape(mask.size, *x.shape[mask.ndim :]).take(np.flatnonzero(mask), axis=0)
    return np.array(x[key], copy=None if _copies(key) else True)


def _copies(key: tuple[Any, ...]) -> bool:
    """Whether NumPy copies for this key: 0-d index arrays are integers to it."""
    return any(type(k) is _ndarray and (k.ndim or k.dtype.kind == "b") for k in key)


@method
def __setitem__(self: Tensor, key: Any, value: Any) -> None:
    """`x[key] = value`, in place; the value broadcasts to the selected part and keeps x's dtype. Where an index array
    names an element twice the last value stays.
    """
    count()
    if type(value) is Tensor and type(self) is Tensor and interpreter_stack() is None and _copied(self, key, value):
        return
    x = lift(self)
    if (type(x._array) is not _ndarray or place_var.get() is not None) and place_of(x) != place_var.get():
        beside((x,), lambda: x.__setitem__(key, value))
        return
    value = as_value(value, x.dtype)
    if type(x._array) is not _ndarray and not value.ndim:
        value = transfer(value, place_of(x) or CPU.type)  # a number may come from anywhere
    if is_basic(key):
        part = Tensor.__getitem__(x, key)  # a view, whatever a class gives for an element
        if not _same_memory(part, value):
            aliasing.assign(part, without_lead(value, part.shape), "x[...] = value")
        return
    place = mask_in(key, x.ndim) if issubclass(type(x), StandIn) else None
    if place is not None and place.is_part:
        part, mask = place.part(x), lifted(place.mask)
        same = place_of(part) == place_of(mask)
        chosen = by_mask(part, mask, place.lead(x.ndim), "set", value) if same else None
        if chosen is not None:
            aliasing.assign(part, chosen, "x[...] = value")
            return
    if type(x._array) is _ndarray and (grad_is_off() or (x._node is None and value._node is None)):
        if value.dtype is x.dtype and _stored(x, key, value):
            return
    aliasing.assign(x, updated(x, key, "set", value), "x[...] = value")


def _copied(x: Tensor, key: Any, value: Tensor) -> bool:
    """Whether NumPy has copied a tensor into the part of a basic key, which needs no history."""
    if not is_basic(key) or ((x._node is not None or value._node is not None) and not grad_is_off()):
        return False
    array, source = x._array, value._array
    shares = type(x._version) is list and x._version is value._version  # as after `x[k] += v`
    if source.dtype is not array.dtype or shares or not array.flags.writeable:
        return False
    try:
        array[_keep_array(key)] = source
    except (IndexError, TypeError, ValueError):
        return False  # before it has stored anything: the rows say why
    aliasing.stamp(x)
    return True


def _stored(x: Tensor, key: Any, value: Tensor) -> bool:
    """Whether NumPy has stored the value, which needs no history."""
    arrays = _arrays(key)
    if arrays is None or not x._array.flags.writeable:
        return False
    try:
        x._array[arrays] = value._array
    except (IndexError, ValueError):
        return False  # before it has stored anything: the rows say why
    aliasing.stamp(x)
    return True


def without_lead(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A value without the axes of size 1 that it has in front of those of `shape`: NumPy assigns it so."""
    extra = value.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in value.shape[:extra]):
        return OPS["reshape"].fn(value, value.shape[extra:])
    return value


def _same_memory(part: Tensor, value: Tensor) -> bool:
    """Whether `value` is the view itself: after `x[k] += v` Python stores it back into x, and nothing is left to do."""
    a, b = part._array, value._array
    if type(a) is not _ndarray or type(b) is not _ndarray:
        return a is b or _same_rows(aliasing.origin_of(part), aliasing.origin_of(value))
    return (
        type(part._version) is list and part._version is value._version
        and a.shape == b.shape and a.strides == b.strides and a.ctypes.data == b.ctypes.data
    )  # fmt: skip


def _same_rows(a: Any, b: Any) -> bool:
    """Whether two views are one place of one array, that data decides."""
    if a is None or b is None or a[0] is not b[0] or a[1] is not AT_DATA or b[1] is not AT_DATA:
        return False
    keys = [[k._array if isinstance(k, Tensor) else repr(k) for k in view[2]["key"]] for view in (a, b)]
    return keys[0] == keys[1]
