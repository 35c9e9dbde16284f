"""The kind of each launch's spec. The module of a kind is loaded with its first launch: a program of elementwise
kernels needs none of those of products and convolutions, 10 ms of a process's first compilation."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ....loops.ir import KernelSpec
from ..spec import CpuSpec
from .callee import Callee
from .kind import Kind

# Class of the spec: the module here that has its kind, and the kind's name.
KINDS = {
    "Kernel": ("kernel", "KERNEL"),
    "Product": ("gemm.product", "PRODUCT"),
    "Convolution": ("convolution.kernel", "CONVOLUTION"),
    "Weights": ("convolution.kernel", "OPERAND"),
    "Pixels": ("convolution.kernel", "OPERAND"),
    "Pretranspose": ("contraction.packing", "PRETRANSPOSE"),
    "Forward": ("convolution.winograd", "FORWARD"),
    "Backward": ("convolution.winograd", "BACKWARD"),
    "Transform": ("fourier.kernel", "TRANSFORM"),
    "Fused": ("fusion.fused", "FUSED"),
    "BatchFusion": ("fusion.batch_fusion", "BATCH_FUSION"),
    "RowFusion": ("fusion.row_fusion", "ROW_FUSION"),
    "HorizontalFusion": ("fusion.horizontal_fusion", "HORIZONTAL_FUSION"),
    "HostCall": ("host_call", "HOST_CALL"),
    "Loop": ("control.kernel", "CONTROL"),
    "Choice": ("control.kernel", "CONTROL"),
}


def kind_of(spec: KernelSpec) -> Kind:
    """The kind of a spec, whose class has a row in `KINDS`."""
    return _kind(type(spec).__name__)


@cache
def _kind(name: str) -> Kind:
    module, kind = KINDS[name]
    found: Kind = getattr(import_module(f".{module}", __package__), kind)
    return found


def callee_of(spec: KernelSpec, cpu: CpuSpec, symbol: str = "") -> Callee:
    """The function of a spec, of this symbol."""
    kind = kind_of(spec)
    polls = kind.polls(spec, cpu) or any(nest.loops for nest in spec.nests)
    return Callee(symbol, *kind.range(spec, cpu), kind.nanoseconds(spec), kind.calls_blas(spec, cpu), cpu.cores, polls)
