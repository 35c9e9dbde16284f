"""The way in which a matrix product is computed on a CPU: by the process's BLAS in slabs, or by our own
product."""

from __future__ import annotations

from collections.abc import Sequence

from ..... import dtypes
from .....loops.ir import Kernel
from .....once import once
from .....record import replace
from .....schedule import cost
from .....schedule.fusion.epilogue import matrices_of
from .....schedule.kernels.convolution import Pretranspose
from .....schedule.kernels.gemm import Product, use_own_product
from .....sizes.dims import Size
from ...kernels.gemm_blocking import ROWS, Blocking, blocking_of, blocking_of_rows, units, with_any_rows
from ...kernels.gemv import Gemv, dot_units, dots_of
from ...kernels.low_precision import Format, can_pass, format_of, narrow_blocking
from ...spec import CpuSpec
from .. import ir
from ..kernel import emit_epilogue
from . import kernel
from .blocked import emit_blocked_product, turns
from .gemv import emit_dots
from .low_precision import emit_narrow_product


def format_on(product: Product, cpu: CpuSpec) -> Format:
    """The format that narrow operands are packed into."""
    return format_of(product, cpu.enabled if cpu.vector_bits == 512 else ())


@once
def own_blocking(product: Product, cpu: CpuSpec) -> Blocking | Gemv | None:
    """The blocking of our own product; None where BLAS computes it."""
    bits = cpu.vector_bits
    if not cpu.registers:
        return None
    if product.symbolic:
        like = replace(product, m=ROWS)
        found = own_blocking(like, cpu) if with_any_rows(product) else None
        return blocking_of_rows(product, found) if isinstance(found, Blocking) else None
    if product.stored is not None:
        return narrow_blocking(product, format_on(product, cpu), bits // 8, cpu.registers, cpu.cores)
    dots = dots_of(product, bits // 8, cpu.registers, cpu.cores)
    if dots is not None:
        return dots
    blocking = blocking_of(product, bits // 8, cpu.registers, cpu.cores)
    if product.dtype is dtypes.int32 or cpu.blas is False:  # there is no BLAS for it
        return blocking
    filled = product.n / (blocking.panels * blocking.columns)
    return blocking if use_own_product(product, filled, bits // 8) else None


def range_of_product(product: Product, cpu: CpuSpec) -> Size:
    """Extent of the range that threads share."""
    blocking = own_blocking(product, cpu)
    if isinstance(blocking, Gemv):
        return dot_units(product, blocking)
    return kernel.slabs(product, cpu) if blocking is None else units(product, blocking)


def computes_left(product: Product, cpu: CpuSpec) -> int:
    """Number of times that our own product computes an element of an A that has no memory; 0 if it is not computed."""
    if not isinstance(own_blocking(replace(product, computed=False), cpu), Blocking):
        return 0
    blocking = own_blocking(product, cpu)
    assert isinstance(blocking, Blocking)
    return blocking.column_blocks


def same_sums(product: Product, other: Product, cpu: CpuSpec) -> bool:
    """Whether both add up in the same order, one of them with fewer rows."""
    blockings = own_blocking(product, cpu), own_blocking(other, cpu)
    depths = [blocking.depth for blocking in blockings if isinstance(blocking, Blocking)]
    return len(depths) == 2 and depths[0] == depths[1]


def takes_epilogue(product: Product, cpu: CpuSpec) -> bool:
    """BLAS computes a product too small for slabs on one thread; a loop over a large result should not stay there."""
    if product.symbolic:
        return own_blocking(product, cpu) is not None
    small = product.m * product.n <= cost.SMALL_SPACE
    return small or own_blocking(product, cpu) is not None or kernel.slabs(product, cpu) > 1


def passing_product(product: Product, cpu: CpuSpec) -> Product | None:
    """The same without memory for its result, where the epilogue can read rows while they are in cache
    ([Note: Low precision])."""
    blocking = own_blocking(product, cpu)
    if product.stored is None or product.symbolic or not isinstance(blocking, Blocking):
        return None
    return replace(product, passing=True) if can_pass(product, format_on(product, cpu), blocking) else None


def parts_of_product(product: Product, cpu: CpuSpec) -> list[Pretranspose]:
    """The code that it calls."""
    blocking = own_blocking(product, cpu)
    if not isinstance(blocking, Blocking) or not turns(product, blocking):
        return []
    return [Pretranspose(product.dtype if product.stored is None else dtypes.float32, blocking.lanes)]


def emit_product(
    module: ir.Module,
    name: str,
    product: Product,
    parts: Sequence[str] = (),
    epilogue: Kernel | None = None,
    prologue: Kernel | None = None,
) -> ir.Function:
    """`void product(ptr buffers, i64 lo, i64 hi)`; the buffers are those of a launch of `Fused`."""
    cpu = module.cpu
    blocking = own_blocking(product, cpu)
    finish = None if epilogue is None else emit_epilogue(module, f"{name}_epilogue", epilogue)
    if prologue is not None:
        assert isinstance(blocking, Blocking)
        return emit_blocked_product(module, name, product, blocking, finish, *parts, prologue=prologue)
    if blocking is None:
        return kernel.emit_product(module, name, product, finish)
    if isinstance(blocking, Gemv):
        return emit_dots(module, name, product, blocking, finish)
    if product.stored is not None:
        buffers = 0 if epilogue is None else 2 + len(epilogue.operands)
        turn = parts[0] if parts else ""
        how = format_on(product, cpu)
        return emit_narrow_product(module, name, product, how, blocking, finish, turn, buffers)
    sizes = 3 if epilogue is None else 2 + len(epilogue.operands)
    ahead = () if epilogue is None or blocking.depth < product.k else matrices_of(epilogue)
    return emit_blocked_product(module, name, product, blocking, finish, *parts, sizes=sizes, ahead=ahead)


def product_source(product: Product, cpu: CpuSpec, parts: Sequence[str] = ()) -> str:
    """The text that determines the code of `emit_product`."""
    blocking = own_blocking(product, cpu)
    if blocking is None:
        how = f"{kernel.slabs(product, cpu)} slabs for {cpu.cores} cores"
    else:
        how = f"{blocking!r} with {parts}"
    words = "" if product.stored is None else f" of {format_on(product, cpu)!r}"
    return f"{product!r}{words} in {how}"
