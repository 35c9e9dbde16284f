"""Tensors that are in one memory in eager code where data decides so, and in the program each in its own: an update of
one of them has the trace begin anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import ReferenceType, ref

from ....core.aliasing import origin_of
from ....core.tensor import Tensor
from ...specialize.errors import StepByStep

WHICH = "which"  # of a trace: `max` and `min` ask which argument they give

_Weak = ReferenceType[Tensor]


class Marked:
    """The tensors that loops leave, and that `max` and `min` choose."""

    def __init__(self) -> None:
        # Results of loops and of `if`s in them with what they may be, places of loops, and what is to become of these.
        self.groups: list[tuple[list[_Weak], Any, Sequence[Any]]] = []
        self.chosen: list[tuple[_Weak, list[_Weak]]] = []  # each with what it may be
        self.stale: list[_Weak] = []  # those of which one has been updated
        self.taken: list[tuple[_Weak, Any]] = []  # tensors whose memory loops have as their own, and places of these

    def clear(self) -> None:
        self.groups, self.chosen, self.stale, self.taken = [], [], [], []

    def mark(self, tensors: Iterable[Tensor], place: Any, apart: Sequence[Any] = ()) -> None:
        """Notes that tensors may be in one memory after the loop at this place, or in it."""
        self.groups.append(([*map(ref, tensors)], place, apart))

    def take(self, t: Tensor, place: Any) -> None:
        """Notes that the loop at this place has the memory of a tensor as its own: nobody else may look at it."""
        self.taken.append((ref(t), place))

    def choose(self, t: Tensor, of: Iterable[Tensor]) -> None:
        """Notes that a tensor is one of others, or of their memory."""
        self.chosen.append((ref(t), [*map(ref, of)]))

    def may_be(self, t: Tensor) -> Sequence[Tensor]:
        """The tensors whose memory one may be in that was chosen."""
        found = [of for r, of in self.chosen if (x := r()) is not None and memory_of(x) == memory_of(t)]
        return [x for of in found for r in of if (x := r()) is not None]

    def is_marked(self, t: Tensor) -> bool:
        """Whether a tensor may be another one."""
        known = [r for group, *_ in self.groups for r in group] + [r for r, _ in self.chosen]
        return any((x := r()) is not None and memory_of(x) == memory_of(t) for r in known)

    def check(self, t: Tensor) -> None:
        """Raises StepByStep where an update of a tensor may be that of another one. What a choice is made from may be
        updated, where nobody looks at what was chosen any more."""
        for group, place, apart in self.groups:
            alive = [x for r in group if (x := r()) is not None]
            shown = [memory_of(x) == memory_of(t) for x in alive]
            if any(shown) and not all(shown):
                raise StepByStep(place, "a variable is updated that may be in the memory of another one", apart)
        self._check_taken(t)
        self.chosen = [one for one in self.chosen if one[0]() is not None]
        if self.may_be(t):
            raise StepByStep(None, "what max() or min() gives is updated, which is one of their arguments", (WHICH,))
        for r, of in self.chosen:
            if any((x := other()) is not None and memory_of(x) == memory_of(t) for other in of):
                self.stale.append(r)

    def read(self, t: Tensor) -> None:
        """Raises StepByStep where a tensor may show an update of another one."""
        self._check_taken(t)
        if any((x := r()) is not None and memory_of(x) == memory_of(t) for r in self.stale):
            raise StepByStep(None, "what max() or min() gives is read after an update of their arguments", (WHICH,))

    def _check_taken(self, t: Tensor) -> None:
        for r, place in self.taken:
            if (x := r()) is not None and memory_of(x) == memory_of(t):
                why = "a step updates a variable in place, which is in the memory of another one, and assigns it"
                raise StepByStep(place, why)


def memory_of(t: Tensor) -> int:
    """A key of the memory that a tensor shows: views share the cell of their version (see core/aliasing.py)."""
    return id(t._version) if type(t._version) is list else id(t)


def root_of(t: Tensor) -> Tensor:
    """The tensor of which this one is a view, of a view."""
    while (origin := origin_of(t)) is not None:
        t = origin[0]
    return t
