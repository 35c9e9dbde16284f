"""What a function does to Python while it is traced: variables it assigns, containers it changes.

A trace runs Python once and a compiled call does not, so each such effect is found (what was watched before the trace
is looked at again), taken back, and done by every call with the values of that call: `losses.append(loss.item())`
appends in compiled calls, too. That is right where nothing in the function depends on what it changes: a list that its
code only appends to, a name that its code only assigns. Of any other effect the call that was traced is right, and
later ones run eagerly, which is said with the line. `strict=True` makes an effect an error.
"""

from __future__ import annotations

import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from hybridml_compiler.errors import describe_line

from ...core import pytree
from ...core.proxies.integer import plain
from ...core.proxies.scalar import known
from ...core.tensor import Tensor
from .bytecode import instructions
from .classes import class_of
from .guards import Entry, Watch, holder
from .reads import checksum, elements, environment, form, put_bytes, put_form
from .side_effects import SideEffects, Undone

_ABSENT = object()
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)
_APPENDS = frozenset(("append", "extend"))
_CHANGES = _APPENDS | {
    "add", "appendleft", "clear", "discard", "extendleft", "insert", "pop", "popitem", "popleft", "remove", "reverse",
    "rotate", "setdefault", "sort", "update",
}  # fmt: skip


@dataclass(eq=False)
class Mutation:
    """One change: `put` makes it, `take_back` undoes what the trace did (None where it cannot be)."""

    name: str
    where: str  # the user's line, or ""
    value: Any  # what the traced call puts, in terms of the trace
    put: Callable[[Any], None]
    take_back: Callable[[], None] | None
    repeats: bool  # compiled calls can do it
    array: np.ndarray | None = None  # whose elements it writes

    def __str__(self) -> str:
        return f"{self.name} ({self.where})" if self.where else self.name


def find(watch: Watch, hidden: SideEffects | Undone) -> list[Mutation]:
    """The effects since the watch began. What they change is no longer a guard."""
    return [
        *(Mutation(what, where or _line(watch, what), None, _nothing, None, False) for what, where in hidden.found),
        *effects_of(watch),
    ]


def effects_of(watch: Watch) -> list[Mutation]:
    """Those that the watch itself shows."""
    changed = watch.end()
    found: list[Mutation] = []
    for owner, entries in _by_holder(changed):
        if type(owner) in (list, deque, set):
            found.append(_container(watch, owner, entries))
        elif isinstance(owner, dict | types.MappingProxyType):
            found += [_item(watch, owner, key, value) for read, key, value in entries if read is not len]
            known = watch.keys_of(owner)
            if any(read is len for read, _, _ in entries):
                new = [key for key in owner if key not in known]
                # Python itself gives a class `__annotations__` and the like
                own = [key for key in new if isinstance(owner, dict) or key[:2] != "__"]
                found += [_item(watch, owner, key, _ABSENT) for key in own]
        else:
            found += [_other(watch, *entry) for entry in entries]
    return found


def _nothing(value: Any) -> None:
    pass


def name_in(watch: Watch) -> Callable[[Any], str]:
    """How code names what it reaches."""

    def name_of(obj: Any) -> str:
        if obj is random._inst:
            return "random"
        if obj is np.random.mtrand._rand:
            return "np.random"
        entries = (*watch.free, *watch.quiet)
        return next((label(watch, r, k) for r, k, v in entries if v is obj), f"a {type(obj).__name__}")

    return name_of


def _by_holder(entries: Iterable[Entry]) -> Iterable[tuple[Any, list[Entry]]]:
    groups: dict[int, tuple[Any, list[Entry]]] = {}
    for entry in entries:
        owner = holder(entry)
        groups.setdefault(id(owner), (owner, []))[1].append(entry)
    return groups.values()


def _slot(
    watch: Watch, name: str, value: Any, put: Callable[[Any], None], take_back: Callable[[], None] | None
) -> Mutation:
    """A name that is assigned: repeated where all that the code does with it is that."""
    found = list(uses(watch.codes, name))
    only_stored = bool(found) and all(use.kind == "store" for use in found)
    repeats = only_stored and not watch.reflects() and is_plain(value)
    return Mutation(name, _line(watch, name), value, put, take_back, repeats)


def _item(watch: Watch, owner: dict[Any, Any] | types.MappingProxyType[str, Any], key: Any, was: Any) -> Mutation:
    """An entry of a dict: a global variable, an attribute (of a class, too), or a key."""

    real = known(plain(key))  # a number of the trace: its value is known since it has been hashed

    def put(value: Any) -> None:
        if isinstance(owner, dict):
            owner[real] = value
        else:
            type.__setattr__(watch.class_of(owner), key, value)

    def drop(_: Any = None) -> None:
        if isinstance(owner, dict):
            owner.pop(real, None)
        elif key in owner:
            type.__delattr__(watch.class_of(owner), key)

    def take_back() -> None:
        if was is _ABSENT or watch.was_absent(owner, key):
            drop()
        else:
            put(was)

    if key in owner:
        return _slot(watch, str(key), owner[key], put, take_back)
    return Mutation(str(key), _line(watch, str(key)), None, drop, take_back, False)


def _other(watch: Watch, read: Callable[[Any], Any], key: Any, was: Any) -> Mutation:
    """A closure cell, an attribute in a slot; or what can only be named (the environment)."""
    if isinstance(key, types.CellType):
        name = watch.cells.get(id(key), "a variable of the enclosing function")
        return _slot(watch, name, key.cell_contents, *_attribute(key, "cell_contents", was))
    if isinstance(read, attrgetter):
        name = read.__reduce__()[1][0]
        return _slot(watch, name, read(key), *_attribute(key, name, was))
    if read is form:
        name, now = name_in(watch)(key), form(key)
        return Mutation(name, _line(watch, name), None, lambda _: put_form(key, now), lambda: put_form(key, was), False)
    if read is class_of:
        return _slot(watch, "__class__", class_of(key), *_attribute(key, "__class__", was))
    if read is elements:
        return _array(watch, key, was)
    name = "environ" if read is environment else name_in(watch)(key) if read is checksum else str(key)
    return Mutation(name, _line(watch, name), None, _nothing, None, False)


def _attribute(obj: Any, name: str, was: Any) -> tuple[Callable[[Any], None], Callable[[], None]]:
    return lambda value: setattr(obj, name, value), lambda: setattr(obj, name, was)


def _container(watch: Watch, c: Any, changed: list[Entry]) -> Mutation:
    """A list that has grown at its end is repeated where the code does nothing else with it."""
    name = next((label(watch, r, k) for r, k, v in (*watch.free, *watch.quiet) if v is c), "a container")
    was = next((v for read, _, v in changed if read is len), None)
    if type(c) is not list or was is None or len(c) <= was or len(changed) > 1:

        def put(values: Any) -> None:
            c.clear()
            (c.update if isinstance(c, set) else c.extend)(values)

        before = watch.items_of(c)
        return Mutation(name, _line(watch, name), list(c), put, lambda: put(before), False)
    found = list(uses(watch.codes, name))
    only_grows = bool(found) and all(use.kind == "append" for use in found)
    added = c[was:]

    def take_back() -> None:
        del c[was:]

    return Mutation(name, _line(watch, name), added, c.extend, take_back, only_grows and is_plain(added))


def _array(watch: Watch, array: Any, was: bytes) -> Mutation:
    """Bytes of an array or a buffer that Python or NumPy has written."""
    name, now = name_in(watch)(array), elements(array)
    return Mutation(
        name, _line(watch, name), None, lambda _: put_bytes(array, now), lambda: put_bytes(array, was), False,
        array=array if isinstance(array, np.ndarray) else None,
    )  # fmt: skip


def label(watch: Watch, read: Any, key: Any) -> str:
    if isinstance(key, types.CellType):
        return watch.cells.get(id(key), "a variable of the enclosing function")
    return read.__reduce__()[1][0] if isinstance(read, attrgetter) else str(key)


def is_plain(value: Any) -> bool:
    """Whether each call can make such a value anew: containers of numbers, strings and tensors."""
    leaves: list[Any] = []
    return not pytree.is_cyclic(pytree.flatten(value, leaves, {})) and all(
        isinstance(leaf, (*PLAIN, Tensor)) for leaf in leaves
    )


# -- names and lines, found in the bytecode of what the watch has reached


@dataclass(frozen=True)
class Use:
    kind: str  # "load", "store", "append", "change"
    where: str


def uses(codes: Iterable[types.CodeType], name: str) -> Iterator[Use]:
    """Where code of the function names a variable or attribute, and what it does with it."""
    for code in codes:
        line = code.co_firstlineno
        found = list(instructions(code))
        for k, i in enumerate(found):
            if i.positions is not None and i.positions.lineno is not None:
                line = i.positions.lineno
            if i.argval != name or i.opname in ("LOAD_CONST", "LOAD_CLOSURE", "MAKE_CELL", "KW_NAMES"):
                continue
            if i.opname.startswith(("STORE_", "DELETE_")):
                yield Use("store", describe_line(code.co_filename, line))
            elif i.opname.startswith("LOAD_"):
                after = found[k + 1] if k + 1 < len(found) else None
                method = after.argval if after is not None and after.opname in ("LOAD_METHOD", "LOAD_ATTR") else None
                kind = "append" if method in _APPENDS else "change" if method in _CHANGES else "load"
                yield Use(kind, describe_line(code.co_filename, line))


def _line(watch: Watch, name: str) -> str:
    """The line that changes what has this name, or at least reads it."""
    found = sorted(uses(watch.codes, name), key=lambda use: use.kind == "load")
    return found[0].where if found else ""
