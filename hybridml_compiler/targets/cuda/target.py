"""The CUDA target (see targets/base.py): loop nests become functions of a driver, NVRTC's PTX on the simulated device.

Elementwise results have the bits of the CPU's: no contraction, no flushing, and the same polynomials. Reductions have a
tree of their own, fixed by the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
        if reason:
            return Interpreted(kernel, reason)
        return self._kernel(lambda wide: emit(kernel, wide=wide))

    def call_of(self, spec: KernelSpec) -> CudaKernel | None:
        if isinstance(spec, BatchFusion):
            return self._attention(spec)
        call = spec.call if isinstance(spec, Fused) else spec
        if not isinstance(call, Product | Convolution):
            return None
        if is_left_to_library(spec) and multiplies(spec) and self.device.driver.has_gemm:
            return None
        return self._kernel(lambda wide: emit_call(spec, wide=wide))

    def _attention(self, spec: BatchFusion) -> CudaKernel | None:
        if emit_attention(spec) is None:
            return None

        def emitted(wide: bool) -> Source:
            made = emit_attention(spec, wide=wide)
            assert made is not None
            return made

        return self._kernel(emitted)

    @lazy
    def _loaded(self) -> dict[str, CudaKernel]:
        """Loaded kernels by their text."""
        return {}

    def _kernel(self, emitted: Callable[[bool], Source], wide: bool = True) -> CudaKernel:
        """The kernel that a function gives the source of, which is told whether accesses may be wide."""
        source = emitted(wide)
        if source.text not in self._loaded:
            function = self.device.driver.load(source.text)
            self._loaded[source.text] = CudaKernel(source, function, lambda: self._kernel(emitted, False))
        return self._loaded[source.text]

    def code(self, outputs: Sequence[Aval], stage: Stage) -> CudaCode:
        return CudaCode(self)

    def executable(self, program: KernelProgram, interface: Interface) -> CudaExecutable:
        return CudaExecutable(program, interface, self.device)


class CudaCode(KernelCode):
    """The code of a program, whose text has the user's lines."""

    def text(self, plan: Plan) -> str:
        lines: dict[str, dict[str, None]] = {}  # by the text of a kernel, which several launches may run
        for launch in plan.launches:
            for code in self.codes(launch.spec):
                places = lines.setdefault(code.text, {})
                places.update(dict.fromkeys(launch.where))
        kernels = ["".join([*(f"// {place}\n" for place in places if place), text]) for text, places in lines.items()]
        return "\n".join([describe_plan(plan), *kernels])


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
