"""Constant folding: `op(constants) -> constant`, computed by the row's own eager meaning.

    %0 = const 2.0 : f32[]                      %2 = const 6.0 : f32[]
    %1 = const 3.0 : f32[]             ->
    %2 = multiply(%0, %1) : f32[]

Only where it saves work and memory: results of fewer than 64 elements that are no larger than their operands. A
scalar is an immediate operand in a kernel, the array it is broadcast to would be a load; `zeros` and `arange` have no
operands, so they stay symbolic. Errors (an index out of bounds) are left for the run to raise.
"""

from __future__ import annotations

import numpy as np

from ..errors import HybridmlError
from ..graph.ir import Graph, Node, constant
from ..graph.rewrite import CONSTANT, Rule, Rules, make, rewrite
from ..ops.table import OPS
from ..sizes.values import has_dims
from .patterns import scalar

_SMALL = 64  # elements


def fold_constant(node: Node) -> Node | None:
    """`op(constants) -> constant`."""
    for operand in node.inputs:
        if operand.value is None:  # of most nodes
            return None
    if not node.inputs:
        return None
    if node.aval.symbolic or any(map(has_dims, node.params.values())):
        return None
    if node.aval.size >= _SMALL or node.aval.size > max(1, *(operand.aval.size for operand in node.inputs)):
        return None
    op, values = node.op, [operand.value for operand in node.inputs]
    assert op is not None
    try:
        with np.errstate(all="ignore"):
            result = op.run(values, node.params)
    except HybridmlError:
        return None
    return constant(np.asarray(result), weak=node.aval.weak)


def _samples() -> list[Node]:
    matrix = constant(np.arange(6, dtype="f4").reshape(2, 3))
    return [
        make("add", scalar(1.5), scalar(-0.0)),
        make("divide", matrix, scalar(0.0)),
        make("sum", matrix, axis=(0,)),
        make("reshape", matrix, shape=(3, 2)),
        make("astype", constant(np.array([-1, 300])), dtype=np.dtype("u1")),
    ]


FOLD_RULES = (Rule("op(constants) -> constant", tuple(OPS), fold_constant, _samples, (CONSTANT,)),)
_TABLE = Rules(FOLD_RULES, lasting=True)


def fold_constants(graph: Graph) -> Graph:
    """Replace small applications to constants by their value; see the module docstring."""
    return rewrite(graph, _TABLE)
