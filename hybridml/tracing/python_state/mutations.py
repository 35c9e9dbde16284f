"""Effects of a function on Python while it is traced: variables it assigns, containers it changes.

A trace runs Python once and a compiled call does not, so each such effect is found (what was watched before the trace
is looked at again), taken back, and done by every call with the values of that call: `losses.append(loss.item())`
appends in compiled calls, too. That is right where nothing in the function depends on what it changes: a list that its
code only appends to, a name that its code only assigns. Of any other effect the call that was traced is right, and
later ones run eagerly, which is said with the line. `strict=True` makes an effect an error.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import is_not
from typing import Any

import numpy as np

from hybridml_compiler.errors import describe_line
from hybridml_compiler.record import record, replace

from ...core import pytree
from ...core.proxies.base import plain_key
from ...core.tensor import Tensor
from ..bytecode import instructions
from .classes import announced, class_of
from .guard_types import (
    AttributeGuard,
    ContentsGuard,
    ElementsGuard,
    Guard,
    ItemGuard,
    KeysGuard,
    LayoutGuard,
    LengthGuard,
)
from .guards import Watch
from .mutation_epoch import attributes_changed
from .reads import ABSENT, put_keys
from .recorded import Recorder
from .scalar_source import Slot
from .side_effects import SideEffects, Undone

_FLAGS = (bool, type(None), str)
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)
_APPENDS = frozenset(("append", "extend"))
_CHANGES = _APPENDS | {
    "add", "appendleft", "clear", "discard", "extendleft", "insert", "pop", "popitem", "popleft", "remove", "reverse",
    "rotate", "setdefault", "sort", "update",
}  # fmt: skip


@record(frozen=False, eq=False)
class Mutation:
    """One change: `put` makes it, `take_back` undoes what the trace did (None where it cannot be)."""

    name: str
    where: str  # the user's line, or ""
    value: Any  # what the traced call puts, in terms of the trace
    put: Callable[[Any], None]
    take_back: Callable[[], None] | None
    repeats: bool  # compiled calls can do it
    slot: Slot | None = None  # that is assigned
    array: np.ndarray | None = None  # whose elements it writes
    container: Any = None  # that it changes, if it is one
    before: Sequence[Guard] = ()  # guards of what it has found, where a call that finds it again can do it

    def __str__(self) -> str:
        return f"{self.name} ({self.where})" if self.where else self.name


def find(watch: Watch, hidden: SideEffects | Undone) -> list[Mutation]:
    """The effects since the watch began. What they change is no longer a guard."""
    return [
        *(Mutation(what, where or _line(watch, what), None, _nothing, None, False) for what, where in hidden.found),
        *effects_of(watch),
    ]


def effects_of(watch: Watch) -> list[Mutation]:
    """The mutations that the watch itself shows."""
    changed = watch.end()
    found: list[Mutation] = []
    for owner, guards in _by_container(changed):
        if type(owner) in (list, deque, set):
            found.append(_container(watch, owner, guards))
        elif isinstance(owner, dict | types.MappingProxyType):
            found += _entries(watch, owner, guards)
        else:
            found += [_other(watch, guard) for guard in guards]
    return found


def _nothing(value: Any) -> None:
    pass


def _by_container(guards: Iterable[Guard]) -> Iterable[tuple[Any, list[Guard]]]:
    groups: dict[int, tuple[Any, list[Guard]]] = {}
    for guard in guards:
        groups.setdefault(id(guard.container), (guard.container, []))[1].append(guard)
    return groups.values()


def _assigned(
    watch: Watch, name: str, slot: Slot, value: Any, put: Callable[[Any], None], take_back: Callable[[], None] | None,
    before: Sequence[Guard], container: str = "",
) -> Mutation:  # fmt: skip
    """The assignment of a name, or of an item of a container, repeated by calls where the code does nothing else with
    it."""
    found = list(uses(watch.codes, container or name))
    only_stored = bool(found) and all(use.kind == ("item" if container else "store") for use in found)
    repeats = only_stored and not watch.reflects() and is_plain(value)
    where = found[0].where if container and found else _line(watch, name)
    return Mutation(name, where, value, put, take_back, repeats, slot, before=before)


def _entries(
    watch: Watch, owner: dict[Any, Any] | types.MappingProxyType[str, Any], guards: list[Guard]
) -> Iterator[Mutation]:
    """Mutations of a dict: entries that differ, are new or gone; for a long one without saying which."""
    whole = next((guard for guard in guards if isinstance(guard, ContentsGuard)), None)
    if whole is not None:
        yield _whole(watch, watch.name_of(owner), whole)
        return
    yield from (_item(watch, owner, guard.key, guard.value, guard) for guard in guards if isinstance(guard, ItemGuard))
    lengths = [guard for guard in guards if isinstance(guard, LengthGuard)]
    if lengths:
        known = watch.keys_of(owner)
        for key in list(owner):
            # Python itself gives a class `__annotations__` and the like
            if key not in known and (isinstance(owner, dict) or key[:2] != "__"):
                yield _item(watch, owner, key, ABSENT, *lengths)
    for guard in guards:
        if isinstance(guard, KeysGuard):
            yield from _order(watch, owner, guard)


def _item(
    watch: Watch, owner: dict[Any, Any] | types.MappingProxyType[str, Any], key: Any, was: Any, *before: Guard
) -> Mutation:
    """Mutation of a dict's entry: a global variable, an attribute (of a class, too), or a key."""

    real = plain_key(key)  # a number of the trace: its value is known since it has been hashed
    is_announced = id(owner) in watch.owners and announced(class_of(watch.owners[id(owner)])) is not None

    def put(value: Any) -> None:
        if isinstance(owner, dict):
            if is_announced and type(value) in _FLAGS and dict.get(owner, real, ABSENT) is not value:
                attributes_changed()
            owner[real] = value
        else:
            type.__setattr__(watch.class_of(owner), key, value)

    def drop(_: Any = None) -> None:
        if isinstance(owner, dict):
            owner.pop(real, None)
        elif key in owner:
            type.__delattr__(watch.class_of(owner), key)

    def take_back() -> None:
        if was is ABSENT:
            drop()
        else:
            put(was)

    if key in owner:
        is_item = isinstance(owner, dict) and id(owner) not in watch.owners and not watch.are_variables(owner)
        container = watch.name_of(owner) if is_item else ""
        item = owner if is_item else None
        before = before if was is ABSENT or was is None or _comes_again(watch, owner[key]) else ()
        found = _assigned(watch, str(key), (id(owner), real), owner[key], put, take_back, before, container)
        return replace(found, container=item)
    return Mutation(str(key), _line(watch, str(key)), None, drop, take_back, False)


def _order(watch: Watch, owner: Any, guard: KeysGuard) -> Iterator[Mutation]:
    """Mutation of the order of the keys that a dict still has."""
    was, now = ([plain_key(key) for key in keys] for keys in (guard.value, guard.now()))
    before, after = set(was), set(now)
    if any(map(is_not, filter(after.__contains__, was), filter(before.__contains__, now))):
        name, take_back = watch.name_of(owner), partial(put_keys, owner, was)
        yield Mutation(name, _line(watch, name), None, lambda _: put_keys(owner, now), take_back, False)


def _other(watch: Watch, guard: Guard) -> Mutation:
    """Mutation of a closure cell, a slot's attribute, an array, or state that can only be named (the environment)."""
    if isinstance(guard, AttributeGuard):
        now, take_back = guard.renewed(), partial(guard.put, guard.assigned)
        if now is None:
            return Mutation(guard.name, _line(watch, guard.name), None, lambda _: guard.drop(), take_back, False)
        before = [guard] if guard.value is None or _comes_again(watch, now.assigned) else ()
        return _assigned(watch, guard.name, (id(guard.owner), guard.key), now.assigned, guard.put, take_back, before)
    name = watch.name_of(guard.owner) if isinstance(guard, ElementsGuard | LayoutGuard) else guard.name
    return _whole(watch, name, guard)


def _whole(watch: Watch, name: str, guard: Guard) -> Mutation:
    """Mutation of an array's bytes or form, or of a long dict; one that cannot be undone is only named."""
    if not guard.can_put:
        return Mutation(name, _line(watch, name), None, _nothing, None, False)
    array = guard.owner if isinstance(guard, ElementsGuard) and isinstance(guard.owner, np.ndarray) else None
    take_back = partial(guard.put, guard.value)
    return Mutation(name, _line(watch, name), guard.now(), guard.put, take_back, False, array=array)


def _container(watch: Watch, c: Any, changed: list[Guard]) -> Mutation:
    """Mutation of a list, deque or set: growth of a list is repeated where the code does nothing else with it."""
    name = watch.name_of(c)
    was = next((guard.value for guard in changed if isinstance(guard, LengthGuard)), None)
    if type(c) is not list or was is None or len(c) <= was or len(changed) > 1:

        def put(values: Any) -> None:
            c.clear()
            (c.update if isinstance(c, set) else c.extend)(values)

        before = watch.items_of(c)
        return Mutation(name, _line(watch, name), list(c), put, lambda: put(before), False, container=c)
    found = list(uses(watch.codes, name))
    only_grows = bool(found) and all(use.kind == "append" for use in found)
    added = c[was:]

    def take_back() -> None:
        del c[was:]

    repeats = only_grows and is_plain(added)
    return Mutation(name, _line(watch, name), added, c.extend, take_back, repeats, container=c)


def of_recorder(watch: Watch, recorder: Recorder) -> Mutation:
    """The mutation of a container in whose place a trace has had a stand-in (see recorded.py)."""
    name, done = watch.name_of(recorder.of), recorder.done
    before = (recorder.before,) if recorder.adds_keys else ()
    repeats = not recorder.reads and is_plain(done)
    return Mutation(
        name, _line(watch, name), done, recorder.repeat, None, repeats, before=before, container=recorder.of
    )  # fmt: skip


def _comes_again(watch: Watch, value: Any) -> bool:
    """Whether an assigned value is one of a few that code has, such as a mode, where a count is another each time."""
    if type(value) is str:
        return any(type(const) is str and const == value for code in watch.codes for const in code.co_consts)
    return type(value) in _FLAGS


def is_plain(value: Any) -> bool:
    """Whether each call can make such a value again: containers of numbers, strings and tensors."""
    leaves: list[Any] = []
    return not pytree.is_cyclic(pytree.flatten(value, leaves, {})) and all(
        isinstance(leaf, (*PLAIN, Tensor)) for leaf in leaves
    )


# -- names and lines, found in the bytecode of what the watch has reached


@record
class Use:
    kind: str  # "load", "store", "append", "change", "item" (one is assigned)
    where: str


def uses(codes: Iterable[types.CodeType], name: str) -> Iterator[Use]:
    """Yields each use of a variable or attribute in the function's code: the kind of use, and its line."""
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
                if [i.opname.partition("_")[0] for i in found[k + 1 : k + 3]] == ["LOAD", "STORE"]:
                    kind = "item" if found[k + 2].opname == "STORE_SUBSCR" else kind
                yield Use(kind, describe_line(code.co_filename, line))


def only_kept(watch: Watch, code: types.CodeType, name: str) -> bool:
    """Whether a variable or attribute of code that was reached is only assigned, appended to, or has items assigned."""
    found = {use.kind for use in uses(watch.codes, name)}
    return code in watch.codes and found <= {"store", "append", "item"} and not watch.reflects()


def _line(watch: Watch, name: str) -> str:
    """The line that changes what has this name, or at least reads it."""
    found = sorted(uses(watch.codes, name), key=lambda use: use.kind == "load")
    return found[0].where if found else ""
