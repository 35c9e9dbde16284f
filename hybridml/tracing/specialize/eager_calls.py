"""Calls that run eagerly because their program would cost more than it gains: known by a look at their arguments, or
by what they have cost.

A trace that takes too long is given up, and tried again for longer when eager calls have taken twice as long as that
may take: so traces never take longer than the calls do, and 4 seconds. So do programs that most calls need anew, for
other answers to what Python asks or other sizes (`Spending`). A program of which it is not plain that it is
faster is measured in its first calls, which are eager and compiled in turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hybridml_compiler import time_limit

from ...core.tensor import Tensor
from .errors import TakesLong

MOST_SECONDS = 4.0  # of a trace with loops step by step or questions, before Python makes the call
COSTLY_SECONDS = 0.5  # of the programs that most calls need, before that is told
_MORE_SECONDS = 1.0  # for the compiler, where no loop is step by step: its program is worth more
MANY_SEGMENTS = 16  # of a program: Python runs between them
_FLOOR = 1e-3  # seconds: the program of a shorter call is not compared
_SLOWER = 1.5  # times as long as eagerly is too slow
MANY_PROGRAMS, _MAKE_UP = 3, 4  # programs, before their time is looked at; compiled calls that make up for one
_LEAST_SECONDS = 0.25  # of a trace, where others of the function have been given up
_FAR = 4.0  # times as long eagerly, in one call, is no contest
_TURNS = 4  # of each kind, of which the shortest counts
_BEFORE = 4  # compiled calls before the first eager one: they compile bit by bit (see run/native_call.py)
_IN_A_ROW = 64  # calls: then one goes the long way, as what the function reads may have changed
_PLAIN = frozenset((bool, int, str, type(None)))


@contextmanager
def in_time(tracer: Any) -> Iterator[None]:
    """A context for compiling a program with loops, which raises where it takes too long: later by a second where none
    of them is step by step."""
    more = 0.0 if tracer.step_by_step else _MORE_SECONDS if tracer.rolled else float("inf")
    try:
        with time_limit.until(None if tracer.ends is None else tracer.ends + more):
            yield
    except time_limit.TimeIsUp:
        if tracer.rolled and not tracer.step_by_step:
            why = f"takes more than {tracer.seconds + more:.0f} s to compile, with all of its loops"
            raise TakesLong(why) from None
        tracer.ends = 0.0
        tracer.check_steps()


class Patience:
    """The time that a trace may take. `spent`: seconds of eager calls since the last one was given up. `tries`: the
    number that were."""

    def __init__(self, others: int = 0) -> None:
        """`others`: traces of the same function for other arguments that were given up."""
        self.seconds = max(MOST_SECONDS / 2**others, _LEAST_SECONDS) if others else MOST_SECONDS
        self.spent, self.tries = 0.0, 0

    @contextmanager
    def eager_call(self) -> Iterator[None]:
        start = time_limit.clock()
        try:
            yield
        finally:
            self.spent += time_limit.clock() - start

    def give_up(self) -> None:
        self.seconds, self.spent, self.tries = 2 * self.seconds, 0.0, self.tries + 1

    @property
    def is_due(self) -> bool:
        """Whether a trace that was given up may be tried again: eager calls have taken twice as long as that may."""
        return self.tries > 0 and self.spent >= 2 * self.seconds


class Spending:
    """The time that programs of a function take to compile. Where most calls need one of their own (searches that keep
    what they find, sizes that never come again), the next one waits until eager calls have taken as long as the last
    one did: so compiling takes no longer than eager calls, and 4 seconds."""

    def __init__(self) -> None:
        self.row, self.hits = 0.0, 0  # programs, less those for which other calls make up; compiled calls so far
        self.seconds = self.last = self.spent = 0.0  # of these, of the last one, of eager calls since
        self.most = MOST_SECONDS  # of programs, before a further one waits
        self.told = False

    def _row(self, hits: int) -> float:
        return max(self.row - (hits - self.hits) / _MAKE_UP, 0.0)

    @contextmanager
    def of_a_program(self, hits: int, leaves: Sequence[Any]) -> Iterator[None]:
        if any(type(leaf) is np.ndarray for leaf in leaves):  # what NumPy does is a program for their sizes
            self.most = COSTLY_SECONDS
        start, before = time_limit.clock(), self._row(hits)
        try:
            yield
        finally:
            self.last, self.spent = time_limit.clock() - start, 0.0
            self.seconds = self.last + (self.seconds if before else 0.0)
            self.row, self.hits = before + 1, hits

    @contextmanager
    def eager_call(self) -> Iterator[None]:
        start = time_limit.clock()
        try:
            yield
        finally:
            self.spent += time_limit.clock() - start

    @property
    def is_costly(self) -> bool:
        """Whether they have taken so long that it is worth a word."""
        return self.seconds >= COSTLY_SECONDS

    def are_many(self, hits: int, many: int) -> bool:
        """Whether there are so many programs for which no compiled calls make up."""
        return self._row(hits) >= many

    def waits(self, hits: int) -> bool:
        """Whether a further program has to wait."""
        return self.spent < self.last and self.seconds >= self.most and self.are_many(hits, MANY_PROGRAMS)


class Trial:
    """The first calls of a program, which are timed, compiled and eager in turns."""

    def __init__(self) -> None:
        self.compiled: list[float] = []
        self.eager: list[float] = []

    @property
    def is_eagers_turn(self) -> bool:
        return len(self.eager) <= len(self.compiled) - _BEFORE - 1 and min(self.compiled) > _FLOOR

    @contextmanager
    def eager_call(self) -> Iterator[None]:
        start = time_limit.clock()
        yield
        self.eager.append(time_limit.clock() - start)

    @property
    def is_over(self) -> bool:
        if not self.compiled:
            return False
        least = min(self.compiled)
        return len(self.eager) >= _TURNS or least <= _FLOOR or min(self.eager, default=0.0) > _FAR * least

    def slower(self) -> str:
        """The message about a program that is slower; "" for any other."""
        if min(self.compiled) <= max(_FLOOR, _SLOWER * min(self.eager, default=0.0)):
            return ""
        compiled, eager = (f"{min(times) * 1e3:.3g} ms" for times in (self.compiled, self.eager))
        return f"takes {compiled} compiled and {eager} eagerly"


class EagerCalls:
    """Calls like one that runs eagerly. The long way asks the guards of the entry, which takes 40 us or more."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], patience: Patience) -> None:
        self.patience = patience
        known = [None if kwargs else _kind(x) for x in args]
        self.known = known if args and None not in known else None
        self.left = _IN_A_ROW

    def take(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether this is such a call."""
        if self.known is None or kwargs or not self.left:
            return False
        self.left -= 1
        return [_kind(x) for x in args] == self.known


def _kind(x: Any) -> tuple[Any, ...] | None:
    """A fact that tells calls apart; None where there may be others."""
    kind = type(x)
    if kind is Tensor:
        x = x._array
    elif kind is not np.ndarray:
        return (kind, x) if kind in _PLAIN else (kind,) if kind is float else None
    return kind, x.shape, x.dtype
