"""What a launch can be, one row a kind: how it is emitted, what it is cached under, what threads share of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from ...loops.ir import Kernel
from ...loops.text import print_kernel
from ...schedule import cost
from ...schedule.contract import Product
from ...schedule.plan import Work
from .kernel import emit_kernel
from .product import emit_product, own_blocking, product_source, range_of_product


@dataclass(frozen=True)
class Kind:
    """`emit(module, name, work)` adds `void name(ptr buffers, i64 lo, i64 hi)`; [lo, hi) is a part of `range`."""

    emit: Callable[[ir.Module, str, Any], ir.Function]
    source: Callable[[Any], str]  # all that `emit` depends on
    range: Callable[[Any], tuple[int, int]]  # iterations, granule: split points are multiples of it
    nanoseconds: Callable[[Any], float]  # estimated, on one core
    calls_blas: Callable[[Any], bool] = lambda _: False

    def parallel(self, work: Any) -> bool:
        total, granule = self.range(work)
        return total >= 2 * granule and self.nanoseconds(work) > cost.PARALLEL_THRESHOLD_NS


KINDS: dict[type, Kind] = {
    Kernel: Kind(
        emit=emit_kernel,
        # The cost decides about threads in the step; kernels that differ in it alone are one.
        source=lambda kernel: print_kernel(replace(kernel, cost=0.0)),
        range=lambda kernel: (kernel.total, kernel.granule),
        nanoseconds=lambda kernel: kernel.cost,
    ),
    Product: Kind(
        emit=emit_product,
        source=product_source,
        range=lambda product: (range_of_product(product), 1),
        nanoseconds=lambda product: product.flops * cost.FLOP_NS,
        calls_blas=lambda product: own_blocking(product) is None,
    ),
}


def kind_of(work: Work) -> Kind:
    return KINDS[type(work)]
