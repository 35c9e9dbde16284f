"""Histories of results: the tape nodes of a row, in the general form of what generated functions do inline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.ops.op import Op

from ..context import grad_is_off
from ..source_location import here
from ..tensor import Tensor
from .pullbacks import kept_names, may_be_stale, pull_of, pull_results, pull_variadic
from .tape import Mark, make_node, part


def record(op: Op, outs: Sequence[Tensor], tensors: Sequence[Tensor], params: dict[str, Any]) -> None:
    """Gives results their history, if an input has one (the general form; generated functions inline it)."""
    if not op.differentiable or grad_is_off() or not (op.results or dtypes.is_inexact(outs[0]._array.dtype)):
        return
    rules = op.vjp * len(tensors) if op.variadic else op.vjp
    wanting = tuple(k for k, t in enumerate(tensors) if t._node is not None and rules[k] is not None)
    if not wanting:
        return
    parents = [tensors[k]._node for k in wanting]
    if type(parents[0]) is Mark and all([type(p) is Mark for p in parents]):
        for out in outs:
            out._node = Mark(out._array.shape) if dtypes.is_inexact(out._array.dtype) else None
        return
    if op.results:
        results = [_result(out) for out in outs]
        joint = make_node(pull_results, None, parents, op, wanting, list(tensors), params, results, here())
        for k, out in enumerate(outs):
            if out._array.dtype.kind in dtypes.INEXACT:
                out._node = part(joint, k, out._array.shape)
        return
    (out,) = outs
    if op.variadic:
        out._node = make_node(pull_variadic, out._array.shape, parents, op, wanting, list(tensors), params)
        return
    names = kept_names(op, wanting)
    kept: list[Any] = []
    for name in names:
        if name == "out":
            kept.append(_result(out))
        elif name in op.params:
            kept.append(params[name])
        elif name in op.inputs:
            kept.append(tensors[op.inputs.index(name)])
        else:
            source, _, what = name.rpartition("_")
            array = tensors[op.inputs.index(source)]._array
            kept.append(array.shape if what == "shape" else array.dtype)
    if may_be_stale(op, names):
        kept += here()
    out._node = make_node(pull_of(op, wanting), out._array.shape, parents, *kept)


def _result(out: Tensor) -> tuple[Any, list[Any]]:
    """The array and version that a node keeps of its own result: the tensor itself would be a cycle."""
    if type(out._version) is int:
        out._version = [out._version]
    return out._array, out._version
