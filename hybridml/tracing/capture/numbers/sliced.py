"""Slices of NumPy arrays whose ends data decides, outside of loops: `out[:n]` where a loop has counted n.

How many elements there are is a matter of data, so they wait as those of a mask do (see selection.py). Elementwise
functions and reductions are those of the elements that `start <= position < stop` chooses; where the slice is returned,
each call cuts the array that it has made. Whatever else is done to it has Python ask for the ends, and it is the view
that it is in eager code: so updates reach the array, and what is written to the array is seen in the slice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybridml_compiler.dtypes import int64
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record

from ....core.tensor import Tensor
from ..loops.data_sizes import of_data
from ..memory import Memory
from ..program_arrays import ProgramArray, is_program
from ..selection import Selection, check_counted, chosen_by
from ..tracer import Tracer
from ..waiting_arrays import SelectedArray, becomes

_minimum, _maximum, _where, _astype, _less, _and = (
    OPS[name] for name in ("minimum", "maximum", "where", "astype", "less", "logical_and")
)


@record
class Cut:
    """A slice of an array over memory along its first axis: its ends as they were given, and as int64 from 0 to the
    length of the axis, and where it has elements."""

    memory: Memory
    array: np.ndarray
    ends: slice
    bounds: tuple[Tensor, Tensor]
    mask: Tensor

    def elements(self) -> np.ndarray:
        """The view, for whose ends Python asks."""
        return self.array[slice(*(None if end is None else int(end) for end in (self.ends.start, self.ends.stop)))]


class SlicedArray(SelectedArray):
    """Stand-in of such a slice."""

    __slots__ = ()

    def __init__(self, memory: Memory, array: np.ndarray, ends: slice) -> None:
        tracer, size = memory.tracer, len(array)
        ends = slice(*(end.as_index() if is_program(end) else end for end in (ends.start, ends.stop)))  # no stand-ins
        bounds = _bound(tracer, ends.start, size, 0), _bound(tracer, ends.stop, size, size)
        super().__init__(tracer, Cut(memory, array, ends, bounds, _between(tracer, *bounds, size)))
        memory.adds(self)

    def _settled(self) -> Memory:
        if type(self) is not ProgramArray:
            of: Cut = self._waits[1]
            check_counted(self._waits[0])
            becomes(self, of.memory, of.elements())
        return self._memory

    @property
    def _selection(self) -> Selection:
        """The elements that the slice has now."""
        of: Cut = self._waits[1]
        array = of.memory.view(of.array)
        return chosen_by(self._waits[0], array, of.mask, lambda: of.memory.view(of.elements()))

    dtype = property(lambda self: self._waits[1].array.dtype)
    ndim = property(lambda self: self._waits[1].array.ndim)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._settled()
        self[key] = value

    def _store(self, result: Any) -> None:
        self._settled()
        self._store(result)

    def late(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        of: Cut = self._waits[1]
        return _sliced, (ProgramArray(of.memory, of.array.view()), *of.bounds)


def _sliced(array: np.ndarray, start: Tensor, stop: Tensor) -> np.ndarray:
    return array[int(start) : int(stop)]


def _bound(tracer: Tracer, end: Any, size: int, whole: int) -> Tensor:
    """An end as Python has it: counted from the start, and within the axis."""
    if not of_data(end):
        stop = slice(None, whole if end is None else end).indices(size)[1]
        return tracer.wrap(OPS["full"].fn(shape=(), value=stop, dtype=int64)._array)
    value: Any = end if issubclass(type(end), Tensor) else end.as_index()
    value = _astype.fn(tracer.lift(value), int64)
    value = _where.fn(_less.fn(value, 0), value + size, value)
    found: Tensor = _minimum.fn(_maximum.fn(value, 0), size)
    return found


def _between(tracer: Tracer, start: Tensor, stop: Tensor, size: int) -> Tensor:
    """The mask of an axis; the same one for the same ends."""
    key = "between", start._array, stop._array, size
    node = tracer.nodes.get(key)
    if node is None:
        at = OPS["arange"].fn(start=0, stop=size, step=1, dtype=int64)
        node = tracer.nodes[key] = _and.fn(at >= start, at < stop)._array
    return tracer.wrap(node)


def _sliced_by_data(self: ProgramArray, key: Any) -> Any:
    """The slice for a key with one slice whose ends data decides; None where it is no such, or not outside of loops."""
    tracer, parts = self._memory.tracer, key if type(key) is tuple else (key,)
    slices = [k for k in parts if type(k) is slice]
    plainly = all(type(k) is slice or (type(k) is int) for k in parts) and len(parts) <= self.ndim
    if not plainly or tracer.frames or tracer.stages is not None or type(self._memory) is not Memory:
        return None
    ends = slices[0]
    if ends.step not in (None, 1) or any(of_data(end) for k in slices[1:] for end in (k.start, k.stop, k.step)):
        return None
    if not all(end is None or type(end) is int or of_data(end) for end in (ends.start, ends.stop)):
        return None
    others = tuple([slice(None) if k is ends else k for k in parts])
    array = self._array[others]
    return SlicedArray(self._memory, array, ends)


ProgramArray._sliced_by_data = _sliced_by_data  # type: ignore[method-assign]
