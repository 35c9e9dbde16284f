"""Owners of a traced value that outlived its trace: found by asking the garbage collector what refers to it."""

from __future__ import annotations

import gc
import types
from typing import Any

_DEPTH = 4  # containers between the value and what has a name
_WIDE = 50  # more referrers than that are not looked through


def held_by(value: Any) -> str:
    """The owner: `attribute 'cache' of a Model`, `item 0 of the list 'seen'`; empty where local variables alone are."""
    return _path(value, _DEPTH, {id(value)})


def _path(value: Any, depth: int, seen: set[int]) -> str:
    referrers = gc.get_referrers(value)
    if depth == 0 or len(referrers) > _WIDE:
        return ""
    seen.add(id(referrers))
    for holder in referrers:
        if id(holder) in seen or isinstance(holder, types.FrameType):
            continue
        seen.add(id(holder))
        found = _describe(value, holder, depth, seen)
        if found:
            return found
    return ""


def _describe(value: Any, holder: Any, depth: int, seen: set[int]) -> str:
    if isinstance(holder, types.CellType):
        return "a variable of an enclosing function"
    if isinstance(holder, dict):
        key = next((k for k, v in holder.items() if v is value), None)
        if key is None:
            return ""
        if "__name__" in holder and "__builtins__" in holder:
            return f"the global variable {key!r} of {holder['__name__']}"
        for owner in gc.get_referrers(holder):
            if getattr(owner, "__dict__", None) is holder:
                return f"attribute {key!r} of a {type(owner).__name__}"
        return _further(f"key {key!r} of a dict", holder, depth, seen)
    if isinstance(holder, list | tuple):
        k = next((k for k, v in enumerate(holder) if v is value), None)
        return "" if k is None else _further(f"item {k} of a {type(holder).__name__}", holder, depth, seen)
    if type(holder).__module__ == "builtins":
        return ""  # an iterator, a frame: it will be gone
    name = next((n for n in dir(holder) if not n.startswith("__") and _slot(holder, n) is value), None)
    if name is not None:
        return f"attribute {name!r} of a {type(holder).__name__}"
    return _further(f"a {type(holder).__name__}", holder, depth, seen)


def _slot(holder: Any, name: str) -> Any:
    try:
        return object.__getattribute__(holder, name)
    except Exception:
        return None


def _further(text: str, holder: Any, depth: int, seen: set[int]) -> str:
    outer = _path(holder, depth - 1, seen)
    if outer:
        return f"{text}, which is {outer}"
    return "" if type(holder) is tuple else text  # arguments of a call are a tuple
