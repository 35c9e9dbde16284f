"""Parts of NumPy arrays whose place or length a step of a loop decides, `order[i:j]`, `grid[k]`.

Which memory of NumPy's that would be is not known: such a part is a view of the tensor that the array is. Parts of
floats are tensors (see step_tensors.py). Of other dtypes NumPy has other rules (`bool + bool`, the sum of int32,
int / int), and so there is a stand-in of an array over the tensor: ufuncs and functions of elements are done to it as
to any other stand-in, and whatever needs NumPy's own memory is done step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import numpy as np

from hybridml_compiler.sizes.dims import is_dim
from hybridml_compiler.sizes.steps import Undecided

from ....core.tensor import Tensor
from ..memory import cast, element, literal, with_indices
from ..numbers.perhaps import element_at
from ..numpy_rules import OF_STEPS
from ..program_arrays import ProgramArray, is_program, value_of, value_to_store
from ..tracer import Tracer, iterator_of
from .step_tensors import part


class StepMemory:
    """Stand-in of the memory of such a part, which is no memory of NumPy's."""

    is_traced = True
    is_given = False
    base = None

    def __init__(self, tracer: Tracer, view: Tensor) -> None:
        self.tracer, self.tensor = tracer, view

    def becomes_traced(self) -> bool:
        return True

    def settle(self, what: str) -> NoReturn:
        refuse: Callable[[str], NoReturn] = self.tracer.loops[-1].refuse
        refuse(f"{what} is asked for")


class StepArray(ProgramArray):
    """Such a part. `_view`: the tensor, which is a view of the array's."""

    __slots__ = ()
    is_of_step, is_array = True, False

    def __init__(self, tracer: Tracer, view: Tensor) -> None:
        object.__setattr__(self, "_memory", StepMemory(tracer, view))

    @property
    def _view(self) -> Tensor:
        found: Any = self._memory
        return found.tensor

    @property
    def _array(self) -> NoReturn:  # type: ignore[override]
        self._own(f"a slice of an array of {self.dtype.name}, as NumPy's own,")

    shape = property(lambda self: self._view.shape)
    dtype = property(lambda self: np.dtype(self._view.dtype))
    ndim = property(lambda self: self._view.ndim)

    def _value(self) -> Tensor:
        return self._view

    def _one(self, what: str) -> Any:
        return self._view if self._view.numel() == 1 else self._own(what)

    def _own(self, what: str) -> NoReturn:
        memory: StepMemory = self._memory  # type: ignore[assignment]
        memory.settle(what)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self._own("conversion to a NumPy array")

    def __len__(self) -> int:
        return len(self._view)

    def __iter__(self) -> Iterator[Any]:
        return iterator_of(self) or map(self.__getitem__, range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        found = self._view[_key(self, key)]
        is_scalar = not found.ndim and not (key is ... or (type(key) is tuple and ... in key))
        return value_of(self._memory.tracer, found, scalar=True) if is_scalar else StepArray(self._memory.tracer, found)

    def __setitem__(self, key: Any, value: Any) -> None:
        stored = value_to_store(self._memory.tracer, value, self.dtype)
        if stored is None:
            self._own("b[...] = value")
        self._view[_key(self, key)] = cast(stored, self.dtype)

    def __getattr__(self, name: str) -> Any:
        if name[:8] == "__array_":
            raise AttributeError(name)
        if name in ("copy", "astype", "fill"):
            return getattr(self, f"_{name}")
        return partial(getattr(np, name), self) if name in OF_STEPS and hasattr(np.ndarray, name) else self._own(name)

    def _copy(self) -> Any:
        return value_of(self._memory.tracer, self._view)

    def _astype(self, dtype: Any) -> Any:
        return value_of(self._memory.tracer, cast(self._view, np.dtype(dtype)))

    def _fill(self, value: Any) -> None:
        self[...] = value


def _key(of: StepArray, key: Any) -> Any:
    """The key of the tensor."""
    key = with_indices(key)
    if type(key) is tuple:
        return tuple([_key(of, k) for k in key])
    if is_program(key):
        key = key._value()
    elif isinstance(key, np.ndarray | list):
        key = literal(of._memory.tracer, np.asarray(key))
    if issubclass(type(key), Tensor) and key.dtype.kind == "b":
        of._own("a mask")
    return key


def _in_step(self: ProgramArray, is_element: bool, key: Any) -> Any:
    """An element or a slice whose place a step of a loop decides. Of floats it is a tensor, a copy if it is one
    element."""
    tracer, whole = self._memory.tracer, _of_steps(self)
    tracer.loops[-1].reads_arrays = True
    found = element_at(tracer, whole, key) if is_element else whole[key]
    if self.dtype.kind == "f":
        return element(tracer, found) if is_element else part(tracer, found)
    return value_of(tracer, found, scalar=True) if is_element else StepArray(tracer, found)


def _set_in_step(self: ProgramArray, key: Any, value: Any) -> None:
    whole = _of_steps(self)
    if self.dtype.kind != "f" or is_dim(value):
        if (stored := value_to_store(self._memory.tracer, value, self.dtype)) is None:
            raise Undecided(f"what is written to an array of {self.dtype.name}")
        value = cast(stored, self.dtype)
    whole[key] = value.detach() if issubclass(type(value), Tensor) else value


def _of_steps(array: ProgramArray) -> Tensor:
    """The array as a tensor, which steps of a loop read and update."""
    if not array._memory.becomes_traced():
        raise Undecided(f"an array of {array.dtype.name}, which is NumPy's,")
    base: Any = array._memory.base
    if base is not None and array.dtype != base.dtype:
        raise Undecided("a part of complex numbers")
    return array._value()


def _new(tracer: Tracer, t: Tensor) -> StepArray:
    return StepArray(tracer, tracer.wrap(t._array))


for _name, _method in {"_in_step": _in_step, "_set_in_step": _set_in_step, "_of_step": staticmethod(_new)}.items():
    setattr(ProgramArray, _name, _method)
