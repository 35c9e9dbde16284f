"""Values in a branch of a step that may be computed in vain: what may raise there raises for nothing."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from hybridml_compiler.dtypes import float64, int64
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.checks import INDEXED
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS

from ....core.tensor import Tensor

_where, _reshape = OPS["where"], OPS["reshape"]
_OF_MATRICES = ("cholesky", "inv", "solve")  # rows that raise for a matrix, and not for that of ones in the diagonal
_OF_PYTHON = ("python_math", "python_power")  # rows that compute as Python does, with its errors


def raises_in_vain(op: Op) -> bool:
    """Whether a row may raise for what steps compute in vain, and `where_taken` sees to it that it does not."""
    return op.kind in INDEXED or op.name in _OF_PYTHON or op.name in _OF_MATRICES or op.name == "some"


def where_taken(tracer: Any, op: Op, operands: Sequence[Tensor], params: Mapping[str, Any]) -> Sequence[Tensor]:
    """The operands of such a row, with others for which it raises nothing where the steps of loops go another way."""
    if op.name == "python_power" and _is_whole(operands[1]._array):
        return operands  # too large at worst: then Python makes the call, with its results
    if op.name in _OF_PYTHON:
        other = 0 if params.get("name") == "atanh" else 1
        x = operands[0]
        taken = or_other(tracer, OPS["astype"].fn(x, float64), other)
        return [tracer.wrap(taken._array, type(x).is_number, type(x).is_double), *operands[1:]]
    if op.name == "some":
        return [or_other(tracer, operands[0], True)]
    if op.name in _OF_MATRICES:
        x = operands[0]
        return [or_other(tracer, x, OPS["eye"].fn(x.shape[-1], x.shape[-1], dtype=x.dtype)), *operands[1:]]
    return [
        or_other(tracer, t, 0) if name == "indices" else t for t, name in zip(operands, op.inputs, strict=True)
    ]  # fmt: skip


def _is_whole(exponent: ir.Node) -> bool:
    """Whether a power is 0 or more, and whole: only a result too large fails."""
    return exponent.value is not None and float(exponent.value) >= 0 and float(exponent.value).is_integer()


def or_other(tracer: Any, t: Tensor, other: Any) -> Tensor:
    """The value where the steps of loops go this way, else another one."""
    conditions = [tracer.wrap(scalar(q)) for loop in tracer.loops for q in loop.conditions()]
    return _where.fn(reduce(operator.and_, conditions), t, other) if conditions else t


def fails_where(tracer: Any, wrong: Tensor) -> Tensor:
    """A 0 of the program, after a check that this is false where the steps of loops go this way: else Python makes the
    call, with its results or its error."""
    found: Tensor = OPS["index"].fn(or_other(tracer, OPS["astype"].fn(wrong, int64), 0), 1, 0)
    return found


def scalar(node: ir.Node) -> ir.Node:
    return node if node.shape == () else ir.apply(_reshape, [node], {"shape": ()})
