"""Numbers in dicts, lists and tuples as inputs: `CONFIG["rate"]` with another value is no other program.

Nothing can stand between a container and its readers, so while a function is traced it gets a *copy* in which stand-ins
lie, where all ways to the container are known: variables that the copies of its readers read, attributes, other
containers. The container itself is not touched. A trace that writes into a copy, or keeps or returns one, is refused:
then the numbers are themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .guard_types import Guard
from .guards import Watch
from .scalar_source import ScalarSource, Ways


class Containers:
    """The containers that a watch has reached. `slot`: variable or attribute of a guard, None where not captured."""

    def __init__(self, watch: Watch, slot: Callable[[Guard], ScalarSource | None]) -> None:
        self._slot, self._loose = slot, watch.loose
        self._found: dict[int, Ways | None] = {}
        self._references: dict[int, list[Guard]] = {}
        for guard in watch.guards:
            if type(guard.value) in (dict, list):
                self._references.setdefault(id(guard.value), []).append(guard)

    def ways(self, guard: Guard) -> Ways | None:
        """The ways to what a guard reads; None where there may be others."""
        owner = guard.container
        if not self.has(owner):
            slot = self._slot(guard)
            return None if slot is None else Ways([slot])
        ways = self.to(owner)
        return None if ways is None else Ways(ways.slots, [*ways.links, (owner, guard.key, guard.value)])

    def has(self, owner: Any) -> bool:
        """Whether an object is a container to which something leads, and not a dict of variables or attributes."""
        return type(owner) in (dict, list) and id(owner) in self._references

    def to(self, container: Any) -> Ways | None:
        """All ways by which a program reaches a container."""
        if id(container) in self._found:
            return self._found[id(container)]
        self._found[id(container)] = None  # of one that contains itself
        found = [] if id(container) in self._loose else list(map(self.ways, self._references[id(container)]))
        known = [ways for ways in found if ways is not None]
        if known and len(known) == len(found):
            self._found[id(container)] = Ways(
                [slot for ways in known for slot in ways.slots], [link for ways in known for link in ways.links]
            )
        return self._found[id(container)]


class Copies:
    """Copies of containers, with stand-ins in them, for one trace."""

    def __init__(self, proxies: Iterable[tuple[ScalarSource, Any]]) -> None:
        self._numbers: dict[int, dict[Any, Any]] = {}
        self._inside: dict[int, dict[Any, Any]] = {}
        self._made: dict[int, Any] = {}
        self._slots: list[ScalarSource] = []
        for scalar, number in proxies:
            assert scalar.ways is not None
            self._numbers.setdefault(id(scalar.container), {})[scalar.key] = number
            for owner, key, child in scalar.ways.links:
                self._inside.setdefault(id(owner), {})[key] = child
            self._slots += scalar.ways.slots
        self.shown = [(slot, self._of(slot.guard.value)) for slot in self._slots]
        self._held = [(c, _items(c)) for c in self._made.values() if type(c) is not tuple]
        self._counts: list[int] = []

    def _of(self, container: Any) -> Any:
        made = self._made.get(id(container))
        if made is None:
            numbers = self._numbers.get(id(container), {})
            if type(container) is tuple:
                made = tuple(numbers.get(k, item) for k, item in enumerate(container))
            else:
                made = container.copy()
                for key, number in numbers.items():
                    made[key] = number
                for key, child in self._inside.get(id(container), {}).items():
                    made[key] = self._of(child)
            self._made[id(container)] = made
        return made

    def begin(self) -> None:
        """Notes the copies' reference counts, before the function runs."""
        self._counts = self._references()

    def are_untouched(self) -> bool:
        """Whether the function has written to none, and holds none any longer."""
        if any(now > was for now, was in zip(self._references(), self._counts, strict=True)):
            return False
        return all(_are_same(_items(c), was) for c, was in self._held)

    def _references(self) -> list[int]:
        return [sys.getrefcount(c) for c, _ in self._held]


def _items(container: Any) -> Sequence[Any]:
    return [part for item in container.items() for part in item] if type(container) is dict else list(container)


def _are_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
