"""Branches of a step of a loop that data decides: the step is taken once for each answer, and the values are chosen.

    if a[i] > 0:                        a1 = slice_update(a, f(a[i]), i)            after True
        a[i] = f(a[i])          ->      a                                           after False
                                        slice_update(a, where(a[i] > 0, f(a[i]), a[i]), i)

What is computed for an answer that is not given is computed in vain, and raises nothing: a step that checks indices in
one branch alone is not captured this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from hybridml_compiler.graph import ir
from hybridml_compiler.record import record

from .ways import joined

Value = TypeVar("Value")


@record
class Branch(Generic[Value]):
    """A step as it goes for some answers: the questions, the answers to them, and what it computes."""

    asked: tuple[ir.Node, ...]
    answers: tuple[bool, ...]
    values: Sequence[Value]

    def with_more(self, values: Sequence[Value], at: int | None = None) -> Branch[Value]:
        """The branch with more values, after the others or before number `at`."""
        at = len(self.values) if at is None else at
        return Branch(self.asked, self.answers, [*self.values[:at], *values, *self.values[at:]])


def merged(branches: Sequence[Branch[ir.Node]], depth: int = 0) -> list[ir.Node]:
    """The values of a step, whatever the answers are."""
    if len(branches) == 1:
        return list(branches[0].values)
    question = branches[0].asked[depth]
    yes, no = (merged([b for b in branches if b.answers[depth] is answer], depth + 1) for answer in (True, False))
    return joined(question, yes, no)


def following(answers: Sequence[bool]) -> list[bool] | None:
    """The answers to try after these: the last True becomes False; None where all have been tried.

    >>> following([True, True]), following([True, False]), following([False])
    ([True, False], [False], None)
    """
    left = list(answers)
    while left and not left[-1]:
        left.pop()
    return [*left[:-1], False] if left else None
