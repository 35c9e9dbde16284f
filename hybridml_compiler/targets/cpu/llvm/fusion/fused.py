"""Library calls with the kernels of their epilogue and of their prologue."""

from __future__ import annotations

from .....schedule.fusion.epilogue import Fused
from ...spec import CpuSpec
from .. import ir
from ..kernel import KERNEL
from ..kind import Kind
from ..registry import kind_of


def _emit(module: ir.Module, name: str, fused: Fused, *parts: object) -> ir.Function:
    return kind_of(fused.call).emit(module, name, fused.call, *parts, **fused.kernels)


def _source(fused: Fused, cpu: CpuSpec, *parts: object) -> str:
    kernels = [KERNEL.source(kernel, cpu) for kernel in fused.kernels.values()]
    return "".join([kind_of(fused.call).source(fused.call, cpu, *parts), *kernels])


FUSED = Kind(
    emit=_emit,
    source=_source,
    parts=lambda fused, cpu: kind_of(fused.call).parts(fused.call, cpu),
    range=lambda fused, cpu: kind_of(fused.call).range(fused.call, cpu),
    nanoseconds=lambda fused: (
        kind_of(fused.call).nanoseconds(fused.call) + sum(kernel.cost for kernel in fused.kernels.values())
    ),
    calls_blas=lambda fused, cpu: kind_of(fused.call).calls_blas(fused.call, cpu),
)
