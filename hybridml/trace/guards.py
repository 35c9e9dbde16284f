"""Guards: the Python values a trace has relied on. A call whose guards hold may run the compiled program.

Watched are the globals and closure cells that the function (and the functions it names) reads, the objects among its
arguments, and what hangs on them: attributes, lists and dicts. Everything comes down to entries of dicts and lists.
Entries below a `Module` or `Optimizer` are looked at only when `state.epoch` has moved.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

from ..tensor import Tensor
from . import state

_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_OPAQUE = (Tensor, types.ModuleType, type, types.BuiltinFunctionType, types.FunctionType, types.MethodType)
_MAX_ENTRIES = 20000
_MAX_DEPTH = 12
_MAX_ITEMS = 100  # of a longer list or dict only the length is watched: a check must take microseconds
_MISSING = object()

Entry = tuple[Any, Any, Any]  # (dict or list or cell, key, value seen)


class Watch:
    """What was seen before a trace; `holds()` tells whether it is still so."""

    def __init__(self, fn: Callable[..., Any], objects: Iterable[Any]) -> None:
        self.free: list[Entry] = []  # checked at every call
        self.quiet: list[Entry] = []  # checked when the epoch has moved
        self._seen: set[int] = set()
        self._keep: list[Any] = []
        self._managed = _managed_classes()
        self._follow(fn, set())
        for obj in objects:
            self._value(obj, False, 0)
        self.epoch = state.epoch.value

    def holds(self) -> bool:
        for entry in self.free:
            if not _same(entry):
                return False
        if state.epoch.value != self.epoch:
            for entry in self.quiet:
                if not _same(entry):
                    return False
            self.epoch = state.epoch.value
        return True

    def drop_changed(self) -> list[str]:
        """Stop watching what the function itself has changed while it was traced; the names, for a warning."""
        changed = []
        for entries in (self.free, self.quiet):
            for entry in entries:
                if not _same(entry):
                    changed.append(_describe(entry))
            entries[:] = [e for e in entries if _same(e)]
        self.epoch = state.epoch.value
        return changed

    # -- collecting

    def _code(self, fn: Any, visited: set[int]) -> None:
        """Globals and cells that a Python function reads, through the functions that it names."""
        fn = getattr(fn, "__func__", fn)
        code = getattr(fn, "__code__", None)
        if code is None or id(code) in visited or fn.__globals__.get("__name__", "").split(".")[0] in _OURS:
            return
        visited.add(id(code))
        for value in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            self._value(value, False, 0)
        for cell in fn.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            self.free.append((cell, None, value))
            self._follow(value, visited)
        for name in _names(code):
            value = fn.__globals__.get(name, _MISSING)
            if value is not _MISSING:
                self.free.append((fn.__globals__, name, value))
                self._follow(value, visited)

    def _follow(self, value: Any, visited: set[int]) -> None:
        """What a value that the program may call or read depends on."""
        if isinstance(value, types.FunctionType | types.MethodType):
            if isinstance(value, types.MethodType):
                self._value(value.__self__, False, 0)
            self._code(value, visited)
        elif hasattr(value, "__wrapped__") and callable(value) and not isinstance(value, type):
            self._follow(value.__wrapped__, visited)
        elif isinstance(value, functools.partial):
            self._follow(value.func, visited)
            self._value([value.args, value.keywords], False, 0)
        else:
            self._value(value, False, 0)
            call = type(value).__call__ if callable(value) else None
            if isinstance(call, types.FunctionType):
                self._code(call, visited)

    def _value(self, obj: Any, quiet: bool, depth: int) -> None:
        """Entries of a container or object, to any reasonable depth."""
        if isinstance(obj, _SCALARS) or isinstance(obj, _OPAQUE) or depth > _MAX_DEPTH or id(obj) in self._seen:
            return
        entries = self.quiet if quiet else self.free
        if len(self.free) + len(self.quiet) > _MAX_ENTRIES:
            return
        if isinstance(obj, dict):
            items: Iterable[tuple[Any, Any]] = [(k, v) for k, v in obj.items() if isinstance(k, _SCALARS)]
            container: Any = obj
        elif isinstance(obj, list | tuple):
            items, container = list(enumerate(obj)), obj
        elif type(obj).__module__.split(".")[0] in _FOREIGN or not isinstance(getattr(obj, "__dict__", None), dict):
            return
        else:
            quiet = quiet or isinstance(obj, self._managed)
            container = obj.__dict__
            items = list(container.items())
            entries = self.quiet if quiet else self.free
        if not isinstance(obj, tuple):
            entries.append((container, len, len(container)))
        self._seen.add(id(obj))
        self._keep.append(obj)
        if not quiet and len(container) > _MAX_ITEMS:
            return
        for key, value in items:
            if not isinstance(obj, tuple):
                entries.append((container, key, value))
            self._value(value, quiet, depth + 1)


_OURS = ("hybridml", "hybridml_compiler")
_FOREIGN = (
    "hybridml_compiler",
    "numpy",
    "builtins",
    "threading",
    "_thread",
    "weakref",
    "logging",
    "typing",
    "contextvars",
)


def _managed_classes() -> tuple[type, ...]:
    """Module and Optimizer, which announce assignments; not imported for a program that uses neither."""
    import sys

    found = []
    for module, name in (("hybridml.nn.module", "Module"), ("hybridml.optim.optimizer", "Optimizer")):
        cls = getattr(sys.modules.get(module), name, None)
        if isinstance(cls, type):
            found.append(cls)
    return tuple(found)


def _names(code: types.CodeType) -> set[str]:
    """Global names that a code object may read, nested functions included."""
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= _names(const)
    return names


def _same(entry: Entry) -> bool:
    container, key, value = entry
    if key is len:
        return len(container) == value
    if isinstance(container, dict):
        now = container.get(key, _MISSING)
    elif type(container) is types.CellType:
        try:
            now = container.cell_contents
        except ValueError:
            return False
    else:
        if key >= len(container):
            return False
        now = container[key]
    if now is value:
        return True
    return (
        type(now) is type(value) and isinstance(value, _SCALARS) and (now == value or (now != now and value != value))
    )


def _describe(entry: Entry) -> str:
    container, key, _ = entry
    if type(container) is types.CellType:
        return "a variable of the enclosing function"
    return "the size of a container" if key is len else repr(key)
