"""The leaves of a call: its arguments, and what is in the places that the function rebinds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ...core import pytree
from ..python_state.rebound import Rebound, values
from ..run.compiled_path import Leaves
from .signature import Fields, signature


def of_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], rebound: Rebound, lock: AbstractContextManager[Any]
) -> tuple[Leaves, pytree.Structure, Fields, list[Any]]:
    """Leaves of a call, with what is in the places that the function rebinds; their structure and signature, and the
    objects that count by identity."""
    leaves = Leaves()
    leaves.given = args, kwargs
    met: pytree.Met = {}
    structure = pytree.flatten(leaves.given, leaves, met)
    given, objects = signature(structure, leaves)
    leaves.objects, leaves.places = objects, rebound.of(objects)
    if leaves.places:
        with lock:  # a trace of another thread has stand-ins there
            found = values(leaves.places)
        leaves.given = args, kwargs, found
        structure = structure._replace(children=(*structure.children, pytree.flatten(found, leaves, met)))
        given, objects = signature(structure, leaves)
    return leaves, structure, given, objects


def are_plain(leaves: Leaves) -> bool:
    """Whether each argument of a call by position is one leaf, and what is in each place, too."""
    args, _, *found = leaves.given
    values = (*args, *(found[0].values() if found else ()))
    return len(values) == len(leaves) and all(a is b for a, b in zip(values, leaves, strict=True))


def with_places(call: Callable[..., Any], leaves: Leaves) -> Callable[..., Any]:
    """A native call of plain leaves that is given the arguments alone."""
    if not leaves.places:
        return call
    reads = [place.now for place in leaves.places.values()]

    def direct(*args: Any, **names: Any) -> Any:
        return call(*args, *[read() for read in reads], **names)

    return direct
