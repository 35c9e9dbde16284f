"""Loops that are not parted where conditions on their numbers turn: these are decided in each step, as others are by
data."""

from __future__ import annotations

from typing import Any

from ...specialize.errors import ASKS


def is_whole(tracer: Any, place: Any) -> bool:
    """Whether a loop, or one around it, was found to have steps by themselves that ask about data."""
    around = (loop.place for loop in tracer.loops)
    return any(ASKS in tracer.alone.get(at, ()) for at in (place, *around))
