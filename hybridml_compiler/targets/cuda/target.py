"""The CUDA target (see targets/base.py): loop nests become functions of a driver, NVRTC's PTX on the simulated device.

Elementwise results have the bits of the CPU's: no contraction, no flushing, and the same polynomials. Reductions have a
tree of their own, fixed by the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import config
from ...aval import Aval
from ...loops.ir import Kernel, KernelSpec
from ...once import lazy, once
from ...placement.performance import Performance
from ...record import record, replace
from ...schedule.fusion.batch_fusion import BatchFusion
from ...schedule.fusion.epilogue import Fused
from ...schedule.kernels import convolution
from ...schedule.kernels.convolution import Convolution
from ...schedule.kernels.gemm import Product
from ...schedule.kernels.library import Call, Capabilities
from ...schedule.launch import Plan
from ...schedule.text import describe_plan
from ..base import Interface, Stage
from ..kernel_target import KernelCode, KernelProgram, KernelTarget
from . import stored
from .availability import checked_driver
from .contraction.attention import emit_attention, is_attention
from .contraction.kernel import emit_call, is_left_to_library
from .device import CudaDevice
from .driver import Driver
from .emit.kernel import Source, emit, unsupported
from .executable import CudaExecutable
from .fallback import Interpreted
from .machine import multiplies
from .schedule import schedule
from .simulated_driver import SimulatedDriver


def has_kernel(call: Call) -> bool:
    """Whether there is a kernel for the call (contraction/kernel.py), or a library. Where groups of channels are small,
    a tile of them would be empty for the most part, and a loop nest is better."""
    if isinstance(call, Product):
        return True
    return call.groups == 1 or min(call.channels, call.features) >= convolution.MIN_FEATURES


@record(eq=False)
class CudaKernel:
    """A kernel's source, its function as the driver has loaded it, and the same for operands that do not begin where
    that needs it."""

    source: Source
    function: Any
    anywhere: Callable[[], CudaKernel]

    @property
    def text(self) -> str:
        return self.source.text


class CudaTarget(KernelTarget):
    """The target of a GPU, by the function that gives its driver."""

    def __init__(self, name: str, driver: Callable[[], Driver]) -> None:
        self.name, self._driver = name, driver

    @lazy
    def device(self) -> CudaDevice:  # type: ignore[override]
        return CudaDevice(self._driver(), self)

    @property
    def performance(self) -> Performance:
        from ..performance import gpu_performance

        return gpu_performance(self.device.driver.properties)

    @lazy
    def capabilities(self) -> Capabilities:
        return Capabilities(
            has_library=has_kernel,
            takes_epilogue=lambda _: True,
            schedule=schedule,
            reads_narrow=lambda node: node.kind == "contraction" or convolution.reads_narrow(node),
            passing=lambda call: replace(call, passing=True),  # its epilogue alone reads it: it needs no memory
            runs_control=True,
            runs_chain=is_attention,  # of others a launch of one element would leave most of a GPU idle
        )

    def compile(self, kernel: Kernel) -> CudaKernel | Interpreted:
        reason = unsupported(kernel)
        return Interpreted(kernel, reason) if reason else self._kernel(kernel)

    def call_of(self, spec: KernelSpec) -> CudaKernel | None:
        if isinstance(spec, BatchFusion):
            return None if emit_attention(spec) is None else self._kernel(spec)
        call = spec.call if isinstance(spec, Fused) else spec
        if not isinstance(call, Product | Convolution):
            return None
        if is_left_to_library(spec) and multiplies(spec) and self.device.driver.has_gemm:
            return None
        return self._kernel(spec)

    @lazy
    def _loaded(self) -> dict[str, CudaKernel]:
        """Loaded kernels by their text."""
        return {}

    def _kernel(self, spec: KernelSpec, wide: bool = True) -> CudaKernel:
        """The kernel of a spec; unless it is `wide`, for operands that begin anywhere."""
        return self._load(spec, _source(spec, wide))

    def _load(self, spec: KernelSpec, source: Source) -> CudaKernel:
        if source.text not in self._loaded:
            function = self.device.driver.load(source.text)
            self._loaded[source.text] = CudaKernel(source, function, lambda: self._kernel(spec, wide=False))
        return self._loaded[source.text]

    @property
    def key(self) -> str:
        driver = self.device.driver
        return f"{self.name} {driver.properties.capability} {driver.has_gemm} {config.read().tf32}"

    def find(self, key: str) -> KernelProgram | None:
        found = stored.find(key)
        if found is None:
            return None
        code = CudaCode(self)
        for spec, kept in found.codes:
            code.keep(spec, self._load(spec, kept) if isinstance(kept, Source) else kept)
        return KernelProgram(found.plan.fresh, found.plan.arena_bytes, found.facts, found.plan, code)

    def code(self, outputs: Sequence[Aval], stage: Stage) -> CudaCode:
        return CudaCode(self)

    def executable(self, program: KernelProgram, interface: Interface) -> CudaExecutable:
        return CudaExecutable(program, interface, self.device)


class CudaCode(KernelCode):
    """The code of a program, whose text has the user's lines. It is kept on disk (see stored.py)."""

    def finish(self, plan: Plan, facts: Mapping[str, int], key: str | None) -> KernelProgram:
        if key is not None:
            codes = [(spec, made.source if isinstance(made, CudaKernel) else made) for spec, made in self.made]
            stored.StoredProgram(plan, dict(facts), codes).save(key)
        return super().finish(plan, facts, key)

    def text(self, plan: Plan) -> str:
        lines: dict[str, dict[str, None]] = {}  # by the text of a kernel, which several launches may run
        for launch in plan.launches:
            for code in self.codes(launch.spec):
                places = lines.setdefault(code.text, {})
                places.update(dict.fromkeys(launch.where))
        kernels = ["".join([*(f"// {place}\n" for place in places if place), text]) for text, places in lines.items()]
        return "\n".join([describe_plan(plan), *kernels])


def _source(spec: KernelSpec, wide: bool) -> Source:
    """The source of a loop nest, a call or a chain that there is a kernel for."""
    if isinstance(spec, Kernel):
        return emit(spec, wide=wide)
    found = emit_attention(spec, wide=wide) if isinstance(spec, BatchFusion) else emit_call(spec, wide=wide)
    assert found is not None
    return found


TARGET = CudaTarget("cuda:sim", SimulatedDriver)


@once
def simulated(index: int) -> CudaTarget:
    """The target of one of several simulated GPUs."""
    name = f"{TARGET.name}:{index}"
    return CudaTarget(name, lambda: SimulatedDriver(name))


@once
def gpu(index: int) -> CudaTarget:
    """The target of a GPU. DeviceError, in one sentence, where there is none."""
    driver = checked_driver(index)
    return CudaTarget(driver.name, lambda: driver)
