"""Bounds of the numbers that steps of loops compute from their own: `1.0 / (i + 1.0)` divides by no zero."""

from __future__ import annotations

from hybridml_compiler.graph import ir
from hybridml_compiler.sizes.dims import bounds, is_dim, steps_of
from hybridml_compiler.walk import reachable

Bounds = tuple[float, float]


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
