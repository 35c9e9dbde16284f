"""Decisions by the number of a step that are other ones in other steps: the loop that they are about, and what becomes
of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler.hooks import hooks
from hybridml_compiler.sizes.steps import Undecided

from ..capture.tracer import top_tracer
from ..specialize.errors import StepByStep


def refused(loops: Sequence[Any], error: BaseException) -> StepByStep:
    """The exception for the loop that cannot be captured by one step for all: the innermost one whose number an error
    is about. A step at an end that is unlike the others is by itself."""
    loop = loop_of(loops, error) or loops[-1]
    if isinstance(error, Undecided):
        why = "a size or a condition on its number differs from step to step"
        for of in loops:
            if (name := of.sizes.learns(error)) is not None:
                return StepByStep(of.place, why, (name,))
        return StepByStep(loop.place, why, loop.apart(error))
    return StepByStep(loop.place, f"{type(error).__name__}: {error}")


def loop_of(loops: Sequence[Any], error: BaseException) -> Any:
    """The innermost loop whose number an error is about."""
    names = error.steps if isinstance(error, Undecided) else ()
    return next((loop for loop in reversed(loops) if loop.name in names), None)


def _question_of_steps(error: Undecided) -> bool | None:
    tracer = top_tracer()
    return tracer.loops[-1].asked_of_steps(error) if tracer is not None and tracer.loops else None


hooks.question_of_steps = _question_of_steps
