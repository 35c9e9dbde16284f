"""Numbers that a traced function updates: `self.n += 1`, `total += loss.item()`, `log["steps"] += 1`.

Each is an input of the program from the first trace on, since the next call finds another value, and what the function
assigns is an effect that every call repeats (see mutations.py). During the trace the stand-in lies in the variable,
attribute or item itself, as what the function assigns does, until it is taken back. A number at which the trace looks
steers Python, another way in each call: those calls run eagerly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...core.proxies.integer import LARGEST
from ..bytecode import instructions
from .guard_types import AttributeGuard, CellGuard, Guard, ItemGuard
from .guards import Watch
from .promoted_ints import Integers
from .recorded import MAPPINGS
from .scalar_source import ScalarSource


class _Assigned:
    """The names that reached code assigns, by what has them, and the constants with which it may assign items."""

    def __init__(self, watch: Watch) -> None:
        self.names: dict[str, set[Any]] = {"STORE_ATTR": set(), "STORE_DEREF": set(), "STORE_GLOBAL": set()}
        self.keys: set[Any] = set()
        for code in watch.codes:
            found = list(instructions(code))
            for i in found:
                if i.opname in self.names:
                    self.names[i.opname].add(i.argval)
            if any(i.opname == "STORE_SUBSCR" for i in found):
                self.keys.update(const for const in code.co_consts if type(const) in (str, int))


def updated_scalars(watch: Watch, seen: Integers) -> list[ScalarSource]:
    """The numbers that code may update, taken from the guards."""
    assigned = _Assigned(watch)
    variables = {id(f.__globals__) for f in watch.functions}
    changing = {
        id(g.owner) for g in watch.guards
        if isinstance(g, ItemGuard) and type(g.owner) in MAPPINGS and g.key in assigned.keys
    } - variables - watch.owners.keys()  # fmt: skip

    def may_change(guard: Guard) -> bool:
        if isinstance(guard, CellGuard):
            return guard.key in assigned.names["STORE_DEREF"]
        assigns: Any = type(guard.owner).__setattr__
        if type(guard) is AttributeGuard and assigns is not object.__setattr__:
            return False  # a frozen dataclass, or one that does more
        if type(guard) is AttributeGuard or id(guard.owner) in watch.owners:
            return guard.key in assigned.names["STORE_ATTR"]
        if id(guard.owner) in variables:
            return guard.key in assigned.names["STORE_GLOBAL"]
        return id(guard.owner) in changing

    found: list[ScalarSource] = []
    for guard in watch.guards:
        value = guard.value
        if type(value) is not float and (type(value) is not int or abs(value) > LARGEST):
            continue
        if not isinstance(guard, ItemGuard | CellGuard) and type(guard) is not AttributeGuard:
            continue
        scalar = ScalarSource(str(guard.key), guard, type(value), updated=True)
        if may_change(guard) and not seen.is_fixed(scalar.holder, scalar.name):
            found.append(scalar)
    taken = {id(scalar.guard) for scalar in found}
    for guards in (watch.free, watch.quiet):
        guards[:] = [guard for guard in guards if id(guard) not in taken]
    watch.moving += [scalar.guard for scalar in found]
    return found


@contextmanager
def placed(proxies: Sequence[tuple[ScalarSource, Any]], watch: Watch) -> Iterator[None]:
    """A context in which the stand-ins of updated numbers are where the function reads and assigns them; the watch is
    told what it has assigned."""
    try:
        for scalar, number in proxies:
            scalar.value = scalar.read()
            scalar.put(number)  # may fail: a class can refuse assignments
        yield
    finally:
        for scalar, number in proxies:
            value, scalar.value = scalar.value, None
            if scalar.read() is not number:
                watch.assigned.add(scalar.slot)
            elif value is not None:
                scalar.put(value)
