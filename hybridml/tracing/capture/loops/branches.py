"""Branches of a step of a loop that data decides: the step is taken once for each answer, and the values are chosen.

    if a[i] > 0:                        a1 = slice_update(a, f(a[i]), i)            after True
        a[i] = f(a[i])          ->      a                                           after False
                                        slice_update(a, where(a[i] > 0, f(a[i]), a[i]), i)

What is computed for an answer that is not given is computed in vain, and raises nothing: a step that checks indices in
one branch alone is not captured this way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record
from hybridml_compiler.walk import postorder

Value = TypeVar("Value")
_slice, _update, _where, _broadcast = OPS["slice"], OPS["slice_update"], OPS["where"], OPS["broadcast_to"]


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
    sides = [merged([b for b in branches if b.answers[depth] is answer], depth + 1) for answer in (True, False)]
    return [chosen(question, a, b) for a, b in zip(*sides, strict=True)]


def following(answers: Sequence[bool]) -> list[bool] | None:
    """The answers to try after these: the last True becomes False; None where all have been tried.

    >>> following([True, True]), following([True, False]), following([False])
    ([True, False], [False], None)
    """
    left = list(answers)
    while left and not left[-1]:
        left.pop()
    return [*left[:-1], False] if left else None


def chosen(question: ir.Node, a: ir.Node, b: ir.Node) -> ir.Node:
    """`a` where the answer is True, else `b`. Updates of one array are chosen slice by slice, so that it can be updated
    in place."""
    if a is b:
        return a
    first, second = _history(a), _history(b)
    common = next((node for node in first if node in set(second)), None)
    if common is None:
        return ir.apply(_where, [question, a, b])
    array = common
    for history, is_first in ((first, True), (second, False)):
        becomes = {common: array}
        for update in reversed(history[: history.index(common)]):
            (value,) = _substituted([update.inputs[1]], becomes)
            window = dict(update.params)
            old = ir.apply(_slice, [array], window)
            if value.shape != old.shape:
                value = ir.apply(_broadcast, [value], {"shape": old.shape})
            value = ir.apply(_where, [question, value, old] if is_first else [question, old, value])
            array = becomes[update] = ir.apply(_update, [array, value], window, update.where)
    return array


def _history(node: ir.Node) -> list[ir.Node]:
    """An array, and what it was before each of its last updates."""
    found = [node]
    while node.op is not None and node.op.is_update:
        node = node.inputs[0]
        found.append(node)
    return found


def _substituted(outputs: Sequence[ir.Node], becomes: Mapping[ir.Node, ir.Node]) -> list[ir.Node]:
    final = dict(becomes)
    for node in postorder(outputs, lambda n: () if n in becomes else n.inputs):
        if node not in final:
            inputs = tuple([final[n] for n in node.inputs])
            final[node] = node if inputs == node.inputs else ir.with_inputs(node, inputs)
    return [final[n] for n in outputs]
