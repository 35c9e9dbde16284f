"""The capture of `while` loops that Python's own numbers end, from the body's first instruction to the condition.

What the condition reads are numbers of Python's whenever it runs. Before a step that is captured, ints are polynomials
in its number and floats numbers of the graph; after it they are what they were, and Python says that there is a further
step; after the last one they are what the loop's own arithmetic makes of them, and Python leaves the loop.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import CodeType, FrameType

from hybridml_compiler.aval import CPU

from ..capture.tracer import Tracer, top_tracer
from .number_loops import NumberLoop, number_loops
from .steps import FEWEST, Counted
from .watching import watched


class NumberLoops:
    """The loops of one trace that are ended by numbers, while they run."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.running: dict[tuple[FrameType, int], _While] = {}
        self.at: dict[CodeType, dict[int, list[NumberLoop]]] = {}  # offset -> loops that end or begin a step there

    def watched(self) -> AbstractContextManager[None]:
        """A context in which functions run whose loops are captured."""
        pending = [code for code in self.tracer.codes if type(code) is CodeType]  # type: ignore[attr-defined]
        while pending:
            code = pending.pop()
            if code in self.at:
                continue
            self.at[code] = {}
            pending += [const for const in code.co_consts if type(const) is CodeType]
            for loop in number_loops(code):
                for offset in (*loop.ends, loop.begin):
                    self.at[code].setdefault(offset, []).append(loop)
        return watched([code for code, loops in self.at.items() if loops], self.told)

    def told(self, frame: FrameType, offset: int) -> None:
        """Ends and begins steps at an instruction that is about to run."""
        loops = self.at[frame.f_code].get(offset)
        if loops is None or top_tracer() is not self.tracer:
            return
        for loop in reversed(loops):  # inner ones first
            now = self.running.get((frame, loop.begin))
            if now is not None and offset in loop.ends and now.end_step():
                del self.running[frame, loop.begin]
        for loop in loops:
            if offset == loop.begin:
                self._begin(loop, frame)

    def _begin(self, loop: NumberLoop, frame: FrameType) -> None:
        key, place, tracer = (frame, loop.begin), loop.loop.place, self.tracer
        now = self.running.get(key)
        if now is not None:
            if not now.begin_step():
                del self.running[key]
            return
        if place in tracer.step_by_step or any(of.frame is frame and of.place == place for of in tracer.loops):
            return
        if any(i.node.aval.device != CPU for i in tracer.inputs):
            return
        alone = tracer.alone.get(place, ())
        found = loop.steps(frame)
        if found is not None and found[0] >= FEWEST + len(alone):
            self.running[key] = now = _While(tracer, loop, frame, found[0])
            now.begin_step()


class _While(Counted):
    """A loop from where a step begins to its condition."""

    def __init__(self, tracer: Tracer, loop: NumberLoop, frame: FrameType, length: int) -> None:
        super().__init__(tracer, loop.loop, frame, length)
        self.of = loop

    def begin_step(self) -> bool:
        """Begins a step; whether there may be a further one that is told of."""
        if self.now == "after":
            self.lasts -= 1
            return self.lasts > 0
        if self.now != "captured" and self.firsts:
            self.begin_alone()
            return True
        if self.now != "captured":
            found = self.of.steps(self.frame, self.length)
            if found is None or found[0] != self.length:
                self.refuse("a step changes what ends it")
            self.numbers = dict(zip(self.of.numbers, found[1], strict=True))
        self.now = "captured"
        self.begin()
        return True

    def end_step(self) -> bool:
        """Ends a step where it is captured; whether it was the last."""
        if self.now != "captured":
            return False
        if not self.end():
            return False
        self.emit()
        self.assign(self.numbers)
        self.now = "after"
        return not self.lasts
