"""Questions about data and steps in a loop while it is captured: those that leave it, and those that part a step."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from hybridml_compiler.dtypes import int64
from hybridml_compiler.errors import user_frame
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record
from hybridml_compiler.sizes.steps import Undecided, is_step

from ...core.tensor import Tensor
from ..capture.loops.branches import Branch
from ..capture.loops.taken import scalar
from ..capture.subgraphs import snapshot
from ..capture.tracer import Tracer
from .code_loops import CodeLoop, question_at
from .undecided import loop_of

_BRANCHES = 8  # of a step, for questions about data
_not = OPS["logical_not"]


@record
class Exit:
    """A question that leaves the loop: where it does, and what variables and tensors are then."""

    leaves: ir.Node
    asked: int  # other questions before it
    variables: Mapping[str, Any]
    states: Sequence[Tensor]


class Questions:
    """Questions of the present step of a loop, with the answers that it was given."""

    tracer: Tracer
    loop: CodeLoop
    frame: types.FrameType
    masks = False  # whether branches have indices of their own, which are checked where they are taken
    states: list[Tensor]  # tensors from outside that the loop updates
    asked: list[ir.Node]
    answers: list[bool]  # of this step; there are `branches` for others
    branches: list[Branch[Tensor]]
    exits: list[Exit]

    def refuse(self, why: str) -> NoReturn:
        raise NotImplementedError

    def variables_now(self) -> dict[str, Any]:
        """The variables that the loop assigns, with the values that they have now."""
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
            leaves = ir.apply(_not, [node]) if stays else node
            states = [snapshot(self.tracer, t) for t in self.states]
            self.exits.append(Exit(scalar(leaves), len(self.asked), self.variables_now(), states))
            return np.asarray(stays)
        if node in self.asked:
            return np.asarray(self.answers[self.asked.index(node)])
        if len(self.branches) >= _BRANCHES:
            self.refuse(f"{what} is asked for")
        self.asked.append(node)
        if len(self.asked) > len(self.answers):
            self.answers.append(True)
        return np.asarray(self.answers[len(self.asked) - 1])

    def conditions(self) -> Iterator[ir.Node]:
        """Conditions under which a step comes to what it does now."""
        yield from (q if a else ir.apply(_not, [q]) for q, a in zip(self.asked, self.answers, strict=False))
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
