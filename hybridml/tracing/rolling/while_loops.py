"""Python's `while` loops whose condition is data, captured as loops of the graph from one question to the next.

while err > tol:            the first question about data that may leave a loop begins it: its answer is the first
    v = u.copy()            value of a flag that the loop carries, and what Python does from there to the same
    u[1:-1] = f(v)          question is a step. An `if ...: break` is such a question as well, and so the loop of
    err = abs(u - v).max()  `while True` begins and ends in the middle of what Python would call a step
    n += 1                  a number of the graph

Where the condition is one of Python's numbers that a step changes as data decides (`if a[mid] < t: lo = mid + 1`), the
loop begins with a step (number_steps.py): in that they are numbers of the graph, and the condition is a question.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import reduce
from typing import Any, NoReturn

import numpy as np

from hybridml_compiler.aval import CPU
from hybridml_compiler.errors import is_internal, user_frame
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.steps import is_step

from ...core.nested import NestedTensor
from ...core.tensor import Tensor
from ..capture.loops.taken import scalar
from ..capture.tracer import Tracer, top_tracer
from ..specialize.errors import StepByStep
from .carries import Carry, as_tensor, carry_of, is_numpy_scalar
from .code_loops import CodeLoop, Position, question_at, questions_at, stores, while_loop_at
from .emission import RolledLoop
from .number_loops import ASKED, data_loops_of
from .questions import after_tail
from .steps import FEWEST, keep_whole, stage
from .ways.early import PURE, early_questions


def answer(tracer: Tracer, node: ir.Node, what: str) -> np.ndarray | None:
    """The answer to a question about data that begins or ends a step of a `while` loop; None of any other."""
    frame = user_frame()
    if tracer is not top_tracer() or frame is None or node.dtype.kind != "b" or node.aval.size != 1:
        return None
    place = while_loop_at(frame.f_code, frame.f_lasti)
    if place is None:
        _begin_earlier(tracer, frame)
        if not tracer.loops and not tracer.frames:
            keep_whole(tracer, frame)
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
    if len(taken) < alone.count("first") or any(name not in variables for name in loop.carried):
        taken.append("first")  # is by itself: the next one has what it has made
        assert tracer.ask is not None
        found = tracer.ask(node, what)
        if bool(found) is not loop.exits[position]:
            taken.clear()  # it is left, and begins anew the next time
        return found
    return While(tracer, loop, frame, position).asked_first(node)


def _begin_earlier(tracer: Tracer, frame: types.FrameType) -> None:
    """Begins the trace anew where data has a part in numbers that end a loop: it is captured before its first step."""
    for loop in data_loops_of(frame.f_code, frame.f_lasti):
        place = loop.loop.place
        known = ASKED in tracer.alone.get(place, ()) or place in (tracer.step_by_step or ())
        if not known and not any(of.frame is frame and of.place == place for of in tracer.loops):
            raise StepByStep(place, "data decides how many steps it takes", (ASKED,))


def _is_pythons(found: Any) -> bool:
    """Whether a global variable is no function of the user's with the name of one of Python's."""
    return found is None or is_internal(getattr(getattr(found, "__code__", None), "co_filename", ""))


def _both(a: ir.Node, b: ir.Node) -> ir.Node:
    return ir.apply(OPS["logical_and"], [a, b])


class While(RolledLoop):
    """A loop from one question, at a place in the source, to the next."""

    begins = False  # with a step, as Python's numbers say
    goes_on = False  # by an answer to its question, to the next step

    def __init__(self, tracer: Tracer, loop: CodeLoop, frame: types.FrameType, position: Position) -> None:
        super().__init__(tracer, loop, frame)
        self.position, self.stays, self.is_left = position, loop.exits[position], True
        self.joins = self.is_joined(position)  # leaves by its own question, with other numbers than by way 0
        self.home = 0 if self.joins else loop.ways[position]
        known = all(_is_pythons(frame.f_globals.get(name)) for name in PURE)
        self.early = early_questions(*loop.place, position) if known else {}
        self.masks = bool(self.early)
        self.goes: list[ir.Node] = []  # to the next step, by what `or` has asked of this one

    def first_carries(self) -> dict[str, Carry]:
        """Numbers of Python's: it would leave the loop by one, `while n > 0 and ...`, of its own in the first step."""
        starts = {name: self.before.get(name) for name in self.loop.carried}
        numbers = {name: x for name, x in starts.items() if type(x) in (int, float) or is_step(x)}
        flags = {name for name in self.loop.flags if type(starts.get(name)) is bool}
        numbers |= {name: starts[name] for name in flags}
        found = {name: carry_of(self.tracer, x, x, False, lambda _: False) for name, x in numbers.items()}
        return {name: carry for name, carry in found.items() if carry is not None}

    def ends_of_step(self) -> frozenset[int]:
        return questions_at(*self.place, self.position)

    def has_steps(self) -> bool:
        return self.begins

    def may_be_either(self, end: Any) -> bool:
        return self.begins or (bool(self.tracer.loops) and is_numpy_scalar(end)) or super().may_be_either(end)

    def begin_run(self) -> None:
        self.goes = []
        super().begin_run()

    def question(self, node: ir.Node, what: str) -> np.ndarray:
        """The answer: of `while a or b` to `a` that the next step is for `b` to decide."""
        frame = user_frame()
        at = question_at(frame.f_code, frame.f_lasti) if frame is self.frame and self.early else None
        if at is None or at not in self.early:
            return super().question(node, what)
        node = scalar(node) if self.early[at] else ir.apply(OPS["logical_not"], [scalar(node)])
        if self.vain is None:
            if any(self.forks[k].join is not None for k in self.open):
                self.refuse("one of the ways of a step begins the next one")
            self.goes.append(node)
        return np.asarray(not self.early[at])

    def conditions(self, but: int | None = None) -> Iterator[ir.Node]:
        yield from super().conditions(but)
        yield from (ir.apply(OPS["logical_not"], [go]) for go in self.goes)

    def leaves_at(self, position: Position, leaves: ir.Node) -> bool:
        stays = (ir.apply(OPS["logical_not"], [go]) for go in self.goes)
        return super().leaves_at(position, reduce(_both, stays, scalar(leaves)))

    def begin_first(self) -> None:
        """Begins with a step, before which nothing was asked."""
        self.first, self.begins = ir.constant(True), True
        self.begin()

    def comes_to_step(self) -> None:
        """Notes that Python begins a step, which it was told to."""
        if self.begins and not self.goes_on:
            self.refuse("numbers that Python knows decide how many steps it takes")
        self.goes_on = False

    def asked_first(self, node: ir.Node) -> np.ndarray:
        self.first = self._go(node)
        self.begin()
        return np.asarray(self.stays)

    def asked_again(self, node: ir.Node) -> np.ndarray:
        """The answer: to leave the loop, once it is in the program."""
        if self.joins:
            self.leaves_at(self.position, ir.apply(OPS["logical_not"], [self._go(node)]))
        if self.end(None if self.joins else self._go(node)):
            self.emit()
            self.tracer.taken.pop((self.frame, self.place), None)
            self.out = self.outs.get(0) if self.out is None and self.joins else self.out
            if self.out is None:
                return np.asarray(not self.stays)
            if self.out.position == self.position:
                self.refuse("no step leaves it in another way")
            self.begin_out()
        else:
            self.begin()
        self.goes_on = True
        return np.asarray(self.stays)

    def begin_later(self, name: str) -> NoReturn:
        if self.begins:
            self.refuse(self.changes(name))
        raise StepByStep(self.place, self.changes(name), ("first",))

    def first_go(self) -> ir.Node:
        """Whether there is a first step: none in vain, which would look up element 0 for ever (see `or_other`)."""
        around = (scalar(q) for loop in self.tracer.loops for q in loop.conditions())
        return reduce(_both, around, self.first)

    def start_of(self, name: str, carry: Carry) -> Tensor:
        start = super().start_of(name, carry)
        if not self.joins or name not in {i.argval for i in self.loop.tails[self.position] if stores(i)}:
            return start
        numbers = after_tail(
            self.loop.tails[self.position], {**self.frame.f_locals, **self.before}
        )  # it is left before the first step
        if numbers is None:
            self.refuse_to_join("a step keeps what it has found")
        nodes = [self.first, start._array, as_tensor(self.tracer, numbers[name])._array]
        return self.tracer.wrap(ir.apply(OPS["where"], nodes), True)

    def _go(self, node: ir.Node) -> ir.Node:
        """Whether there is a further step, where this is what was asked."""
        node = node if node.shape == () else ir.apply(OPS["reshape"], [node], {"shape": ()})
        node = node if self.stays else ir.apply(OPS["logical_not"], [node])
        return reduce(lambda a, b: ir.apply(OPS["logical_or"], [a, b]), self.goes, node)
