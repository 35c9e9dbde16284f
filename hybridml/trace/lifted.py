"""Numbers from around a traced function, lifted: a float in a global variable or a closure cell is an input of the
program, so that another value is no other program, as with a float argument.

What the trace runs is a copy of the function, over a copy of its global variables and cells in which the numbers stand
(no bytecode is read or written; other threads see nothing of it). So a number is lifted only where the function itself
is all that reads it and nothing assigns it; any other stays a guarded value. So does a number of which the program asks
the value, or takes a power by: that is another program for each value.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

from .capture import Tracer
from .effects import uses
from .guards import Entry, Watch, holder


@dataclass(eq=False)
class Place:
    """Where a lifted float lives. `guard` is its entry among the guards, taken from there while it is lifted."""

    name: str
    cell: types.CellType | None  # None: a global variable
    guard: Entry
    index: int = -1

    def read(self) -> Any:
        read, key, _ = self.guard
        try:
            return read(key)
        except ValueError:  # an empty cell
            return None


def places(fn: Any, watch: Watch) -> list[Place]:
    """What can be lifted, taken from the guards."""
    function = fn.__func__ if isinstance(fn, types.MethodType) else fn
    if not isinstance(function, types.FunctionType) or watch.reflects() or "globals" in watch.names:
        return []
    if any(value is function and not _is_method(fn, watch, e) for e in (*watch.free, *watch.quiet) for value in e[2:]):
        return []  # it may call itself, by another way
    closure = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    cells = {id(cell): name for name, cell in closure}
    found = []
    for entry in watch.free:
        _, key, value = entry
        if type(value) is not float:
            continue
        if isinstance(key, types.CellType):
            if id(key) in cells and sum(key in (f.__closure__ or ()) for f in watch.functions) == 1:
                found.append(Place(cells[id(key)], key, entry))
        elif holder(entry) is function.__globals__ and not any(
            f is not function and key in watch.names_of(f) for f in watch.functions
        ):
            found.append(Place(key, None, entry))
    found = [p for p in found if not any(use.kind == "store" for use in uses(watch.codes, p.name))]
    for k, place in enumerate(found):
        place.index = k
    guards = {id(place.guard) for place in found}
    watch.free = [entry for entry in watch.free if id(entry) not in guards]
    return found


def _is_method(fn: Any, watch: Watch, entry: Entry) -> bool:
    """Whether an entry is the class of a method, of which nothing calls the method but the trace."""
    return (
        isinstance(fn, types.MethodType)
        and type(holder(entry)) is types.MappingProxyType
        and watch.count(type(fn.__self__)) == 1
        and not any(True for _ in uses(watch.codes, fn.__name__))
    )


def over(fn: Any, lifted: list[tuple[Place, Any]]) -> Any:
    """A copy of the function that reads `lifted` in their places."""
    if not lifted:
        return fn
    if isinstance(fn, types.MethodType):
        return types.MethodType(over(fn.__func__, lifted), fn.__self__)
    names = {place.name: value for place, value in lifted if place.cell is None}
    cells = {id(place.cell): value for place, value in lifted if place.cell is not None}
    closure = tuple(types.CellType(cells[id(c)]) if id(c) in cells else c for c in fn.__closure__ or ())
    variables = {**fn.__globals__, **names} if names else fn.__globals__
    copy = types.FunctionType(fn.__code__, variables, fn.__name__, fn.__defaults__, closure or None)
    copy.__kwdefaults__, copy.__qualname__, copy.__module__ = fn.__kwdefaults__, fn.__qualname__, fn.__module__
    copy.__dict__.update(fn.__dict__)
    return copy


def lift(tracer: Tracer, found: list[Place]) -> list[tuple[Place, Any]]:
    """The number that stands for each place in this trace."""
    return [(p, tracer.lift_float("place", p.index, p.read(), p.name, p.read)) for p in found]


def settle(found: list[Place], tracer: Tracer, used: set[int], watch: Watch) -> list[Place]:
    """The places that stay lifted: those that the program computes with, if it never looked at them. `used`: their
    indices. The others are guarded."""
    keep = [p for p in found if p.index in used and p.index not in tracer.looked_at]
    for p in found:
        if p not in keep:
            read, key, _ = p.guard
            watch.free.append((read, key, p.read()))
    return keep
