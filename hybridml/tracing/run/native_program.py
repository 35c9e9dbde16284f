"""A program as one native call of tensors and floats.

Unlike the calls of traced functions (native_call.py) it has no guards but on what it is given: library functions read
nothing else but the default dtype.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes

from ...core.context import _no_grad, grad_is_off, watch_var, watchers
from ...core.interpreter import interpreter_var
from ...core.library import MISS, missed
from ...core.tensor import Tensor, like
from ..capture.memory_order import Order, as_seen, in_memory
from .program import Program, dense, is_native

Native = Callable[..., Any]
Given = Sequence[Any]  # the tensors and floats of a call

_RELEASE_GIL_BYTES = 100_000  # a step that moves more takes tens of microseconds: let other threads run
_NOBODY = ctypes.c_int64(0)
_builtin = len  # of the class of native calls


def is_plain(native: Native) -> bool:
    """Whether a call is native code alone, but for the order of memory."""
    return type(native) is type(_builtin) or type(native) is Laid


def _failed(status: int, *given: Any) -> Any:
    """Results of a call that has failed: the long way raises its error."""
    from hybridml_compiler.targets.cpu.runtime.status import reraise

    reraise(status)
    return MISS


def native_of(
    program: Program, given: Given, args: Given | None = None, places: Sequence[int] = (), histories: bool | None = None
) -> Native:
    """The program as one call with the values of its inputs, of the types, shapes and memory that these have.

    With `args` it is a call with these arguments, of which those in `places` are its inputs. `histories`: whether it
    takes tensors with a history, which the caller records; if they have none without that.
    """
    from hybridml_compiler.targets.cpu.python_entry import spec
    from hybridml_compiler.targets.cpu.python_entry.entry import build_entry

    executable = program.executable
    if not is_native(executable):
        return missed
    recorded = args is not None and histories is None and any(type(v) is Tensor and v._node is not None for v in given)
    contexts: tuple[Any, ...] = ((_no_grad, grad_is_off()),) if recorded else ()
    layouts = [layout_of(v._array, order) for v, order in zip(given, program.orders, strict=True) if type(v) is Tensor]
    values = [laid(v, order) for v, order in zip(given, program.orders, strict=True)]
    arrays = [v._array if type(v) is Tensor else np.asarray(v, np.float64) for v in values]
    shapes, sizes = executable.shapes, None
    if shapes is not None:
        symbols = shapes.values(arrays)
        if not shapes.hold(*symbols):
            executable, shapes = shapes.exact(symbols), None
    if shapes is None:
        results = [aval.shape for aval in executable.outputs]
        arena_bytes = operator.index(executable.arena_bytes)
    else:
        *results, arena_bytes = shapes.sizes(*symbols)
        sizes = shapes.table_of(symbols)
    arena = executable.shared_arena(arena_bytes) if arena_bytes or sizes is not None else None
    outputs = tuple(spec.ArraySpec(aval.dtype, n) for aval, n in zip(executable.outputs, results, strict=True))
    moved = sum(a.nbytes for a in arrays) + sum(math.prod(o.shape) * o.dtype.itemsize for o in outputs)
    operands = iter([
        spec.ArraySpec(v._array.dtype, v._array.shape) if type(v) is Tensor else spec.FloatCell() for v in values
    ])  # fmt: skip
    entry = build_entry(
        spec.EntrySpec(
            step=executable.step,
            tensor_type=Tensor,
            array_slot="_array",
            args=tuple(
                [
                    next(operands) if args is None or k in places else spec.Constant(a)
                    for k, a in enumerate(given if args is None else args)
                ]
            ),
            outputs=outputs,
            fallback=missed,
            on_status=_failed,
            slot_defaults={"_node": None, "_version": 0},
            require_none_slots=() if args is None or contexts or histories else ("_node",),
            arena=arena,
            sizes=sizes,
            epochs=((watchers, _NOBODY), (dtypes.default_bits, ctypes.c_int64(dtypes.default_bits.value))),
            contexts=((interpreter_var, None), (watch_var, None), *contexts),
            release_gil=moved > _RELEASE_GIL_BYTES,
            keep=(executable,),
        )
    )
    orders = [program.output_orders[k] for k in executable.fresh]
    if not any(layouts) and not any(orders):
        return entry
    layout = iter(layouts)
    own = [None if type(v) is not Tensor else next(layout) for v in given]
    at = range(len(given)) if args is None else places
    relaid = [(k, order) for k, order, how in zip(at, program.orders, own, strict=True) if how is not None]
    return Laid(entry, relaid, orders)


class Laid:
    """A native call of tensors in another order of memory, or with such results."""

    __slots__ = ("entry", "orders", "relaid")

    def __init__(self, entry: Native, relaid: list[tuple[int, Order | None]], orders: list[Order | None]) -> None:
        self.entry, self.relaid, self.orders = entry, relaid, orders  # arguments by their place; results

    def __call__(self, *args: Any) -> Any:
        operands: Any = args
        if self.relaid:
            operands = [*args]
            for k, order in self.relaid:
                if k < len(operands):
                    operands[k] = laid(operands[k], order)
        out: Any = self.entry(*operands)
        if type(out) is Tensor:
            out._array = as_seen(out._array, self.orders[0])
        elif out is not MISS:
            for t, order in zip(out, self.orders, strict=True):
                t._array = as_seen(t._array, order)
        return out


def layout_of(array: np.ndarray, order: Order | None = None) -> Order | str | None:
    """The reason why native code cannot read an array as it is; None if it can."""
    if order is None and array.flags.c_contiguous:
        return None
    return order or "strided"


def laid(value: Any, order: Order | None = None) -> Any:
    """A tensor as native code reads it."""
    if type(value) is not Tensor or (order is None and value._array.flags.c_contiguous):
        return value
    if order is not None and len(order) != value._array.ndim:  # of another call
        return value
    return like(value, dense(in_memory(value._array, order)), value._node)
