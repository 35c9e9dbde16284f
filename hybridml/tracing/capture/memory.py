"""Memory of the NumPy arrays that a traced function makes: NumPy's numbers until a tensor is written there.

As long as only NumPy's own values meet such an array, its memory is NumPy's. From the first tensor on that is written
there the block is a tensor of the trace (`tensor`), which takes every write, and what NumPy has in memory means
nothing. Arrays over the block are NumPy's views of it all the time: where their elements lie, their strides say, and
the same elements of the tensor are views of that (see core/aliasing.py). What no tensor can do asks for the values
(`settle`), after which the block is NumPy's again.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import lru_cache, partial, reduce
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import DTypeError
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import is_dim
from hybridml_compiler.sizes.steps import is_step

from ...core.autodiff.lost_histories import is_lost, raise_written
from ...core.proxies.integer import IntProxy
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor
from .numbers.stored_ints import is_of_data
from .selection import Selection
from .traced_tensor import Traced
from .tracer import Tracer, top_tracer

_ndarray = np.ndarray
_astype, _full, _permute, _reshape, _broadcast = (
    OPS[name] for name in ("astype", "full", "permute_dims", "reshape", "broadcast_to")
)
_LARGE = 4096  # elements: larger literals are inputs of the program
RETURNED = "a view that is returned"  # why an array among the arguments is settled
_blocks: WeakValueDictionary[Any, np.ndarray] = WeakValueDictionary()  # by what is in them
Step = Callable[[Tensor], Tensor]
OF_SCALARS: dict[str, Any] = {  # methods of what stands for NumPy's scalars; numpy_rules.py has more
    name: getattr(Tensor, f"__{name[3:]}")
    for name in dir(Tensor)
    if name[:3] == "__i" and hasattr(Tensor, f"__{name[3:]}")
}


def holds(array: Any) -> bool:
    """Whether an array is one whose values a tensor can have."""
    try:
        return type(array) is _ndarray and dtypes.canonical(array.dtype) == array.dtype
    except DTypeError:
        return False


class Memory:
    """One block, of an array that owns it: `base`, which is `owner` with its axes in the order of memory."""

    __slots__ = ("_data", "_node", "_seen", "_views", "base", "depth", "owner", "tensor", "tracer")
    is_given = False  # of an array among the arguments

    def __init__(self, tracer: Tracer, base: np.ndarray) -> None:
        self.tracer, self.depth = tracer, len(tracer.frames)
        self.base, self.owner = base, base.transpose(_order(base))
        self.tensor: Tensor | None = None
        self._views: list[Any] = []  # weak references to the stand-ins of arrays over it
        # The tensor that operations have last had of NumPy's numbers, with its node and these numbers.
        self._seen: Any = None
        self._node: ir.Node | None = None
        self._data: np.ndarray | None = None

    def adds(self, array: Any) -> None:
        """Notes one more stand-in of an array over the block, which has a view of its own."""
        self._views = [r for r in self._views if r() is not None]
        self._views.append(ref(array))

    def references(self) -> int:
        return sys.getrefcount(self.base) - sum(r() is not None for r in self._views)

    @property
    def is_traced(self) -> bool:
        """Whether the block is a tensor."""
        if self.tensor is None and self._seen is not None and self._seen._array is not self._node:
            self.tensor = self._seen  # updated in place, as a tensor over this memory (`hm.asarray`)
        return self.tensor is not None

    def whole(self) -> Tensor:
        """The tensor of what the block holds now."""
        if self.is_traced:
            assert self.tensor is not None
            self.tracer.marked.read(self.tensor)
            return self.tensor
        if self._seen is None:
            self._shows(literal(self.tracer, self.owner))
        found: Tensor = self._seen
        return found

    def takes(self, t: Tensor) -> None:
        """Makes new memory one with the values of a tensor."""
        order = _order(self.base)
        turned = t if order == sorted(order) else _permute.fn(t, tuple(order))
        self.tensor = self.tracer.wrap(turned._array)

    def _shows(self, t: Tensor) -> None:
        self._seen, self._node, self._data = t, t._array, self.owner.copy()

    def becomes_traced(self) -> bool:
        """Makes the block a tensor, if it may be one: where nobody else has its memory."""
        if self.is_traced:
            return True
        if top_tracer() is not self.tracer or len(self.tracer.frames) != self.depth or self.references() > _ALONE:
            return False
        self.tensor = self.whole()
        return True

    def touched(self) -> None:
        """Called when NumPy has had the memory: a tensor that shares it sees what it has written."""
        seen = self._seen
        if seen is None or self.tensor is not None or _same_bytes(self._data, self.owner):
            return
        del seen
        if sys.getrefcount(self._seen) > _SEEN_ALONE:
            self.tensor = self._seen
            self.tensor[...] = literal(self.tracer, self.owner)
        else:
            self._seen = None

    def settle(self, what: str) -> None:
        """Asks for the values, and makes the block NumPy's with them."""
        if self.is_traced:
            t = self.tensor
            assert t is not None
            np.copyto(self.owner, self.tracer.read(t, "array", what))
            self.tensor = None
            self._shows(t)

    def view(self, array: np.ndarray) -> Tensor:
        """The tensor of an array over the block: a view of the block's where its elements form one."""
        if array.dtype != self.base.dtype:
            whole, part = self._parted(array)
            return OPS[part].fn(self.view(whole))
        t = self.whole()
        found = steps_to(self.owner, array)
        return _flat(t)[_positions(self.owner, array)] if found is None else reduce(lambda x, step: step(x), found, t)

    def write(self, array: np.ndarray, value: Tensor) -> None:
        """Writes to the elements of an array over the block, which is a tensor by now."""
        value = cast(value, array.dtype)
        if array.dtype != self.base.dtype:
            array, part = self._parted(array)
            others = OPS["imag" if part == "real" else "real"].fn(self.view(array))
            value = OPS["complex"].fn(*(_broadcast.fn(value, others.shape), others)[:: 1 if part == "real" else -1])
        if steps_to(self.owner, array) is None:
            _flat(self.whole())[_positions(self.owner, array)] = value
        else:
            self.view(array)[...] = value

    def _parted(self, array: np.ndarray) -> tuple[np.ndarray, str]:
        """The complex numbers of which an array over the block has parts, and which."""
        at = array.__array_interface__["data"][0] - self.base.__array_interface__["data"][0]
        inside = at % self.base.itemsize
        whole: np.ndarray = np.ndarray(array.shape, self.base.dtype, self.base, at - inside, array.strides)
        return whole, "imag" if inside else "real"


def is_part(array: np.ndarray, base: np.ndarray) -> bool:
    """Whether an array has the real parts of complex numbers, or the imaginary ones."""
    of = base.dtype
    steps = [step for n, step in zip(array.shape, array.strides, strict=True) if n > 1]
    return of.kind == "c" and array.dtype == np.empty(0, of).real.dtype and all(n % of.itemsize == 0 for n in steps)


class ArgumentMemory(Memory):
    """Memory of an array among the arguments: a tensor of the program, whatever is there. `given`: its stand-in, by a
    weak reference. `refuse`: what makes the error for what asks for the values, which only calls have."""

    __slots__ = ("argument", "given", "refuse")
    is_given = True

    def __init__(self, tracer: Tracer, t: Tensor, array: np.ndarray, refuse: Callable[[str], BaseException]) -> None:
        super().__init__(tracer, np.zeros_like(array))
        order = _order(self.base)
        self.argument, self.refuse = t, refuse
        self.given: Callable[[], Any] = lambda: None
        self.tensor = t if order == sorted(order) else _permute.fn(t, tuple(order))

    def settle(self, what: str) -> None:
        raise self.refuse(what)


class SelectedMemory:
    """Stand-in of the memory of elements that a mask selects, and nobody has asked for: of a tensor in any case."""

    is_traced = True
    is_given = False

    def __init__(self, tracer: Tracer, settled: Callable[[], Memory]) -> None:
        self.tracer, self._settled = tracer, settled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._settled(), name)


def check_written(tracer: Tracer, t: Tensor, is_element: Callable[[], bool]) -> None:
    """Raises the error of a tensor that requires grad and is written to an array. In a step of a loop that is captured
    every value has a history, and the loop looks at its ends."""
    given: Any = t
    t = given._shown() if issubclass(type(given), Selection) else t  # whose elements nobody has to see
    if tracer.loops and is_lost(t):
        tracer.loops[-1].into_arrays.append(t._node)
    elif is_lost(t):
        raise_written(t, is_element())


def with_indices(key: Any) -> Any:
    """The key of an array with tensors in the places of ints that data decides."""
    if type(key) is tuple:
        return tuple(map(with_indices, key))
    if type(key) is list:
        places = [k if (t := _index_of(k)) is None else t for k in key]
        decided = any(issubclass(type(k), Tensor) or is_step(k) for k in places)
        return OPS["concat"].fn([*map(_place, places)], 0) if decided and all(map(_is_place, places)) else key
    return key.as_index() if is_of_data(key) else key


def _index_of(place: Any) -> Tensor | None:
    """The tensor of an int that data decides, one of the program's arrays too."""
    known = type(place) is IntProxy and not is_of_data(place)
    found: Tensor | None = place.as_index() if hasattr(type(place), "as_index") and not known else None
    return found


def _is_place(value: Any) -> bool:
    if issubclass(type(value), Tensor):
        return value.shape == () and value.dtype.kind in "iu"
    return type(value) is int or is_dim(value) or isinstance(value, np.integer)


def _place(value: Any) -> Tensor:
    """One place of a list of such, as an axis."""
    is_tensor = issubclass(type(value), Tensor)
    t = value if is_tensor else _full.fn(shape=(), value=value, dtype=dtypes.int64)
    found: Tensor = _reshape.fn(_astype.fn(t, dtypes.int64), (1,))
    return found


def as_int(tracer: Tracer, place: Any) -> Any:
    """The int of a place that data decides, which chooses a view as an int does: of the program in the step of a loop,
    elsewhere Python asks for it."""
    if not tracer.loops or not issubclass(type(place), Tensor):
        return place if tracer.loops else int(place)
    number: Tensor = _astype.fn(tracer.lift(place), dtypes.float64)
    return IntProxy(tracer, ScalarProxy(tracer.wrap(number._array, True)), None)


def cast(t: Tensor, dtype: np.dtype) -> Tensor:
    """The values in a dtype, no Python number any more."""
    found: Tensor = _astype.fn(t, dtype) if t.is_number or t.dtype != dtype else t
    return found


def element(tracer: Tracer, t: Tensor) -> Tensor:
    """NumPy's scalar with the value that a tensor has now: `s += v` makes another one."""
    found = _scalars(tracer.cls)()  # type: ignore[arg-type]  # mypy knows no hash of a class
    found._array, found._node, found._version = t._array, None, 0
    tracer.note(found)
    return found


def is_element(t: Tensor) -> bool:
    return type(t).is_element


@lru_cache(maxsize=1)  # of the trace that runs
def _scalars(cls: type[Traced]) -> type[Traced]:
    """The class of the tensors of a trace that are no memory: their operators in place make new ones."""
    return type("Tensor", (cls,), {"__slots__": (), "__module__": "hybridml", "is_element": True, **OF_SCALARS})


def literal(tracer: Tracer, array: np.ndarray) -> Tensor:
    """A literal of the program: the same node for the same numbers, in every trace of an entry."""
    array = np.asarray(array, order="C")
    if array.size > 1 and array.dtype.kind in "fiub":
        first = array.reshape(-1)[:1]
        if (array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize) == first.view(np.uint8)).all():
            value = first[0].item()
            if value == value and abs(value) != float("inf"):
                params = {"shape": array.shape, "value": value, "dtype": dtypes.canonical(array.dtype)}
                return tracer.wrap(ir.apply(_full, [], params))
    key = "literal", array.shape, array.dtype.str, hashlib.blake2b(array.tobytes()).digest()
    if array.size > _LARGE:
        block = _blocks.get(key)
        if block is None:
            block = _blocks[key] = array.copy()
        return tracer.block(block)
    node = tracer.nodes.get(key)
    if node is None:
        node = tracer.nodes[key] = ir.constant(array)
    return tracer.wrap(node)


def _order(base: np.ndarray) -> list[int]:
    """The axes in the order of memory."""
    return sorted(range(base.ndim), key=lambda k: -base.strides[k])


def base_of(array: np.ndarray) -> np.ndarray | None:
    """The array that owns the memory of another, if it is dense; None where that is not NumPy's own."""
    base = array
    while type(base.base) is _ndarray:
        base = base.base
    return base if base.base is None and base.flags.writeable and is_dense(base) else None


def is_dense(array: np.ndarray) -> bool:
    """Whether the elements fill their memory, with the axes in any order."""
    return array.transpose(_order(array)).flags.c_contiguous


def _same_bytes(a: np.ndarray | None, b: np.ndarray) -> bool:
    return a is not None and bool((a.reshape(-1).view(np.uint8) == b.reshape(-1).view(np.uint8)).all())


def _flat(t: Tensor) -> Tensor:
    found: Tensor = _reshape.fn(t, (t.numel(),))
    return found


def _start(owner: np.ndarray, array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]) // owner.itemsize


def _positions(owner: np.ndarray, array: np.ndarray) -> np.ndarray:
    """The positions of the elements of a view in its memory."""
    found = np.full(array.shape, _start(owner, array), np.int64)
    for axis, step in enumerate(array.strides):
        along = np.arange(array.shape[axis]) * (step // owner.itemsize)
        found += along.reshape(-1, *(1,) * (array.ndim - axis - 1))
    return found


def steps_to(owner: np.ndarray, array: np.ndarray) -> list[Step] | None:
    """Operations that make a view of its memory: a slice with its axes turned, or a part of the flattened memory; None
    where its elements lie in another way."""
    shape = array.shape
    if array.size == 0:
        return [_flat, lambda t: t[:0], partial(_reshaped, shape)]
    if shape == owner.shape and array.strides == owner.strides:
        return []
    found = _sliced(owner, array)
    if found is None and array.flags.c_contiguous:
        first = _start(owner, array)
        found = [_flat, lambda t: t[first : first + array.size], partial(_reshaped, shape)]
    return found


def _reshaped(shape: tuple[int, ...], t: Tensor) -> Tensor:
    return t if t.shape == shape else _reshape.fn(t, shape)


def _sliced(owner: np.ndarray, array: np.ndarray) -> list[Step] | None:
    item, left = owner.itemsize, _start(owner, array)
    key: list[Any] = []
    for step in owner.strides:  # the position of the first element, axis by axis
        key.append(left // (step // item))
        left %= step // item
    places: list[int] = []  # the axis of the owner along which each axis of the view goes
    axes = [k for k, n in enumerate(array.shape) if n > 1]
    for k in axes:
        n, step = array.shape[k], array.strides[k]
        for axis, of_owner in enumerate(owner.strides):
            last = key[axis] + (n - 1) * (step // of_owner) if type(key[axis]) is int else -1
            if step and step % of_owner == 0 and 0 <= last < owner.shape[axis]:
                by = step // of_owner
                stop = last + (1 if by > 0 else -1)
                key[axis] = slice(key[axis], None if stop < 0 else stop, by)
                places.append(axis)
                break
        else:
            return None
    turn = [sorted(places).index(axis) for axis in places]
    new = tuple(slice(None) if k in axes else None for k in range(array.ndim))
    cut, whole = tuple(key), all(type(k) is slice for k in key) and owner[tuple(key)].shape == owner.shape
    found: list[Step] = [] if whole and _is_forward(key) else [lambda t: t[cut]]
    if turn != sorted(turn):
        found.append(lambda t: _permute.fn(t, tuple(turn)))
    return found if all(n > 1 for n in array.shape) else [*found, lambda t: t[new]]


def _is_forward(key: list[Any]) -> bool:
    return all(k.step == 1 for k in key)


def _calibrated() -> tuple[int, int]:
    """Numbers of references to a block, and to a tensor of it, that nobody else has."""

    class Nothing:
        frames = ()

    memory = Memory(Nothing(), np.empty(2))  # type: ignore[arg-type]
    memory._seen = Tensor()
    return memory.references(), sys.getrefcount(memory._seen)


_ALONE, _SEEN_ALONE = _calibrated()
