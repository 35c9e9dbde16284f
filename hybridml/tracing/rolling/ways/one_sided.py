"""An `if` without `else`: one way of its question leads to the place where both join, and does nothing on it. So both
are known when the other one gets there, in one run: n of them one after the other are one run of a step, not n + 1.

    if x > 0:           POP_JUMP_IF_FALSE to the next statement: "no" makes of each variable what it was at the question
        n += 1          "yes" comes to the next statement: n = where(x > 0, n + 1, n), and the run goes on

Which answer leads there is read off the instruction, so the question must be the one that it asks. The comparison of
two tuples asks whether items are equal before it knows what it says itself: `(x[i], 1) < (y[i], 2)`.
"""

from __future__ import annotations

import sys
from types import FrameType

from hybridml_compiler.errors import is_internal
from hybridml_compiler.graph import ir
from hybridml_compiler.sizes.dims import Dim

from .join_points import JoinPoints

_TRUTH, _CONDITION = "bool()", "a condition"  # what is asked for: the truth of a value, a relation of sizes
_OF_VALUES = {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
# Of sizes: the methods that a comparison calls, and whether what they ask is what they say, or the opposite.
_OF_SIZES = {
    "==": ("__eq__", "__eq__", True), "!=": ("__ne__", "__ne__", False), "<": ("__lt__", "__gt__", True),
    ">": ("__lt__", "__gt__", True), "<=": ("__le__", "__ge__", False), ">=": ("__le__", "__ge__", False),
}  # fmt: skip


def answer_of_body(points: JoinPoints, frame: FrameType, node: ir.Node, what: str) -> bool | None:
    """The answer with which a question that an instruction of this frame asks goes on to what is in an `if`; None where
    that is not known, or the other answer does not lead to the end of the `if` at once."""
    asker: FrameType | None = None
    outer: FrameType | None = sys._getframe(1)
    while outer is not frame and outer is not None and is_internal(outer.f_code.co_filename):
        asker, outer = outer, outer.f_back
    leaves = points.leaves(frame.f_lasti)
    if outer is not frame or asker is None or leaves is None:
        return None
    compares = points.compares(frame.f_lasti)
    if asker.f_code.co_name == "__bool__" and what == _TRUTH:
        is_own = not compares or (node.op is not None and node.op.name == _OF_VALUES.get(compares))
        return not leaves if is_own else None
    *methods, says_it = _OF_SIZES.get(compares, (True,))
    is_own = any(vars(Dim)[name].__code__ is asker.f_code for name in methods)
    return says_it is not leaves if is_own and what == _CONDITION else None
