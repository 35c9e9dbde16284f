"""Tensors of a step that are numbers of Python's in some calls, or some steps: `e = 0.0`, then `e = max(e, x[i])`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler.graph import ir
from hybridml_compiler.walk import postorder

from ..number_bounds import is_full


def may_be_number(tracer: Any, node: ir.Node) -> bool:
    """Whether a tensor is a number of Python's where some loop takes no step: it is one of those, or computed from
    nothing but these, literals and numbers of steps."""
    if not tracer.perhaps_numbers:
        return False

    def operands(n: ir.Node) -> Sequence[ir.Node]:
        computes = n.kind in ("elementwise", "opaque")  # or is a function of `math`
        return n.inputs if computes and not n.shape and n not in tracer.perhaps_numbers else ()

    perhaps: dict[ir.Node, bool | None] = {}  # None of literals, which are numbers beside such
    for n in postorder([node], operands):
        of = [perhaps[m] for m in operands(n)]
        if of:
            perhaps[n] = False if False in of else True if True in of else None
        elif n in tracer.perhaps_numbers:
            perhaps[n] = True
        else:
            perhaps[n] = None if not n.shape and (n.value is not None or n.aval.weak or is_full(n)) else False
    return perhaps[node] is True
