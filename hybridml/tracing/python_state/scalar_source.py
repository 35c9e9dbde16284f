"""Source of a captured Python number, and the ways by which a program reaches the container that it is in."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from hybridml_compiler.record import record

from ...core.proxies.integer import LARGEST
from .guard_types import AttributeGuard, Guard

Slot = tuple[int, Any]  # the id of what has a value, and its name or key there
Link = tuple[Any, Any, Any]  # a container, a key of it, the container that is there


@record(frozen=False)
class Ways:
    """Ways by which a program reaches a container: variables and attributes, and links from there."""

    slots: list[ScalarSource] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


@record(frozen=False, eq=False)
class ScalarSource:
    """Source of a captured number. `guard`: the one that stood for the number until it was captured."""

    name: str
    guard: Guard
    kind: type  # float or int
    cell: types.CellType | None = None
    obj: Any = None  # of an attribute; neither: a global variable, or an item of a container
    container: Any = None  # of an item: what it is in, and how that is reached
    key: Any = None
    ways: Ways | None = None
    owner: Any = None  # of an item of a tuple: what holds the tuple
    readers: Sequence[types.FunctionType] = ()  # of a variable, with whatever leads to them
    index: int = -1
    updated: bool = False  # by the function itself (see updated_scalars.py)
    value: Any = None  # of an updated number, while a stand-in is in its place

    def read(self) -> Any:
        if self.value is not None:
            return self.value
        try:
            return self.guard.now()
        except (ValueError, IndexError):  # an empty cell, a shorter list
            return None

    @property
    def now(self) -> Callable[[], Any]:
        """A function that gives the present value, without a method between: ValueError or IndexError for none."""
        read, argument, _ = self.guard.check
        return partial(read, argument)

    def fits(self, value: Any) -> bool:
        """Whether the program takes this value."""
        if type(value) is int:
            return self.kind is int and -LARGEST <= value <= LARGEST
        return type(value) is self.kind

    @property
    def holder(self) -> Any:
        if self.owner is not None:
            return self.owner
        return self.cell if self.cell is not None else self.guard.owner

    @property
    def is_new(self) -> bool:
        """Whether it is captured at its second value, or only if the function takes a stand-in for it."""
        return self.updated or self.kind is int or self.obj is not None or self.container is not None

    @property
    def slot(self) -> Slot:
        return id(self.guard.owner), self.guard.key

    def put(self, value: Any) -> None:
        """Assigns a value, where the function itself would."""
        if isinstance(self.guard, AttributeGuard):
            self.guard.put(value)
        else:
            self.guard.owner[self.guard.key] = value
