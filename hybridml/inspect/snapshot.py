"""Snapshot: the state that a function can reach, so that it can be run again from the same start.

Reached are the arguments, closure cells and globals that the function (and the functions it names) uses, attributes of
objects, and what lists, dicts and sets hold. Kept are the values and gradients of tensors, arrays, the contents of
containers, attributes, iterators that can be set back, and random generators (the default one always). Files and
modules are not state here.
"""

from __future__ import annotations

import functools
import random as python_random
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from hybridml_compiler.targets.device import DeviceArray, host_copy

from .. import random
from ..core.autodiff.sparse import densified, shown
from ..core.autodiff.tape import Leaf
from ..core.device_tensor import DeviceTensor, move, set_class
from ..core.tensor import Tensor
from ..tracing.python_state.mutation_epoch import attributes_changed
from ..tracing.python_state.side_effects import way_back

_ATOMS = (
    *(bool, int, float, complex, str, bytes, type(None), np.generic),
    *(type, types.ModuleType, types.BuiltinFunctionType, np.dtype),
)
# Objects of these packages are machinery; a container or a random generator among them is looked at all the same.
_CLOSED = frozenset(("builtins", "hybridml_compiler", "llvmlite", "numpy", "threading", "weakref"))
_LIBRARY = frozenset((*_CLOSED, "hybridml"))  # globals of these are no state of the user's program
_ITERATORS = ("builtins", "itertools")
_Restore = Callable[[], None]


class Snapshot:
    """State of a function, copied when made. `restore()` puts everything back, in place, as often as wanted."""

    def __init__(self, **roots: Any) -> None:
        self.arrays: dict[str, np.ndarray] = {}  # every tensor and array by the path that leads to it
        self._copies: dict[str, np.ndarray] = {}
        self._tensors: dict[str, Tensor] = {}
        self.lost: list[Any] = []  # iterators that cannot be set back
        self._restores: list[_Restore] = []
        self._seen: set[int] = set()
        self._keep: list[Any] = []  # an id is only good while its object lives
        self._visit({**roots, "default generator": random.default_generator})

    def holds(self, value: Any) -> bool:
        """Whether a tensor or array was reached."""
        return id(value) in self._seen

    def restore(self) -> None:
        for restore in self._restores:
            restore()
        attributes_changed()

    @contextmanager
    def on(self, device: str) -> Iterator[None]:
        """A context in which the tensors that were reached are on a device; what they were at first is put back behind
        it. Those without axes stay, as they may be anywhere, and so do states of generators, which draw on the CPU."""
        states = {id(value.state) for value in self._keep if isinstance(value, random.Generator)}
        classes = [(t, type(t)) for t in self._tensors.values() if id(t) not in states]
        try:
            for t, _ in classes:
                if t.shape:
                    move(t, device)
            attributes_changed()
            yield
        finally:
            for t, cls in classes:
                set_class(t, cls)
            self.restore()

    def state(self) -> dict[str, np.ndarray]:
        """Copies of the present values of everything that was reached, gradients included."""
        found = {path: host_copy(t._array) for path, t in self._tensors.items()}
        for path, t in self._tensors.items():
            if type(t._node) is Leaf and t._node.grad is not None:
                found[f"{path}.grad"] = host_copy(densified(shown(t._node))._array)
        return found | {path: array.copy() for path, array in self.arrays.items()}

    # -- collecting: a stack and not recursion, so that a long chain of objects is no trouble

    def _visit(self, roots: dict[str, Any]) -> None:
        pending = list(roots.items())[::-1]
        items: list[tuple[str, Any]] = []  # tensors in containers: a variable or a module has a better name for them
        while pending or items:
            if not pending:
                pending, items = items[::-1], []
            path, value = pending.pop()
            if isinstance(value, _ATOMS) or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            self._keep.append(value)
            children = [(_join(path, name), child) for name, child in self._open(path, value)]
            if isinstance(value, dict | list | tuple):
                items += [child for child in children if issubclass(type(child[1]), Tensor)]
                children = [child for child in children if not issubclass(type(child[1]), Tensor)]
            pending += children[::-1]

    def _open(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Notes one value, and yields the objects that it leads to."""
        if issubclass(type(value), Tensor):
            yield from self._tensor(path, value)
        elif hasattr(type(value), "digested") and value.digested == ():
            return
        elif isinstance(value, np.ndarray):
            self.arrays[path] = value
            self._restores.append(functools.partial(_put, value, value.copy()))
        elif isinstance(value, np.random.Generator):
            self._restores.append(functools.partial(setattr, value.bit_generator, "state", value.bit_generator.state))
        elif isinstance(value, python_random.SystemRandom):
            pass  # it has no state
        elif isinstance(value, python_random.Random):
            self._restores.append(functools.partial(value.setstate, value.getstate()))
        elif isinstance(value, dict):
            self._restores.append(functools.partial(_put_dict, value, dict(value)))
            yield from ((_label(k, key), child) for k, (key, child) in enumerate(value.items()))
            yield from (("", key) for key in value)
        elif isinstance(value, list):
            self._restores.append(functools.partial(_put_list, value, list(value)))
            yield from ((str(k), child) for k, child in enumerate(value))
        elif isinstance(value, tuple | frozenset):
            yield from ((str(k), child) for k, child in enumerate(value))
        elif isinstance(value, set):
            self._restores.append(functools.partial(_put_set, value, set(value)))
        elif isinstance(value, types.MethodType):
            yield from (("", value.__self__), ("", value.__func__))
        elif isinstance(value, functools.partial):
            yield from (("", value.func), ("args", value.args), ("keywords", value.keywords))
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif hasattr(type(value), "__next__") and type(value).__module__ in _ITERATORS:
            back = way_back(value)
            if back is None:
                self.lost.append(value)
            else:
                self._restores.append(cast(_Restore, back))
        else:
            yield from self._object(value)

    def _tensor(self, path: str, t: Tensor) -> Iterator[tuple[str, Any]]:
        array, node, version = t._array, t._node, t._version
        if is_without_shape(t):
            self._restores.append(functools.partial(_put_without_shape, t, type(t), array))
            return
        if not isinstance(array, np.ndarray | DeviceArray):
            return
        self._tensors[path] = t
        copy = array.copy() if isinstance(array, np.ndarray) else None  # values of a device never change
        stamp = version[0] if isinstance(version, list) else version
        grad = shown(node) if type(node) is Leaf else None

        def restore() -> None:
            t._array, t._node, t._version = array, node, version
            if isinstance(version, list):
                version[0] = stamp
            if isinstance(array, np.ndarray) and copy is not None:
                _put(array, copy)
            if type(node) is Leaf:
                node.grad = grad

        self._restores.append(restore)
        if isinstance(grad, Tensor):  # a sparse one is replaced, and never written to
            yield "grad", grad

    def _function(self, fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
        yield from (("", default) for default in fn.__defaults__ or ())
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self._restores.append(functools.partial(setattr, cell, "cell_contents", content))
            yield name, content
        if str(fn.__globals__.get("__name__")).split(".")[0] in _LIBRARY:
            return
        for name in sorted(_names(fn.__code__)):
            if name in fn.__globals__:
                content = fn.__globals__[name]
                self._restores.append(functools.partial(fn.__globals__.__setitem__, name, content))
                yield name, content

    def _object(self, value: Any) -> Iterator[tuple[str, Any]]:
        kind = type(value)
        if kind.__module__.split(".")[0] in _CLOSED:
            return
        if hasattr(value, "__wrapped__"):  # a decorated function, a traced one too
            yield "", value.__wrapped__
            return
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._restores.append(functools.partial(_put_class, value, kind))  # a lazy layer becomes another
            self._restores.append(functools.partial(_put_dict, attributes, dict(attributes)))
            yield from attributes.items()
        for name in _slots(kind):
            if hasattr(value, name):
                content = getattr(value, name)
                self._restores.append(functools.partial(_put_slot, value, name, content))
                yield name, content
        for base in kind.__mro__:  # methods of the user's classes may use globals of their own
            if base.__module__.split(".")[0] not in _LIBRARY:
                yield from (("", method) for method in vars(base).values() if isinstance(method, types.FunctionType))


def _put(array: np.ndarray, copy: np.ndarray) -> None:
    if array.flags.writeable:
        np.copyto(array, copy)


def is_without_shape(t: Tensor) -> bool:
    """Whether a tensor is that of a lazy layer before its first call."""
    return type(t).home is not None and not issubclass(type(t), DeviceTensor)


def _put_without_shape(t: Tensor, cls: type, value: Any) -> None:
    set_class(t, cls)
    t._array = value


def _put_class(value: Any, kind: type) -> None:
    if type(value) is not kind:
        object.__setattr__(value, "__class__", kind)


def _put_dict(target: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Gives a dict its items, by the plain class's own methods: a subclass may do more when an item is assigned."""
    pairs = zip(target.items(), saved.items(), strict=True)
    if len(target) == len(saved) and all(a is c and b is d for (a, b), (c, d) in pairs):
        return
    plain = OrderedDict if isinstance(target, OrderedDict) else dict
    plain.clear(target)
    plain.update(target, saved)


def _put_list(target: list[Any], saved: list[Any]) -> None:
    target[:] = saved


def _put_set(target: set[Any], saved: set[Any]) -> None:
    target.clear()
    target |= saved


def _put_slot(target: Any, name: str, content: Any) -> None:
    if getattr(target, name, None) is not content:
        object.__setattr__(target, name, content)


def _slots(kind: type) -> list[str]:
    names: list[str] = []
    for base in kind.__mro__:
        if base.__module__.split(".")[0] in _CLOSED:
            continue
        found = base.__dict__.get("__slots__", ())
        names += [found] if isinstance(found, str) else list(found)
    return [name for name in names if not name.startswith("__")]


def _names(code: types.CodeType) -> set[str]:
    """Names that a code object may read as globals, nested functions included."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _label(position: int, key: Any) -> str:
    return str(key) if isinstance(key, str | int) else str(position)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name
