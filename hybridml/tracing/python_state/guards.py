"""The guards of a trace: the Python values it has relied on. A call for which they hold may run the compiled program.

Watched is what the code of the function can name: its globals, closure cells and defaults, attributes of objects,
classes and Python modules, and the contents of lists, dicts and sets, through every function and method that it names.
An attribute that no reached code names is not watched: a counter beside a traced step may move freely. That an object
or class gets or loses one is: code may ask whether it is there. So are the classes of objects and the bases of classes,
the code and the defaults of functions, which reloading tools replace in place, the bytes of buffers, and the
environment variables where code names them. Of installed packages the data that code names is watched, not the code.
Entries of a `Module` or `Optimizer` are looked at only when `mutation_epoch.epoch` has moved.
"""

from __future__ import annotations

import abc
import builtins
import dis
import functools
import gc
import os
import random
import re
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np

from ...core.proxies.base import Proxy
from ...core.tensor import Tensor
from . import mutation_epoch
from .classes import announced, class_of, is_data, may_change, reads_unseen, says, slots
from .guard_types import (
    GONE,
    SCALARS,
    AttributeGuard,
    AttributesGuard,
    CellGuard,
    ClassGuard,
    ContentsGuard,
    ContextGuard,
    ElementsGuard,
    EnvironmentGuard,
    FunctionGuard,
    Guard,
    ItemGuard,
    KeysGuard,
    LayoutGuard,
    LengthGuard,
    RegistryGuard,
    ResolutionGuard,
    elements_guard,
    hold,
)
from .libraries import is_fixed, is_library, is_library_class, is_ours
from .numpy_random import is_global_generator
from .reads import ABSENT, MOST_COMPARED, contents, is_buffer, size_of

_OPAQUE = (np.ufunc, np.dtype, Proxy)
_MAX_ENTRIES = 20000
_MAX_ITEMS = 100  # a longer container is compared as a whole, about 5 ns an item
_MAX_COPIED = 16 << 20  # bytes of an array that a trace looks at before and after: 5 ms
_MOST_CODES = 4096  # code objects of which names are remembered: 1.3 KB each
# Called by our own code, so no code of the user names them.
_HOOKS = frozenset(("forward", "backward", "update", "state_names"))
# Code that says one of these can read an attribute of any name.
_REFLECTION = frozenset(("getattr", "vars", "__dict__", "attrgetter", "__getattribute__"))
# Code that says one of these can see the order of attributes.
_LISTING = frozenset(("vars", "__dict__"))
# Code that says one of these can read a global variable of any name.
_BY_STRING = _REFLECTION | {"globals", "__globals__", "eval", "exec", "modules", "import_module"}
# Code that says one of these can read any environment variable.
_ENVIRONMENT = frozenset(("environ", "environb", "getenv", "getenvb"))
_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]  # its argument has one bit more
_OF_VARIABLES = frozenset(code for name, code in dis.opmap.items() if "GLOBAL" in name or name == "LOAD_NAME")
_FIELD = re.compile(r"\{[^{}!:]*[.\[][^{}!:]*")  # of a format string, with an attribute or an item
_NAME = re.compile(r"[^\W\d]\w*")

PATCHES: set[int] = set()  # ids of globals that are there only while another thread traces (see builtin_patches.py)


class Watch:
    """Python state as it was before a trace; `holds()` tells whether it is still the same."""

    def __init__(self, fn: Callable[..., Any], objects: Iterable[Any]) -> None:
        self.free: list[Guard] = []  # checked at every call
        self.quiet: list[Guard] = []  # checked when the epoch has moved
        self.moving: list[Guard] = []  # changed by the function itself: no guards (see mutations.py)
        self.assigned: set[tuple[int, Any]] = set()  # what the function has assigned, maybe an equal value
        self._grown: list[dict[Any, Any]] = []  # dicts to which earlier traces have added something
        self.functions: list[types.FunctionType] = []  # that were reached
        self.codes: list[types.CodeType] = []  # their code, with that of functions made in them
        self.loose: set[int] = set()  # ids of functions and containers that are reached by other ways than the entries
        self.owners: dict[int, Any] = {}  # id of a `__dict__` -> the object whose attributes are in it
        self._root = fn
        self._seen: set[int] = set()
        self._keep: list[Any] = []
        self.names = set(_HOOKS)
        self._spaces: list[tuple[Mapping[str, Any], ...]] = []  # where an attribute is looked up, in this order
        self._class_vars: dict[type, Mapping[str, Any]] = {}
        # The attributes that objects had, by the id of their `__dict__`: what no code names may still be missed.
        self._attributes_of: dict[int, tuple[Mapping[str, Any], frozenset[str]]] = {}
        self._data_only: set[int] = set()  # ids of spaces of installed packages, whose functions are not looked at
        self._buffers: dict[int, Any] = {}  # arrays and other buffers that were reached, by id
        self._items: dict[int, list[Any]] = {}  # what containers held when the trace began, by their id
        self._arrays: list[Guard] = []  # what NumPy arrays held when the trace began
        self._done: set[tuple[int, str]] = set()
        self._pending: list[tuple[Any, bool]] = [(fn, False)]
        self._reach(*objects)
        self._collect()
        self.epoch = mutation_epoch.epoch.value

    def holds(self) -> bool:
        if not hold(self.free):
            return False
        if mutation_epoch.epoch.value != self.epoch:
            if not hold(self.quiet):
                return False
            self.epoch = mutation_epoch.epoch.value
        return True

    @property
    def guards(self) -> Iterator[Guard]:
        """All guards of the trace."""
        return chain(self.free, self.quiet)

    def knows(self, obj: Any) -> bool:
        """Whether an object was there before the trace, as far as it is watched."""
        return id(obj) in self._seen or any(guard.value is obj for guard in (*self.guards, *self.moving))

    def name_of(self, obj: Any) -> str:
        """The name by which code reaches an object, or its kind."""
        if obj is random._inst:
            return "random"
        if is_global_generator(obj):
            return "np.random"
        return next((guard.name for guard in self.guards if guard.value is obj), f"a {type(obj).__name__}")

    def begin(self) -> None:
        """Begins a trace: values that earlier traces have changed are looked at from here on."""
        self.moving = [now for guard in self.moving if (now := guard.renewed()) is not None]
        self.assigned.clear()
        known = {(id(guard.owner), guard.key) for guard in (*self.guards, *self.moving) if isinstance(guard, ItemGuard)}
        self.moving += [ItemGuard(d, key) for d in self._grown for key in d if (id(d), key) not in known]
        self._attributes_of = {k: (d, frozenset(d)) for k, (d, _) in self._attributes_of.items()}
        self._items = {id(c): list(c) for c in self._keep if type(c) in (list, deque, set)}
        elements = {id(guard.owner) for guard in (*self.free, *self.moving) if type(guard) is ElementsGuard}
        self._arrays = [ElementsGuard(array) for k, array in self.named_arrays(_MAX_COPIED) if k not in elements]

    def end(self) -> list[Guard]:
        """Ends a trace: returns the guards of values that the function has changed, which are guards no longer."""
        watched = (*self.guards, *self.moving, *self._arrays)
        changed = [guard for guard in watched if self._has_changed(guard)]
        gone = set(map(id, changed))
        self._grown += [g.owner for g in changed if isinstance(g, LengthGuard) and type(g.owner) is dict]
        owners = {id(owner) for guard in changed if type(owner := guard.container) in (list, deque, set)}
        for guards in (self.free, self.quiet):
            kept: list[Guard] = []
            for guard in guards:
                of_owner = id(guard.container) in owners
                if not of_owner and id(guard) not in gone:
                    kept.append(guard)
                elif isinstance(guard, AttributesGuard):  # they are given once: the next call finds them
                    kept.append(AttributesGuard(guard.owner))
                elif isinstance(guard, LengthGuard | ContentsGuard) or not of_owner:
                    self.moving.append(guard)
            guards[:] = kept
        self.moving += [guard for guard in self._arrays if not guard.holds()]
        self._arrays = []
        self.epoch = mutation_epoch.epoch.value
        return changed

    def kept(self) -> Callable[[], None]:
        """A function that has all guards be what they are now: for a trace that is done again."""
        lists = self.free, self.quiet, self.moving, self._grown
        before = [list(guards) for guards in lists]

        def put_back() -> None:
            self.free, self.quiet, self.moving, self._grown = map(list, before)  # type: ignore[assignment]

        return put_back

    def _has_changed(self, guard: Guard) -> bool:
        """Whether a trace has put another value there, or what stands for one, which may be equal."""
        try:
            now = guard.now()
        except GONE:
            return True
        is_put = issubclass(type(now), Proxy) and now is not guard.value  # a body of a loop may find one there
        return is_put or (type(guard.key) is str and (id(guard.owner), guard.key) in self.assigned) or not guard.holds()

    def keep(self, guards: Sequence[Guard]) -> None:
        """Guards again what a trace has changed: its program is for calls that find what it has found."""
        kept = set(map(id, guards))
        self.moving = [guard for guard in self.moving if id(guard) not in kept]
        self.free += guards

    def read_by_numpy(self, inputs: Container[int]) -> None:
        """Guards the elements of arrays that code names, since NumPy may read them, but for those that are `inputs` and
        nothing else (by id)."""
        known = {id(guard.owner) for guard in (*self.free, *self.moving) if isinstance(guard, ElementsGuard)}
        arrays = self.named_arrays(sys.maxsize)
        self.free += [elements_guard(array) for k, array in arrays if k not in inputs and k not in known]

    def named_arrays(self, most: int) -> list[tuple[int, Any]]:
        """Arrays and other buffers that code names, of at most so many bytes, by id."""
        return [(k, b) for k, b in self._buffers.items() if size_of(b) <= most]

    def items_of(self, container: Any) -> list[Any]:
        """The items of a list, deque or set before the trace."""
        return self._items[id(container)]

    def keys_of(self, mapping: Mapping[Any, Any]) -> set[Any]:
        """The keys of a dict before the trace, as far as they are watched."""
        if id(mapping) in self._attributes_of:
            return set(self._attributes_of[id(mapping)][1])
        guards = (*self.guards, *self.moving)
        return {guard.key for guard in guards if isinstance(guard, ItemGuard) and guard.owner is mapping}

    def class_of(self, space: Mapping[str, Any]) -> type:
        """The class with these attributes."""
        return next(cls for cls, attributes in self._class_vars.items() if attributes is space)

    def names_of(self, fn: types.FunctionType) -> frozenset[str]:
        """The names that a function may look up."""
        return _names(fn.__code__)

    def reached(self) -> list[Any]:
        """Every object that was reached."""
        return self._keep

    def are_variables(self, owner: Any) -> bool:
        """Whether a dict has the global variables of a function that was reached."""
        return any(f.__globals__ is owner for f in self.functions)

    def count(self, cls: type) -> int:
        """Number of objects of a class that were reached."""
        return sum(isinstance(value, cls) for value in self._keep)

    def reflects(self) -> bool:
        """Whether reached code can read an attribute that it does not name."""
        return not self.names.isdisjoint(_REFLECTION)

    # -- collecting

    def _collect(self) -> None:
        """Visits until nothing new is reached: code gives names, names lead to attributes, attributes to code."""
        known = -1
        while self._pending or known != len(self.names):
            while self._pending and len(self.free) + len(self.quiet) < _MAX_ENTRIES:
                self._visit(*self._pending.pop())
            self._pending.clear()
            known = len(self.names)
            for spaces in self._spaces:
                self._attributes(spaces)
        attributes = [d for d, _ in self._attributes_of.values()]
        self.free += map(AttributesGuard, attributes)  # last: named ones say more
        if not self.names.isdisjoint(_LISTING):
            self.free += [KeysGuard(d) for d in attributes if type(d) is dict]
        if not self.names.isdisjoint(_ENVIRONMENT):
            self.free.append(EnvironmentGuard(os.environ, "environ"))

    def _visit(self, value: Any, quiet: bool) -> None:
        kind = type(value)  # what an object says that it is (`__class__`) may be anything: a mock of a tensor is none
        if issubclass(kind, SCALARS):
            if kind is str and "{" in value:
                self.names |= fields(value)
            return
        if issubclass(kind, _OPAQUE) or value is ABSENT or id(value) in self._seen or value is os.environ:
            return
        self._seen.add(id(value))
        self._keep.append(value)
        if issubclass(kind, np.ndarray):
            self.free.append(LayoutGuard(value))
            if value.dtype != object:
                self._buffers[id(value)] = value
        elif kind is types.BuiltinFunctionType:
            self.names |= _REFLECTION & {value.__name__}
            self._reach(value.__self__)  # `table.get`; a module in other cases
        elif kind in (attrgetter, methodcaller):
            self.names |= {name for given in value.__reduce__()[1] for name in str(given).split(".")}
        elif issubclass(kind, Tensor):
            self._reach(*(getattr(value._node, "hooks", None) or {}).values())
        elif kind is types.FunctionType:
            self._function(value)
        elif kind is types.MethodType:
            self._reach(value.__self__)
            self._reach(value.__func__, loose=value is not self._root)
        elif issubclass(kind, staticmethod | classmethod):
            self._reach(value.__func__)
        elif issubclass(kind, property):
            self._reach(value.fget, value.fset, value.fdel)
        elif kind is ContextVar:
            self._add(ContextGuard(value, value.name))
        elif issubclass(kind, weakref.ref):
            self._reach(value())
        elif issubclass(kind, functools.partial):
            self._reach(value.func, value.args, value.keywords)
        elif issubclass(kind, dict | list | tuple | deque | set | frozenset):
            self._container(value, quiet)
        elif kind is types.MappingProxyType:
            self._reach(*gc.get_referents(value))  # the mapping that it shows, which nothing else tells
        elif issubclass(kind, types.ModuleType):
            self._module(value)
        elif issubclass(kind, type):
            self._class(value)
        elif hasattr(kind, "digested"):  # an operation of the user's (extend/operation.py)
            self._reach(*value.digested)
        elif callable(value) and hasattr(value, "__wrapped__"):
            self._reach(value.__wrapped__, loose=not is_ours(kind.__module__))
        else:
            self._object(value)

    def _module(self, module: types.ModuleType) -> None:
        name = str(vars(module).get("__name__"))
        if is_fixed(name):
            return
        if is_library(name):
            self._data_only.add(id(vars(module)))
        self._spaces.append((vars(module),))

    def _class(self, cls: type) -> None:
        kind = type(cls)
        spaces = self._class_spaces(cls)
        self._spaces.append((*spaces, *self._class_spaces(kind)))
        if issubclass(kind, abc.ABCMeta):
            self.free.append(RegistryGuard(cls, cls.__name__))

    def _reach(self, *values: Any, loose: bool = True) -> None:
        if loose:
            self._loosen(values)
        self._pending += [(value, False) for value in values]

    def _loosen(self, values: Iterable[Any]) -> None:
        kinds = (types.FunctionType, list, deque)
        self.loose.update(id(v) for v in values if type(v) in kinds or issubclass(type(v), dict))

    def _add(self, guard: Guard, quiet: bool = False) -> None:
        (self.quiet if quiet else self.free).append(guard)
        self._pending.append((guard.value, quiet))

    def _function(self, fn: types.FunctionType) -> None:
        self._reach(getattr(fn, "__wrapped__", None), loose=is_library(fn.__globals__.get("__name__", "")))
        if is_library(fn.__globals__.get("__name__", "")):  # a decorator's: it calls what it was given
            self._reach(*(f for cell in fn.__closure__ or () if callable(f := contents(cell))))
            return
        names = _names(fn.__code__)
        self.names |= names
        self.functions.append(fn)
        self.codes += _nested(fn.__code__)
        self.free += [FunctionGuard(fn, part) for part in FunctionGuard.PARTS]
        self._reach(fn.__defaults__, fn.__kwdefaults__)
        self._spaces.append((vars(fn),))
        self._attributes_of[id(vars(fn))] = vars(fn), frozenset(vars(fn))
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                self._add(CellGuard(cell, name))
            except ValueError:  # not assigned yet
                continue
        for name in _variables(fn.__code__) if names.isdisjoint(_BY_STRING) else names:
            value = fn.__globals__.get(name, ABSENT)
            if value is ABSENT or id(value) in PATCHES or (id(fn.__globals__), name) in self._done:
                continue
            self._done.add((id(fn.__globals__), name))
            self._add(ItemGuard(fn.__globals__, name, value))
        for name in _maybe_missing(fn.__code__):
            if (
                name not in fn.__globals__
                and name not in vars(builtins)
                and (id(fn.__globals__), name) not in self._done
            ):
                self._done.add((id(fn.__globals__), name))
                self.free.append(ItemGuard(fn.__globals__, name, ABSENT))

    def _container(self, value: Any, quiet: bool) -> None:
        guards = self.quiet if quiet else self.free
        mapping = isinstance(value, dict)
        items = list(value.values() if mapping else value)
        if isinstance(value, tuple | set | frozenset):
            self._loosen(items)
            self._pending += [(item, quiet) for item in items]
            if isinstance(value, set) and len(items) <= MOST_COMPARED:
                guards.append(ContentsGuard(value))
            return
        guards.append(KeysGuard(value) if mapping else LengthGuard(value, None, len(items)))
        if len(items) <= _MAX_ITEMS:
            for key, item in value.items() if mapping else enumerate(items):
                if not (quiet and type(key) is Tensor):  # an optimizer fills in the state of a parameter
                    self._add(ItemGuard(value, key, item), quiet)
        elif len(items) <= MOST_COMPARED:
            self._loosen(items)
            guards.append(ContentsGuard(value))
            self._pending += [(item, quiet) for item in items]

    def _object(self, obj: Any) -> None:
        cls = class_of(obj)
        attributes = getattr(obj, "__dict__", None)
        if type(attributes) is dict:
            self.owners[id(attributes)] = obj
        else:
            attributes = {}
        classes = self._class_spaces(cls)
        if says(obj) not in cls.__mro__:  # a proxy
            classes += self._class_spaces(says(obj))
        managed = announced(cls)
        if not is_library_class(type(cls)):
            self._pending.append((cls, False))  # attributes of its class are read by its methods, too
        if may_change(cls):
            (self.free if managed is None else self.quiet).append(ClassGuard(obj, None, cls))
        if managed is not None:
            for name, value in list(attributes.items()):
                self.quiet.append(ItemGuard(attributes, name, value))
                self._pending.append((value, name in managed))
            self.quiet.append(LengthGuard(attributes))
            self._spaces.append(classes)
        elif reads_unseen(cls):
            self._container(attributes, False)
            self._spaces.append(classes)
        else:
            self._spaces.append((attributes, *classes))
            if hasattr(obj, "__dict__"):
                self._attributes_of[id(attributes)] = attributes, frozenset(attributes)
        for name in slots(cls):
            if hasattr(obj, name):
                self._add(AttributeGuard(obj, name))
        if is_buffer(obj):
            self._buffers[id(obj)] = obj

    def _class_spaces(self, cls: type) -> tuple[Mapping[str, Any], ...]:
        spaces: list[Mapping[str, Any]] = []
        for base in cls.__mro__:
            is_closed = is_library_class(base)
            if is_closed and is_fixed(base.__module__):
                continue
            # `vars` makes a new proxy each time: kept, so that it is known by its identity
            space = self._class_vars.get(base)
            if space is None:
                space = self._class_vars[base] = vars(base)
                if is_closed:
                    self._data_only.add(id(space))
                else:
                    self._attributes_of[id(space)] = space, frozenset(space)
                    self.free.append(ResolutionGuard(base))
            spaces.append(space)
        return tuple(spaces)

    def _attributes(self, spaces: tuple[Mapping[str, Any], ...]) -> None:
        """Entries for the attributes that reached code names; one that is found in a class may come to be shadowed."""
        every = not self.names.isdisjoint(_REFLECTION)
        for space in spaces:
            for name in list(space):
                if id(space) in self._data_only:
                    if name not in self.names or not is_data(space[name]):
                        continue
                elif not (name in self.names or every or (name[:2] == "__" and callable(space[name]))):
                    continue
                if name in _CONSTRUCTION or (id(space), name) in self._done:
                    continue
                for other in spaces:
                    if (id(other), name) not in self._done:
                        self._done.add((id(other), name))
                        self._keep.append(other)
                        self._add(ItemGuard(other, name))


_CONSTRUCTION = frozenset(("__init__", "__new__", "__init_subclass__", "__repr__", "__class__", "__weakref__"))


@functools.lru_cache(_MOST_CODES)
def _names(code: types.CodeType) -> frozenset[str]:
    """The names that a code object may look up, nested functions included; a string may be given to `getattr`."""
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= _names(const)
        elif isinstance(const, str):
            names |= {const} if const.isidentifier() else fields(const)
    return frozenset(names)


@functools.lru_cache(_MOST_CODES)
def _variables(code: types.CodeType) -> frozenset[str]:
    """The global variables that a code object names, nested functions included: `T` of ``T``, and not of ``x.T``."""
    found = frozenset[str]().union(*map(_variables, (c for c in code.co_consts if isinstance(c, types.CodeType))))
    places, extended = set(), 0
    for operation, argument in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument |= extended
        extended = argument << 8 if operation == dis.EXTENDED_ARG else 0
        if operation in _OF_VARIABLES:
            places.add(argument >> (operation == _LOAD_GLOBAL))
    return found.union(code.co_names[k] for k in places)


@functools.lru_cache(_MOST_CODES)
def _maybe_missing(code: types.CodeType) -> frozenset[str]:
    """Global variables that code, or code in it, assigns or may do without: one that it can only read is there."""
    found = frozenset[str]().union(*map(_maybe_missing, (c for c in code.co_consts if isinstance(c, types.CodeType))))
    operations = code.co_code[::2]
    catches = bool(code.co_exceptiontable)
    if not catches and dis.opmap["STORE_GLOBAL"] not in operations:
        return found
    wanted = ("STORE_GLOBAL", "LOAD_GLOBAL") if catches else ("STORE_GLOBAL",)
    return found | {i.argval for i in dis.get_instructions(code) if i.opname in wanted}


def fields(text: str) -> set[str]:
    """The names in the fields of a format string: `v` of "{0.v}"."""
    return {name for field in _FIELD.findall(text) for name in _NAME.findall(field)}


def _nested(code: types.CodeType) -> list[types.CodeType]:
    found = [code]
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found += _nested(const)
    return found
