"""Stand-ins of arrays that wait until NumPy is asked for more than a tensor has: elements that a mask selects, whose
number nobody has asked for, and arrays among the arguments, whose sizes may come with the call.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any
from weakref import ref

import numpy as np

from hybridml_compiler.graph import ir
from hybridml_compiler.sizes.dims import is_symbolic

from ...core.aliasing import layout
from ...core.tensor import Tensor
from .loops.sized_arrays import becomes_sized
from .memory import ArgumentMemory, Memory, SelectedMemory, cast
from .program_arrays import ProgramArray, ProgramValue, become, waits
from .selection import Selection
from .tracer import Tracer, iterator_of

Refuse = Callable[[str], BaseException]


class SelectedArray(ProgramArray):
    """Stand-in of the elements that a mask selects, which wait (see selection.py). Looking at them makes it an array as
    any other. `_waits`: the trace, and the selection."""

    __slots__ = ()
    is_selected, is_array = True, False
    _waits: Any

    def __init__(self, tracer: Tracer, waits: Any) -> None:
        object.__setattr__(self, "_waits", (tracer, waits))
        tracer.arrays.append(ref(self))

    @property
    def _selection(self) -> Selection:
        found: Selection = self._waits[1]
        return found

    def _settled(self) -> Memory:
        """The memory of the elements, which Python asks for."""
        if type(self) is not ProgramArray:
            selection = self._selection
            array = np.zeros(tuple(map(int, selection.shape)), selection.dtype)
            if array.ndim > 1:
                array = np.zeros_like(layout(selection))
            memory = Memory(self._waits[0], array)
            memory.takes(selection)
            becomes(self, memory, array.view())
            memory.adds(self)
        return self._memory

    @property
    def _memory(self) -> Any:  # type: ignore[override]
        return SelectedMemory(self._waits[0], self._settled)

    @property
    def _array(self) -> np.ndarray:  # type: ignore[override]
        self._settled()
        return self._array

    dtype = property(lambda self: self._selection.dtype)
    ndim = property(lambda self: self._selection.ndim)

    def _value(self) -> Tensor:
        return self._selection

    def _store(self, result: Any) -> None:
        if np.can_cast(result.dtype, self.dtype, "same_kind"):
            waits = self._selection._pending() is not None
            if waits and issubclass(type(result), Tensor) and self._selection._take(cast(result, self.dtype)):
                return
        super()._store(result)

    def late(self) -> tuple[Any, tuple[Any, ...]] | None:
        of = self._selection.of
        if of is None or not of.is_flat or of.tracer.frames:
            return None
        return _elements_of, (of.array, of.mask)


def _elements_of(array: Tensor, mask: Tensor) -> np.ndarray:
    """The elements that a call returns."""
    found: np.ndarray = array._array[mask._array]
    return found


class ArgumentArray(ProgramArray):
    """Stand-in of an array among the arguments, whose memory is the caller's. Functions of the library take it as the
    tensor that it is for the program; what NumPy does with it makes it an array as any other. `_waits`: the trace, the
    array, the tensor of it, and what makes the error for what only NumPy can do."""

    __slots__ = ()
    is_argument, is_array = True, False

    def __init__(self, tracer: Tracer, given: np.ndarray, t: Callable[[], Tensor], refuse: Refuse) -> None:
        object.__setattr__(self, "_waits", (tracer, given, t, refuse))

    def _settled(self) -> Any:
        """The memory of the array."""
        if type(self) is not ProgramArray:
            tracer, given, t, refuse = self._waits
            if is_symbolic(t().shape):
                return becomes_sized(self, tracer, t())
            memory = ArgumentMemory(tracer, t(), given, refuse)
            array = memory.base.view()
            array.flags.writeable = given.flags.writeable
            becomes(self, memory, array)
            memory.given = ref(self)
            memory.adds(self)
        return self._memory

    @property
    def _memory(self) -> Any:  # type: ignore[override]
        return self._settled()

    @property
    def _array(self) -> np.ndarray:  # type: ignore[override]
        self._settled()
        return self._array

    dtype = property(lambda self: self._waits[1].dtype)
    ndim = property(lambda self: self._waits[1].ndim)
    shape = property(lambda self: self._value().shape)

    def _value(self) -> Tensor:
        found: Tensor = self._waits[2]()
        return found

    def __len__(self) -> int:
        return len(self._value())

    def __iter__(self) -> Iterator[Any]:
        self._settled()
        return iterator_of(self) or map(self.__getitem__, range(len(self)))


def _when_settled(name: str) -> Callable[..., Any]:
    """A method that looks at the array: that of what it is then."""

    def method(self: ArgumentArray, *args: Any) -> Any:
        self._settled()
        return getattr(type(self), name)(self, *args)

    return method


for _name in ("__array__", "__getattr__", "__getitem__", "__setitem__", "_one", "_own"):
    setattr(ArgumentArray, _name, _when_settled(_name))


def argument_of(x: ProgramValue) -> Tensor | None:
    """The tensor of the array among the arguments that a stand-in is; None of any other."""
    if x.is_argument:
        return x._value()
    memory: Any = x._memory
    return memory.argument if memory.is_given and memory.given() is x else None


def becomes(x: ProgramArray, memory: Memory, array: np.ndarray) -> None:
    """Makes a stand-in of what waits one of an array."""
    become(x, ProgramArray, _memory=memory, _array=array, _waits=None)


def is_chosen_in(made: Container[ir.Node], value: Any) -> bool:
    """Whether elements wait that a mask among these nodes chooses."""
    found: Any = value._selection if issubclass(type(value), SelectedArray) else value
    return waits(value) and found.of is not None and found.of.mask._array in made


ProgramArray._selected = staticmethod(SelectedArray)  # type: ignore[method-assign]
