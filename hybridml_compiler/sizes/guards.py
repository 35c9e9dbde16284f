"""Guards: conditions that a program with symbolic sizes relies on; made by the decisions of dims.py."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Literal

from ..errors import user_location
from ..record import record
from .atoms import Symbol
from .collector import collector, structurally
from .dims import LEAST, Dim, Size, bounds, number, steps_of, symbols_of


@record
class Guard:
    """A condition for a program to be right: `left relation right`, and the user's line that asked."""

    left: Size
    relation: Literal["==", "!=", "<", ">="]
    right: Size
    where: str = ""
    asked: bool = False  # for a number, which every size would have to give; else two sizes met by chance

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"

    @property
    def fixes(self) -> set[Symbol]:
        """The symbols that it leaves one value."""
        return symbols_of(self.left, self.right) if self.relation == "==" and type(self.right) is not Dim else set()


@record(frozen=False)
class Guards:
    """The conditions that the making of a program has relied on."""

    # By the terms of the difference that it is about: to compare Dims would be a question, and -1 and -2 have one hash.
    found: dict[tuple[Any, str, int], Guard] = field(default_factory=dict)

    def least_of(self, size: Dim) -> int | None:
        """Lower bound of a size by a guard on it, or on it plus a constant."""
        if not self.found:
            return None
        rest, constant = _apart(size)
        low = self.found.get((rest.terms, "low", 0))
        return None if low is None else _offset(low, rest) + constant

    def equality(self, difference: Dim) -> bool | None:
        for size in (difference, -difference):
            assert type(size) is Dim
            rest, constant = _apart(size)
            if (rest.terms, "==", -constant) in self.found:
                return True
            if (rest.terms, "!=", -constant) in self.found:
                return False
        return None

    def add(self, left: Size, relation: Any, right: Size, asked: bool = False) -> None:
        guard = Guard(left, relation, right, user_location(), asked)
        difference = guard.left - guard.right
        assert type(difference) is Dim
        if guard.relation in ("==", "!="):
            rest, constant = _apart(difference)
            self.found.setdefault((rest.terms, guard.relation, -constant), guard)
            return
        # a - b >= 0, or b - a >= 1
        size = difference if guard.relation == ">=" else -difference
        assert type(size) is Dim
        rest, constant = _apart(size)
        old = self.found.get((rest.terms, "low", 0))
        if old is None or _offset(guard, rest) > _offset(old, rest):
            self.found[rest.terms, "low", 0] = guard

    def copy(self) -> Guards:
        return Guards(self.found.copy())

    def since(self, before: Guards) -> list[Guard]:
        """The guards that an earlier copy of this collection does not have."""
        return [guard for key, guard in self.found.items() if before.found.get(key) is not guard]

    @property
    def list(self) -> list[Guard]:
        return [*self.found.values()]


def _apart(size: Dim) -> tuple[Dim, int]:
    """(the polynomial without its constant, the constant)."""
    constant = dict(size.terms).get((), 0)
    rest = size - constant
    assert type(rest) is Dim
    return rest, constant


def _offset(guard: Guard, rest: Dim) -> int:
    """k where the guard says `rest >= k`."""
    if guard.relation == ">=":
        return -(operator.index(_constant(guard.left - guard.right - rest)))
    return 1 - operator.index(_constant(guard.right - guard.left - rest))


def _constant(size: Size) -> int:
    assert type(size) is not Dim
    return operator.index(size)


@contextmanager
def collecting(guards: Guards | None) -> Iterator[None]:
    """Decisions inside become guards of this collection; without one, all is decided by form."""
    token, mode = collector.set(guards), structurally.set(guards is None)
    try:
        yield
    finally:
        collector.reset(token)
        structurally.reset(mode)


@contextmanager
def structural(on: bool = True) -> Iterator[None]:
    """Context in which sizes are equal if it follows from their form, and unequal if not: for code whose answer to
    unequal sizes is right for any."""
    mode = structurally.set(on)
    try:
        yield
    finally:
        structurally.reset(mode)


def known(size: Size) -> Size:
    """A size of a result: 0 or 1 if it is, else a Dim that is at least 2; which of the three is a guard."""
    if type(size) is not Dim:
        return size
    low = bounds(size)
    if (low is not None and low >= LEAST) or steps_of(size):
        return size
    return size if size >= LEAST else number(size, asked=False)
