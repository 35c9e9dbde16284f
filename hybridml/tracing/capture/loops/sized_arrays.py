"""NumPy arrays whose sizes come with the call, `np.zeros(n)`, in a program for any size.

NumPy has no memory of such a size: the stand-in is one of a tensor, as that of a slice in the step of a loop. Where
something needs NumPy's own array the program is for this size after all: the trace begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn
from weakref import ref

import numpy as np

from hybridml_compiler.dtypes import float64, int64
from hybridml_compiler.errors import user_location
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import LEAST, at_most, is_dim, is_symbol, steps_of, symbols_of
from hybridml_compiler.sizes.guards import Guard

from ....core.aliasing import layout, origin_of
from ....core.proxies.scalar import ScalarProxy
from ....core.tensor import Tensor
from ...specialize.errors import NotGeneralizable
from ..memory import with_indices
from ..program_arrays import ProgramArray, become, is_element_key
from ..tracer import Tracer
from .data_sizes import of_step
from .step_arrays import StepArray, StepMemory


class SizedMemory(StepMemory):
    """Stand-in of the memory of such an array."""

    argument: Tensor | None = None  # of an array that a call is given
    given: Any = None  # a reference to its stand-in

    def __init__(self, tracer: Tracer, view: Tensor) -> None:
        super().__init__(tracer, view)
        self.depth = len(tracer.frames)  # where it was made, as of a `Memory`

    def check_returned(self, base: Tensor, steps: Sequence[tuple[Any, dict[str, Any]]]) -> None:
        """Refuses a view that calls cannot make of a tensor with these operations. Of an axis that may have one
        element NumPy's stride is its own, which a slice with a step and a reshape do not have."""
        known = symbols_of(*(n for n in base.shape if is_symbol(n)))
        sizes = symbols_of(*(tuple(params.values()) for _, params in steps))
        plainly = sizes <= known and all(op.is_view and not getattr(op, "of_data", False) for op, _ in steps)
        keeps_steps = all(op.element_map != "flat" and {*params.get("steps", (1,))} == {1} for op, params in steps)
        plainly = plainly and (keeps_steps or all(at_most(LEAST, n) for n in self.tensor.shape))
        if not plainly or any(i.shadow is base for i in self.tracer.inputs) or not layout(base).flags.c_contiguous:
            self.settle("the memory of what is returned")

    def settle(self, what: str) -> NoReturn:
        where = user_location()
        symbols = symbols_of(*self.tensor.shape)
        fixed = {s.name: Guard(s.hint, "==", s.hint, where, True) for s in symbols if s.most is None}
        raise NotGeneralizable(fixed, what=what)


class SizedArray(StepArray):
    """Stand-in of such an array."""

    __slots__ = ()
    is_array = True
    _is_ordered = property(lambda self: layout(self._view).flags.c_contiguous)
    _is_whole = property(lambda self: origin_of(self._view) is None)

    def __init__(self, tracer: Tracer, view: Tensor) -> None:
        object.__setattr__(self, "_memory", SizedMemory(tracer, view))
        self._memory.tracer.arrays.append(ref(self))

    def __getitem__(self, key: Any) -> Any:
        tracer, key = self._memory.tracer, with_indices(key)
        if of_step(tracer, key):
            return self._in_step(is_element_key(key, self.ndim), key)
        try:
            found = super().__getitem__(key)
        except IndexError:
            self._own("the error of an index")
        return found if type(found) is not StepArray else SizedArray(tracer, found._view)

    def __setitem__(self, key: Any, value: Any) -> None:
        key = with_indices(key)
        if of_step(self._memory.tracer, key):
            self._set_in_step(key, value)
            return
        try:
            super().__setitem__(key, value)
        except (IndexError, ValueError):
            self._own("the error of an assignment")

    def __getattr__(self, name: str) -> Any:
        if name in _TURNED:
            return partial(_turned, self, name)
        return super().__getattr__(name)

    size = property(lambda self: self._view.numel())
    T = property(lambda self: _turned(self, "transpose"))


# Methods that give a view with other axes, or a copy where there is none.
_TURNED = ("flatten", "ravel", "reshape", "swapaxes", "transpose")


def _turned(x: SizedArray, name: str, *args: Any) -> SizedArray:
    """The result of such a method."""
    if name in ("flatten", "ravel") and args:
        x._own(f"{name}() in another order")
    t, axes = x._view, args[0] if len(args) == 1 and type(args[0]) is tuple else args
    if name == "transpose":
        found = OPS["permute_dims"].fn(t, axes or tuple(reversed(range(t.ndim))))
    elif name == "swapaxes":
        found = t.swapaxes(*args)
    else:
        found = t.reshape(axes if name == "reshape" else (-1,))
    tracer = x._memory.tracer
    return SizedArray(tracer, found) if name != "flatten" else _of_values(tracer, found)


def becomes_sized(x: Any, tracer: Tracer, argument: Tensor) -> SizedMemory:
    """Makes the stand-in of an array among the arguments, which waits, such a one."""
    memory = SizedMemory(tracer, argument)
    memory.argument, memory.is_given, memory.given = argument, True, ref(x)
    become(x, SizedArray, _memory=memory, _waits=None)
    return memory


def _of_values(tracer: Tracer, t: Tensor) -> SizedArray:
    """A new array with the values of a tensor."""
    return SizedArray(tracer, tracer.wrap(t._array))


ProgramArray._of_size = staticmethod(_of_values)  # type: ignore[method-assign]


_FILLED: dict[str, Any] = {"zeros": 0, "empty": 0, "ones": 1}
_COPIES = ("array", "asarray", "asanyarray", "ascontiguousarray")


def made(tracer: Tracer, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SizedArray | None:
    """The array that a function of NumPy's makes, where a size of it comes with the call; None of any other."""
    if name in ("arange", "linspace"):
        return None if kwargs or not any(map(_is_size, args)) else _numbers(tracer, name, *args)
    first = args[0] if args else kwargs.get("shape")
    given = first if type(first) is tuple else (first,)
    if type(first) is SizedArray:
        return _like(first, name, *args[1:], **kwargs) if kwargs.keys() <= {"dtype"} and len(args) < 2 else None
    if not any(map(_is_size, given)) or not kwargs.keys() <= {"shape", "dtype", "fill_value"}:
        return None
    at = 2 if name == "full" else 1
    dtype = args[at] if len(args) > at else kwargs.get("dtype")
    if name in _FILLED and len(args) <= at + 1:
        return _full(tracer, given, _FILLED[name], float if dtype is None else dtype)
    if name == "full" and len(args) <= at + 1:
        value = args[1] if len(args) > 1 else kwargs.get("fill_value")
        kind = type(value) if type(value) in (bool, int, float) else None
        return None if kind is None else _full(tracer, given, value, kind if dtype is None else dtype)
    return None


def _is_size(size: Any) -> bool:
    return is_dim(size) and not steps_of(size)


def _full(tracer: Tracer, shape: tuple[Any, ...], value: Any, dtype: Any) -> SizedArray | None:
    dtype = np.dtype(dtype)
    if dtype.kind not in "fiub" or not all(type(n) is int or _is_size(n) for n in shape):
        return None
    return SizedArray(tracer, tracer.wrap(ir.apply(OPS["full"], [], {"shape": shape, "value": value, "dtype": dtype})))


def _numbers(tracer: Tracer, name: str, *args: Any) -> SizedArray | None:
    """The array of `np.arange(n)`, `np.arange(1, n)`, `np.linspace(a, b, n)`; None of other arguments."""
    if name == "arange":
        if len(args) > 2 or not all(type(a) is int or _is_size(a) for a in args):
            return None
        start, stop = args if len(args) == 2 else (0, *args)
        return SizedArray(tracer, OPS["arange"].fn(start=start, stop=stop, step=1, dtype=int64))
    if len(args) != 3 or not all(type(a) in (int, float, ScalarProxy) for a in args[:2]):
        return None
    # As NumPy computes it, where the step is not so small that it is 0; and there are two numbers at least (LEAST).
    start, stop, num = args
    found: Any = SizedArray(tracer, OPS["arange"].fn(start=0, stop=num, step=1, dtype=float64))
    found = found * ((stop * 1.0 - start * 1.0) / (num - 1)) + start
    found[-1] = stop
    return found


def _like(x: SizedArray, name: str, dtype: Any = None) -> SizedArray | None:
    """The array that a function makes of such a one, or like it."""
    of, _, like = name.partition("_")
    is_ordered = x._is_ordered
    if like and of in _FILLED and is_ordered:
        return _full(x._memory.tracer, x.shape, _FILLED[of], x.dtype if dtype is None else dtype)
    if name not in _COPIES or not is_ordered:
        return None
    return x if name != "array" and dtype in (None, x.dtype) else x._astype(x.dtype if dtype is None else dtype)
