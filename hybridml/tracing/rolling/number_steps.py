"""The capture of `while` loops that Python's own numbers end, from the body's first instruction to the condition.

What the condition reads are numbers of Python's whenever it runs. Before a step that is captured, ints are polynomials
in its number and floats numbers of the graph; after it they are what they were, and Python says that there is a further
step; after the last one they are what the loop's own arithmetic makes of them, and Python leaves the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

from hybridml_compiler.aval import CPU

from ..capture.tracer import Tracer, current_tracer, top_tracer
from .lists.of_data import begins_with_stack
from .lists.uses import stacks_of
from .number_loops import ASKED, DataLoop, NumberLoop, number_loops
from .steps import FEWEST, FEWEST_IN_PART, Counted, parts, stage
from .watching import watched
from .while_loops import While

# A limit for one step, in which answers that no data gives may lead Python to numbers for which a `while` has no end.
_MOST_INSTRUCTIONS = 1 << 18


class NumberLoops:
    """The loops of one trace that are ended by numbers, while they run."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.running: dict[tuple[FrameType, int], _Parts] = {}
        # Offset -> loops that end or begin a step there.
        self.at: dict[CodeType, dict[int, list[NumberLoop | DataLoop]]] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A context in which functions run whose loops are captured."""
        pending = [code for code in self.tracer.codes if type(code) is CodeType]  # type: ignore[attr-defined]
        while pending:
            code = pending.pop()
            if code in self.at:
                continue
            self.at[code] = {}
            pending += [const for const in code.co_consts if type(const) is CodeType]
            for loop in number_loops(code):
                ends = loop.ends if isinstance(loop, NumberLoop) else ()
                if isinstance(loop, DataLoop) and not (self._is_asked(loop) or stacks_of(*loop.loop.place)):
                    continue
                for offset in (*ends, loop.begin):
                    self.at[code].setdefault(offset, []).append(loop)
        with watched([code for code in self.at if number_loops(code)], self.told) as self.watch:
            yield

    def told(self, frame: FrameType, offset: int) -> None:
        """Ends and begins steps at an instruction that is about to run."""
        for loop in self.tracer.loops[-1:]:
            loop.instructions += 1
            if loop.instructions > _MOST_INSTRUCTIONS:
                loop.refuse("it may have a step that does not end")
        now = next((loop for loop in reversed(self.tracer.loops) if loop.frame is frame), None)
        if now is not None and top_tracer() is self.tracer:
            now.arrives(offset)
        loops = self.at.get(frame.f_code, {}).get(offset)
        if loops is None:
            return
        if top_tracer() is not self.tracer:
            for loop in loops if current_tracer() is self.tracer and self.tracer.stages is None else ():
                if offset == loop.begin and loop.loop.place not in self.tracer.step_by_step:
                    steps = (FEWEST,) if isinstance(loop, DataLoop) else loop.steps(frame) or (0,)
                    stage(self.tracer, steps[0])
            return
        for loop in reversed(loops):  # inner ones first
            if isinstance(loop, DataLoop):
                continue
            now = self.running.get((frame, loop.begin))
            if now is not None and offset in loop.ends and now.end_step():
                del self.running[frame, loop.begin]
        for loop in loops:
            if offset == loop.begin:
                self._begin(loop, frame)

    def _is_asked(self, loop: DataLoop) -> bool:
        return ASKED in self.tracer.alone.get(loop.loop.place, ())

    def _begin(self, loop: NumberLoop | DataLoop, frame: FrameType) -> None:
        key, place, tracer = (frame, loop.begin), loop.loop.place, self.tracer
        if key not in self.running:
            if place in tracer.step_by_step or any(i.node.aval.device != CPU for i in tracer.inputs):
                return
            now = [of for of in tracer.loops if of.frame is frame and of.place == place]
            if isinstance(loop, DataLoop):
                if not now and not (self._is_asked(loop) or begins_with_stack(tracer, loop.loop, frame)):
                    return
                if not now:
                    While(tracer, loop.loop, frame, loop.position).begin_first()
                elif isinstance(now[0], While):
                    now[0].comes_to_step()
                return
            found = None if now else loop.steps(frame)
            if found is None or found[0] < FEWEST:
                return
            self.running[key] = _Parts(tracer, loop, frame, parts(tracer, loop.loop, found[0]))
        self.running[key].begin_step()


class _Parts:
    """A loop while it runs."""

    def __init__(self, tracer: Tracer, loop: NumberLoop, frame: FrameType, left: list[tuple[int, int]]) -> None:
        self.tracer, self.loop, self.frame, self.left = tracer, loop, frame, left
        self.captured: _While | None = None
        self.alone = 0  # steps of this part that are by themselves

    def begin_step(self) -> None:
        if self.captured is None and not self.alone:
            first, end = part = self.left.pop(0)
            if end - first < FEWEST_IN_PART:
                self.alone = end - first
            else:
                self.captured = _While(self.tracer, self.loop, self.frame, part, not self.left)
        if self.captured is not None:
            self.captured.begin_step()

    def end_step(self) -> bool:
        """Ends a step; whether it was the last."""
        if self.captured is None:
            self.alone -= 1
        elif self.captured.end_step():
            self.captured = None
        return self.captured is None and not self.alone and not self.left


class _While(Counted):
    """A part of a loop, from where a step begins to its condition."""

    def __init__(
        self, tracer: Tracer, loop: NumberLoop, frame: FrameType, part: tuple[int, int], is_last: bool
    ) -> None:
        super().__init__(tracer, loop.loop, frame, part, is_last)
        self.of = loop

    def ends_of_step(self) -> frozenset[int]:
        return self.of.ends

    def begin_step(self) -> None:
        if self.now != "captured" and self.firsts:
            self.begin_alone()
            return
        if self.now != "captured":
            found = self.of.steps(self.frame, self.length)
            if found is None or found[0] != self.length:
                self.refuse("a step changes what ends it")
            self.numbers = dict(zip(self.of.numbers, found[1], strict=True))
        self.now = "captured"
        self.begin()

    def end_step(self) -> bool:
        """Ends a step; whether it stands for all that are left."""
        if self.now != "captured" or not self.end():
            return False
        self.emit()
        self.assign(self.numbers)
        return True
