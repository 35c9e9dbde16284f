"""Lengths of selections, and elements of them by number, for which Python asks nothing.

    b = x[x > 0]
    n = len(b)              an int that data decides: the sum of the mask
    for v in b: ...         a loop of n steps over an array that has the elements in front
    b[0], b[k], b[-1]       elements of that; where k is none of their places Python makes the call

Where a step of a loop asks for the elements after all, the trace begins anew, and lengths are asked for.
"""

from __future__ import annotations

import dis
import math
import sys
from typing import Any

from hybridml_compiler.dtypes import float64, int64
from hybridml_compiler.errors import is_internal
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import at_most
from hybridml_compiler.sizes.steps import is_step

from ....core.context import no_grad
from ....core.proxies.integer import LARGEST, IntProxy
from ....core.proxies.scalar import ScalarProxy
from ....core.tensor import Tensor, place_of
from ...python_state.libraries import is_library
from ..loops.taken import fails_where
from ..program_arrays import ProgramArray, is_program, value_of
from ..selection import COUNTED, Selection
from ..tracer import Tracer, top_tracer
from ..waiting_arrays import SelectedArray

_sum, _reshape, _where, _scan, _full, _scatter, _astype = (
    OPS[name] for name in ("sum", "reshape", "where", "cumulative_sum", "full", "scatter_set", "astype")
)
_TENSOR: Any = Tensor
_ARRAY: Any = ProgramArray


def length_of(value: Any) -> IntProxy | None:
    """The length of a selection that waits; None where Python asks for it."""
    found = _counted(value)
    return None if found is None or found.of.lead else _length(found)


def elements_of_data(value: Any) -> tuple[IntProxy, Any] | None:
    """The length of a selection that waits, and an array whose first elements are its own; None where Python asks."""
    found = _counted(value)
    front = None if found is None else _front(found)
    if found is None or front is None:
        return None
    of_numpy = issubclass(type(value), ProgramArray)
    if of_numpy and found.of.rest:
        return None
    return _length(found), value_of(found.of.tracer, front) if of_numpy else front


def _counted(value: Any) -> Any:
    """The selection behind a value, if it waits, and its length may be an int that data decides."""
    found: Any = value._selection if issubclass(type(value), SelectedArray) else value
    if not issubclass(type(found), Selection) or found.of is None:
        return None
    tracer: Tracer = found.of.tracer
    is_known = COUNTED in tracer.alone.get(None, ()) or tracer.rolling is None or tracer.stages is not None
    return None if is_known or tracer is not top_tracer() else found


def _length(selection: Any) -> IntProxy:
    of = selection.of
    of.tracer.counted, size = True, of.mask.numel()
    with no_grad():
        count = _astype.fn(_sum.fn(of.mask, dtype=int64), float64)
    bound = size if type(size) is int and size < LARGEST else LARGEST
    return IntProxy(of.tracer, ScalarProxy(of.tracer.wrap(count._array, True)), None, bound, asks=True)


def _front(selection: Any) -> Tensor | None:
    """An array of as many elements as the mask has, of which the first ones are those that it chooses."""
    of = selection.of
    if of.lead or (of.array._node is not None and of.recorded) or place_of(of.array) is not None:
        return None
    frames = of.tracer.frames
    if selection.front is None or (selection.front[1] is not None and selection.front[1] not in frames):
        n, rest = of.mask.numel(), of.array.shape[of.mask.ndim :]
        with no_grad():
            mask = _reshape.fn(of.mask, (n,))
            place = _where.fn(mask, _scan.fn(mask, axis=0, dtype=int64) - 1, n)
            room = _full.fn(shape=(n + 1, *rest), value=0, dtype=of.array.dtype)
            found = _scatter.fn(room, place, _reshape.fn(of.array, (n, *rest)), axis=0)[:n]
        selection.front = of.tracer.wrap(found._array), next(reversed(frames), None)
        of.tracer.marked.mark([selection.front[0], *_with_parents(selection)], None, (COUNTED,))
    front: Tensor = selection.front[0]
    return front


def _element(self: Selection, key: Any) -> Tensor | None:
    """The element, or row, with a number; None where Python asks for all of them."""
    found = _counted(self)
    front = None if found is None or (is_step(key) and not at_most(0, key)) else _front(found)
    if front is None:
        return None
    tracer, count = found.of.tracer, _length(found).as_index()
    at = key.as_index() if type(key) is IntProxy else tracer.wrap(_full.fn(shape=(), value=key, dtype=int64)._array)
    with no_grad():
        if not is_step(key):
            at = _where.fn(at < 0, at + count, at)
        outside = fails_where(tracer, (at < 0) | (at >= count))
    one: Tensor = front[key] if is_step(key) else front[at + outside]
    tracer.marked.mark([one, *_with_parents(self)], None, (COUNTED,))  # in eager code it is a view
    return one


def _with_parents(selection: Selection) -> list[Selection]:
    """A selection, and those of which it is a view: the one that has the memory comes last."""
    return [selection] if selection.parent is None else [selection, *_with_parents(selection.parent[0])]


def _asked_by_user() -> bool:
    """Whether the user's code reads the attribute, and does not call it, as PyTorch's `x.size()`."""
    frame = sys._getframe(2)
    if is_internal(frame.f_code.co_filename) or is_library(frame.f_globals.get("__name__", "")):
        return False
    op, arg = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return dis.opname[op] == "LOAD_ATTR" and not (sys.version_info >= (3, 12) and arg & 1)


def _shape(self: Any) -> Any:
    found = _counted(self) if _asked_by_user() else None
    if found is None:
        return (_ARRAY if is_program(self) else _TENSOR).shape.__get__(self)
    of = found.of
    return (*of.array.shape[: of.lead], _length(found), *of.array.shape[of.lead + of.mask.ndim :])


def _size(self: Any) -> Any:
    found = _counted(self) if _asked_by_user() else None
    if found is None:
        return self.__getattr__("size") if is_program(self) else _TENSOR.size.__get__(self)
    of = found.of
    return _length(found) * math.prod((*of.array.shape[: of.lead], *of.array.shape[of.lead + of.mask.ndim :]))


def _item(self: SelectedArray, key: Any) -> Any:
    """An element of an array, where its number is known."""
    selection: Any = self._selection
    one = selection._element(key) if type(key) is int and selection.ndim == 1 and not self._waits[0].loops else None
    return ProgramArray.__getitem__(self, key) if one is None else value_of(self._waits[0], one, scalar=True)


_WAITING: tuple[Any, Any] = Selection, SelectedArray
_WAITING[0]._element, _WAITING[1].__getitem__ = _element, _item
for _kind in _WAITING:
    _kind.shape, _kind.size = property(_shape), property(_size)
