"""Captured scalars, numbers from around a traced function: a float in a global variable or a closure cell is an input
of the program, so that another value is no other program, as with a float argument. An int, and any number in an
attribute, is one from its second value on (see promoted_ints.py): most never change, and native code guards a hundred
of them in 0.3 us, where reading as many takes 6. A number of which the program asks the value is guarded: another
program for each value.

*Variables.* What the trace runs are copies of the functions that read the number, over copies of their global variables
and cells in which a stand-in lies. So a number is captured only where every way to its readers is known to lead to the
copies: by global names and cells, not by containers, defaults or methods; nothing may assign global variables.

*Attributes.* For the time of the trace the class of the object is a subclass of its own, whose `__getattribute__` gives
the stand-in, and only to the tracer that is in force (a context variable: no other thread has it) for this object and
name. The object's `__dict__` is not touched, nor its class, so all others read what they always do; what could notice
is `type(obj) is C` in another thread, and what reads a `__dict__` (`copy`, `vars`, `asdict`): code that names one of
these captures no attribute. Numbers in dicts, lists and tuples: see captured_containers.py.
"""

from __future__ import annotations

import abc
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

from hybridml_compiler.in_force import Changes

from ..bytecode import instructions
from ..capture.tracer import Tracer, current_tracer
from .captured_containers import Containers, Copies
from .classes import class_of
from .guard_types import CellGuard, Guard, ItemGuard, TupleItemGuard, TupleRestGuard
from .guards import Watch
from .libraries import is_library_class
from .mutations import Mutation, is_plain, uses
from .promoted_ints import Integers
from .scalar_source import ScalarSource
from .updated_scalars import updated_scalars

# Code that says one of these may read an attribute past the class of its object, or look at the class itself.
_PAST_THE_CLASS = frozenset(
    ("type", "copy", "deepcopy", "asdict", "astuple", "replace", "dumps", "pickle", "setattr", "state_dict")
)


def scalar_sources(fn: Any, watch: Watch, seen: Integers | None) -> list[ScalarSource]:
    """The numbers that can be captured, taken from the guards. `seen`: values of numbers in earlier programs; None to
    capture nothing but floats in variables.
    """
    if watch.reflects() or "globals" in watch.names:
        return []
    kinds = (float,) if seen is None else (float, int, tuple)
    moving = [] if seen is None else updated_scalars(watch, seen)
    candidates = [g for g in watch.guards if isinstance(g, ItemGuard | CellGuard) and type(g.value) in kinds]
    if not candidates:
        return _numbered(moving)
    stored = _stored(watch)
    leads = _Leads(fn, watch)

    def slot(guard: Guard) -> ScalarSource | None:
        """The variable or attribute that a guard reads, if a trace can be given something else there."""
        name = guard.key
        if not isinstance(guard, ItemGuard | CellGuard) or type(name) is not str or not name or name in stored:
            return None
        scalar = ScalarSource(name, guard, type(guard.value))
        if isinstance(guard, CellGuard):
            scalar.cell = guard.owner
        if scalar.cell is not None or leads.are_variables(guard.owner):
            return scalar if leads.to(scalar) else None
        scalar.obj = watch.owners.get(id(guard.owner)) if seen is not None else None
        return scalar if scalar.obj is not None and _is_attribute(scalar, watch) else None

    containers = Containers(watch, slot)
    found: list[ScalarSource] = []
    for guard in candidates:
        for scalar in _items(guard, containers, slot) if seen is not None else filter(None, [slot(guard)]):
            if seen is not None and seen.is_fixed(scalar.holder, scalar.name):
                continue
            if not scalar.is_new or (seen is not None and seen.other(scalar.holder, scalar.name, scalar.guard.value)):
                found.append(scalar)
    _take(found, watch)
    return _numbered([*found, *moving])


def _numbered(found: list[ScalarSource]) -> list[ScalarSource]:
    for k, scalar in enumerate(found):
        scalar.index = k
    return found


def _items(
    guard: Guard, containers: Containers, slot: Callable[[Guard], ScalarSource | None]
) -> Iterator[ScalarSource]:
    """The numbers that a guard reads: one, or those in a tuple."""
    owner, key, value = guard.container, guard.key, guard.value
    if type(value) is not tuple and not containers.has(owner):
        scalar = slot(guard)
        if scalar is not None:
            yield scalar
        return
    if type(value) is tuple and not any(type(item) in (float, int) for item in value):
        return
    ways = containers.to(owner) if type(value) is not tuple else containers.ways(guard)
    if ways is None:
        return
    name = "".join([ways.slots[0].name, *(f"[{k!r}]" for _, k, _ in ways.links)])
    if type(value) is not tuple:
        yield ScalarSource(f"{name}[{key!r}]", guard, type(value), container=owner, key=key, ways=ways)
        return
    for k, item in enumerate(value):
        if type(item) in (float, int):
            yield ScalarSource(
                f"{name}[{k}]", TupleItemGuard(guard, k, item), type(item), container=value, key=k, ways=ways,
                owner=ways.slots[0].holder if not containers.has(owner) else owner,
            )  # fmt: skip


def _take(found: Sequence[ScalarSource], watch: Watch) -> None:
    """Takes captured scalars out of the guards; of a tuple the other items stay."""
    indices: dict[int, set[int]] = {}
    for scalar in found:
        if isinstance(scalar.guard, TupleItemGuard):
            indices.setdefault(id(scalar.container), set()).add(scalar.key)
    taken = {id(scalar.guard) for scalar in found}
    for guards in (watch.free, watch.quiet):
        guards[:] = [
            TupleRestGuard(guard, frozenset(indices[id(guard.value)])) if id(guard.value) in indices else guard
            for guard in guards
            if id(guard) not in taken
        ]


def _stored(watch: Watch) -> set[str]:
    """Names that reached code assigns."""
    return {i.argval for code in watch.codes for i in instructions(code) if i.opname.startswith(("STORE_", "DELETE_"))}


class _Leads:
    """The callers and variables by which code reaches the functions of a watch."""

    def __init__(self, fn: Any, watch: Watch) -> None:
        self.watch = watch
        self.variables = {id(f.__globals__) for f in watch.functions}
        modules = {id(vars(m)) for m in watch.reached() if isinstance(m, types.ModuleType)}
        self.assigned = {
            id(f.__globals__) for f in watch.functions for code in _codes(f.__code__)
            for i in instructions(code) if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
        } | modules  # fmt: skip
        self.loose = set(watch.loose)
        self.callers: dict[int, list[types.FunctionType]] = {}
        root = getattr(fn, "__func__", fn)
        known = {id(f) for f in watch.functions}
        for guard in watch.guards:
            if id(guard.value) not in known or (guard.value is root and _is_method(fn, watch, guard)):
                continue
            if isinstance(guard, CellGuard) or self.are_variables(guard.container):
                readers = self._readers(guard)
                if readers is not None:
                    self.callers.setdefault(id(guard.value), []).extend(readers)
                    continue
            self.loose.add(id(guard.value))
        if id(root) not in known:
            self.loose.update(known)

    def are_variables(self, owner: Any) -> bool:
        """Whether a dict has the global variables of a function."""
        return type(owner) is dict and id(owner) in self.variables

    def _readers(self, variable: Guard) -> list[types.FunctionType] | None:
        """The functions that read a variable; None where others may read it as well."""
        owner = variable.owner
        if isinstance(variable, CellGuard):
            # by identity: `in` compares what the cells hold, which may be arrays
            return [f for f in self.watch.functions if any(cell is owner for cell in f.__closure__ or ())]
        found = [f for f in self.watch.functions if variable.key in self.watch.names_of(f)]
        return None if id(owner) in self.assigned or any(f.__globals__ is not owner for f in found) else found

    def to(self, scalar: ScalarSource) -> bool:
        """Whether all ways to the readers of a variable are known; they are noted then."""
        pending = self._readers(scalar.guard)
        if not pending:
            return False
        met = {id(f): f for f in pending}
        while pending:
            f = pending.pop()
            if id(f) in self.loose or id(f.__globals__) in self.assigned:
                return False
            for caller in self.callers.get(id(f), ()):
                if id(caller) not in met:
                    met[id(caller)] = caller
                    pending.append(caller)
        scalar.readers = list(met.values())
        return True


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


def _is_method(fn: Any, watch: Watch, guard: Guard) -> bool:
    """Whether a guard reads the class of a method, of which nothing calls the method but the trace."""
    return (
        isinstance(fn, types.MethodType)
        and type(guard.container) is types.MappingProxyType
        and watch.count(type(fn.__self__)) == 1
        and not any(True for _ in uses(watch.codes, fn.__name__))
    )


def over(fn: Any, proxies: Sequence[tuple[ScalarSource, Any]], watch: Watch, copies: dict[int, Any]) -> Any:
    """A copy of the function that reads the `proxies` of scalars; `copies` takes those of all functions, by id."""
    functions = {id(f): f for scalar, _ in proxies for f in scalar.readers}
    if not functions:
        return fn
    spaces = {id(f.__globals__): dict(f.__globals__) for f in functions.values()}
    cells: dict[int, types.CellType] = {}
    for scalar, number in proxies:
        if scalar.cell is not None:
            cells[id(scalar.cell)] = types.CellType(number)
        elif scalar.obj is None:
            spaces[id(scalar.holder)][scalar.name] = number
    references = [guard for guard in watch.guards if id(guard.value) in functions]
    for guard in references:
        if isinstance(guard, CellGuard):
            cells[id(guard.owner)] = types.CellType()
    for i, f in functions.items():
        copies[i] = _copy(f, spaces[id(f.__globals__)], cells)
    for guard in references:
        if isinstance(guard, CellGuard):
            cells[id(guard.owner)].cell_contents = copies[id(guard.value)]
        elif id(guard.container) in spaces:
            spaces[id(guard.container)][guard.key] = copies[id(guard.value)]
    if isinstance(fn, types.MethodType):
        return types.MethodType(copies.get(id(fn.__func__), fn.__func__), fn.__self__)
    return copies.get(id(fn), fn)


def _copy(f: types.FunctionType, variables: dict[str, Any], cells: dict[int, types.CellType]) -> types.FunctionType:
    closure = tuple(cells.get(id(c), c) for c in f.__closure__ or ())
    copy = types.FunctionType(f.__code__, variables, f.__name__, f.__defaults__, closure or None)
    copy.__kwdefaults__, copy.__qualname__, copy.__module__ = f.__kwdefaults__, f.__qualname__, f.__module__
    copy.__dict__.update(f.__dict__)
    return copy


Lifted = list[tuple[ScalarSource, Any]]


def lift(tracer: Tracer, found: list[ScalarSource]) -> tuple[Lifted, Copies, Lifted]:
    """The stand-in of each variable and attribute in this trace: a number, or a copy of a container with numbers; and
    those of updated numbers."""
    make = {float: tracer.lift_float, int: tracer.lift_integer}
    proxies = [(p, make[p.kind]("scalar", p.index, p.read(), p.name, p)) for p in found]
    copies = Copies([(p, number) for p, number in proxies if p.ways is not None])
    fixed = [(p, number) for p, number in proxies if p.ways is None and not p.updated]
    return fixed + copies.shown, copies, [(p, number) for p, number in proxies if p.updated]


def settle(
    found: list[ScalarSource], tracer: Tracer, used: set[int], watch: Watch, effects: Sequence[Mutation]
) -> list[ScalarSource]:
    """The scalars that stay captured: those that the program computes with, if it never looked at them. `used`: their
    indices. The others are guarded. Calls repeat what the function assigns to those that stay."""
    looked_at = {i.index for i in tracer.inputs if i.kind == "scalar" and i.node in tracer.looked_at}
    keep = [p for p in found if (p.updated or p.index in used) and p.index not in looked_at]
    slots = {p.slot for p in keep if p.updated}
    for effect in effects:
        effect.repeats = effect.repeats or (effect.slot in slots and is_plain(effect.value))
    assigned = {effect.slot for effect in effects}
    for p in found:
        if p not in keep and not (p.updated and p.slot in assigned):
            watch.free.append(type(p.guard)(p.guard.owner, p.guard.key, p.read()))
    return keep


# -- attributes


def _is_attribute(scalar: ScalarSource, watch: Watch) -> bool:
    """Whether an entry is an attribute that code reads by way of the object's class, and only so."""
    cls = class_of(scalar.obj)
    if scalar.name not in watch.names or not _PAST_THE_CLASS.isdisjoint(watch.names) or is_library_class(cls):
        return False
    if type(cls) not in (type, abc.ABCMeta) or any("__init_subclass__" in vars(base) for base in cls.__mro__[:-1]):
        return False
    values = [vars(base)[scalar.name] for base in cls.__mro__ if scalar.name in vars(base)]
    return not any(hasattr(type(value), "__get__") for value in values)


@lru_cache(maxsize=256)
def _seeing(cls: type) -> type:
    """A subclass in which a tracer sees the proxies of captured scalars."""

    inherited: Any = cls.__getattribute__

    def read(self: Any, name: str) -> Any:
        tracer = current_tracer()
        if tracer is not None:
            found = tracer.attributes.get((id(self), name))
            if found is not None:
                return found
        return inherited(self, name)

    own = {"__slots__": (), "__getattribute__": read, "__class__": property(lambda self: cls), "_seen_as": cls}
    seeing = type(cls)(cls.__name__, (cls,), {**own, "__module__": "hybridml", "__qualname__": cls.__qualname__})
    return seeing


_set_class = vars(object)["__class__"].__set__
_changes = Changes()


@contextmanager
def seen_in(tracer: Tracer, proxies: Sequence[tuple[ScalarSource, Any]]) -> Iterator[None]:
    """A context in which the captured scalars of a traced function are seen as attributes."""
    objects = {id(scalar.obj): scalar.obj for scalar, _ in proxies if scalar.obj is not None}
    if not objects:
        yield
        return
    tracer.attributes = {(id(p.obj), p.name): number for p, number in proxies if p.obj is not None}
    try:
        with _changes.hold({i: partial(_show, obj) for i, obj in objects.items()}):
            yield
    finally:
        tracer.attributes = {}


def _show(obj: Any) -> Callable[[], object]:
    """Lets traces see the captured attributes of an object."""
    cls: Any = type(obj)
    _set_class(obj, _seeing(cls))
    return partial(_set_class, obj, cls)
