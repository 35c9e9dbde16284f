"""Questions about data and steps in a loop while it is captured: those that leave it, and those that part a step.

What follows is other code after `return i` in a step than after the last step.
The loop of the program has a number that says which way it was left. Once it is in the program Python asks for that:
one program for each code that follows, whatever the data. Then Python begins one more step, of which nothing is kept,
and leaves it where the loop was left, with the variables that the loop has given.

A way that only assigns numbers before it comes to the code after the last step, `where = i; break`, is no other one:
the loop of the program chooses the numbers.
"""

from __future__ import annotations

import dis
import operator
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NoReturn

import numpy as np

from hybridml_compiler.aval import Aval
from hybridml_compiler.dtypes import bool_, int64
from hybridml_compiler.errors import user_frame
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import is_dim
from hybridml_compiler.sizes.steps import Undecided, is_step

from ...core.proxies.flag import FlagProxy
from ...core.proxies.integer import IntProxy
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor, like
from ..capture.loops.branches import Branch
from ..capture.loops.taken import scalar
from ..capture.subgraphs import enter, fresh, leave, snapshot
from ..capture.tracer import Frame, Tracer
from ..specialize.errors import StepByStep
from .code_loops import CodeLoop, Position, question_at
from .lists.grown import Grown
from .undecided import loop_of
from .ways.joins import MOST_RUNS, Joins

WHAT = "the way out of a loop"
LENGTH = "how long a list has become"
WAYS = "ways"  # of a loop: no way out is as its own end with other numbers
_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}
_not, _and, _equal = OPS["logical_not"], OPS["logical_and"], OPS["equal"]

_NUMBERS = (int, float, bool, IntProxy, ScalarProxy, FlagProxy)


@record
class Exit:
    """A question that leaves the loop: where it does, the answers to others before it in the step, and what variables
    and tensors are then."""

    leaves: ir.Node
    position: Position
    answers: Sequence[bool]
    variables: Mapping[str, Any]
    states: Sequence[Tensor]
    grown: Sequence[int]  # items that the step has appended to each list
    checks: int  # so far
    objects: Mapping[str, Any]  # that the variables are, which the step may update later
    way: int  # which code follows
    numbers: Mapping[str, Any]  # that it has assigned before it comes to that


def taken_after(questions: Sequence[ir.Node], answers: Sequence[bool], exit: Exit) -> ir.Node:
    """Whether a step leaves by an exit, to which it comes by these answers alone."""
    come = (scalar(q) if a else ir.apply(_not, [scalar(q)]) for q, a in zip(questions, answers, strict=True))
    return reduce(lambda a, b: ir.apply(_and, [a, b]), come, exit.leaves)


def after_tail(instructions: Sequence[dis.Instruction], variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """The variables that a way out assigns; None where they are no numbers."""
    found: dict[str, Any] = {}
    stack: list[Any] = []
    for i in instructions:
        if i.opname.startswith("LOAD_FAST"):
            stack.append(found.get(i.argval, variables.get(i.argval)))
        elif i.opname.startswith("LOAD_"):
            stack.append(i.argval)
        elif i.opname == "UNARY_NEGATIVE":
            stack.append(-stack.pop())
        elif i.opname.startswith("STORE_FAST"):
            found[i.argval] = stack.pop()
        else:
            b, a = stack.pop(), stack.pop()
            op = None if FlagProxy in (type(a), type(b)) else _OPERATORS.get(i.argrepr.rstrip("="))
            stack.append(None if op is None else op(a, b))
        if not all(type(x) in _NUMBERS or is_dim(x) for x in stack):
            return None
    return found


def until(loop: Any, n: int) -> tuple[list[Tensor], list[Tensor], Tensor, list[Branch[Tensor]]]:
    """Further inputs of a loop that data ends, after `n`: a flag, the count of its steps, the way out, if there are
    several, and the count of steps that have grown lists, with their first values; the condition; and all that a step
    computes, in each way that it may go."""
    tracer = loop.tracer
    enter(tracer)
    begin = [0, *([loop.home] if loop.has_ways else []), *([0] if loop.grows_lists else [])]
    numbers = [fresh(tracer, Aval((), int64)) for _ in begin]
    flag, count, more = fresh(tracer, Aval((), bool_)), numbers[0], numbers[-1]
    stay = [ir.apply(_not, [leaves]) for leaves in loop.also]
    go = tracer.wrap(reduce(lambda a, b: ir.apply(_and, [a, b]), stay, flag._array))
    counted, grown = (tracer.wrap(OPS["add"].fn(t, 1)._array) for t in (count, more))
    first: list[Tensor] = [tracer.wrap(node) for node in (loop.first_go(), *(ir.constant(k, int64) for k in begin))]
    leave(tracer, keep=False)  # nothing that Python asks for may be computed from these
    ways = []
    for way, keeps in (*((b, True) for b in loop.branches), *loop.leaving):
        way = way.with_more([counted], n + 1)
        ways.append(way.with_more([grown if keeps else more], n + len(begin)) if loop.grows_lists else way)
    return [flag, *numbers], first, go, ways


def way_out(loop: Any, way: Tensor | None) -> Exit | None:
    """The exit by which Python is to leave a loop that is in the program; None where that is its own end."""
    if way is None:
        return None
    tracer = loop.tracer
    around = tracer.loops[-1] if tracer.loops else None
    for number, exit in sorted(loop.outs.items()):
        leaves = ir.apply(_equal, [way._array, ir.constant(number, int64)])
        if number == loop.home:
            continue
        if around is not None and around.frame is loop.frame and exit.position in around.loop.exits:
            if around.leaves_at(exit.position, leaves):
                return exit
        elif tracer.ask(leaves, WHAT):
            return exit
    return None


_WAYS = 64  # that a step may go, as data says: so many captures of a small step take 0.5 s
_FEW_WAYS, _MOST_NODES = 8, 8000  # and of a large one
_TOO_MANY = f"data decides more than {_WAYS} ways that a step may go, 2**n for n times `if`, `and`, `max`"


class Questions(Joins):
    """Questions of the present step of a loop, with the answers that it was given."""

    tracer: Tracer
    loop: CodeLoop
    frame: types.FrameType
    masks: bool = False  # whether branches have indices of their own, which are checked where they are taken
    states: list[Tensor]  # tensors from outside that the loop updates
    asked: list[ir.Node]
    answers: list[bool]  # of this step; there are `branches` for others
    branches: list[Branch[Tensor]]
    exits: list[Exit]
    made: set[ir.Node]  # in all ways so far
    of_floats: set[ir.Node]  # what `max` and `min` have chosen among Python's floats and others
    region: Frame
    grown: list[Grown]
    out: Exit | None = None  # by which Python leaves the loop, once it is in the program
    instructions = 0  # of Python's that the present step has run, as far as they are watched

    def refuse(self, why: str) -> NoReturn:
        raise NotImplementedError

    def question(self, node: ir.Node, what: str) -> np.ndarray:
        """The answer to a question about data, the one after the other; that to go on, where it may leave the loop."""
        if node.dtype.kind != "b" or node.aval.size != 1:
            self.refuse(f"{what} is asked for")
        if self.tracer.stages is not None:
            self.tracer.stages.check_asked(node, what)
        frame = user_frame()
        position = None if frame is not self.frame else question_at(self.frame.f_code, self.frame.f_lasti)
        if position in self.loop.exits:
            stays = self.loop.exits[position]
            leaves = self.leaves_at(position, ir.apply(_not, [node]) if stays else node)
            if leaves:
                self.finish()
            return np.asarray(stays is not leaves)
        known = next((k for k in self.open if self.asked[k] is node), None)
        in_vain = self.vain is not None or self.in_vain is not None
        body = self.body_of(node, what) if known is None and not in_vain else None
        in_vain = in_vain or self.vain is not None
        if body is False:  # "yes" goes on to it
            node = ir.apply(_not, [node])
            known = next((k for k in self.open if self.asked[k] is node), None)
        if known is None and in_vain:
            self.ask_in_vain()
        if max(self.runs, len(self.asked), self.asks_in_vain) > MOST_RUNS:  # of a `while` that each answer has go on
            self.refuse(_TOO_MANY)
        if known is not None or in_vain:
            return np.asarray((known is None or self.answers[known]) is not (body is False))
        taken = [answer for k, answer in enumerate(self.answers) if k not in self.joined]
        done = sum(0.5**k for k, answer in enumerate(taken, 1) if not answer)  # of all ways, if they ask as many
        ways = len(self.branches)
        if ways >= _FEW_WAYS and (ways > done * _WAYS or len(self.made) > _MOST_NODES):
            self.refuse(_TOO_MANY)
        self.asked.append(node)
        self.fork(body is not None)
        n = len(self.asked) - 1
        if n == len(self.answers):
            self.answers.append(True)
        elif body is not None and tuple(self.answers[:n]) in self.at_once:
            self.answers[n] = True
        return np.asarray(self.answers[n] is not (body is False))

    def leaves_at(self, position: Position, leaves: ir.Node) -> bool:
        """Whether Python leaves the loop where this may be so. It does once the loop is in the program; before that it
        is a way out."""
        answers = self.answers[: len(self.asked)]
        if self.vain is not None:
            return False
        if self.out is not None:
            return self.out.position == position and self.out.answers == answers
        states = [snapshot(self.tracer, t) for t in self.states]
        checks, variables, numbers = len(self.region.checks), self._assigned(), dict[str, Any]()
        if self.is_joined(position):
            assigned = after_tail(self.loop.tails[position], {**self.frame.f_locals, **variables})
            if assigned is None:
                self.refuse_to_join("a step keeps what it has found")
            numbers = assigned
        way = 0 if self.is_joined(position) else self.loop.ways[position]
        known = [(k, x) for k, x in variables.items() if k in {*self.loop.carried, *self.loop.after}]
        now = {k: like(x, x._array, x._node) if issubclass(type(x), Tensor) else x for k, x in known}
        grown = [len(g.target) - g.length for g in self.grown]
        exit = Exit(scalar(leaves), position, answers, now | numbers, states, grown, checks, variables, way, numbers)
        self.exits.append(exit)
        return False

    def is_joined(self, position: Position) -> bool:
        """Whether a way out is as the end of the loop, with other numbers."""
        return position in self.loop.tails and WAYS not in self.tracer.alone.get(self.loop.place, ())

    def refuse_to_join(self, why: str) -> NoReturn:
        raise StepByStep(self.loop.place, why, (WAYS,))

    def finish(self) -> None:
        """Ends the step by which Python leaves the loop."""
        raise NotImplementedError

    def conditions(self, but: int | None = None) -> Iterator[ir.Node]:
        """Conditions under which a step comes to what it does now, `but` for the answer to one question."""
        answers = [(self.asked[k], self.answers[k]) for k in self.open if k != but]
        yield from (q if a else ir.apply(_not, [q]) for q, a in answers)
        yield from (ir.apply(_not, [exit.leaves]) for exit in self.exits)

    def asked_of_steps(self, error: Undecided) -> bool | None:
        """The answer to a condition on numbers of steps, as to a question about data; None where it is no question, or
        the loop is done in parts, in each of which it goes one way."""
        if error.asked is None:
            return None
        relation, *sizes = error.asked
        loop = loop_of(self.tracer.loops, error)
        if loop is None or loop.apart(error) or not all(type(size) is int or is_step(size) for size in sizes):
            return None  # sizes that come with the call are numbers in a loop
        a, b = (ir.apply(OPS["full"], [], {"shape": (), "value": size, "dtype": int64}) for size in sizes)
        return bool(self.question(ir.apply(OPS["equal" if relation == "==" else "less"], [a, b]), "a condition"))

    def apart(self, error: Undecided) -> Sequence[Any]:
        """The places at which to part the loop (see specialize/errors.py), so that what is undecided goes one way in
        each part."""
        return ()
