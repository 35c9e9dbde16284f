"""Homes: the process in which a tensor has its present value, where it is no longer in all.

A program that computes a new value of a parameter on one rank leaves it there; other ranks keep what they had, and are
sent the value by each placed program that reads it on them. Where an earlier program reads a rank's own copy instead,
that rank is a holder: it gets each new value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from hybridml_compiler.locks import lock

from ...core.context import no_grad
from ...core.tensor import Tensor
from ..functions import broadcast
from ..groups import Group


class Home(NamedTuple):
    """The process that has a tensor's present value."""

    group: Group
    rank: int


class Homes:
    """The homes and holders of tensors in one group."""

    def __init__(self) -> None:
        self._tensors: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        self._homes: dict[int, int] = {}
        self._holders: dict[int, set[int]] = {}

    def home(self, t: Tensor) -> int | None:
        """The rank that has the present value; None where all have it."""
        return self._homes.get(id(t)) if self._knows(t) else None

    def holders(self, t: Tensor) -> set[int]:
        """The ranks whose own copies programs read."""
        return self._holders.get(id(t), set()) if self._knows(t) else set()

    def hold(self, t: Tensor, ranks: set[int]) -> None:
        """Notes ranks whose own copies a program reads."""
        self._note(t)
        self._holders.setdefault(id(t), set()).update(ranks)

    def move(self, t: Tensor, rank: int) -> None:
        """Notes that a program leaves new values in one rank."""
        self._note(t)
        self._homes[id(t)] = rank

    def _knows(self, t: Tensor) -> bool:
        return self._tensors.get(id(t)) is t

    def _note(self, t: Tensor) -> None:
        if not self._knows(t):  # another tensor may have had its id
            self._homes.pop(id(t), None)
            self._holders.pop(id(t), None)
            self._tensors[id(t)] = t


_of_group: WeakKeyDictionary[Group, Homes] = WeakKeyDictionary()
_known = lock()  # ranks may be threads


def homes_of(group: Group) -> Homes:
    """The homes of tensors in a group."""
    with _known:
        return _of_group.setdefault(group, Homes())


def home_of(t: Tensor) -> Home | None:
    """The group and the rank that have the present value of a tensor; None where all have it."""
    with _known:
        known = list(_of_group.items())
    for group, homes in known:
        rank = homes.home(t)
        if rank is not None:
            return Home(group, rank)
    return None


def bring(tensors: Iterable[Tensor]) -> None:
    """Gives all processes the present values of tensors that one of them has. All must call it, with the same ones."""
    for t in tensors:
        if (home := home_of(t)) is not None:
            with no_grad():
                t.copy_(broadcast(t.detach(), home.rank, home.group))
