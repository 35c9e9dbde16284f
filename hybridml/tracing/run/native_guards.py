"""Guards that a native entry checks itself: which of them are places in lists, dicts, cells and other objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..python_state.guard_types import Guard, ItemGuard, LengthGuard

if TYPE_CHECKING:
    from hybridml_compiler.targets.cpu.python_entry.places import Place


def split(guards: Iterable[Guard]) -> tuple[list[Place], list[Guard]]:
    """Two lists: what native code compares by identity, and what is left to `guard_types.hold`."""
    places: list[Place] = []
    rest: list[Guard] = []
    lists: dict[int, list[Guard]] = {}
    for guard in guards:
        if type(guard.container) is list:
            lists.setdefault(id(guard.container), []).append(guard)
        elif (place := guard.native()) is not None:
            places.append(place)
        else:
            rest.append(guard)
    for found in lists.values():
        whole = _whole(found)
        if whole is None:
            rest += found
        else:
            places.append(whole)
    return places, rest


def _whole(guards: list[Guard]) -> Place | None:
    """The one place of a list whose length and items are all guarded, and are there by identity."""
    from hybridml_compiler.targets.cpu.python_entry.places import ListHolds

    items = {guard.key: guard.value for guard in guards if isinstance(guard, ItemGuard) and guard.now() is guard.value}
    size = next((guard.value for guard in guards if isinstance(guard, LengthGuard)), None)
    if size is None or size != len(items):
        return None
    return ListHolds(guards[0].container, tuple(items[k] for k in range(size)))
