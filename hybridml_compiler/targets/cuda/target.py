"""The CUDA target (see targets/base.py): loop nests become functions of a driver, NVRTC's PTX on the simulated device.

Elementwise results have the bits of the CPU's: no contraction, no flushing, and the same polynomials. Reductions have a
tree of their own, fixed by the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...aval import Aval
from ...loops.ir import Kernel
from ...once import lazy, once
from ...record import record
from ...schedule.kernels.library import Capabilities
from ...schedule.launch import Plan
from ...schedule.text import describe_plan
from ..base import Interface, Stage
from ..kernel_target import KernelCode, KernelProgram, KernelTarget
from .availability import checked_driver
from .device import CudaDevice
from .driver import Driver
from .emit.kernel import Source, emit, unsupported
from .executable import CudaExecutable
from .fallback import Interpreted
from .machine import multiplies
from .schedule import schedule
from .simulated_driver import SimulatedDriver


@record(eq=False)
class CudaKernel:
    """A kernel's source, and its function as the driver has loaded it."""

    source: Source
    function: Any

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

    @lazy
    def capabilities(self) -> Capabilities:
        has_gemm = self.device.driver.has_gemm
        return Capabilities(
            has_library=lambda call: has_gemm and multiplies(call),
            takes_epilogue=lambda _: True,
            schedule=schedule,
            schedule_matrix=schedule,
            runs_control=True,
            runs_chains=False,  # a launch of one element would leave most of a GPU idle
        )

    def compile(self, kernel: Kernel) -> CudaKernel | Interpreted:
        reason = unsupported(kernel)
        if reason:
            return Interpreted(kernel, reason)
        source = emit(kernel)
        return CudaKernel(source, self.device.driver.load(source.text))

    def code(self, outputs: Sequence[Aval], stage: Stage) -> CudaCode:
        return CudaCode(self)

    def executable(self, program: KernelProgram, interface: Interface) -> CudaExecutable:
        return CudaExecutable(program, interface, self.device)


class CudaCode(KernelCode):
    """The code of a program, whose text has the user's lines."""

    def text(self, plan: Plan) -> str:
        lines: dict[str, dict[str, None]] = {}  # by the text of a kernel, which several launches may run
        for launch in plan.launches:
            for kernel in launch.kernels:
                places = lines.setdefault(self.of(kernel).text, {})
                places.update(dict.fromkeys(launch.where))
        kernels = ["".join([*(f"// {place}\n" for place in places if place), text]) for text, places in lines.items()]
        return "\n".join([describe_plan(plan), *kernels])


TARGET = CudaTarget("cuda:sim", SimulatedDriver)


@once
def gpu(index: int) -> CudaTarget:
    """The target of a GPU. DeviceError, in one sentence, where there is none."""
    driver = checked_driver(index)
    return CudaTarget(driver.name, lambda: driver)
