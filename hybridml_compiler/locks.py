"""Locks that a forked child finds free, whoever held them in the parent.

`fork` copies a lock as it is, and leaves the thread that held it behind: the child would wait for ever. So locks made
here are made again in the child, but for those that the forking thread itself holds and is going to release. What a
lock guards must therefore be whole, or be made again, at every line (see docs/threads.md).
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any
from weakref import ref

_bootstrap: Any = getattr(importlib, "_bootstrap", None)
# Not a WeakSet: its callback is Python code, and a Ctrl-C that arrives in a callback is lost. `set.discard` is C.
_locks: set[ref[Any]] = set()


def lock() -> threading.Lock:
    """A `threading.Lock` that is free in a forked child."""
    made = threading.Lock()
    _locks.add(ref(made, _locks.discard))
    return made


def rlock() -> threading.RLock:
    """A `threading.RLock` that is free in a forked child, unless the thread that forks holds it."""
    made = threading.RLock()
    _locks.add(ref(made, _locks.discard))
    return made


def _after_fork() -> None:
    for reference in _locks.copy():
        made = reference()
        if made is not None and not getattr(made, "_is_owned", bool)():
            made._at_fork_reinit()
    _import_again()


def _import_again() -> None:
    """Forgets the modules that another thread was importing: Python has a lock for each, which the child would wait for
    for ever. It imports them again."""
    module_locks: dict[str, ref[Any]] = getattr(_bootstrap, "_module_locks", {})
    for name, reference in list(module_locks.items()):
        held = reference()
        owner = getattr(held, "owner", None)
        if owner != threading.get_ident():
            module_locks.pop(name, None)
            if owner is not None:
                sys.modules.pop(name, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
