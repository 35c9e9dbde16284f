"""The CUDA target (see targets/base.py) on its simulated device: NVRTC's PTX, run by an interpreter on NumPy arrays.

Elementwise results have the bits of the CPU's: no contraction, no flushing, and the same polynomials. Reductions have a
tree of their own, fixed by the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...aval import Aval
from ...loops.ir import Kernel, KernelSpec
from ...once import lazy
from ...record import record, replace
from ...schedule.fusion.batch_fusion import BatchFusion
from ...schedule.fusion.epilogue import Fused
from ...schedule.kernels import convolution
from ...schedule.kernels.convolution import Convolution
from ...schedule.kernels.gemm import Product
from ...schedule.kernels.library import Call, Capabilities
from ...schedule.launch import Plan
from ...schedule.text import describe_plan
from ..base import Stage
from ..kernel_target import KernelCode, KernelTarget
from ..run_plan import as_array
from . import nvrtc
from .contraction.attention import emit_attention, is_attention
from .contraction.kernel import CallSource, emit_call, is_left_to_library
from .emit.kernel import ENTRY, Source, emit, unsupported
from .fallback import Interpreted
from .schedule import schedule
from .sim.simulator import Simulator

_MOST_BLOCKS = 1024  # of a launch: the simulator's threads take turns


@record(eq=False)
class Simulated:
    """A kernel's source, the simulator of its PTX, and the same for operands that do not begin where that needs it."""

    source: Source
    simulator: Simulator
    anywhere: Callable[[], Simulated]

    @property
    def text(self) -> str:
        return self.source.text

    def run(self, buffers: Sequence[np.ndarray], lo: int, hi: int) -> bool:
        if lo >= hi:
            return True
        if any(x.__array_interface__["data"][0] % self.source.alignment for x in buffers):
            return self.anywhere().run(buffers, lo, hi)
        status = [np.zeros(1, np.int64)] * self.source.checked
        grid = self.source.grid(hi - lo, _MOST_BLOCKS)
        self.simulator.launch(ENTRY, grid, self.source.block, [*buffers, *status, lo, hi])
        return not any(status)


def has_library(call: Call) -> bool:
    """Whether there is a kernel for the call (contraction/kernel.py) or a library: the walk over a plan has NumPy. Of
    small groups of channels most of a tile would be empty, and a loop nest is better."""
    if isinstance(call, Product):
        return True
    return call.groups == 1 or min(call.channels, call.features) >= convolution.MIN_FEATURES


def passing(call: Call) -> Call | None:
    """The product whose result its epilogue alone reads: that needs no memory."""
    return replace(call, passing=True)


class SimulatedCuda(KernelTarget):
    """The target of the device `cuda:sim`."""

    name = "cuda:sim"
    capabilities = Capabilities(
        has_library=has_library,
        takes_epilogue=lambda _: True,
        schedule=schedule,
        reads_narrow=lambda node: node.kind == "contraction" or convolution.reads_narrow(node),
        passing=passing,
        runs_control=True,
        runs_chain=is_attention,  # of others a launch of one element would leave most of a GPU idle
    )

    def compile(self, kernel: Kernel) -> Simulated | Interpreted:
        reason = unsupported(kernel)
        if reason:
            return Interpreted(kernel, reason)
        return self._simulated(lambda wide: emit(kernel, wide=wide))

    def run(self, code: Simulated | Interpreted, buffers: Sequence[np.ndarray], lo: int, hi: int) -> bool:
        return code.run(buffers, lo, hi)

    def call_of(self, spec: KernelSpec) -> Simulated | None:
        if isinstance(spec, BatchFusion):
            return self._attention(spec)
        call = spec.call if isinstance(spec, Fused) else spec
        if not isinstance(call, Product | Convolution) or is_left_to_library(spec):
            return None
        return self._simulated(lambda wide: emit_call(spec, wide=wide))

    def _attention(self, spec: BatchFusion) -> Simulated | None:
        if emit_attention(spec) is None:
            return None

        def emitted(wide: bool) -> Source:
            made = emit_attention(spec, wide=wide)
            assert made is not None
            return made

        return self._simulated(emitted)

    @lazy
    def _loaded(self) -> dict[str, Simulated]:
        """Loaded kernels by their text."""
        return {}

    def _simulated(self, emitted: Callable[[bool], Source], wide: bool = True) -> Simulated:
        """The code that a function gives the source of, which is told whether accesses may be wide."""
        source = emitted(wide)
        if source.text not in self._loaded:
            simulator = Simulator(nvrtc.compile(source.text, "ptx").code.decode())
            self._loaded[source.text] = Simulated(source, simulator, lambda: self._simulated(emitted, False))
        return self._loaded[source.text]

    def run_call(self, code: Simulated, memories: Sequence[np.ndarray], part: int, parts: int) -> None:
        source = code.source
        assert isinstance(source, CallSource)
        buffers = [as_array(m, x.dtype, int(x.size)) for m, x in zip(memories, source.operands, strict=False)]
        code.run(buffers, source.total * part // parts, source.total * (part + 1) // parts)

    def code(self, outputs: Sequence[Aval], stage: Stage) -> CudaCode:
        return CudaCode(self)


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


TARGET = SimulatedCuda()
DEVICE = TARGET.device
