"""Python's `while` loops whose condition is data, captured as loops of the graph from one question to the next.

while err > tol:            the first question about data that may leave a loop begins it: its answer is the first
    v = u.copy()            value of a flag that the loop carries, and what Python does from there to the same
    u[1:-1] = f(v)          question is a step. An `if ...: break` is such a question as well, and so the loop of
    err = abs(u - v).max()  `while True` begins and ends in the middle of what Python would call a step
    n += 1                  a number of the graph
"""

from __future__ import annotations

import types
from typing import NoReturn

import numpy as np

from hybridml_compiler.aval import CPU
from hybridml_compiler.errors import user_frame
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.steps import is_step

from ...core.nested import NestedTensor
from ..capture.tracer import Tracer, top_tracer
from ..specialize.errors import StepByStep
from .capture import Capture
from .carries import Carry, carry_of
from .code_loops import CodeLoop, Position, while_loop_at
from .steps import FEWEST, stage


def answer(tracer: Tracer, node: ir.Node, what: str) -> np.ndarray | None:
    """The answer to a question about data that begins or ends a step of a `while` loop; None of any other."""
    frame = user_frame()
    if tracer is not top_tracer() or frame is None or node.dtype.kind != "b" or node.aval.size != 1:
        return None
    place = while_loop_at(frame.f_code, frame.f_lasti)
    if place is None or place[0].place in (tracer.step_by_step or ()):
        return None
    loop, position = place
    now = next((of for of in tracer.loops if of.frame is frame and of.place == loop.place), None)
    if now is not None:
        return now.asked_again(node) if position == now.position and now is tracer.loops[-1] else None
    if any(i.node.aval.device != CPU for i in tracer.inputs):
        return None
    variables, alone = frame.f_locals, tracer.alone.get(loop.place, ())
    if any(issubclass(type(x), NestedTensor) for x in variables.values()):  # it is inside of a transform
        stage(tracer, FEWEST)
        return None
    if tracer.stages is not None:
        tracer.stages.check_asked(node, what)
    taken = tracer.taken.setdefault((frame, loop.place), [])
    if len(taken) < len(alone) or any(name not in variables for name in loop.carried):
        taken.append("first")  # is by itself: the next one has what it has made
        assert tracer.ask is not None
        found = tracer.ask(node, what)
        if bool(found) is not loop.exits[position]:
            taken.clear()  # it is left, and begins anew the next time
        return found
    return While(tracer, loop, frame, position).asked_first(node)


class While(Capture):
    """A loop from one question, at a place in the source, to the next."""

    def __init__(self, tracer: Tracer, loop: CodeLoop, frame: types.FrameType, position: Position) -> None:
        super().__init__(tracer, loop, frame)
        self.position, self.stays, self.is_left = position, loop.exits[position], True

    def first_carries(self) -> dict[str, Carry]:
        """Numbers of Python's: it would leave the loop by one, `while n > 0 and ...`, of its own in the first step."""
        starts = {name: self.before.get(name) for name in self.loop.carried}
        numbers = {name: x for name, x in starts.items() if type(x) in (int, float) or is_step(x)}
        found = {name: carry_of(self.tracer, x, x, False, lambda: False) for name, x in numbers.items()}
        return {name: carry for name, carry in found.items() if carry is not None}

    def asked_first(self, node: ir.Node) -> np.ndarray:
        self.first = self._go(node)
        self.begin()
        return np.asarray(self.stays)

    def asked_again(self, node: ir.Node) -> np.ndarray:
        """The answer: to leave the loop, once it is in the program."""
        if self.end(self._go(node)):
            self.emit()
            self.tracer.taken.pop((self.frame, self.place), None)
            return np.asarray(not self.stays)
        self.begin()
        return np.asarray(self.stays)

    def begin_later(self, name: str) -> NoReturn:
        raise StepByStep(self.place, f"{name} changes its type", ("first",))

    def first_go(self) -> ir.Node:
        return self.first

    def _go(self, node: ir.Node) -> ir.Node:
        """Whether there is a further step, where this is what was asked."""
        node = node if node.shape == () else ir.apply(OPS["reshape"], [node], {"shape": ()})
        return node if self.stays else ir.apply(OPS["logical_not"], [node])
