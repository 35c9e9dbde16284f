"""The way in which a matrix product is computed on a CPU: by the process's BLAS in slabs, or by our own
product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..... import dtypes
from .....loops.ir import Kernel
from .....once import once
from .....record import replace
from .....schedule import cost
from .....schedule.fusion.epilogue import matrices_of
from .....schedule.kernels.gemm import Product, use_own_product
from ...kernels.gemm_blocking import ROWS, Blocking, blocking_of, blocking_of_rows, with_any_rows
from ...kernels.gemv import Axpys, Gemv, axpys_of, dots_of, sum_blocks_of
from ...kernels.low_precision import Format, can_pass, format_of, narrow_blocking
from ...kernels.slabs import Slabs
from ...runtime import blas
from ...spec import CpuSpec
from .. import ir
from ..kernel import emit_epilogue
from ..kind import CallKind

if TYPE_CHECKING:
    from ..contraction.emission import Emission


def format_on(product: Product, cpu: CpuSpec) -> Format:
    """The format that narrow operands are packed into."""
    return format_of(product, cpu.enabled if cpu.vector_bits == 512 else ())


@once
def own_blocking(product: Product, cpu: CpuSpec) -> Blocking | Gemv | Axpys | None:
    """The blocking of our own product; None where BLAS computes it."""
    bits = cpu.vector_bits
    if not cpu.registers or ("products" in cpu.without and _has_blas(product, cpu)):
        return None
    updates = axpys_of(product, bits // 8, cpu.cores)
    if updates is not None:
        return updates
    if product.symbolic:
        like = replace(product, m=ROWS)
        found = own_blocking(like, cpu) if with_any_rows(product) else None
        return blocking_of_rows(product, found) if isinstance(found, Blocking) else None
    if product.stored is not None:
        return narrow_blocking(product, format_on(product, cpu), bits // 8, cpu.registers, cpu.cores)
    rows = dots_of(product, bits // 8, cpu.registers, cpu.cores)
    if rows is not None:
        return rows
    blocking = blocking_of(product, bits // 8, cpu.registers, cpu.cores)
    if product.dtype is dtypes.int32 or cpu.blas is False:  # there is no BLAS for it
        return blocking
    filled = product.n / (blocking.panels * blocking.columns)
    return blocking if use_own_product(product, filled, bits // 8) else None


def plan_of(product: Product, cpu: CpuSpec) -> Blocking | Gemv | Axpys | Slabs:
    """The plan of a product, whoever computes it."""
    whole = not product.symbolic and product.m * product.n * product.k <= cost.WHOLE_PRODUCT
    return own_blocking(product, cpu) or Slabs(1, cpu.cores, whole)


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


def sum_blocks(product: Product, cpu: CpuSpec) -> int:
    """Parts of k of a product that adds up rows of its right operand."""
    return sum_blocks_of(product) if isinstance(own_blocking(product, cpu), Axpys) else 1


def takes_epilogue(product: Product, cpu: CpuSpec) -> bool:
    """BLAS computes a product too small for slabs on one thread; a loop over a large result should not stay there."""
    if product.symbolic:
        return own_blocking(product, cpu) is not None
    small = product.m * product.n <= cost.SMALL_SPACE
    return small or plan_of(product, cpu).units(product) > 1 or own_blocking(product, cpu) is not None


def passing_product(product: Product, cpu: CpuSpec) -> Product | None:
    """The same without memory for its result, where the epilogue can read rows while they are in cache
    ([Note: Low precision])."""
    blocking = own_blocking(product, cpu)
    if product.stored is None or product.symbolic or not isinstance(blocking, Blocking):
        return None
    return replace(product, passing=True) if can_pass(product, format_on(product, cpu), blocking) else None


# Plan: the module here that has the class of its emission, loaded with the first of them, and the class.
EMISSIONS: dict[type, tuple[str, str]] = {
    Blocking: ("blocked", "BlockedProduct"),
    Gemv: ("gemv", "Dots"),
    Axpys: ("gemv", "Updates"),
    Slabs: ("blas", "BlasProduct"),
}


def emit_product(
    module: ir.Module,
    name: str,
    product: Product,
    parts: Sequence[str] = (),
    epilogue: Kernel | None = None,
    prologue: Kernel | None = None,
) -> ir.Function:
    """`void product(ptr buffers, i64 lo, i64 hi)`; the buffers are those of a launch of `Fused`."""
    plan, more = plan_of(product, module.cpu), dict[str, Any]()
    finish, count = None, 3
    if epilogue is not None:
        finish, count = emit_epilogue(module, f"{name}_epilogue", epilogue), 2 + len(epilogue.operands)
    if isinstance(plan, Blocking):
        more["prologue"] = prologue
        if product.stored is not None:
            more["how"] = format_on(product, module.cpu)
        elif epilogue is not None and prologue is None and plan.depth >= product.k:
            more["ahead"] = matrices_of(epilogue)
    home, emission = EMISSIONS[type(plan)]
    emit: Callable[..., Emission[Any, Any]] = getattr(import_module(f".{home}", __package__), emission)
    return emit(module, name, product, plan, finish, parts, count, **more).emit()


def product_source(product: Product, cpu: CpuSpec, parts: Sequence[str] = ()) -> str:
    """The text that determines the code of `emit_product`."""
    words = "" if product.stored is None else f" of {format_on(product, cpu)!r}"
    return f"{product!r}{words} in {plan_of(product, cpu)!r} with {parts}"


def computes(product: Product, cpu: CpuSpec) -> bool:
    """Whether there is a kernel for a product: our own, or BLAS."""
    return own_blocking(product, cpu) is not None or _has_blas(product, cpu)


def _has_blas(product: Product, cpu: CpuSpec) -> bool:
    """Whether BLAS can compute a product, of operands as wide as it."""
    if product.dtype.kind != "f" or product.stored is not None:
        return False
    return blas.gemm_symbols() is not None if cpu.blas is None else cpu.blas


PRODUCT = CallKind(
    emit=emit_product,
    source=product_source,
    range=lambda product, cpu: (plan_of(product, cpu).units(product), 1),
    nanoseconds=lambda product: product.flops * cost.FLOP_NS,
    calls_blas=lambda product, cpu: own_blocking(product, cpu) is None,
    parts=lambda product, cpu: plan_of(product, cpu).parts(product),
    computes=computes,
    takes_epilogue=takes_epilogue,
    passing=passing_product,
    computes_left=computes_left,
    same_sums=same_sums,
    sum_blocks=sum_blocks,
)
