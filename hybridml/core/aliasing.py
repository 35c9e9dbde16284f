"""Views and in-place updates: one memory, several tensors, one history.

A tensor's `_version` is 0 or the stamp of its last in-place write. Once two tensors share memory it becomes a list,
`[stamp, weak references to the views...]`, that all of them hold. A view remembers how it was made: parent, op and
params. When a view is written to and the write is recorded (or traced), the parents get new values made of ordinary
operations (elements go back where the view took them from), and every other view is made again from its
parent: that is how `out[i] += w` differentiates, and how a traced program gives what the eager one gives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any
from weakref import ref

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.donation import donated
from hybridml_compiler.eager.large import compute_into
from hybridml_compiler.errors import DTypeError, GradientError, ShapeError
from hybridml_compiler.ops.shapes import broadcast
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.values import at_hand

from .autodiff.pullbacks import pull_of
from .autodiff.references import VARIABLE
from .autodiff.tape import is_node, make_node
from .context import beside, grad_is_off, lift, no_grad
from .eager import active_interpreter
from .nested import Nested
from .source_location import write_stamp
from .tensor import StandIn, Tensor, like

_ndarray = np.ndarray
_positive = OPS["positive"]


class _Detached:
    """Marker in place of an op in the `_view` of a tensor that a trace has detached: same memory, another history."""

    name, is_view, element_map = "detach", True, ""

    @staticmethod
    def fn(parent: Tensor) -> Tensor:
        return parent.detach()

    @staticmethod
    def eager(array: np.ndarray) -> np.ndarray:
        return array

    @staticmethod
    def put_back(parent: Tensor, value: Tensor) -> Tensor:
        return value


DETACHED: Any = _Detached()


# What stands for a row in views that `x[key]` made. `arrays.indexing`, which stands above, registers it.
by_key: list[Any] = []


def link(parent: Tensor, view: Tensor, made: Any) -> None:
    """Notes that `view` was made from `parent`, if they share memory: by (op, params), or the key of `x[key]`."""
    array = view._array
    if type(array) is _ndarray:
        base = array.base
        if base is None:
            return
        source = parent._array
        if not (base is source or base is source.base or np.may_share_memory(array, source)):
            return
    elif not made[0].is_view or (made[0].element_map == "flat" and not _reshapes_in_place(parent, view.shape)):
        return
    cell = parent._version
    if type(cell) is not list:
        cell = parent._version = [cell]
    if type(view._version) is list:  # a row that keeps its result, see `record`
        raise AssertionError(f"{made[0].name}: a view must not keep its own result")
    view._version = cell
    if view._node is None and parent._node is not None and type(array) is _ndarray:
        return  # made under no_grad: writes are seen by the stamp, there is no history to keep in step
    view._view, view._made = parent, made
    cell.append(ref(view))
    if len(cell) > 64 and not len(cell) - 1 & len(cell) - 2:
        forget(cell)


def origin_of(view: Tensor) -> tuple[Tensor, Any, dict[str, Any]] | None:
    """The parent of a view, the row that made it and its parameters; None of what is no view."""
    parent = getattr(view, "_view", None)
    if parent is None:
        return None
    made = view._made
    by_row = type(made) is tuple and len(made) == 2 and type(made[1]) is dict  # which is no part of a key
    return (parent, *made) if by_row else (parent, by_key[0], {"key": made})


def forget(cell: list[Any]) -> None:
    """Removes the views that are gone."""
    cell[1:] = [r for r in cell[1:] if r() is not None]


def _reshapes_in_place(t: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether NumPy's reshape of this traced tensor would be a view: memory is shared where eager code shares it."""
    try:
        np.reshape(layout(t), at_hand(tuple(shape)), copy=False)
    except ValueError:
        return False
    return True


def layout(t: Tensor) -> np.ndarray:
    """An array with the strides that a traced tensor has in eager code. Its elements must not be touched."""
    view = origin_of(t)
    if view is not None:
        parent, op, params = view
        return op.eager(layout(parent), **{name: at_hand(value) for name, value in params.items()})
    return active_interpreter(t).layout(t)


def stamp(*tensors: Tensor) -> None:
    """Notes that tensors have been written to, all by one line."""
    if tensors:
        now = write_stamp()
        for t in tensors:
            version = t._version
            if type(version) is list:
                version[0] = now
            else:
                t._version = now


def update(
    x: Tensor, fn: Callable[..., Tensor], args: tuple[Any, ...], name: str, reads: Sequence[Any] | None = None
) -> Tensor:
    """Replaces `x` by `fn(x, *args)` in place, in values and in history.

    A gradient of fn that needs the old value gets a copy of it, as in PyTorch. Where fn does no more with `x` than to
    write to places of it, `reads` are the tensors that it reads beside it: then there is no copy.
    """
    given: Any = x
    if issubclass(type(given), StandIn) and (now := given._pending()) is not None:
        value = fn(now, *[now if a is x else a for a in args])
        if not given._take(value):
            write(x, value, name)
        return x
    target = lift(x)
    _check_leaf(target, name)
    if reads is not None and _may_be_donated(target, reads):
        with donated(target._array):
            value = fn(target, *args)
        write(target, value, name)
        return x
    if grad_is_off():
        write(target, fn(target, *args), name)
        return x
    old = like(target, target._array, target._node)
    value = fn(old, *[old if a is x else a for a in args])
    if type(old._array) is _ndarray and sys.getrefcount(old) > VARIABLE:  # a node keeps it as well
        old._array = old._array.copy(order="K")
    write(target, value, name)
    return x


def _may_be_donated(x: Tensor, reads: Sequence[Any]) -> bool:
    array = x._array
    if type(array) is not _ndarray or not array.flags.writeable or not (x._node is None or grad_is_off()):
        return False
    others = [t._array for t in reads if isinstance(t, Tensor)] + [a for a in reads if isinstance(a, _ndarray)]
    return all([type(a) is _ndarray and not np.may_share_memory(a, array) for a in others])


def assign(x: Tensor, value: Tensor, name: str) -> Tensor:
    """Writes `value` into `x` in place, with a step of history that leads to it: x is no leaf if that is one,
    and has hooks of its own.
    """
    target = lift(x)
    _check_leaf(target, name)
    if value._node is not None and not grad_is_off():
        value = like(value, value._array, make_node(pull_of(_positive, (0,)), value.shape, [value._node]))
    write(target, lift(value), name)
    return x


def _check_leaf(x: Tensor, name: str) -> None:
    if x._node is not None and not is_node(x._node) and not x._node.inner and not grad_is_off():
        raise GradientError(
            f"{name}: in-place update of a leaf tensor that requires grad (shape {x.shape}); "
            "do it under hm.no_grad(), or write the update out of place"
        )


def write(x: Tensor, value: Tensor, name: str) -> None:
    """Stores `value` into `x` (both lifted); broadcasts, never changes x's shape or dtype."""
    weak = is_python_float(value)
    if weak or value.dtype is not x.dtype:
        if dtypes.result_type([(x.dtype, False), (value.dtype, weak)], name) is not x.dtype:
            raise DTypeError(
                f"{name}: a {value.dtype.name} result does not fit a {x.dtype.name} tensor; "
                "cast it with astype, or write the update out of place"
            )
        value = value.astype(x.dtype)
    if value.shape != x.shape:
        try:
            fits = broadcast(name, Aval(value.shape, x.dtype), Aval(x.shape, x.dtype)) == x.shape
        except ShapeError:
            fits = False
        if not fits:
            raise ShapeError(
                f"{name}: a value of shape {value.shape} does not fit a tensor of shape {x.shape} in place"
            )
        value = OPS["broadcast_to"].fn(value, x.shape)
    eager = type(x._array) is _ndarray
    if eager and not x._array.flags.writeable:
        raise _read_only(name)
    if isinstance(x._array, Nested):
        value = x._array.interpreter.kept(x, value)
    recorded = not grad_is_off() and (value._node is not None or x._node is not None)
    if recorded or not eager:
        beside((x,), lambda: _rewrite(x, value, name, recorded))
    if eager and value._array is not x._array:
        if not compute_into(_positive, [value._array], x._array):
            np.copyto(x._array, value._array)
    stamp(x)


def exchange(x: Tensor, array: Any) -> None:
    """Gives a tensor of a device another array, unrecorded; views follow. Stamps are the caller's."""
    cell = x._version
    if type(cell) is list:
        forget(cell)
        if len(cell) > 1 or getattr(x, "_view", None) is not None:
            home: Any = type(x).home
            beside((x,), lambda: _rewrite(x, home.wrap(array), "update", False))
            return
    x._array = array


def _read_only(name: str) -> ShapeError:
    return ShapeError(f"{name}: this tensor is read-only (a broadcast view or a read-only array); clone() it first")


def is_python_float(t: Tensor) -> bool:
    """Whether a traced tensor stands for a Python float (an argument, or arithmetic of such arguments)."""
    return type(t).is_number


def _rewrite(x: Tensor, value: Tensor, name: str, recorded: bool) -> None:
    """Gives new histories (and, traced, new graph nodes) to x, its parents and every other view of the same memory."""
    chain = [(x, value, recorded)]
    followed = recorded
    while (view := origin_of(x)) is not None:
        parent, op, params = view
        followed = followed and op is not DETACHED
        if followed:
            _check_leaf(parent, name)
        value = put_back(op, params, parent, x, value, name)
        x = parent
        chain.append((x, value, followed))
    for t, v, follows in chain:
        _take(t, v, follows)
    cell = x._version
    if type(cell) is not list:
        return
    done = {id(t) for t, _, _ in chain}
    for reference in tuple(cell[1:]):
        t = reference()
        made = None if t is None or id(t) in done else origin_of(t)
        if made is not None:
            parent, op, params = made
            again = op.fn(parent, **params)
            _take(t, again, recorded)


def _take(t: Tensor, value: Tensor, recorded: bool) -> None:
    if type(t._array) is not _ndarray:
        with nullcontext() if recorded else no_grad():  # beneath there may be a history, too
            active_interpreter(t).write(t, value)
    if recorded:
        t._node = value._node


def put_back(op: Any, params: dict[str, Any], parent: Tensor, view: Tensor, value: Tensor, name: str) -> Tensor:
    """The parent's values after its view took `value`: elements outside of the view stay."""
    if op.put_back is not None:
        return op.put_back(parent, value, **params)
    if op.element_map == "broadcast":  # several elements may be one in memory
        raise _read_only(name)
    rule, needs = op.vjp[0], op.needs[0]
    # A view only moves elements, so its adjoint moves them back.
    known = {**params, f"{op.inputs[0]}_shape": parent.shape, f"{op.inputs[0]}_dtype": parent.dtype}
    back = rule(value, **{need: known[need] for need in needs})
    if view.numel() < parent.numel():
        known[f"{op.inputs[0]}_dtype"] = dtypes.bool_
        every = OPS["full"].fn(shape=value.shape, value=True, dtype=dtypes.bool_)
        back = OPS["where"].fn(rule(every, **{need: known[need] for need in needs}), back, parent)
    return back if back.shape == parent.shape else back.reshape(parent.shape)
