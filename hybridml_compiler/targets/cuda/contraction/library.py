"""Products that are left to cuBLAS: which they are, and what is launched after them.

A library has no epilogues, so that the loop nest after a product is a launch of its own, and its result passes through
memory once more. It multiplies faster by more than that costs as soon as there is enough to multiply. Where all that
reads a result rounds it to the narrow type of the operands, the library does that: with the same bits, as it adds up in
float32 and rounds once.
"""

from __future__ import annotations

from .... import config, dtypes
from ....loops.builder import LoopBuilder
from ....loops.ir import KernelSpec
from ....schedule.fusion.epilogue import Fused
from ....schedule.kernels.gemm import Product
from ..code import Multiply, RegionSource
from .contraction import contraction_of
from .kernel import nest_source
from .rounding import copied, rounded, unscheduled
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
    kind = tensor_type(contraction_of(call), tf32=config.field("tf32"))
    ours, theirs = _DOUBLE if call.dtype.itemsize > 4 else _RATES[kind]
    passes = 2 * call.result[0] * call.result[1] * (call.stored or (call.dtype,))[0].itemsize / _BYTES
    return call.flops / theirs + _LAUNCH + passes < call.flops / ours


def product_steps(spec: KernelSpec, *, wide: bool = True) -> RegionSource:
    """A product by the library, and the loop nest after it."""
    call, epilogue = (spec.call, spec.epilogue) if isinstance(spec, Fused) else (spec, None)
    assert isinstance(call, Product)
    if epilogue is None:
        return RegionSource(((Multiply(call, call.dtype), (0, 1, 2)),))
    s = LoopBuilder()
    nest = unscheduled(s, epilogue)
    narrow = rounded(s, nest, call.stored[0]) if call.passing and call.stored is not None else None
    dtype = (narrow or nest).operands[0].dtype
    home = None if narrow is None else copied(narrow)
    if home is not None:
        return RegionSource(((Multiply(call, dtype), (0, 1, 2 + home)),))
    count = 2 + len(nest.operands)  # operands of the spec
    out, scratch = (count, (call.result[0] * call.result[1] * dtype.itemsize,)) if call.passing else (2, ())
    after = nest_source(s, narrow or nest, wide)
    return RegionSource(((Multiply(call, dtype), (0, 1, out)), (after, (out, *range(3, count)))), scratch)
