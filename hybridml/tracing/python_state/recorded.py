"""Containers that a traced function fills: `log["losses"].append(loss.item())`, `metrics.update(loss=loss.item())`.

What names its code has for such a container says little: it lies in another one. So where a trace has changed one, the
function is traced again with a stand-in in its place, which notes what is done to it, in order. Calls do that to the
container itself. That is right in every call if the function reads nothing of what it changes: a list that is only
appended to, entries that are only assigned. Otherwise it is right for calls that find what this one has found.
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...core.interpreter import interpreter_stack
from ...core.proxies.base import NumberProxy, Proxy, plain_key
from .guard_types import AttributeGuard, ContentsGuard, Guard, ItemGuard
from .guards import Watch

MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
KINDS = (list, deque, *MAPPINGS)
# What changes a container, and of that what reads nothing of it.
_CHANGES = frozenset((
    "append", "appendleft", "clear", "extend", "extendleft", "insert", "pop", "popitem", "popleft", "remove", "reverse",
    "rotate", "setdefault", "sort", "update", "subtract", "move_to_end", "__setitem__", "__delitem__", "__imul__",
))  # fmt: skip
_BLIND = frozenset(("append", "appendleft", "clear", "extend", "extendleft"))
_OF_OBJECTS = frozenset(dir(object)) - {
    "__eq__",
    "__ne__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__repr__",
    "__str__",
}

Done = tuple[str, tuple[Any, ...], dict[str, Any]]  # the method of a change, and its arguments


class Recorder(Proxy):
    """The stand-in of a container: `_container` is a copy of it that is changed, `done` what was done to it."""

    __slots__ = ("_asked", "_container", "_guarded", "_kind", "_written", "before", "done", "is_shared", "of", "reads")

    def __init__(self, of: Any, guarded: Callable[[Any], bool]) -> None:
        self.of, self._kind, self._container = of, type(of), of.copy()
        self.done: list[Done] = []
        self.reads = False  # what it changes
        self.is_shared = False  # with another thread, which has used the container itself
        self.before = ContentsGuard(of)
        self._guarded = guarded  # tells whether a guard of the entry with a key holds what it had
        self._asked: set[Any] = set()
        self._written: set[Any] = set()

    def __copy__(self) -> Any:
        return self._read("copy")()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self.reads = True
        return copy.deepcopy(self._container, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copy.copy, (self._read("copy")(),)

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._kind, name):
            raise AttributeError(f"'{self._kind.__name__}' object has no attribute {name!r}")
        return partial(self._call, name) if callable(getattr(self._kind, name)) else self._read(name)

    def _read(self, name: str) -> Any:
        self.reads = True
        return getattr(self._container, name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a method of the container, which is noted if it changes something."""
        if interpreter_stack() is None:  # another thread, which does not trace
            self.is_shared = True
            return getattr(self.of, name)(*args, **kwargs)
        if name in ("__iadd__", "__ior__"):
            self._call("extend" if name == "__iadd__" else "update", *args)
            return self
        if issubclass(self._kind, dict):
            if name == "update" and self._kind is not Counter:
                for key, value in dict(*args, **kwargs).items():
                    self._call("__setitem__", key, value)
                return None
            if name == "__setitem__":
                self._write(*args)
            elif name == "setdefault" or (name == "__getitem__" and self._kind is defaultdict):
                return self._made(name, *args)
            elif name in ("__getitem__", "__contains__", "get"):
                self._ask(args[0])
            else:
                self.reads = True
        elif name not in _BLIND:
            self.reads = True
        if name in ("extend", "extendleft"):
            args = tuple(map(list, args))
        if name in _CHANGES:
            self.done.append((name, args, kwargs))
        return getattr(self._container, name)(*args, **kwargs)

    def _made(self, name: str, key: Any, *value: Any) -> Any:
        """The entry of a key, which is made if there is none."""
        self._ask(key)
        is_new = key not in self._container
        found = getattr(self._container, name)(key, *value)
        if is_new:
            self.done.append(("__setitem__", (key, found), {}))
        return found

    def _write(self, key: Any, value: Any) -> None:
        key = plain_key(key)
        self.reads = self.reads or key in self._asked
        self._written.add(key)

    def _ask(self, key: Any) -> None:
        """Notes that an entry is read: what was there before is guarded, and must not be changed then."""
        key = plain_key(key)
        if key in self._written:
            return
        if key not in self.of:
            self.reads = True
        elif not issubclass(type(dict.get(self.of, key)), NumberProxy):  # that is updated
            self._asked.add(key)
            self.reads = self.reads or not self._guarded(key)

    @property
    def adds_keys(self) -> bool:
        """Whether it has entries that were not there."""
        return issubclass(self._kind, dict) and not self.of.keys() >= self._container.keys()

    def repeat(self, done: Iterable[Done]) -> None:
        """Repeats on the container what was done to the stand-in."""
        for name, args, kwargs in done:
            getattr(self.of, name)(*args, **kwargs)


def _recorder(kind: type) -> type[Recorder]:
    """The stand-ins of a kind of container, with its special methods."""
    special = [
        name for name in dir(kind) if name[:2] == "__" and name not in _OF_OBJECTS and callable(getattr(kind, name))
    ]

    def method(name: str) -> Callable[..., Any]:
        return lambda self, *args: self._call(name, *args)

    left = {"__class_getitem__", "__missing__", "__copy__", "__deepcopy__", "__reduce__"}
    found: dict[str, Any] = {name: method(name) for name in special if name not in left}
    return type("Recorder", (Recorder,), {**found, "__slots__": (), "__hash__": None})


_STAND_INS = {kind: _recorder(kind) for kind in KINDS}


def recordable(watch: Watch, containers: Iterable[Any]) -> list[Any]:
    """Returns the containers that a stand-in can take the place of, wherever code finds them."""
    return [
        c for c in containers
        if type(c) in KINDS and id(c) not in watch.loose and (found := _references(watch, c))
        and all(isinstance(g, AttributeGuard) or type(g.owner) in KINDS for g in found)
    ]  # fmt: skip


def _references(watch: Watch, container: Any) -> list[Guard]:
    """The guards of what holds a container."""
    guards = (*watch.guards, *watch.moving)
    return [g for g in guards if isinstance(g, ItemGuard | AttributeGuard) and g.value is container]


@contextmanager
def recording(containers: Sequence[Any], watch: Watch) -> Iterator[list[Recorder]]:
    """A context in which stand-ins are where the function finds the containers; they are given."""
    recorders: list[tuple[Recorder, list[Guard]]] = []
    try:
        for c in _innermost_first(containers):  # the copy of what holds others has their stand-ins
            keys = {g.key for g in watch.guards if isinstance(g, ItemGuard) and g.owner is c}
            recorder, references = _STAND_INS[type(c)](c, keys.__contains__), _references(watch, c)
            recorders.append((recorder, references))
            for guard in references:
                put(guard, recorder)
        yield [recorder for recorder, _ in recorders]
    finally:
        for recorder, references in recorders:
            for guard in references:
                if _now(guard) is recorder:
                    put(guard, recorder.of)


def _innermost_first(containers: Sequence[Any]) -> list[Any]:
    found: list[Any] = []

    def visit(c: Any) -> None:
        if any(c is other for other in found):
            return
        inside = list(c.values() if isinstance(c, dict) else c)
        for other in containers:
            if other is not c and any(other is item for item in inside):
                visit(other)
        found.append(c)

    for c in containers:
        visit(c)
    return found


def items_of(container: Any) -> Iterable[tuple[Any, Any]]:
    """The keys and values of a dict, or those of a list with their places."""
    kind = type(container)
    return dict.items(container) if kind in MAPPINGS else enumerate(container) if kind is list else ()


def put(guard: Guard, value: Any) -> None:
    """Puts a value where a guard reads it."""
    if isinstance(guard, AttributeGuard):
        guard.put(value)
    else:
        guard.owner[guard.key] = value


def _now(guard: Guard) -> Any:
    try:
        return guard.now()
    except (AttributeError, IndexError, KeyError, ValueError):
        return None
