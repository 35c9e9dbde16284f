"""Values in a branch of a step that may be computed in vain: indices there raise for nothing."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

from hybridml_compiler.graph import ir
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS

from ....core.tensor import Tensor

_where, _reshape = OPS["where"], OPS["reshape"]


def where_taken(tracer: Any, op: Op, operands: Sequence[Tensor]) -> Sequence[Tensor]:
    """The operands of a row that looks up indices, with 0 for these where the steps of loops go another way."""
    return [
        or_other(tracer, t, 0) if name == "indices" else t for t, name in zip(operands, op.inputs, strict=True)
    ]  # fmt: skip


def or_other(tracer: Any, t: Tensor, other: int) -> Tensor:
    """The value where the steps of loops go this way, else another one."""
    conditions = [tracer.wrap(scalar(q)) for loop in tracer.loops for q in loop.conditions()]
    return _where.fn(reduce(operator.and_, conditions), t, other) if conditions else t


def scalar(node: ir.Node) -> ir.Node:
    return node if node.shape == () else ir.apply(_reshape, [node], {"shape": ()})
