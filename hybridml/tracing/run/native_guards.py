"""Guards that a native entry checks itself: which of a watch's entries are places in lists, dicts and cells."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..python_state.classes import class_of, resolution
from ..python_state.guards import Entry
from ..python_state.reads import FUNCTION_PARTS, cell_contents, form

if TYPE_CHECKING:
    from hybridml_compiler.runtime.python_entry.places import Place


def split(entries: Iterable[Entry]) -> tuple[list[Place], list[Entry]]:
    """(what native code compares by identity, what is left to `guards.hold`).

    An entry that holds by now only as an equal object is left as well: its identity is known to move.
    """
    from hybridml_compiler.runtime.python_entry.places import (
        ABSENT,
        CellHolds,
        ClassHolds,
        DictSize,
        EntryHolds,
        FormHolds,
        FunctionHolds,
        OrderHolds,
    )

    places: list[Place] = []
    rest: list[Entry] = []
    lists: dict[int, list[Entry]] = {}
    for entry in entries:
        read, key, value = entry
        owner = _owner(entry)
        if read not in (len, form) and read(key) is not value:
            rest.append(entry)
        elif type(owner) is list:
            lists.setdefault(id(owner), []).append(entry)
        elif read is cell_contents:
            places.append(CellHolds(key, value))
        elif read is class_of:
            places.append(ClassHolds(key, value))
        elif read is form and value == form(key):
            places.append(FormHolds(key, value))
        elif read is resolution:
            places.append(OrderHolds(key, value))
        elif read in FUNCTION_PARTS:
            places.append(FunctionHolds(key, FUNCTION_PARTS[read], value))
        elif read is len and type(owner) is dict:
            places.append(DictSize(owner, value))
        elif isinstance(owner, dict) and type(key) is str:
            places.append(EntryHolds(owner, key, dict.get(owner, key, ABSENT)))
        else:
            rest.append(entry)
    for found in lists.values():
        whole = _whole(found)
        if whole is None:
            rest += found
        else:
            places.append(whole)
    return places, rest


def _owner(entry: Entry) -> Any:
    """The list or dict that an entry reads, behind the method that reads it; None for anything else."""
    read, key, _ = entry
    if read is len:
        return _behind(key) if type(key) in (list, dict, types.MappingProxyType) else None
    if type(read) is not types.BuiltinMethodType:
        return None
    owner = read.__self__
    if read.__name__ == "get":
        behind = _behind(owner)
        return behind if isinstance(behind, dict) else None
    return owner if read.__name__ == "__getitem__" and type(owner) is list else None


def _behind(owner: Any) -> Any:
    """The dict of a class is behind a proxy, which refers to nothing else."""
    behind = gc.get_referents(owner) if type(owner) is types.MappingProxyType else [owner]
    return behind[0] if len(behind) == 1 else None


def _whole(entries: list[Entry]) -> Place | None:
    """The one place of a list whose length and items are all watched."""
    from hybridml_compiler.runtime.python_entry.places import ListHolds

    items = {key: value for read, key, value in entries if read is not len}
    size = next((value for read, _, value in entries if read is len), None)
    if size is None or size != len(items):
        return None
    return ListHolds(_owner(entries[0]), tuple(items[k] for k in range(size)))
