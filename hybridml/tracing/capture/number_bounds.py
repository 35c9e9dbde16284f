"""Bounds of the numbers that steps of loops compute from their own: `1.0 / (i + 1.0)` divides by no zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import bounds, is_dim, number, steps_of, symbol, symbols_of
from hybridml_compiler.sizes.steps import replaced
from hybridml_compiler.walk import reachable

from ...core.tensor import Tensor

Bounds = tuple[float, float]
_not_equal = OPS["not_equal"]


def of_steps(size: Any) -> Any:
    """The size in a loop's body, where it depends on steps alone: sizes of the call are numbers."""
    for of_call in (s for s in symbols_of(size) if s.most is None):
        size = replaced(size, of_call.name, number(symbol(of_call.name, of_call.hint)))
    return size


def is_divisor(tracer: Any, t: Tensor, ends: Sequence[ir.Node], what: str) -> bool:
    """Whether a number that is computed from these inputs may be divided by. Of an input that is a guard, of anything
    else a question."""
    node = t._array
    in_steps = bool(tracer.loops) and is_of_steps(node)
    inputs = all(map(tracer.has_input, ends))
    if (in_steps and may_be_zero(node)) or (tracer.loops and not inputs):
        tracer.loops[-1].refuse("a number of Python's divides, which may be zero in some step")
    if in_steps or tracer.ask is None or tracer.strict or not ends or not inputs:
        return True  # sizes are positive; in the body of a control operation there are no Python numbers
    if not node.is_input:
        return bool(tracer._value(_not_equal.fn(t, 0)._array, what))
    tracer.not_zero.add(node)
    return bool(tracer.input_of(node).real != 0)


def is_of_steps(node: ir.Node) -> bool:
    """Whether a number is computed from the number of a step."""
    return any(steps_of(n.params["value"]) for n in reachable([node], lambda n: n.inputs) if _is_full(n))


def may_be_zero(node: ir.Node) -> bool:
    """Whether a number may be zero in some step, as far as its form tells."""
    found = _bounds(node)
    return found is None or found[0] <= 0 <= found[1]


def _is_full(node: ir.Node) -> bool:
    return node.op is not None and node.op.name == "full"


def _bounds(node: ir.Node) -> Bounds | None:
    if node.value is not None and node.value.size == 1 and node.dtype.kind in "fiu":
        return (float(node.value.item()),) * 2
    if node.op is None:
        return None
    if _is_full(node):
        value = node.params["value"]
        low, high = (bounds(value), bounds(-value)) if is_dim(value) else (value, -value)
        return None if low is None or high is None else (float(low), float(-high))
    operands = [_bounds(n) for n in node.inputs]
    match node.op.name, operands:
        case (("astype" | "reshape"), [tuple() as a]) if node.dtype.kind == "f":
            return a
        case "negative", [(low, high)]:
            return -high, -low
        case "add", [(a, b), (c, d)]:  # rounding keeps order
            return a + c, b + d
        case "subtract", [(a, b), (c, d)]:
            return a - d, b - c
        case "multiply", [(a, b), (c, d)]:
            products = (a * c, a * d, b * c, b * d)
            return min(products), max(products)
    return None
