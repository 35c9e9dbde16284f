"""Loops in which a step in so many is unlike the others, `if n % 50 == 0: saved.append(u.copy())`: a loop over blocks.

    for n in range(400):                for b in range(8):
        u = f(u)                            the step 50 * b, by itself
        if n % 50 == 0:                     for j in range(49):
            saved.append(u.copy())              the step 50 * b + 1 + j

The condition goes one way in each of these, so a step does nothing in vain, and a list grows by the same in each block.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import Size
from hybridml_compiler.sizes.steps import Undecided

from ..capture.tracer import Tracer
from ..specialize.errors import StepByStep
from .code_loops import CodeLoop
from .elements import Elements
from .steps import FEWEST_IN_PART, Steps
from .undecided import EVERY


@record
class Blocks:
    """A loop in blocks of `period` steps, of which the first begins with the step `first`. `firsts` and `lasts`: steps
    at the ends that are by themselves."""

    tracer: Tracer
    loop: CodeLoop
    frame: types.FrameType
    over: Elements
    length: int
    period: int
    first: int
    firsts: int
    lasts: int
    turns: Sequence[int]  # steps with which others begin

    @property
    def count(self) -> int:
        return (self.length - self.lasts - self.first) // self.period

    @property
    def is_right(self) -> bool:
        """Whether there are several blocks, and no other turn in them."""
        end = self.first + self.count * self.period
        return self.count > 1 and not any(self.first < k < end for k in self.turns)

    def after(self, first: Size, k: Size) -> Any:
        """The element of step k of a block, after its first one."""
        return self.over.at(first + 1 + k)

    def __iter__(self) -> Iterator[Any]:
        count, end = self.count, self.first + self.count * self.period
        yield from self._steps(0, self.first)
        yield from _Blocks(self, count).steps()
        if end < self.length:
            yield self.over.at(end)
            yield from self._steps(end + 1, self.length)

    def _steps(self, first: int, end: int) -> Iterator[Any]:
        """Steps at an end of the loop, from one to before another."""
        low = max(first, min(self.firsts, end))
        high = max(low, min(end, self.length - self.lasts))
        yield from map(self.over.at, range(first, low))
        turns = [k for k in self.turns if low < k < high]
        for part in zip([low, *turns], [*turns, high], strict=True):
            if part[1] - part[0] < FEWEST_IN_PART:
                yield from map(self.over.at, range(*part))
            else:
                yield from _Edge(self.tracer, self.loop, self.frame, self.over, part, False, False)
        yield from map(self.over.at, range(high, end))


def in_blocks(
    tracer: Tracer, loop: CodeLoop, frame: types.FrameType, over: Elements, length: int
) -> Iterator[Any] | None:  # fmt: skip
    """The elements of so many steps, by blocks; None of a loop that has none."""
    learnt = tracer.alone.get(loop.place, ())
    found = next((what for what in learnt if type(what) is tuple and what[0] == EVERY), None)
    if found is None:
        return None
    _, period, first = found
    firsts, lasts = learnt.count("first"), learnt.count("last")
    first += -(-max(firsts - first, 0) // period) * period
    turns = sorted(what for what in learnt if type(what) is int)
    of = Blocks(tracer, loop, frame, over, length, period, first, firsts, lasts, turns)
    return iter(of) if of.is_right else None


class _Edge(Steps):
    """Steps before the blocks or after them."""

    has_blocks = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.length, self.firsts, self.lasts = self.length + self.lasts, 0, 0


class _Inside(_Edge):
    """Steps of a block of which none is unlike the others."""

    def apart(self, error: Undecided) -> Sequence[Any]:
        return ()


class _Blocks(_Inside):
    """The loop over blocks."""

    def __init__(self, of: Blocks, count: int) -> None:
        super().__init__(of.tracer, of.loop, of.frame, of.over, (0, count), False, False)
        self.of = of

    def begin_later(self, name: str) -> None:
        raise StepByStep(self.place, self.changes(name), ("first",))

    def steps(self) -> Iterator[Any]:
        of, known = self.of, False
        while not known:
            self.begin()
            first = of.first + self.number * of.period
            yield of.over.at(first)
            inside = Elements(of.period - 1, partial(of.after, first))
            yield from _Inside(of.tracer, of.loop, of.frame, inside, (0, of.period - 1), False, False)
            known = self.end()
        self.emit()
