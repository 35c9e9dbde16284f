"""Batches of users' rows: by the function that the user has given, or by a method of `jax.pure_callback`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.op import Op

from ..tensor import Tensor

# How a row that broadcasts by itself is called: once per element; with an axis of one element for what all share; with
# that repeated.
METHODS = ("sequential", "expand_dims", "broadcast_all")


def by_rule(op: Op, size: int, tensors: Sequence[Tensor], in_batched: Sequence[bool], params: Mapping[str, Any]) -> Any:
    """The results of `op.vmap(axis_size, in_batched, *tensors, **params)`, which gives those and whether they have the
    batch. Source: `jax.custom_batching.custom_vmap`."""
    params = {name: value for name, value in params.items() if name != "result"}
    assert callable(op.vmap)
    found = op.vmap(size, list(in_batched), *tensors, **params)
    if not isinstance(found, tuple) or len(found) != 2:
        raise ArgumentError(f"{op.name}: the function vmap= returns (results, whether they have the batch)")
    out, out_batched = found
    made = out if op.results else (out,)
    flags = out_batched if isinstance(out_batched, tuple | list) else [out_batched] * len(made)
    spread = [
        t if flag else t.expand_dims(axis=0).broadcast_to((size, *t.shape)) for t, flag in zip(made, flags, strict=True)
    ]
    return tuple(spread) if op.results else spread[0]
