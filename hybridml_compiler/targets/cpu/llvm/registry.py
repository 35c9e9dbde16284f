"""The kinds of launch, one row each: how it is emitted, the key of its code in the cache, the range that threads
share. All of it is for the CPU that is given, which an emitter finds in its module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....loops.ir import Kernel, KernelSpec
from ....loops.text import print_kernel
from ....record import record, replace
from ....schedule import cost
from ....schedule.control import Choice, Control, Loop
from ....schedule.fusion.batch_fusion import BatchFusion
from ....schedule.fusion.epilogue import Fused
from ....schedule.fusion.horizontal_fusion import HorizontalFusion
from ....schedule.host_call import HostCall
from ....schedule.kernels.convolution import Convolution, Pixels, Pretranspose, Weights
from ....schedule.kernels.gemm import Product
from ....schedule.launch import Copy
from ....sizes.dims import Size, hint
from ..kernels.conv_winograd import Backward, Forward
from ..spec import CpuSpec
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


@record
class Kind:
    """`emit(module, name, spec)` adds `void name(ptr buffers, i64 lo, i64 hi)`; [lo, hi) is a part of `range`."""

    emit: Callable[..., ir.Function]
    source: Callable[..., str]  # all that `emit` depends on, beside what is in the key of the machine's code
    range: Callable[[Any, CpuSpec], tuple[Size, int]]  # iterations, granule: split points are multiples of it
    nanoseconds: Callable[[Any], float]  # estimated, on one core
    calls_blas: Callable[[Any, CpuSpec], bool] = lambda *_: False
    takes_epilogue: Callable[[Any, CpuSpec], bool] = lambda *_: False  # then `emit` takes the epilogue's kernel as well
    # Specs that it calls: `emit` and `source` take their names.
    parts: Callable[[Any, CpuSpec], Sequence[KernelSpec]] = lambda *_: ()


KINDS: dict[type, Kind] = {
    Kernel: Kind(
        emit=emit_kernel,
        # The cost decides about threads in the step; kernels that differ in it alone are one.
        source=lambda kernel, _: print_kernel(replace(kernel, cost=0.0)),
        range=lambda kernel, _: (kernel.total, kernel.granule),
        nanoseconds=lambda kernel: kernel.cost,
    ),
    Product: Kind(
        emit=emit_product,
        source=product_source,
        range=lambda product, cpu: (range_of_product(product, cpu), 1),
        nanoseconds=lambda product: product.flops * cost.FLOP_NS,
        calls_blas=lambda product, cpu: own_blocking(product, cpu) is None,
        takes_epilogue=takes_epilogue,
        parts=parts_of_product,
    ),
    Convolution: Kind(
        emit=emit_convolution,
        source=convolution_source,
        range=lambda convolution, cpu: (range_of_convolution(convolution, cpu), 1),
        nanoseconds=lambda convolution: convolution.flops * cost.FLOP_NS,
        takes_epilogue=finishes,
        parts=parts_of_convolution,
    ),
    **dict.fromkeys(
        (Weights, Pixels),
        Kind(
            emit=emit_operand,
            source=operand_source,
            range=lambda operand, cpu: (range_of_operand(operand, cpu), 1),
            nanoseconds=lambda operand: cost.memory_cost(operand.nbytes),
            parts=parts_of_operand,
        ),
    ),
    **{
        code: Kind(emit=emit, source=lambda spec, _: repr(spec), range=lambda *_: (1, 1), nanoseconds=lambda _: 0.0)
        for code, emit in ((Pretranspose, emit_turn), (Forward, emit_forward), (Backward, emit_backward))
    },
    Fused: Kind(
        emit=lambda module, name, fused, *parts: kind_of(fused.call).emit(
            module, name, fused.call, *parts, **fused.kernels
        ),
        source=lambda fused, cpu, *parts: "".join(
            [
                kind_of(fused.call).source(fused.call, cpu, *parts),
                *(KINDS[Kernel].source(kernel, cpu) for kernel in fused.kernels.values()),
            ]
        ),
        parts=lambda fused, cpu: kind_of(fused.call).parts(fused.call, cpu),
        range=lambda fused, cpu: kind_of(fused.call).range(fused.call, cpu),
        nanoseconds=lambda fused: (
            kind_of(fused.call).nanoseconds(fused.call) + sum(kernel.cost for kernel in fused.kernels.values())
        ),
        calls_blas=lambda fused, cpu: kind_of(fused.call).calls_blas(fused.call, cpu),
    ),
    BatchFusion: Kind(
        emit=lambda module, name, chain, parts: emit_chain(module, name, chain, parts, _iterations(chain, module.cpu)),
        source=lambda chain, cpu, parts: (
            f"{chain} {parts} {_iterations(chain, cpu)} {chain.operands} {chain.scratch} {chain.ahead}"
        ),
        range=lambda chain, _: (chain.slots, 1),
        nanoseconds=lambda chain: sum(kind_of(stage.spec).nanoseconds(stage.spec) for stage in chain.stages),
        calls_blas=lambda chain, cpu: any(kind_of(stage.spec).calls_blas(stage.spec, cpu) for stage in chain.stages),
        parts=lambda chain, _: [stage.spec for stage in chain.stages],
    ),
    HostCall: Kind(
        emit=emit_opaque, source=lambda opaque, _: opaque.text, range=lambda *_: (1, 1), nanoseconds=lambda _: 0.0
    ),
    HorizontalFusion: Kind(
        emit=emit_region,
        source=lambda region, _, parts: f"{region} {parts} {region.cuts} {[len(k.operands) for k in region.kernels]}",
        range=lambda region, _: (region.slots, 1),
        nanoseconds=lambda region: sum(kernel.cost for kernel in region.kernels),
        parts=lambda region, _: region.kernels,
    ),
}


KINDS[Loop] = KINDS[Choice] = Kind(
    emit=lambda module, name, control, parts=(): emit_control(
        module, name, control, _callees(control, module.cpu, parts)
    ),
    source=lambda control, cpu, parts=(): control_source(control, _callees(control, cpu, parts)),
    range=lambda control, _: (control.slots if isinstance(control, Loop) else 1, 1),
    nanoseconds=lambda control: _of_loop(control) if isinstance(control, Loop) else 0.0,
    calls_blas=lambda control, cpu: any(kind_of(spec).calls_blas(spec, cpu) for spec in distinct_works(control)),
    parts=lambda control, _: distinct_works(control),
)


def _callees(control: Control, cpu: CpuSpec, symbols: Sequence[str]) -> dict[int, Callee]:
    specs = distinct_works(control)
    return {id(spec): callee_of(spec, cpu, symbol) for spec, symbol in zip(specs, symbols, strict=True)}


def _of_loop(loop: Loop) -> float:
    steps = [
        kind_of(launch.spec).nanoseconds(launch.spec)
        for launch in loop.body.launches
        if not isinstance(launch.spec, Copy)
    ]
    return hint(loop.length or 1) * sum(steps)


def _iterations(chain: BatchFusion, cpu: CpuSpec) -> list[int]:
    """Iterations of each stage, for one element."""
    return [kind_of(stage.spec).range(stage.spec, cpu)[0] // chain.batch for stage in chain.stages]


def callee_of(spec: KernelSpec, cpu: CpuSpec, symbol: str = "") -> Callee:
    """The function of a spec, of this symbol."""
    kind = kind_of(spec)
    return Callee(symbol, *kind.range(spec, cpu), kind.nanoseconds(spec), kind.calls_blas(spec, cpu), cpu.cores)


def kind_of(spec: KernelSpec) -> Kind:
    return KINDS[type(spec)]
