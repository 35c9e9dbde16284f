"""The kinds of launch, one row each: how it is emitted, the key of its code in the cache, the range that threads
share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...loops.ir import Kernel, Work
from ...loops.text import print_kernel
from ...schedule import cost
from ...schedule.control import Choice, Control, Loop
from ...schedule.fusion.batch_fusion import Chain
from ...schedule.fusion.epilogue import Fused
from ...schedule.fusion.horizontal_fusion import Region
from ...schedule.host_call import Opaque
from ...schedule.kernels.conv_winograd import Backward, Forward
from ...schedule.kernels.convolution import Convolution, Pixels, Turn, Weights
from ...schedule.kernels.gemm import Product
from ...schedule.launch import Copy
from ...sizes.dims import Size, hint
from . import ir
from .batch_fusion import emit_chain
from .callee import Callee
from .control import control_source, distinct_works, emit_control
from .convolution.kernel import (
    convolution_source,
    emit_convolution,
    emit_operand,
    finishes,
    operand_source,
    parts_of_convolution,
    parts_of_operand,
    range_of_convolution,
    range_of_operand,
)
from .convolution.pack import emit_turn
from .convolution.winograd import emit_backward, emit_forward
from .gemm.product import emit_product, own_blocking, parts_of_product, product_source, range_of_product, takes_epilogue
from .horizontal_fusion import emit_region
from .host_call import emit_opaque
from .kernel import emit_kernel


@dataclass(frozen=True)
class Kind:
    """`emit(module, name, work)` adds `void name(ptr buffers, i64 lo, i64 hi)`; [lo, hi) is a part of `range`."""

    emit: Callable[..., ir.Function]
    source: Callable[..., str]  # all that `emit` depends on
    range: Callable[[Any], tuple[Size, int]]  # iterations, granule: split points are multiples of it
    nanoseconds: Callable[[Any], float]  # estimated, on one core
    calls_blas: Callable[[Any], bool] = lambda _: False
    takes_epilogue: Callable[[Any], bool] = lambda _: False  # then `emit` takes the epilogue's kernel as well
    parts: Callable[[Any], Sequence[Work]] = lambda _: ()  # works that it calls: `emit` and `source` take their names


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
        takes_epilogue=takes_epilogue,
        parts=parts_of_product,
    ),
    Convolution: Kind(
        emit=emit_convolution,
        source=convolution_source,
        range=lambda convolution: (range_of_convolution(convolution), 1),
        nanoseconds=lambda convolution: convolution.flops * cost.FLOP_NS,
        takes_epilogue=finishes,
        parts=parts_of_convolution,
    ),
    **dict.fromkeys(
        (Weights, Pixels),
        Kind(
            emit=emit_operand,
            source=operand_source,
            range=lambda operand: (range_of_operand(operand), 1),
            nanoseconds=lambda operand: cost.memory_cost(operand.nbytes),
            parts=parts_of_operand,
        ),
    ),
    **{
        code: Kind(emit=emit, source=repr, range=lambda _: (1, 1), nanoseconds=lambda _: 0.0)
        for code, emit in ((Turn, emit_turn), (Forward, emit_forward), (Backward, emit_backward))
    },
    Fused: Kind(
        emit=lambda module, name, fused, *parts: kind_of(fused.call).emit(
            module, name, fused.call, *parts, **fused.kernels
        ),
        source=lambda fused, *parts: "".join(
            [kind_of(fused.call).source(fused.call, *parts), *map(KINDS[Kernel].source, fused.kernels.values())]
        ),
        parts=lambda fused: kind_of(fused.call).parts(fused.call),
        range=lambda fused: kind_of(fused.call).range(fused.call),
        nanoseconds=lambda fused: (
            kind_of(fused.call).nanoseconds(fused.call) + sum(kernel.cost for kernel in fused.kernels.values())
        ),
        calls_blas=lambda fused: kind_of(fused.call).calls_blas(fused.call),
    ),
    Chain: Kind(
        emit=lambda module, name, chain, parts: emit_chain(module, name, chain, parts, _iterations(chain)),
        source=lambda chain, parts: (
            f"{chain} {parts} {_iterations(chain)} {chain.operands} {chain.scratch} {chain.ahead}"
        ),
        range=lambda chain: (chain.slots, 1),
        nanoseconds=lambda chain: sum(kind_of(stage.work).nanoseconds(stage.work) for stage in chain.stages),
        calls_blas=lambda chain: any(kind_of(stage.work).calls_blas(stage.work) for stage in chain.stages),
        parts=lambda chain: [stage.work for stage in chain.stages],
    ),
    Opaque: Kind(
        emit=emit_opaque, source=lambda opaque: opaque.text, range=lambda _: (1, 1), nanoseconds=lambda _: 0.0
    ),
    Region: Kind(
        emit=emit_region,
        source=lambda region, parts: f"{region} {parts} {region.cuts} {[len(k.operands) for k in region.kernels]}",
        range=lambda region: (region.slots, 1),
        nanoseconds=lambda region: sum(kernel.cost for kernel in region.kernels),
        parts=lambda region: region.kernels,
    ),
}


KINDS[Loop] = KINDS[Choice] = Kind(
    emit=lambda module, name, control, parts=(): emit_control(module, name, control, _callees(control, parts)),
    source=lambda control, parts=(): control_source(control, _callees(control, parts)),
    range=lambda control: (control.slots if isinstance(control, Loop) else 1, 1),
    nanoseconds=lambda control: _of_loop(control) if isinstance(control, Loop) else 0.0,
    calls_blas=lambda control: any(kind_of(work).calls_blas(work) for work in distinct_works(control)),
    parts=distinct_works,
)


def _callees(control: Control, symbols: Sequence[str]) -> dict[int, Callee]:
    works = distinct_works(control)
    return {id(work): callee_of(work, symbol) for work, symbol in zip(works, symbols, strict=True)}


def _of_loop(loop: Loop) -> float:
    steps = [
        kind_of(launch.work).nanoseconds(launch.work)
        for launch in loop.body.launches
        if not isinstance(launch.work, Copy)
    ]
    return hint(loop.length or 1) * sum(steps)


def _iterations(chain: Chain) -> list[int]:
    """Iterations of each stage, for one element."""
    return [kind_of(stage.work).range(stage.work)[0] // chain.batch for stage in chain.stages]


def callee_of(work: Work, symbol: str = "") -> Callee:
    """The function of a work, of this symbol."""
    kind = kind_of(work)
    return Callee(symbol, *kind.range(work), kind.nanoseconds(work), kind.calls_blas(work))


def kind_of(work: Work) -> Kind:
    return KINDS[type(work)]
