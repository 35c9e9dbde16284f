"""Histories of a captured loop: whether it is differentiated, and what its steps write to NumPy's arrays, which have
none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...core.autodiff.tape import boundary, is_node, is_recorded
from ...core.context import grad_is_off
from ...core.tensor import Tensor
from ..capture.subgraphs import leaf_of
from .carries import begins_to_record


def ends_of(
    histories: Iterable[Any], made: Iterable[Any], since: int, inputs: Sequence[Tensor], start: Sequence[Tensor]
) -> list[Any]:
    """The histories from outside to which a gradient of `histories` may flow, through all that the steps have made."""
    known = [h for h in histories if h is not None] + [h for h in made if is_node(h)]
    return [*boundary(known, since, [leaf_of(t) for t in inputs]), *(t._node for t in start)]


def is_differentiated(capture: Any, inputs: Sequence[Tensor], start: Sequence[Tensor]) -> bool:
    """Whether a gradient may be asked of the loop, where it is in no other one: that one knows."""
    ends = ends_of((), capture.histories, capture.since, inputs, start)
    return not (capture.tracer.loops or grad_is_off() or not any(map(is_recorded, ends)))


def check_arrays(capture: Any, inputs: Sequence[Tensor], start: Sequence[Tensor]) -> None:
    """Refuses a loop whose steps write to an array what may be differentiated: step by step it is known, and an error.
    The loop around it is told."""
    if not capture.into_arrays:
        return
    ends = [h for h in ends_of(capture.into_arrays, capture.histories, capture.since, inputs, start) if h is not None]
    if capture.tracer.loops:
        capture.tracer.loops[-1].into_arrays += ends
    elif ends:
        capture.refuse("a NumPy array takes what may be differentiated")


def histories_known(loop: Any) -> bool:
    """Whether what goes on has a history before each step if it has one after some; notes what has."""
    found = set()
    for after, states in ((loop.after, loop.next), *((exit.variables, exit.states) for exit in loop.exits)):
        ends: list[Any] = [*zip(map(id, loop.states), loop.given, states, strict=True)]
        ends += [(name, carry.given, after.get(name)) for name, carry in loop.carries.items()]
        found |= {key for key, given, end in ends if given is not None and begins_to_record(given, end)}
    loop.recorded |= found
    return not found
