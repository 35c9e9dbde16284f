"""The programs of a traced function by the signatures of its calls: which of them may take one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from hybridml_compiler.config import is_deterministic

from ..core import pytree
from ..core.context import stance
from .python_state.promoted_ints import Integers
from .python_state.rebound import Rebound
from .run.backend import Backend
from .run.compiled_path import Leaves
from .specialize.call_leaves import of_call
from .specialize.entry import Entry
from .specialize.often import Often
from .specialize.signature import Fields, Signature
from .specialize.symbolic_shapes import MOST_KNOWN, Families


class Lookup:
    """Part of `TracedFunction`."""

    _backend: Backend
    _silent: bool
    _most: int
    _families: Families | None  # of programs for any size
    _integers: Integers
    _rebound: Rebound
    _lock: AbstractContextManager[Any]

    def _begin_lookup(self) -> None:
        self._entries: dict[Fields, list[Entry]] = {}  # by their signature
        self._often = Often()

    def _given(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Leaves, pytree.Structure, Fields, Fields, list[Any]]:
        """Leaves of a call, with what is in the places that the function rebinds; its signature, the one by which its
        programs are known, and the objects that count by identity."""
        leaves, structure, given, objects = of_call(args, kwargs, self._rebound, self._lock)
        return leaves, structure, *self._key(given, leaves), objects

    def _key(self, given: Fields, leaves: Leaves) -> tuple[Fields, Fields]:
        """The signature of a call, and the one by which its programs are known. Ints become positions where no program
        is for their value."""
        key = self._integers.key(given)
        if key in self._entries:
            return given, key
        given = self._integers.placed(given, leaves)
        return given, self._integers.key(given)

    def _other_sizes(self, key: Fields) -> list[Entry]:
        """The entry with symbolic sizes that takes a new signature, or None."""
        if self._families is None or key in self._often:
            return []
        entry = self._families.entry(Signature.of(key))
        if entry is None:
            return []
        if len(self._entries) < MOST_KNOWN:
            self._entries.setdefault(key, []).append(entry)
        return [entry]

    def _called(self, entry: Entry, key: Fields, seconds: float) -> None:
        """Notes a call of a program for any size; such calls have their own from now on, if they come often."""
        if type(self._families) is not Families or self._backend.name == "interpret":
            return
        if self._silent or is_deterministic() or stance() is not None:
            return
        path = entry.last
        first = seconds if path is None else path.first_ms * 1e-3
        if not self._often.called(key, seconds, first):
            return
        with self._lock:
            if self._programs() < self._most:
                self._often.add(key)
                self._entries[key] = [e for e in self._entries.get(key, ()) if e is not entry]
                if not self._entries[key]:
                    del self._entries[key]

    def _programs(self) -> int:
        entries = {id(entry): entry for entries in list(self._entries.values()) for entry in entries}
        return sum(max(len(entry.paths), 1) for entry in entries.values())
