"""Bounds of numbers, by the rows that compute them: `1.0 / (i + 1.0)` in a loop divides by no zero, and the largest of
`x % 10` is below 10, which Python need not ask."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import bounds, is_dim, number, symbol, symbols_of
from hybridml_compiler.sizes.steps import replaced

from ...core.tensor import Tensor
from .loops.taken import fails_where

Bounds = tuple[float, float]
_equal, _not_equal = OPS["equal"], OPS["not_equal"]


def of_steps(size: Any) -> Any:
    """The size in a loop's body, where it depends on steps alone: sizes of the call are numbers."""
    for of_call in (s for s in symbols_of(size) if s.most is None):
        size = replaced(size, of_call.name, number(symbol(of_call.name, of_call.hint)))
    return size


def is_divisor(tracer: Any, t: Tensor, ends: Sequence[ir.Node], what: str) -> bool:
    """Whether a number that is computed from these inputs may be divided by. Of an input that is a guard, of what steps
    of loops decide a check in each step, of anything else a question."""
    node = t._array
    if tracer.loops and not (node.is_input and tracer.has_input(node)):
        if may_be_zero(node):
            fails_where(tracer, _equal.fn(tracer.wrap(node), 0))
        return True
    if tracer.ask is None or tracer.strict or not ends or not all(map(tracer.has_input, ends)):
        return True  # sizes are positive; in the body of a control operation there are no Python numbers
    if not node.is_input:
        return bool(tracer._value(_not_equal.fn(t, 0)._array, what))
    tracer.not_zero.add(node)
    return bool(tracer.input_of(node).real != 0)


def may_be_zero(node: ir.Node) -> bool:
    """Whether a number may be zero in some step, as far as its form tells."""
    found = _bounds(node, {})
    return found is None or found[0] <= 0 <= found[1]


def bounds_of(node: ir.Node) -> Bounds | None:
    """Bounds of a number in all steps, as far as its form tells."""
    found = _bounds(node, {})
    return found if found is not None and all(map(math.isfinite, found)) else None


def answer_of(node: ir.Node) -> bool | None:
    """The answer to a comparison of integers, where it is the same whatever data there is."""
    holds = _COMPARED.get(node.op.name) if node.op is not None else None
    if holds is None or any(n.dtype.kind not in "iu" for n in node.inputs):
        return None
    known: dict[ir.Node, Bounds | None] = {}
    a, b = (_bounds(n, known) or () for n in node.inputs)
    answers = {holds(x, y) for x in a for y in b}
    return answers.pop() if len(answers) == 1 else None


_COMPARED: dict[str, Callable[[float, float], bool]] = {
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip
_FAR = 32  # rows from an answer to what it is computed from
# Rows whose elements are among those of their operand.
_SOME = frozenset(("max", "min", "reshape", "slice", "permute_dims", "broadcast_to", "flip"))


def is_full(node: ir.Node) -> bool:
    """Whether a node is a literal, or the number of a step."""
    return node.op is not None and node.op.name == "full"


def is_literal(node: ir.Node) -> bool:
    """Whether a node is a number of Python's beside tensors: a literal, the number of a step, or one of a loop."""
    return not node.shape and (node.value is not None or node.aval.weak or is_full(node))


def _bounds(node: ir.Node, known: dict[ir.Node, Bounds | None], depth: int = 0) -> Bounds | None:
    """Bounds of each element; None where nothing near tells any."""
    if node not in known:
        found = _by_row(node, known, depth) if depth < _FAR else None
        if node.dtype.kind in "iu":
            least, most = int(np.iinfo(node.dtype).min), int(np.iinfo(node.dtype).max)
            if found is None or found[0] < least or most < found[1]:  # it may wrap
                found = least, most
        known[node] = found
    return known[node]


def _by_row(node: ir.Node, known: dict[ir.Node, Bounds | None], depth: int) -> Bounds | None:
    if node.value is not None and node.value.size and node.dtype.kind in "fiu":
        low, high = node.value.min().item(), node.value.max().item()
        return None if math.isnan(low) else (low, high)
    if node.op is None:
        return None
    if is_full(node):
        value = node.params["value"]
        low, high = (bounds(value), bounds(-value)) if is_dim(value) else (value, -value)
        return None if low is None or high is None else (low, -high)
    if node.op.name in ("argmax", "argmin"):
        x, axis = node.inputs[0], node.params["axis"]
        size = x.aval.size if axis is None else x.shape[axis]
        return (0, size - 1) if type(size) is int and size > 0 else None
    operands = [_bounds(n, known, depth + 1) for n in node.inputs]
    match node.op.name, operands:
        case "astype", [tuple() as a] if node.dtype.kind == "f" or node.inputs[0].dtype.kind in "iu":
            return a
        case "remainder", [_, (low, high)] if low > 0 and node.dtype.kind in "iu":
            return 0, high - 1
        case name, [tuple() as a] if name in _SOME:
            return a
        case "where", [_, (a, b), (c, d)]:
            return min(a, c), max(b, d)
        case "minimum", [(a, b), (c, d)]:
            return min(a, c), min(b, d)
        case "maximum", [(a, b), (c, d)]:
            return max(a, c), max(b, d)
        case "negative", [(low, high)]:
            return -high, -low
        case "add", [(a, b), (c, d)]:  # rounding keeps order
            return a + c, b + d
        case "subtract", [(a, b), (c, d)]:
            return a - d, b - c
        case "multiply", [(a, b), (c, d)]:
            products = (a * c, a * d, b * c, b * d)
            return min(products), max(products)
        case "divide", [(a, b), (c, d)] if c > 0 or d < 0:
            quotients = (a / c, a / d, b / c, b / d)
            return min(quotients), max(quotients)
        case "python_math", [(low, high)] if node.params["name"] == "sqrt" and low >= 0:
            return math.sqrt(low), math.sqrt(high)
        case "sqrt", [(low, high)] if low >= 0:
            return math.sqrt(low), math.sqrt(high)
    return None
