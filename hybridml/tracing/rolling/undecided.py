"""Decisions by the number of a step that are other ones in other steps: the loop that they are about, and what becomes
of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler.hooks import hooks
from hybridml_compiler.sizes.atoms import Quotient
from hybridml_compiler.sizes.dims import LEAST, is_dim, provable
from hybridml_compiler.sizes.steps import Undecided, replaced

from ..capture.tracer import top_tracer
from ..specialize.errors import StepByStep

EVERY = "every"  # of a loop: (this, steps of a block, the number of the step that is unlike the others)
_FEWEST, _MOST = 5, 1 << 12  # steps of a block


def refused(loops: Sequence[Any], error: BaseException) -> StepByStep:
    """The exception for the loop that cannot be captured by one step for all: the innermost one whose number an error
    is about. A step at an end that is unlike the others is by itself."""
    loop = loop_of(loops, error) or loops[-1]
    if isinstance(error, Undecided):
        asked = "a size or a condition on its number differs from step to step"
        why = "something is looked up by its number" if error.asked is None else asked
        for of in loops:
            if (name := of.sizes.learns(error)) is not None:
                return StepByStep(of.place, why, (name,))
        return StepByStep(loop.place, why, loop.apart(error))
    return StepByStep(loop.place, f"{type(error).__name__}: {error}")


def loop_of(loops: Sequence[Any], error: BaseException) -> Any:
    """The innermost loop whose number an error is about."""
    names = error.steps if isinstance(error, Undecided) else ()
    return next((loop for loop in reversed(loops) if loop.name in names), None)


def every(error: Undecided, name: str, done: int, length: int) -> Sequence[Any]:
    """Notes about a loop of so many steps, after `done` others, from a condition that has one answer in a step of so
    many, and the other one in the rest; none of any other condition."""
    if error.asked is None:
        return ()
    relation, a, b = error.asked
    difference: Any = a - b
    terms = difference.terms if is_dim(difference) else ()
    found = [atom.by for m, _ in terms for atom in m if isinstance(atom, Quotient) and atom.kind == "%"]
    period = max((by for by in found if type(by) is int), default=0)
    if relation != "==" or not _FEWEST <= period <= _MOST or length < 2 * period:
        return ()
    numbers = range(LEAST, LEAST + 2 * period)
    answers = [provable("==", replaced(a, name, k), replaced(b, name, k)) for k in numbers]
    odd = [k for k in range(period) if answers.count(answers[k]) == 2]
    return (
        ((EVERY, period, (done + odd[0]) % period),)
        if len(odd) == 1 and answers[odd[0]] is answers[odd[0] + period]
        else ()
    )


def _question_of_steps(error: Undecided) -> bool | None:
    tracer = top_tracer()
    return tracer.loops[-1].asked_of_steps(error) if tracer is not None and tracer.loops else None


hooks.question_of_steps = _question_of_steps
