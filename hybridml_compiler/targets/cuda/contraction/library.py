"""Products that are left to cuBLAS: which they are, and what is launched after them.

A library has no epilogues, so that the loop nest after a product is a launch of its own, and its result passes through
memory once more. It multiplies faster by more than that costs as soon as there is enough to multiply. Where all that
reads a result rounds it to the narrow type of the operands, the library does that: with the same bits, as it adds up in
float32 and rounds once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .... import config, dtypes
from ....loops.builder import LoopBuilder
from ....loops.ir import Expr, For, Kernel, KernelSpec, Stmt, Store, perfect_nest
from ....loops.transforms import renamed
from ....ops.conversion import convert
from ....record import record, replace
from ....schedule.fusion.epilogue import Fused
from ....schedule.kernels.gemm import Product
from ..schedule import schedule
from .contraction import contraction_of
from .tiles import tensor_type

# Operations per second of our kernels and of cuBLAS, by what multiplies: an H100's, 4096 x 4096 x 4096
# (benchmarks/gpu_check.py). Of other GPUs the ratios count.
_RATES = {"": (37e12, 50e12), "tf32": (85e12, 380e12), "f16": (155e12, 700e12), "bf16": (155e12, 700e12)}
_DOUBLE = (15e12, 50e12)
_BYTES = 2.9e12  # a second, to memory
_LAUNCH = 1e-6  # seconds from one launch of a graph to the next
# Operations from which the library is faster: 512 x 512 x 512 takes it 13 us in float32 and 4 in bfloat16, us 16 and 7;
# 256 x 256 x 256 in float32 7 us and 6 of ours.
_LEAST = 1 << 27


def multiplies(call: KernelSpec) -> bool:
    """Whether the library computes a call: one in float32 or float64, of operands in it, or both in one narrow type."""
    if not isinstance(call, Product) or call.dtype.kind != "f" or call.symbolic or call.computed:
        return False
    return call.stored is None or (dtypes.is_narrow(call.stored[0]) and call.stored[0] is call.stored[1])


def is_left_to_library(spec: KernelSpec) -> bool:
    """Whether a product is expected to be done sooner by the library, with its epilogue after it."""
    call = spec.call if isinstance(spec, Fused) and spec.prologue is None else spec
    if not isinstance(call, Product) or not multiplies(call) or call.flops < _LEAST:
        return False
    if call is spec:
        return True
    kind = tensor_type(contraction_of(call), tf32=config.read().tf32)
    ours, theirs = _DOUBLE if call.dtype.itemsize > 4 else _RATES[kind]
    passes = 2 * call.result[0] * call.result[1] * (call.stored or (call.dtype,))[0].itemsize / _BYTES
    return call.flops / theirs + _LAUNCH + passes < call.flops / ours


@record
class LibraryCall:
    """A product by the library, and the loop nest after it: `dtype` is that of the result in memory, which the launch
    has as operand number `home`; None where it needs memory that it has not."""

    call: Product
    dtype: np.dtype
    home: int | None
    epilogue: Kernel | None


def library_call(spec: KernelSpec) -> LibraryCall:
    """A product, with the loop nest after it, as the library and a launch compute it."""
    if isinstance(spec, Product):
        return LibraryCall(spec, spec.dtype, 2, None)
    assert isinstance(spec, Fused) and isinstance(spec.call, Product) and spec.epilogue is not None
    call, nest = spec.call, spec.epilogue
    s = LoopBuilder()
    nest = replace(nest, body=renamed(s, _serial(nest.body), {}, fresh=True))
    rounded = _rounded(s, nest, call) if call.passing else None
    if rounded is not None and (copied := _copied(rounded)) is not None:
        return LibraryCall(call, rounded.operands[0].dtype, 2 + copied, None)
    nest = rounded or nest
    return LibraryCall(call, nest.operands[0].dtype, None if call.passing else 2, schedule(s, nest))


def _rounded(s: LoopBuilder, nest: Kernel, call: Product) -> Kernel | None:
    """The loop nest that reads the result in the type that the operands are stored in, which is all that it looks at;
    None where it looks at more."""
    first = nest.operands[0]
    if call.stored is None or first.role != "in":
        return None
    narrow = replace(first, name="rounded", dtype=call.stored[0])
    rounded = [(convert(s, load, first.dtype, narrow.dtype), s.load_of(narrow, load.args)) for load in _loads(nest)]
    mapping = {loop.var: loop.var for loop in perfect_nest(nest.body)[0]}
    mapping |= {e: load for e in nest.expressions if e.dtype is narrow.dtype for r, load in rounded if _same(e, r)}
    made = replace(nest, buffers=(narrow, *nest.buffers[1:]), body=renamed(s, nest.body, mapping))
    return None if any(e.op == "load" and e.attr == first for e in made.expressions) else made


def _loads(nest: Kernel) -> list[Expr]:
    """Loads of the first operand."""
    return [e for e in nest.expressions if e.op == "load" and e.attr.name == nest.operands[0].name]


def _same(x: Expr, y: Expr) -> bool:
    """Whether two expressions are built alike from the same parts."""
    if x is y:
        return True
    if (x.op, x.attr, x.dtype, len(x.args)) != (y.op, y.attr, y.dtype, len(y.args)):
        return False
    return all(map(_same, x.args, y.args)) if x.args else x.op == "const"


def _copied(nest: Kernel) -> int | None:
    """The number of the operand that gets the first as it is, where nothing else is done."""
    match perfect_nest(nest.body)[1]:
        case [Store(buffer, index, value)] if value.op == "load" and value in _loads(nest) and value.args == (index,):
            return nest.operands.index(buffer)
    return None


def _serial(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The statements before they were scheduled."""
    return tuple(For(x.var, _serial(x.body)) if isinstance(x, For) else x for x in body)
