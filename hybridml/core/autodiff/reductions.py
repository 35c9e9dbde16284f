"""Gradients that are something else by the time they are stored: averages over processes, begun during the backward.

A reduction is given the gradient of each of its tensors when the last contribution to it has come, while the walk goes
on; at the end it says what each gradient has become. That it was the last is known by the number of edges of the
history that lead to the leaf. Design: the reducer of PyTorch's DistributedDataParallel (Li et al., "PyTorch
Distributed", VLDB 2020, section 3.2.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Protocol

from hybridml_compiler.errors import GradientError

from ..context import no_grad, switches
from ..tensor import Tensor
from .sparse import added, densified, shown
from .tape import between, conjugated, is_node, parents_of, run_hooks

Found = dict[int, tuple[Any, Any]]  # by the id of a leaf: the leaf and its gradient
_keys = count(1)


class Reduction:
    """Base class of what the gradients of some leaves become.

    `key` stands for it in the guards of traced programs, which have it built in. `order` is that in which several of
    them begin, the same in all processes.
    """

    digested = ()  # a trace does not look inside: `key` is what it relies on
    made = 0  # of all kinds: no backward looks for reductions before there is one
    order: tuple[Any, ...] = ()

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        Reduction.made += 1
        self.tensors, self.paused, self._key = tuple(tensors), False, next(_keys)
        self.attach()

    def attach(self) -> None:
        """Takes the gradients of the tensors, whose leaves may be others than before: freezing and unfreezing makes new
        ones."""
        for number, t in enumerate(self.tensors):
            leaf = t._node
            if leaf is not None and not is_node(leaf) and (leaf.reduction is None or leaf.reduction[0] is not self):
                leaf.reduction = self, number
                switches.value += 1

    @property
    def key(self) -> int:
        """The number of the reduction, below zero while it is paused."""
        return -self._key if self.paused else self._key

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leaves the gradients as they are inside of the block."""
        before, self.paused = self.paused, True
        switches.value += 1
        try:
            yield
        finally:
            self.paused = before
            switches.value += 1

    def begin(self) -> Running:
        """The reduction in one backward, which is given the gradients."""
        raise NotImplementedError


class Running(Protocol):
    """A reduction in one backward."""

    def take(self, number: int, gradient: Tensor) -> None:
        """Takes the gradient of a tensor, with what it had before, which will not change any more."""

    def begin_full(self) -> bool:
        """Begins what can be begun; returns whether all is."""

    def finish(self) -> Sequence[tuple[Tensor, Tensor]]:
        """The gradients to be stored, once all that will come have come."""

    def abandon(self) -> None:
        """Forgets what was begun: the backward has failed."""


class Watch:
    """The reductions that a backward reaches, and the edges to their leaves that it has not come along yet."""

    def __init__(self, root: Any) -> None:
        self._running: dict[int, Running] = {}
        self._edges: dict[int, int] = {}
        self._complete: list[int] = []
        reached: dict[int, Reduction] = {}
        for parent in [root, *(parent for node in between([root], 0) for parent in parents_of(node))]:
            taken = None if is_node(parent) else parent.reduction
            if taken is not None and not taken[0].paused:
                reached[id(taken[0])] = taken[0]
                self._edges[id(parent)] = self._edges.get(id(parent), 0) + 1
        for reduction in sorted(reached.values(), key=lambda one: one.order):
            self._running[id(reduction)] = reduction.begin()

    def __bool__(self) -> bool:
        return bool(self._running)

    def around(self, pull: Callable[[Any, Any], Any], found: Found) -> Callable[[Any, Any], Any]:
        """A pull that gives the reductions what the pull before has completed."""

        def watched(g: Any, node: Any) -> Any:
            self._give(found)
            contributions = list(pull(g, node))
            for parent, _ in contributions:
                key = id(parent)
                if key in self._edges:
                    self._edges[key] -= 1
                    if not self._edges[key]:
                        self._complete.append(key)
            return contributions

        return watched

    def _give(self, found: Found) -> None:
        if not self._complete:
            return
        while self._complete:
            self._give_one(*found.pop(self._complete.pop()))
        for running in self._running.values():
            if not running.begin_full():
                return  # the next ones wait for it

    def _give_one(self, leaf: Any, g: Any) -> None:
        reduction, number = leaf.reduction
        g = conjugated(densified(g))
        if leaf.hooks:
            g = run_hooks(leaf.hooks, g)
        before = shown(leaf)
        self._running[id(reduction)].take(number, g if before is None else added(before, g))

    def around_walk(self, walk: Callable[..., Found]) -> tuple[Found, list[tuple[Tensor, Tensor]]]:
        """The gradients that a walk finds but for those that the reductions take, and what they make of these."""
        try:
            found = walk(watch=self)
            self._complete = [key for key in found if key in self._edges]
            with no_grad():
                self._give(found)
                return found, [pair for running in self._running.values() for pair in running.finish()]
        except BaseException:
            for running in self._running.values():
                running.abandon()
            raise


def watch(root: Any, create_graph: bool) -> Watch | None:
    """The watch over a backward from this history; None where no reduction wants its gradients."""
    found = Watch(root) if Reduction.made else None
    if not found:
        return None
    if create_graph:
        raise GradientError(
            "backward: create_graph=True differentiates a gradient again, and those of a DataParallel are averages "
            "without a history; use hm.grad of its module, or no_sync()"
        )
    return found
