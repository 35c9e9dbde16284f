"""A captured call of a library function as one native call."""

from __future__ import annotations

import functools
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.errors import HybridmlError
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.routines import has_routine

from ..core.library import MISS, missed
from ..core.pytree import Structure, unflatten
from ..core.tensor import Tensor
from .function import Call
from .run.native_program import Given, Native, native_of
from .run.program import is_native
from .run.recorded_call import Recorded, Stateful, as_tensor


def native_call(call: Call, inputs: Given, given: Given, off: bool) -> Native | None:
    """A path as one native call, with a node of the tape where a gradient is wanted; None if it takes more."""
    entry, path, program = call.entry, call.path, call.path.program
    asks = entry.scalars or entry.integers or entry.drawn or entry.grad_guards or entry.aliased or entry.not_zero
    if entry.root is not path or asks or path.effects or path.own or path.cut or path.grads or path.views:
        return None
    (whole,) = path.structure.children
    outputs = [r.index for r in path.results if r.kind == "output"]
    count = len(outputs)
    if outputs != list(range(count)) or any(r.kind != "output" and r.value is not None for r in path.results):
        return None
    if not _is_of_tuples(whole) or not count:
        return None
    if not is_native(program.executable):  # a device computes it
        return None
    if [*program.executable.fresh] != [*range(count)]:  # two results are one, or one is an input
        return None
    arguments, captured = path.inputs[: len(given)], path.inputs[len(given) :]
    if [(i.kind, i.index) for i in arguments] != [("argument", k) for k in range(len(given))]:  # one is not read
        return None
    if any(i.kind not in ("held", "array") for i in captured):
        return None
    more = [as_tensor(i.real) for i in captured]
    native = native_of(program, [*given, *more])
    if native is missed:
        return None
    run: Native | Stateful = Stateful(path, native, more) if path.draws or path.writes else native
    found: Native = functools.partial(_before, native, more) if more and run is native else run
    if not off and any(o._node is not None for o in program.outputs[:count]):
        wanting = [k for k, v in enumerate(inputs) if type(v) is Tensor and v._node is not None]
        if any(k >= count for k in program.differentiable()):
            return None
        try:
            found = Recorded(program, run, wanting, more)
        except HybridmlError:  # it has no gradient, which a backward will say
            return None
    is_flat = count == len(path.results) == len(whole.children)
    if whole.kind is None or (whole.kind is tuple and is_flat and count > 1):
        return found
    return functools.partial(_packed, found, whole, [r.kind == "output" for r in path.results])


def _is_of_tuples(structure: Structure) -> bool:
    """Whether a result is a tensor, or tuples of such and None."""
    kind = structure.kind
    return kind is None or (issubclass(kind, tuple) and all(map(_is_of_tuples, structure.children)))


def has_other_bits(node: ir.Node, recorded: bool = False) -> bool:
    """Whether compiled code may have other bits here than the operation by itself, or leaves it to NumPy. `recorded`:
    its gradient, too, which for rows with a routine has products."""
    op = node.op
    if op is None or node.kind == "scatter":  # which combine in the order of their indices
        return False
    if op.transforms is not None:  # by the same kernels
        return False
    if node.kind == "opaque":
        return recorded or not has_routine(op, node.inputs)
    return bool(op.reorders) and node.dtype.kind in dtypes.INEXACT


def _before(native: Native, more: Given, *given: Any) -> Any:
    return native(*given, *more)


def _packed(call: Native, structure: Structure, present: list[bool], *given: Any) -> Any:
    """The results of a call in tuples of their classes, with None between them."""
    out = call(*given)
    if out is MISS:
        return MISS
    found = iter((out,) if type(out) is Tensor else out)
    return unflatten(structure, [next(found) if there else None for there in present])


def first_of(calls: tuple[Native, ...]) -> Native:
    """The first of these calls that takes the arguments: the layers of a network have several signatures."""

    def direct(*args: Any) -> Any:
        for call in calls:
            out = call(*args)
            if out is not MISS:
                return out
        return MISS

    return direct
