"""Positions where a condition holds: `nonzero`, `argwhere`, `count_nonzero`, `where(condition)`, masks.

How many elements are true is a matter of data. In a traced program they wait (see tracing/capture/selection.py); where
something asks for them it asks for their number alone, as `int(t)` asks for its value, and where they are is computed
in the program, by a running count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ShapeError
from hybridml_compiler.ops.table import OPS

from ...core.context import at_place, current_interpreter, lift
from ...core.interpreter import Interpreter
from ...core.library import compiled_when_small
from ...core.tensor import StandIn, Tensor, wrap
from ..creation import asarray
from ..shaping.manipulation import _tensor, stack

_MISSING: Any = object()


def lifted(x: Any) -> Tensor:
    """A tensor from what may be an index array or a mask; an empty list is one of integers."""
    if isinstance(x, list | tuple | range):
        x = list(x)
        t = asarray(np.zeros(np.shape(x), np.int64) if _is_empty(x) else x)
    else:
        t = asarray(x)
    return lift(t)


def _is_empty(x: list[Any]) -> bool:
    return not x or all(isinstance(v, list | tuple) and not v for v in x)


def true_positions(mask: Tensor, what: str) -> Tensor:
    """Positions of the true elements of a mask in its row-major order, as one axis of int64."""
    interp = current_interpreter() or type(mask).home
    if interp is None:
        return wrap(np.flatnonzero(mask._array))
    return at_place(mask.device.type, lambda: _true_positions(interp, mask, what))


def waiting(x: Tensor, mask: Tensor, make: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The elements, or rows, of x that a mask of its first axis chooses, `make(x, mask)`; in a trace they wait."""
    kind: Any = type(mask)
    found = (
        kind._selected(x, mask, 0, lambda t: t, make) if issubclass(kind, StandIn) and mask.device == "cpu" else None
    )
    return make(x, mask) if found is None else found


def _true_positions(interp: Interpreter[Tensor], mask: Tensor, what: str) -> Tensor:
    size = mask.numel()
    flat = OPS["reshape"].fn(mask, (size,))
    n = interp.read(OPS["sum"].fn(flat, dtype=dtypes.int64), "number", what)
    if mask.device == "cpu":
        return OPS["true_positions"].fn(flat, n)
    every = OPS["arange"].fn(start=0, stop=size, step=1, dtype=dtypes.int64)
    if n == 0:
        return OPS["full"].fn(shape=(0,), value=0, dtype=dtypes.int64)
    # The k-th true element writes its position to place k, all others to a place behind the last.
    place = OPS["where"].fn(flat, OPS["cumulative_sum"].fn(flat, axis=0, dtype=dtypes.int64) - 1, n)
    zeros = OPS["full"].fn(shape=(n + 1,), value=0, dtype=dtypes.int64)
    return OPS["slice"].fn(OPS["scatter_set"].fn(zeros, place, every, axis=0), (0,), (n,), (1,))


def nonzero(x: Any, /, *, as_tuple: bool = True) -> Any:
    """Indices of the elements that are not zero, one tensor of int64 for each axis, in row-major order.

    Source: NumPy. `as_tuple=False` gives PyTorch's one tensor, with a row for each element: `argwhere`. Traced,
    they wait until something needs them. Raises ShapeError for a 0-d tensor.

    >>> import hybridml as hm
    >>> [t.tolist() for t in hm.nonzero(hm.tensor([[0, 3], [4, 0]]))]
    [[0, 1], [1, 0]]
    """
    return _coordinates("nonzero", _tensor(x)) if as_tuple else argwhere(x)


def argwhere(x: Any, /) -> Tensor:
    """Indices of the elements that are not zero, shape (their number, x.ndim): a row for each. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.argwhere(hm.tensor([[0, 3], [4, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    x = _tensor(x)
    found = stack(_coordinates("argwhere", x if x.ndim else OPS["reshape"].fn(x, (1,))), axis=1)
    return found if x.ndim else found[:, :0]


@compiled_when_small
def count_nonzero(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Number of elements (along `axis`) that are not zero, as int64.

    >>> import hybridml as hm
    >>> hm.count_nonzero(hm.tensor([[0, 3], [4, 5]]), axis=1).tolist()
    [1, 2]
    """
    return OPS["sum"].fn(_condition(_tensor(x)), axis, keepdims, dtypes.int64)


@overload
def where(condition: Any) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Any, x: Any, y: Any) -> Tensor: ...
def where(condition: Any, x: Any = _MISSING, y: Any = _MISSING) -> Any:
    """Elements of `x` where `condition` holds, else of `y`; all three broadcast. Without x and y: `nonzero(condition)`.

    The operand that is not chosen gets a gradient of zero.

    >>> import hybridml as hm
    >>> hm.where(hm.tensor([True, False]), 1.0, hm.tensor([5.0, 6.0])).tolist()
    [1.0, 6.0]
    """
    if y is not _MISSING:
        return OPS["where"].fn(condition, x, y)
    if x is not _MISSING:
        raise TypeError("where() takes a condition, or a condition and two values")
    return _coordinates("where", _tensor(condition))


@compiled_when_small
def take_along_axis(x: Any, /, indices: Any, axis: int | None = -1) -> Tensor:
    """The elements of x at `indices` along an axis, one for each index; all other axes broadcast. Source: array API.

    Indices may count from the end. DTypeError for indices that are no integers, ShapeError for shapes that do not
    broadcast, OutOfBoundsError. Without an axis x must have one.

    >>> import hybridml as hm
    >>> hm.take_along_axis(hm.tensor([[1, 2], [3, 4]]), hm.tensor([[1, 0]])).tolist()
    [[2, 1], [4, 3]]
    """
    x, indices, row = _tensor(x), lifted(indices), OPS["take_along_axis"].fn
    if axis is not None and x.ndim == indices.ndim and -x.ndim <= axis < x.ndim:
        k = axis % x.ndim
        pairs = [(1, 1) if j == k else pair for j, pair in enumerate(zip(x.shape, indices.shape, strict=True))]
        if all(n == m or n == 1 or m == 1 for n, m in pairs):
            shape = [m if n == 1 else n for n, m in pairs]
            x, indices = (_stretched(t, (*shape[:k], t.shape[k], *shape[k + 1 :])) for t in (x, indices))
    found: Tensor = row(x, indices, axis)
    return found


def from_zero(index: Tensor, size: int) -> Tensor:
    """Indices of which a negative one does not exist, as in PyTorch: it is moved out of the range of -size..size - 1.

    A class of -1 is "no label" in many data sets; counted from the end it would be the last class.
    """
    wide = index if index.dtype == dtypes.int64 else OPS["astype"].fn(index, dtypes.int64)  # int8 cannot hold -size
    found: Tensor = OPS["where"].fn(OPS["less"].fn(wide, 0), wide - size, wide)
    return found


def _stretched(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.shape == shape else OPS["broadcast_to"].fn(x, shape)


def _condition(x: Tensor) -> Tensor:
    return x if x.dtype.kind == "b" else OPS["not_equal"].fn(x, 0)


def _coordinates(name: str, x: Tensor) -> tuple[Tensor, ...]:
    if not x.shape:
        raise ShapeError(f"{name}: a 0-dimensional tensor has no axes to give indices of; reshape it to (1,)")
    mask = _condition(lift(x))
    if current_interpreter() is None and type(mask).home is None:
        return tuple(wrap(found) for found in np.nonzero(mask._array))
    size = mask.numel()
    every = OPS["arange"].fn(start=0, stop=size, step=1, dtype=dtypes.int64)
    flat = OPS["reshape"].fn(mask, (size,))
    position = waiting(every, flat, lambda _, mask: true_positions(mask, f"{name}()"))
    found: list[Tensor] = []
    for size in reversed(x.shape[1:]):
        found.append(OPS["remainder"].fn(position, size))
        position = OPS["floor_divide"].fn(position, size)
    return (position, *reversed(found))


__all__ = ["argwhere", "count_nonzero", "nonzero", "take_along_axis", "where"]
