"""NumPy arrays that a traced function makes, as values of the program, and NumPy's scalars that are read of them.

`b = np.zeros(3)` in traced code gives a stand-in of an array, over memory in which NumPy computes until a tensor is
written there (see memory.py). What is done to such an array then is done to the tensor, by rows that have NumPy's bits
(see numpy_rules.py); anything else asks for the values and lets NumPy do it. To `isinstance` and `type` a stand-in is
the array that it is in eager code, and it is returned as one.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from hybridml_compiler.sizes.dims import is_dim, is_symbolic
from hybridml_compiler.sizes.steps import is_step

from ...core.aliasing import layout
from ...core.proxies.array import ArrayProxy
from ...core.proxies.base import NumberProxy, Proxy, concrete_value
from ...core.proxies.complex import ComplexProxy
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor
from ..bytecode import is_updated
from .loops.data_sizes import of_data, of_step
from .memory import Memory, as_int, base_of, cast, check_written, holds, is_part, literal, with_indices
from .numbers.perhaps import element_at
from .numbers.stored_ints import is_of_data, of_int, of_size
from .selection import Selection
from .tracer import Tracer, iterator_of

_ndarray = np.ndarray
# Dtypes of scalars beside tensors, as `item()` has them.
_WEAK = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_, "c": np.complex128}


class ProgramValue(NDArrayOperatorsMixin, Proxy):
    """An array or scalar of NumPy's in a trace. `_array`: NumPy's view of the memory, whose numbers count while that is
    no tensor."""

    __slots__ = ("__weakref__", "_array", "_memory")
    _array: np.ndarray
    _memory: Memory

    is_of_step = False  # a part of an array at a place that a step decides
    is_selected = is_argument = False  # which waits (see waiting_arrays.py)
    is_array = False  # with memory of its own, or a view of such

    if TYPE_CHECKING:  # set by numpy_rules.py, with `__array_function__`

        def __getattr__(self, name: str) -> Any: ...
        def __array_ufunc__(self, ufunc: Any, call: str, *inputs: Any, **kwargs: Any) -> Any: ...

    def __init__(self, memory: Memory, array: np.ndarray) -> None:
        object.__setattr__(self, "_memory", memory)
        object.__setattr__(self, "_array", array)
        memory.adds(self)
        memory.tracer.arrays.append(memory._views[-1])

    def _value(self) -> Tensor:
        """The tensor of the present values, of the array's own dtype."""
        return self._memory.view(self._array)

    @property
    def _is_ordered(self) -> bool:
        """Whether it lies in memory in the order of its axes."""
        return bool(self._array.flags.c_contiguous)

    @property
    def _is_whole(self) -> bool:
        """Whether it is all of its memory."""
        memory = self._memory
        return self.shape == memory.base.shape == memory.owner.shape and self.dtype == memory.base.dtype

    def _own(self, what: str) -> Any:
        """NumPy's own array or scalar, whose values are asked for if they are a tensor's."""
        self._memory.settle(what)
        return plain(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._memory.settle("conversion to a NumPy array")
        return np.array(self._array.view(), dtype=dtype, copy=copy)

    shape = property(lambda self: self._array.shape)
    dtype = property(lambda self: self._array.dtype)
    ndim = property(lambda self: self._array.ndim)

    def item(self, *place: Any) -> Any:
        return self._value().item(*place) if self._memory.is_traced else self._array.item(*place)

    def _one(self, what: str) -> Any:
        """The tensor of the single value, for Python to ask; NumPy's own value, where it is no single one."""
        if self._memory.is_traced and self._array.size == 1 and self._array.dtype.kind != "c":
            return self._value()
        return self._own(what)

    def __bool__(self) -> bool:
        return bool(self._one("bool()"))

    def __int__(self) -> int:
        return int(self._one("int()"))

    def __float__(self) -> float:
        return float(self._one("float()"))

    def __complex__(self) -> complex:
        return complex(self._own("complex()"))

    def __index__(self) -> int:
        return operator.index(self._one("index"))

    def __repr__(self) -> str:
        return repr(self._own("repr()"))

    def __str__(self) -> str:
        return str(self._own("str()"))

    def __reduce__(self) -> Any:
        return self._own("pickle").__reduce__()

    def __copy__(self) -> Any:
        return self.copy() if self.ndim < 2 else self.copy("K")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()


class ProgramArray(ProgramValue):
    """Stand-in of an array."""

    __slots__ = ("_waits",)
    is_array = True
    __hash__ = None  # type: ignore[assignment]
    _kind = _ndarray

    if TYPE_CHECKING:  # set by loops/step_arrays.py

        def _in_step(self, is_element: bool, key: Any) -> Any: ...
        def _set_in_step(self, key: Any, value: Any) -> None: ...
        def _sliced_by_data(self, key: Any) -> Any: ...  # by numbers/sliced.py
        @staticmethod
        def _of_step(tracer: Tracer, t: Tensor) -> Any: ...
        @staticmethod
        def _of_size(tracer: Tracer, t: Tensor) -> Any: ...  # by loops/sized_arrays.py
        @staticmethod
        def _selected(tracer: Tracer, waits: Any) -> Any: ...  # by waiting_arrays.py

    @property
    def _tensor(self) -> Any:
        return self._value()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("real", "imag"):
            getattr(self, name)[...] = value
        elif name in ("shape", "flat"):
            if name == "shape" and self._memory.is_given:
                self._memory.settle("a shape that is assigned")  # the array is the caller's
            setattr(self._array if name == "shape" else self._own(name), name, asked(value))
            self._memory.touched()
        else:
            raise TypeError(f"the {name} of an array cannot be assigned while a function is traced")

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        if type(other) in (int, float):  # NumPy's operator knows some powers
            exact = {2: np.square, 1: np.positive, 0.5: np.sqrt, -1: np.reciprocal}
            if other in exact and (self.dtype.kind in "fc" or (type(other) is int and other > 0)):
                return exact[other](self)
        return np.power(self, other)

    def __ipow__(self, other: Any) -> Any:  # type: ignore[misc]
        if issubclass(type(other), Tensor):
            return np.power(self, other, out=(self,))  # type: ignore[arg-type]
        self._store(self**other)
        return self

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return iterator_of(self) or map(self.__getitem__, range(len(self._array)))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __getitem__(self, key: Any) -> Any:
        key, memory = with_indices(key), self._memory
        if of_step(memory.tracer, key):
            return self._in_step(is_element_key(key, self.ndim), key)
        if any(of_data(k.start) or of_data(k.stop) for k in _parts(key) if type(k) is slice):
            frame = sys._getframe(1)
            waiting = None if is_updated(frame.f_code, frame.f_lasti) else self._sliced_by_data(key)
            if waiting is not None:
                return waiting
        places = {id(k) for k in _parts(key) if of_data(k)}
        others = tuple([k for k in _parts(key) if id(k) not in places])
        if places and _is_basic(others) and not is_element_key(key, self.ndim):
            frame = sys._getframe(1)
            if memory.tracer.loops or not is_updated(frame.f_code, frame.f_lasti):  # else a copy does
                ints = tuple([as_int(memory.tracer, k) if id(k) in places else k for k in _parts(key)])
                return self._in_step(False, ints) if memory.tracer.loops else self[ints]  # a view of NumPy's
        if _is_basic(key):
            found = self._array[plain(key)]
            if isinstance(found, _ndarray) or not memory.is_traced:
                return given_back(memory.tracer, found, (self,))
            return value_of(memory.tracer, memory.view(self._array[_keep_array(plain(key))]), scalar=True)
        if not (memory.is_traced or has_tensor(key)):
            return given_back(memory.tracer, self._array[plain(key)], (self,))
        lies = None if has_tensor(key) else self._array[plain(key)]
        key, is_element = traced_key(memory.tracer, key, self._array), is_element_key(key, self.ndim)
        found = element_at(memory.tracer, self._value(), key) if is_element else self._value()[key]
        return value_of(memory.tracer, found, scalar=is_element, lies=lies)

    def __setitem__(self, key: Any, value: Any) -> None:
        key, memory = with_indices(key), self._memory
        if issubclass(type(value), Tensor):
            check_written(memory.tracer, value, lambda: self.ndim > 0 and is_element_key(key, self.ndim))
        shape = () if waits(value) or issubclass(type(value), NumberProxy) else getattr(value, "shape", ())
        if of_step(memory.tracer, key) or any(map(is_step, shape)):
            self._set_in_step(key, value)
            return
        traced = memory.is_traced or ((has_tensor(value, deep=False) or has_tensor(key)) and memory.becomes_traced())
        stored = value_to_store(memory.tracer, value, self.dtype) if traced else None
        if stored is None:  # NumPy has to convert the value
            for x in found_in((key, value)):
                x._memory.settle("b[...] = value")
            self._own("b[...] = value")[plain(key)] = plain(value)
            memory.touched()
        elif _is_basic(key):
            self._put(self._array[_keep_array(plain(key))], stored)
        else:
            whole = self._value()
            whole[traced_key(memory.tracer, key, self._array)] = cast(stored, self.dtype)
            if getattr(whole, "_view", None) is None and whole is not memory.tensor:
                memory.write(self._array, whole)

    def _put(self, target: np.ndarray, value: Tensor) -> None:
        """Writes a tensor to a view, with NumPy's error where it does not fit."""
        shape = tuple(map(int, value.shape))
        while len(shape) > target.ndim and shape[0] == 1:
            shape = shape[1:]
        fits = len(shape) <= target.ndim and all(
            n in (1, m) for n, m in zip(shape[::-1], target.shape[::-1], strict=False)
        )
        if not fits or not target.flags.writeable:
            target[...] = np.zeros(value.shape, target.dtype)
        if target.size:
            self._memory.write(target, value if len(value.shape) == len(shape) else value.reshape(shape))

    def _store(self, result: Any) -> None:
        """Takes the result of a function whose `out=` this is."""
        if not np.can_cast(result.dtype, self.dtype, "same_kind") or len(result.shape) > self.ndim:
            np.copyto(np.empty(self.shape, self.dtype), np.zeros(result.shape, result.dtype))  # NumPy's error
        self[...] = result


class ProgramScalar(ProgramValue):
    """A scalar: an element of an array, or a sum of some. Beside tensors it is a number, as in eager code."""

    __slots__ = ()

    @property
    def _kind(self) -> Any:
        return self._array.dtype.type

    @property
    def _tensor(self) -> Any:
        kind = _WEAK.get(self.dtype.kind)
        if not self._memory.is_traced or kind is None:
            return None
        t = cast(self._value(), np.dtype(kind))
        return self._memory.tracer.wrap(t._array, True, self.dtype in (np.float64, np.complex128))

    def as_index(self) -> Tensor | None:
        """The int64 tensor of an integer that data decides; None of any other number."""
        if not self._memory.is_traced or self.dtype.kind not in "iu":
            return None
        return cast(self._value(), np.dtype(np.int64))

    def __hash__(self) -> int:
        return hash(self._own("hash()"))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._own("round()"), digits)


for _name in [name for name in dir(NDArrayOperatorsMixin) if name[:3] == "__i" and hasattr(Tensor, f"__{name[3:]}")]:
    setattr(ProgramScalar, _name, getattr(NDArrayOperatorsMixin, f"__{_name[3:]}"))  # no update in place


# -- what is there and what comes out


def is_program(value: Any) -> bool:
    return issubclass(type(value), ProgramValue)


def become(x: ProgramValue, kind: type[ProgramValue], **slots: Any) -> None:
    """Makes a stand-in one of another kind: assigning its `__class__` would ask NumPy's, as which it shows."""
    object.__dict__["__class__"].__set__(x, kind)
    for name, value in slots.items():
        object.__setattr__(x, name, value)


def has_memory(value: Any) -> bool:
    """Whether a value is the stand-in of an array that is there: it does not wait, nor does a step decide its place."""
    return is_program(value) and value.is_array


def waits(value: Any) -> bool:
    """Whether a value is a selection whose elements nobody has asked for."""
    kind = type(value)
    return (issubclass(kind, ProgramValue) and kind.is_selected) or (
        issubclass(kind, Selection) and value.of is not None
    )


def is_over(x: ProgramValue) -> bool:
    """Whether elements wait that a region of the trace has chosen, a step of a loop, which has ended."""
    return x.is_selected and x._selection.frame is not next(reversed(x._waits[0].frames), None)


def plain(value: Any) -> Any:
    """A value with NumPy's arrays in the places of stand-ins, in lists, tuples, slices and dicts, too."""
    kind = type(value)
    if issubclass(kind, ProgramValue):
        return value._array[()] if kind is ProgramScalar else value._array.view()  # who keeps the view is counted
    if kind in (tuple, list):
        return kind([plain(v) for v in value])
    if kind is dict:
        return {k: plain(v) for k, v in value.items()}
    if kind is slice:
        return slice(asked(value.start), asked(value.stop), asked(value.step))
    return int(value) if is_dim(value) else value


def asked(value: Any, what: str = "index") -> Any:
    """Returns what `plain` does of sizes, axes and indices: Python asks for those that tensors decide."""
    for x in found_in(value):
        x._memory.settle(what)
    return plain(value)


def found_in(value: Any) -> Iterator[ProgramValue]:
    """Yields the stand-ins in lists, tuples, slices and dicts."""
    kind = type(value)
    if issubclass(kind, ProgramValue):
        yield value
    elif kind in (tuple, list, dict):
        for v in value.values() if kind is dict else value:
            yield from found_in(v)
    elif kind is slice:
        yield from found_in((value.start, value.stop, value.step))


def given_back(tracer: Tracer, result: Any, given: Any = ()) -> Any:
    """The result of NumPy for `given`, with stand-ins of its arrays: of views over memory of theirs, and of new ones.
    Arrays from outside stay what they are."""
    kind = type(result)
    if kind is tuple or kind is list:
        return kind([given_back(tracer, v, given) for v in result])
    if issubclass(kind, tuple) and hasattr(kind, "_make"):
        return kind._make([given_back(tracer, v, given) for v in result])
    base = base_of(result) if holds(result) else None
    if base is None:
        return result
    memory = next((x._memory for x in found_in(given) if x._memory.base is base), None)
    if memory is None:
        outside = any(base is owner for owner in _owners(given))
        return result if outside else ProgramArray(Memory(tracer, base), result.view())
    # `b.view(int)` is NumPy's own, for whose sake the memory stays NumPy's.
    own = result.dtype != base.dtype and not is_part(result, base)
    return result if own else ProgramArray(memory, result.view())


def _owners(given: Any) -> Iterator[Any]:
    """Yields the owners of the memory of NumPy's own arrays in lists, tuples and dicts."""
    kind = type(given)
    if kind in (tuple, list, dict):
        for v in given.values() if kind is dict else given:
            yield from _owners(v)
    elif issubclass(kind, _ndarray):
        yield base_of(given)


def value_of(tracer: Tracer, t: Tensor, scalar: bool = False, lies: np.ndarray | None = None) -> Any:
    """A new array, or scalar, with the values of a tensor; in memory as `lies`, if that is given."""
    given: Any = t
    if waits(given) and (waiting := given._pending()) is not None:
        return ProgramArray._selected(tracer, waiting)
    if any(map(is_step, t.shape)):
        return ProgramArray._of_step(tracer, t)
    if is_symbolic(t.shape):
        return ProgramArray._of_size(tracer, t)
    found = np.zeros(t.shape, t.dtype)
    if found.ndim > 1:
        found = np.zeros_like(layout(t) if lies is None else lies)  # as its elements lie in eager code
    memory = Memory(tracer, found)
    memory.takes(t)
    return (ProgramScalar if scalar and not found.ndim else ProgramArray)(memory, found.view())


def value_to_store(tracer: Tracer, value: Any, dtype: np.dtype) -> Tensor | None:
    """The tensor that is written for a value; None where NumPy has to convert the value itself."""
    if is_of_data(value):
        return of_int(tracer, value, dtype)
    t = of_size(value, dtype) if is_dim(value) else operand(tracer, value)
    if t is None:
        if is_dim(value) or any(True for _ in found_in(value)) or has_tensor(value):
            return None
        value = concrete_value(value)
        stored = np.empty(np.shape(value), dtype)
        stored[...] = value
        return literal(tracer, stored)
    return None if t.dtype.kind == "c" and dtype.kind != "c" else t


def operand(tracer: Tracer, value: Any) -> Tensor | None:
    """The tensor of the trace that a value is, without history; None for a value that none has."""
    if issubclass(type(value), ProgramValue):
        return value._value()
    if type(value) in (ScalarProxy, ComplexProxy, ArrayProxy):
        value = value._tensor
    if not issubclass(type(value), Tensor):
        return None
    return value.unrecorded() if waits(value) else tracer.lift(value).detach()


def has_tensor(value: Any, deep: bool = True) -> bool:
    """Whether a value, or a part of it, comes from a tensor."""
    kind = type(value)
    if issubclass(kind, ProgramValue):
        return kind.is_argument or bool(value._memory.is_traced)
    if deep and kind in (tuple, list):
        return any(map(has_tensor, value))
    return issubclass(kind, Tensor) or kind in (ScalarProxy, ComplexProxy, ArrayProxy) or is_of_data(value)


def _keep_array(key: Any) -> Any:
    """A key for which NumPy gives a 0-d view where it would give a scalar."""
    return key if ... in _parts(key) else (*_parts(key), ...)


def _parts(key: Any) -> tuple[Any, ...]:
    return key if type(key) is tuple else (key,)


def _is_basic(key: Any) -> bool:
    """Whether NumPy makes a view, or a scalar, for a key."""
    whole = (int, np.integer, slice, type(None), type(...))
    return all(
        (isinstance(k, whole) and type(k) is not bool and not (is_program(k) and has_tensor(k))) or is_dim(k)
        for k in _parts(key)
    )


def is_element_key(key: Any, ndim: int) -> bool:
    """Whether a key chooses one element by integers, or numbers of steps, alone: NumPy gives a scalar for that."""
    parts, others = _parts(key), (slice, type(None), type(...))
    return len(parts) == ndim and all(is_dim(k) or not (isinstance(k, others) or np.ndim(k)) for k in parts)


def traced_key(tracer: Tracer, key: Any, array: np.ndarray) -> Any:
    """A key of tensors, with literals in the places of arrays; NumPy's error for one that does not fit."""
    if not has_tensor(key):
        array[plain(key)]
    found: list[Any] = []
    for k in _parts(key):
        if has_tensor(k) and type(k) is not list:
            found.append(operand(tracer, k))
        elif isinstance(k, _ndarray | list | np.bool_):
            at = np.asarray(asked(k))
            if at.dtype.kind == "b" and at.ndim:
                found += [literal(tracer, p) for p in at.nonzero()]
            else:
                found.append(literal(tracer, at if at.size else at.astype(np.int64)))
        else:
            found.append(plain(k))
    return tuple(found)


# -- what is returned, and what stays behind


def unlike_eager(tracer: Tracer, returned: list[Any]) -> str:
    """The reason why calls cannot do with arrays what the trace has done; empty where they can: of the stand-ins those
    alone are left that it returns, and other arrays are as they were when it has computed with them."""
    known = set(map(id, returned))

    def alive() -> list[Any]:
        return [x for r in tracer.arrays if (x := r()) is not None and id(x) not in known]

    if alive():
        gc.collect()  # a closure that names itself
    if left := alive():
        return f"keeps a NumPy {left[0]._kind.__name__} that it makes"
    changed = any(now.tobytes() != then.tobytes() for now, then in tracer.met)
    return "changes an array that it makes, which it computes with" if changed else ""
