"""Tensors that a traced function rebinds: `self.h = self.cell(x, self.h)`, `ema[name] = 0.9 * ema[name] + 0.1 * w`.

The next call finds another tensor there, so that none of them can be a part of the program. Once a trace has shown such
a place, what is in it is an argument of every call, as if it were passed by the name of the place, and what the
function puts there is an effect that calls repeat (see mutations.py). During a trace the stand-in lies in the place
itself, as what the function puts there does, until that is taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hybridml_compiler.record import record

from ...core import pytree
from ...core.tensor import Tensor
from .guard_types import GONE, AttributeGuard, Guard, ItemGuard
from .guards import Watch
from .mutations import Mutation
from .reads import ABSENT
from .recorded import put
from .scalar_source import Slot

MOST = 1024  # places of one function


@record(frozen=False, eq=False)
class Place:
    """A variable, attribute or item that a function rebinds. `guard` stood for its value until that was known."""

    name: str
    guard: Guard
    others: frozenset[int] = frozenset()  # ids of containers that calls change, and so must not find here

    @property
    def slot(self) -> Slot:
        return slot_of(self.guard)

    def now(self) -> Any:
        """The value that is there; ABSENT where there is none."""
        try:
            return self.guard.now()
        except GONE:
            return ABSENT


Places = dict[Slot, Place]


class Rebound:
    """The places that a function rebinds, by the objects among its arguments: a call of a method has those of its own
    instance."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, ...], tuple[list[Any], Places]] = {}  # the objects are kept: their ids stand for them

    def __len__(self) -> int:
        return len(self._of)

    def of(self, objects: list[Any]) -> Places:
        found = self._of.get(tuple(map(id, objects))) if self._of else None
        return {} if found is None else found[1]

    def learn(self, objects: list[Any], watch: Watch, effects: Sequence[Mutation]) -> str:
        """Adds the places that effects have changed, if they all are rebindable: their names; "" otherwise. A call that
        goes on meanwhile has those that it has read."""
        guards = rebindable(watch, effects)
        places = self.of(objects).copy()
        if not guards or len(guards) < len(effects) or len(places) + len(guards) > MOST:
            return ""
        names = ", ".join([_add(places, watch, guard) for guard in guards])
        self._of[tuple(map(id, objects))] = objects, places
        return names

    def clear(self) -> None:
        self._of.clear()


def values(places: Places) -> dict[str, Any]:
    """The present value of each place, by its name."""
    return {place.name: place.now() for place in places.values()}


def rebindable(watch: Watch, effects: Sequence[Mutation]) -> list[Guard]:
    """The guards of the places among those that the effects have changed which had tensors and have others now."""
    slots = {effect.slot for effect in effects if effect.slot is not None and _is_of_tensors(effect.value)}
    return [g for g in watch.moving if _can_be(g) and slot_of(g) in slots and _is_of_tensors(g.value)]


def read_and_rebound(watch: Watch, effects: Sequence[Mutation], reals: Iterable[Any]) -> set[Slot]:
    """The places among those that effects have changed whose tensors are `reals`, inputs of the program."""
    read = set(map(id, reals))
    found = rebindable(watch, effects)
    return {slot_of(g) for g in found if not read.isdisjoint(map(id, pytree.tree_leaves(g.value)))}


def _add(places: Places, watch: Watch, guard: Guard) -> str:
    if (known := places.get(slot_of(guard))) is not None:  # another thread may have been faster
        return known.name
    is_item = isinstance(guard, ItemGuard) and id(guard.owner) not in watch.owners
    is_item = is_item and not watch.are_variables(guard.owner)
    name = f"{watch.name_of(guard.owner)}[{guard.key!r}]" if is_item else str(guard.key)
    if any(place.name == name for place in places.values()):
        name += f" ({len(places)})"
    places[slot_of(guard)] = Place(name, guard)
    return name


def slot_of(guard: Guard) -> Slot:
    return id(guard.owner), guard.key


def _can_be(guard: Guard) -> bool:
    return isinstance(guard, AttributeGuard) or (isinstance(guard, ItemGuard) and isinstance(guard.owner, dict))


def _is_of_tensors(value: Any) -> bool:
    """Whether a value is a tensor, or a container of nothing else."""
    if isinstance(value, Tensor):
        return True
    leaves: list[Any] = []
    is_tree = pytree.is_container(value) and not pytree.is_cyclic(pytree.flatten(value, leaves, {}))
    return is_tree and bool(leaves) and all(isinstance(leaf, Tensor) for leaf in leaves)


def take(watch: Watch, places: Places) -> list[Place]:
    """The places that a watch has found; they are no guards of it any longer."""
    found = [g for g in watch.guards if places and _can_be(g) and slot_of(g) in places]
    taken = set(map(id, found))
    for guards in (watch.free, watch.quiet):
        guards[:] = [guard for guard in guards if id(guard) not in taken]
    watch.moving += found
    return [Place(places[slot_of(g)].name, g) for g in found]


def settle(places: Sequence[Place], effects: Sequence[Mutation]) -> None:
    """Lets calls repeat what the function has put there."""
    slots = {place.slot for place in places}
    for effect in effects:
        effect.repeats = effect.repeats or effect.slot in slots
    for place in places:
        place.others |= {id(effect.container) for effect in effects if effect.container is not None}


def contain(places: Iterable[Place], container: Any) -> bool:
    """Whether a container that a trace has changed is in one of the places, where the trace had a copy of it."""
    return container is not None and any(place.now() is container for place in places)


def are_apart(places: Iterable[Place]) -> bool:
    """Whether none of the places has a container that calls change by another name."""
    for place in places:
        if place.others and id(place.now()) in place.others:
            return False
    return True


@contextmanager
def in_place(places: Sequence[Place], found: Mapping[str, Any], watch: Watch) -> Iterator[None]:
    """A context in which what is `found` by name is in the places; the watch is told what the function puts there."""
    put_there: list[tuple[Place, Any, Any]] = []
    try:
        for place in places:
            was, stand_in = place.now(), found[place.name]
            if was is not stand_in and stand_in is not ABSENT:
                put_there.append((place, was, stand_in))
                put(place.guard, stand_in)
        yield
    finally:
        for place, was, stand_in in put_there:
            if place.now() is stand_in:
                put(place.guard, was)
            else:
                watch.assigned.add(place.slot)
