"""Items of lists of the program: numbers, bools, tensors and tuples of such, each in a buffer of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.dtypes import bool_, complex128, float64, int64
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import is_dim, steps_of

from ....core.device_tensor import wrapped
from ....core.proxies.integer import LARGEST, IntProxy, bound_of_step
from ....core.tensor import Tensor
from ...capture.loops.step_tensors import is_part
from ...capture.numbers.perhaps import may_be_number
from ...capture.tracer import Tracer
from ..carries import (
    Carry,
    as_tensor,
    as_variable,
    is_double,
    is_numpy_scalar,
    is_small_count,
    kind_of_number,
    tensor_in,
)

CONSTANTS = (str, bytes, type(None))
_DTYPES = {"float": float64, "complex": complex128, "flag": bool_, "count": int64}


@record
class Leaf:
    """The kind of an item, or of a part of a tuple: one that variables have as well (see carries.py), or a constant."""

    kind: Any
    dtype: Any = None
    shape: tuple[Any, ...] = ()
    is_double: bool = False
    is_element: bool = False
    is_part: bool = False
    value: Any = None

    @property
    def is_memory(self) -> bool:
        """Whether it is a tensor, which may be updated in place."""
        return self.kind == "tensor" and not self.is_element

    def stored(self, tracer: Tracer, value: Any) -> Tensor:
        """The tensor that goes into the buffer."""
        if self.kind == "count":
            if type(value) is IntProxy:
                return value.as_index()
            return OPS["full"].fn(shape=(), value=value, dtype=int64)
        t = tensor_in(value) if self.kind == "tensor" else None
        return tracer.wrap((as_tensor(tracer, value) if t is None else t)._array)

    def read(self, tracer: Tracer, t: Tensor) -> Any:
        """The value that an element of the buffer stands for."""
        if self.kind == "count":
            t = OPS["astype"].fn(t, float64)
        carry = Carry(self.kind, None, is_double=self.is_double, is_element=self.is_element, is_part=self.is_part)
        return as_variable(tracer, carry, tracer.wrap(t._array))

    def values(self, array: np.ndarray) -> Sequence[Any]:
        """The values that elements of the buffer stand for, as eager code has them."""
        if self.is_memory:
            return [array[k].copy() if self.is_part else wrapped(array[k, ...]) for k in range(len(array))]
        return list(array) if self.is_double or self.is_element else array.tolist()


def leaf_of(tracer: Tracer, value: Any, is_read: bool) -> Leaf | None:
    """The kind of a value; None of one that no list of the program has. `is_read`: whether steps compute with it."""
    kind = type(value)
    if kind in CONSTANTS:
        return Leaf("constant", value=value)
    if kind is int or is_dim(value):
        bound = abs(value) if kind is int else bound_of_step(value)
        return Leaf("count", int64) if bound is not None and bound <= LARGEST else None
    if kind is IntProxy:
        return Leaf("count", int64) if is_small_count(value) or (not is_read and value._kind is int) else None
    number: Any = kind_of_number(value)
    if number is not None:
        t = as_tensor(tracer, value)
        is_plain = t._node is None and not may_be_number(tracer, t._array)
        return Leaf(number, _DTYPES[number], is_double=number != "flag" and is_double(value)) if is_plain else None
    t_or_none = tensor_in(value)
    if t_or_none is None:
        return None
    t = tracer.lift(t_or_none)
    if t._node is not None or t.is_number or may_be_number(tracer, t._array) or steps_of(*t.shape):
        return None
    return Leaf("tensor", t.dtype, tuple(t.shape), is_element=is_numpy_scalar(value), is_part=is_part(value))


def form_of(tracer: Tracer, item: Any, is_read: bool) -> Any:
    """The leaf of an item, or the tuple of those of its parts; None where a part is of no known kind."""
    if type(item) is not tuple:
        return leaf_of(tracer, item, is_read)
    parts = tuple([form_of(tracer, part, is_read) for part in item])
    return None if None in parts or not parts else parts


def leaves_in(form: Any) -> Iterator[Leaf]:
    """The leaves that have buffers."""
    if type(form) is tuple:
        for part in form:
            yield from leaves_in(part)
    elif form.kind != "constant":
        yield form


def put_together(form: Any, leaves: Iterator[Any]) -> Any:
    """An item of the values of its leaves."""
    if type(form) is tuple:
        return tuple([put_together(part, leaves) for part in form])
    return form.value if form.kind == "constant" else next(leaves)


def _columns(form: Any, arrays: Iterator[np.ndarray], count: int) -> Sequence[Any]:
    if type(form) is tuple:
        return list(zip(*[_columns(part, arrays, count) for part in form], strict=True))
    return [form.value] * count if form.kind == "constant" else form.values(next(arrays))


def python_list(form: Any, is_reversed: bool, count: int, *buffers: Tensor) -> list[Any]:
    """The list that eager code has, of so many items in buffers."""
    found = list(_columns(form, iter([t._array[:count] for t in buffers]), count))
    return found[::-1] if is_reversed else found


def python_array(
    function: Callable[..., Any], form: Any, is_reversed: bool, count: int, *buffers: Tensor
) -> Any:  # fmt: skip
    """The array that a function of NumPy makes of that list."""
    if (
        count and type(form) is Leaf and buffers and getattr(function, "of_arrays", False)
    ):  # without an object for each item
        items: Any = buffers[0]._array[:count]
        return function(items[::-1].copy() if is_reversed else items.copy())
    return function(python_list(form, is_reversed, count, *buffers))
