"""Changes to the process that are in force while some thread needs them: a patched name, a setting of LLVM."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .locks import rlock


class _Change(NamedTuple):
    undo: Callable[[], object]  # twice is as once
    holders: list[_Holder]


class _Holder:
    """Someone who has asked for changes, by thread."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()


class Changes:
    """Changes by key. The first thread that asks for one makes it, the last one that is done with it takes it back; in
    a forked child those that only other threads had asked for are taken back at once.

    >>> seen = []
    >>> changes = Changes()
    >>> with changes.hold({"k": lambda: seen.append("on") or (lambda: seen.append("off"))}):
    ...     with changes.hold({"k": lambda: seen.append("again") or (lambda: None)}):
    ...         print(seen)
    ['on']
    >>> seen
    ['on', 'off']
    """

    def __init__(self) -> None:
        self._lock = rlock()
        self._made: dict[Hashable, _Change] = {}
        _all.append(self)

    @contextmanager
    def hold(self, wanted: dict[Hashable, Callable[[], Callable[[], object] | None]]) -> Iterator[None]:
        """Changes that are in force inside: each a function that makes it and returns the one that undoes it, or
        returns None for one that is not to be made."""
        holder = _Holder()
        try:
            with self._lock:
                for key, make in wanted.items():
                    if key not in self._made:
                        undo = make()
                        if undo is None:
                            continue
                        self._made[key] = _Change(undo, [])
                    self._made[key].holders.append(holder)
            yield
        finally:
            _to_the_end(lambda: self._release(holder, wanted))

    def _release(self, holder: _Holder, keys: Iterable[Hashable]) -> None:
        with self._lock:
            for key in keys:
                if key in self._made and holder in self._made[key].holders:
                    self._made[key].holders.remove(holder)
            self._end(keys)

    def _end(self, keys: Iterable[Hashable]) -> None:
        """Take back those that nobody holds."""
        for key in keys:
            if key in self._made and not self._made[key].holders:
                self._made[key].undo()
                del self._made[key]

    def after_fork(self) -> None:
        """Forget the threads that stayed in the parent."""
        for change in self._made.values():
            change.holders[:] = [who for who in change.holders if who.thread == threading.get_ident()]
        self._end(list(self._made))


def _to_the_end(step: Callable[[], object]) -> None:
    """Runs a step whole, from the start again after an interrupt, which is raised when it is done."""
    try:
        step()
    except KeyboardInterrupt:
        _to_the_end(step)
        raise


_all: list[Changes] = []


def _after_fork() -> None:
    for changes in _all:
        changes.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
