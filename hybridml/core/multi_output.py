"""Rows with several results: what `dispatch.slow` is to all others, and their history.

One node of the tape stands for the call; each result has a small node that hands it that result's cotangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.ops.op import Op

from .context import clock, current_interpreter, grad_is_off, nans_var
from .dispatch import aval_of, has_narrow, operands, plain_params, recover, through_float32
from .source_location import here
from .tape import KEPT, Node, part, stale
from .tensor import Tensor, wrap


def several(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> tuple[Tensor, ...]:
    """Run a row on anything: one tensor a result."""
    if has_narrow(op, args):
        found: tuple[Tensor, ...] = through_float32(op, args, params, several)
        return found
    interp = current_interpreter()
    tensors = operands(op, args[0] if op.variadic else args, interp)
    plain_params(op, params)
    if interp is not None:
        outs = tuple(interp.apply(op, tensors, {**params, "result": k}) for k in range(len(op.results)))
        params = {name: value for name, value in outs[0]._array.params.items() if name != "result"}
    else:
        avals, arrays = [aval_of(t) for t in tensors], [t._array for t in tensors]
        params = op.canonical_params(avals, params)
        given: tuple[Any, ...] = (avals,) if op.variadic else tuple(avals)
        op.infer(*given, **params)
        try:
            results = op.eager(arrays, **params) if op.variadic else op.eager(*arrays, **params)
        except Exception as error:
            results = recover(op, error, tensors, params)
        outs = tuple(wrap(np.asarray(result)) for result in results)
        watching = nans_var.get()
        for out in outs if watching is not None else ():
            watching.check(op, arrays, out._array)
    _record(op, outs, tensors, params)
    return outs


def _record(op: Op, outs: tuple[Tensor, ...], tensors: Sequence[Tensor], params: dict[str, Any]) -> None:
    if not op.differentiable or grad_is_off():
        return
    rules = op.vjp * len(tensors) if op.variadic else op.vjp
    wanting = tuple(k for k, t in enumerate(tensors) if t._node is not None and rules[k] is not None)
    if not wanting:
        return
    for out in outs:
        out._version = [0]
    kept = [(out._array, out._version) for out in outs]
    joint = [
        clock(),
        _pull,
        None,
        *(tensors[k]._node for k in wanting),
        here(),
        op,
        wanting,
        list(tensors),
        params,
        kept,
    ]
    for k, out in enumerate(outs):
        if out._array.dtype.kind in dtypes.INEXACT:
            out._node = part(joint, k, out._array.shape)


def _pull(bundle: dict[int, Tensor], node: Node) -> list[tuple[Any, Tensor]]:
    place, op, wanting, tensors, params, kept = node[-6:]
    like = type(next(iter(bundle.values())))
    known: dict[str, Any] = {**params, **dict(zip(op.inputs, tensors, strict=not op.variadic))}
    for name, t in zip(op.inputs, tensors, strict=False):
        known |= {f"{name}_shape": t._array.shape, f"{name}_dtype": t._array.dtype}
    if op.variadic:
        known[op.inputs[0]] = tensors
    g = tuple(bundle.get(k) for k in range(len(kept)))
    pairs = []
    for parent, k in zip(node[KEPT:], wanting, strict=False):
        needs = op.needs[0 if op.variadic else k]
        if "out" in needs and "out" not in known:
            known["out"] = tuple(_rebuilt(like, op, j, node) for j in range(len(kept)))
        for t in tensors if op.variadic else [known[name] for name in needs if name in op.inputs]:
            if t._version:
                stale(op.name, "input", t._version, node[0], place)
        pairs.append((parent, op.vjp[0 if op.variadic else k](g, **{n: k if n == "k" else known[n] for n in needs})))
    return pairs


def _rebuilt(like: type[Tensor], op: Op, k: int, node: Node) -> Tensor:
    """A result as it came out (a reference to the tensor itself would be a cycle)."""
    array, version = node[-1][k]
    t = like()
    t._array, t._version, t._node = array, version, None
    if array.dtype.kind in dtypes.INEXACT:
        t._node = part(node, k, array.shape)
    stale(op.name, "result", version, node[0], node[-6])
    return t
