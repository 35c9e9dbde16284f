"""Tables that let their objects die, without Python code that runs when they do.

The callbacks of `WeakValueDictionary` and `WeakSet` are Python functions. A signal is handled at the first instruction
of the next one: where that is a callback, its KeyboardInterrupt is printed and lost. Objects of the compiler die by
the thousand, so Ctrl-C was lost there now and then.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar
from weakref import ref

from .locks import rlock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_FEW = 1024  # entries that are not worth a look


class WeakValues(Generic[K, V]):
    """Objects by key. Entries of dead objects are dropped when the table has doubled since the last look.

    >>> table = WeakValues()
    >>> table.add("k", one := {1}) is one, table.add("k", {2}) is one
    (True, True)
    >>> del one
    >>> table.get("k")
    """

    def __init__(self) -> None:
        self._references: dict[K, ref[V]] = {}
        self._most = _FEW
        self._replacing = rlock()  # held while entries of dead objects are dropped, or get another object

    def get(self, key: K) -> V | None:
        """The object under a key, None where there is none or it has died."""
        found = self._references.get(key)
        return None if found is None else found()

    def add(self, key: K, value: V) -> V:
        """The object under the key: the one that is there, else `value` from now on."""
        reference = ref(value)
        found = self._references.setdefault(key, reference)()
        if found is None:
            with self._replacing:
                found = self._references.setdefault(key, reference)()
                if found is None:
                    self._references[key], found = reference, value
        if len(self._references) > self._most:
            with self._replacing:
                self._drop_dead()
        return found

    def values(self) -> list[V]:
        """The objects that are alive, in the order in which they came."""
        return [value for reference in self._references.copy().values() if (value := reference()) is not None]

    def _drop_dead(self) -> None:
        for key, reference in self._references.copy().items():
            if reference() is None:
                self._references.pop(key, None)
        self._most = 2 * len(self._references) + _FEW


class WeakMembers(Generic[V]):
    """A set of objects, whose classes must compare them by identity.

    >>> class C: pass
    >>> members, one = WeakMembers(), C()
    >>> members.add(one)
    >>> one in members, C() in members, len(list(members))
    (True, False, 1)
    """

    def __init__(self) -> None:
        self._references: set[ref[Any]] = set()

    def add(self, member: V) -> None:
        self._references.add(ref(member, self._references.discard))

    def __contains__(self, member: V) -> bool:
        return ref(member) in self._references

    def __iter__(self) -> Iterator[V]:
        for reference in self._references.copy():
            member = reference()
            if member is not None:
                yield member
