"""Ints that steps of loops make of floats: `int(k / 3)`, `round(k * 0.5)`, `math.floor(x[i])`.

Of the number of a step divided by an int they are sizes, as `k // 3` is; of any other float they are ints of the
program, as the ends of ranges and the indices that data decides are. Elsewhere Python asks for the float.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybridml_compiler.dtypes import float64
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import Dim, Size, bounds, is_dim, number, steps_of

from ....core.proxies.base import NumberProxy
from ....core.proxies.integer import EXACT, LARGEST, IntProxy
from ....core.proxies.scalar import ScalarProxy
from ..loops.taken import fails_where
from ..number_bounds import bounds_of
from ..tracer import top_tracer

_FAR = 8  # rows from a number to that of a step


def whole(x: ScalarProxy, how: str) -> Any:
    """The int that `trunc`, `floor`, `ceil` or `round` makes of a float in a step; None where Python has to know it."""
    tracer = top_tracer()
    if tracer is None or (not tracer.loops and how != "trunc"):
        return None
    t = OPS["astype"].fn(tracer.lift(x._tensor), float64)  # and no number, which takes the dtype of a row
    ratio = _ratio(t._array)
    size = None if ratio is None else _rounded(*ratio, how)
    if size is not None:
        return size
    found, within = OPS[how].fn(t), bounds_of(t._array)
    bound = LARGEST if within is None else math.ceil(max(map(abs, within)))
    if within is None or bound > LARGEST:
        bound, inside = LARGEST, OPS["less"].fn(OPS["abs"].fn(t), float(LARGEST))  # not that of a NaN
        found = found + fails_where(tracer, OPS["logical_not"].fn(inside))
    # The int of -0.5 is 0, and not the float -0.0.
    return IntProxy(tracer, ScalarProxy(tracer.wrap((found + 0.0)._array, True)), None, bound, asks=True)


def _itself(size: Dim, digits: int | None = None) -> Size:
    return size if digits is None or digits >= 0 else round(number(size), digits)


NumberProxy.whole = staticmethod(whole)
for _name in ("trunc", "floor", "ceil", "round"):
    setattr(Dim, f"__{_name}__", _itself)


def _ratio(node: ir.Node, depth: int = 0) -> tuple[Size, int] | None:
    """Size and positive int whose quotient a float is, but for one rounding, which passes no whole number."""
    if depth > _FAR or node.dtype != float64 or node.shape:
        return None
    if node.value is not None:
        top, below = float(node.value).as_integer_ratio() if np.isfinite(node.value) else (0, 0)
        return (top, below) if 0 < below <= LARGEST and abs(top) <= LARGEST else None
    if node.op is None:
        return None
    if node.op.name == "full":
        value = node.params["value"]
        return (value, 1) if (is_dim(value) and steps_of(value)) or type(value) is int else None
    operands = [_ratio(n, depth + 1) for n in node.inputs]
    match node.op.name, operands:
        case "negative", [(a, b)]:
            found: Any = -a, b
        case "add", [(a, b), (c, d)]:
            found = a * d + c * b, b * d
        case "subtract", [(a, b), (c, d)]:
            found = a * d - c * b, b * d
        case "multiply", [(a, b), (c, d)]:
            found = a * c, b * d
        case "divide", [(a, 1), (int() as c, 1)] if not is_dim(c) and c > 0:
            found = a, c
        case _:
            return None
    # What is divided by another int than a power of two is rounded, and nothing may be computed with that.
    exact = all(d & (d - 1) == 0 for operand in operands if operand is not None for d in operand[1:])
    low, high = bounds(found[0]), bounds(-found[0])
    small = low is not None and high is not None and max(-low, -high) + found[1] < EXACT
    return found if exact and small else None


def _rounded(over: Size, by: int, how: str) -> Size | None:
    """The quotient, rounded in this way; None where the form does not tell."""
    low, high = bounds(over), bounds(-over)
    if by == 1:
        return over
    if how == "trunc" and low is not None and low >= 0:
        how = "floor"
    if how == "trunc" and high is not None and high >= 0:
        how = "ceil"
    if how == "round":  # ties are those of even divisors
        return (2 * over + by) // (2 * by) if by % 2 else None
    return over // by if how == "floor" else (over + by - 1) // by if how == "ceil" else None
