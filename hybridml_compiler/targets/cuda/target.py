"""The CUDA target (see targets/base.py): loop nests become functions of a driver, NVRTC's PTX on the simulated device.

Elementwise results have the bits of the CPU's: no contraction, no flushing, and the same polynomials. Reductions have a
tree of their own, fixed by the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ... import config, dtypes
from ...aval import Aval
from ...graph.facts import stored as stored_as
from ...graph.ir import Graph
from ...loops.ir import Kernel, KernelSpec
from ...once import lazy, once
from ...placement.performance import Performance
from ...record import replace
from ...schedule.fusion.epilogue import Fused
from ...schedule.fusion.horizontal_fusion import HorizontalFusion
from ...schedule.fusion.tile_fusion import TileFusion
from ...schedule.kernels import convolution
from ...schedule.kernels.convolution import Convolution
from ...schedule.kernels.gemm import Product
from ...schedule.kernels.library import Capabilities
from ...schedule.launch import Plan
from ...schedule.text import describe_plan
from ..base import Interface, Stage
from ..kernel_target import KernelCode, KernelProgram, KernelTarget
from . import region, stored
from .availability import checked_driver
from .code import CudaKernel, CudaRegion, Multiply, Ready, RegionSource
from .contraction.kernel import call_steps, emit_call
from .contraction.library import is_left_to_library, product_steps
from .contraction.library_convolution import library_convolution, library_steps
from .contraction.tile_fusion import emit_tiles
from .device import CudaDevice
from .driver import Convolve, Driver
from .emit.kernel import Source, emit, unsupported
from .executable import CudaExecutable
from .fallback import Interpreted
from .reductions import part_of, worth_rows
from .scatter.form import scattered
from .scatter.launches import scatter_steps
from .schedule import schedule
from .simulated_driver import SimulatedDriver

if TYPE_CHECKING:
    from ...schedule.kernels.library import Call

_MERGED_BYTES = 16 << 20  # that launches may keep alive by waiting to be merged: a part of a GPU's L2 cache


def has_kernel(call: Call) -> bool:
    """Whether there is a kernel for the call (contraction/kernel.py), or a library. Where groups of channels are small,
    a tile of them would be empty for the most part, and a loop nest is better."""
    if isinstance(call, Product):
        return True
    return call.groups == 1 or min(call.channels, call.features) >= convolution.MIN_FEATURES


def can_merge(kernels: Sequence[Kernel]) -> bool:
    """Whether kernels that do not need each other are launched as one, which is a gain whatever they do."""
    if len(kernels) < 2 or any(unsupported(kernel) or scattered(kernel) for kernel in kernels):
        return False
    return all(region.can_join(emit(kernel)) for kernel in kernels)


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
            takes_epilogue=self._takes_epilogue,
            schedule=schedule,
            reads_narrow=lambda node: node.kind == "contraction" or convolution.reads_narrow(node, gradients=True),
            passing=lambda call: replace(call, passing=True),  # its epilogue alone reads it: it needs no memory
            halves=True,
            channels_last=self._channels_last,
            worth_rows=worth_rows,
            part_of=part_of,
            splits_positions=True,
            runs_control=True,
            runs_tiles=lambda spec: isinstance(spec, TileFusion) and emit_tiles(spec) is not None,
            merges=can_merge,
            merged_bytes=_MERGED_BYTES,
        )

    def compile(self, kernel: Kernel) -> CudaKernel | CudaRegion | Interpreted:
        found = scattered(kernel)
        if found is not None:
            return self._code_of(kernel, self._steps(kernel, True))
        reason = unsupported(kernel)
        return Interpreted(kernel, reason) if reason else self._kernel(partial(_source, kernel))

    def _takes_epilogue(self, call: Call) -> bool:
        """Whether a kernel of ours computes the call, or a library that rounds its result."""
        if not isinstance(call, Convolution) or call.stored is not None:
            return True
        found = library_convolution(call)
        return found is None or self.device.driver.convolution_bytes(found) is None

    def _channels_last(self, graph: Graph) -> bool:
        """Whether convolutions are for tensor cores, which read neighbouring channels, or kernels of ours: those of
        cuDNN in float32 copy images of another order."""
        if config.field("tf32") or not self.device.driver.libraries:
            return True
        convolutions = [node for node in graph.nodes() if node.kind == "convolution"]
        return any(dtypes.is_narrow(stored_as(x).dtype) for node in convolutions for x in node.inputs)

    def call_of(self, spec: KernelSpec) -> CudaKernel | CudaRegion | None:
        if isinstance(spec, TileFusion):
            return None if emit_tiles(spec) is None else self._kernel(partial(_source, spec))
        call = spec.call if isinstance(spec, Fused) else spec
        if not isinstance(call, Product | Convolution | HorizontalFusion):
            return None
        return self._code_of(spec, self._library_steps(spec) or self._steps(spec, True))

    def _library_steps(self, spec: KernelSpec, *, wide: bool = True) -> RegionSource | None:
        """The launches of a product or a convolution where a library computes it."""
        if is_left_to_library(spec) and self.device.driver.has_gemm:
            return product_steps(spec, wide=wide)
        steps = library_steps(spec, wide=wide)
        return steps if steps is not None and self._can_run(steps) else None

    def _can_run(self, steps: RegionSource) -> bool:
        calls = [step for step, _ in steps.parts if isinstance(step, Convolve)]
        return all(self.device.driver.convolution_bytes(call) is not None for call in calls)

    def _steps(self, spec: KernelSpec, wide: bool) -> RegionSource:
        """The launches of a scatter, a call or a region by kernels of ours."""
        if isinstance(spec, Kernel):
            found = scattered(spec)
            assert found is not None
            return scatter_steps(found, wide=wide)
        if isinstance(spec, HorizontalFusion):
            stages = region.launches(spec.kernels, partial(emit, wide=wide))
            most = self.device.driver.most_blocks
            return RegionSource(tuple((region.joined(launch, most), region.order(launch)) for launch in stages))
        return call_steps(spec, wide)

    def _code_of(self, spec: KernelSpec, steps: RegionSource) -> CudaKernel | CudaRegion:
        """The code of a spec, of its sources."""

        def step(number: int, made: Source | Ready) -> CudaKernel | Ready:
            if not isinstance(made, Source):
                return made
            return self._kernel(lambda wide: made if wide else self._anywhere(spec, steps, number), made)

        made = [(step(number, one), order) for number, (one, order) in enumerate(steps.parts)]
        if len(made) == 1 and isinstance(spec, Product | Convolution | Fused):
            ((only, _),) = made
            if isinstance(only, CudaKernel):
                return only
        return CudaRegion(tuple(made), steps.scratch)

    def _anywhere(self, spec: KernelSpec, steps: RegionSource, number: int) -> Source:
        """The source of a step for operands that begin anywhere."""
        has_library = any(isinstance(step, Convolve | Multiply) for step, _ in steps.parts)
        found = self._library_steps(spec, wide=False) if has_library else self._steps(spec, False)
        assert found is not None
        source = found.parts[number][0]
        assert isinstance(source, Source)
        return source

    @lazy
    def _loaded(self) -> dict[tuple[Source, bool], CudaKernel]:
        """Loaded kernels by their source, and whether their arithmetic is fast: those of one text may be launched in
        other numbers of blocks."""
        return {}

    @lazy
    def _functions(self) -> dict[tuple[str, bool], Any]:
        """Functions of the driver by their text, and whether their arithmetic is fast."""
        return {}

    def _kernel(self, emitted: Callable[[bool], Source], source: Source | None = None) -> CudaKernel:
        """The kernel that a function gives the source of, which is told whether accesses may be wide; `source`: that of
        wide ones, where it is known."""
        source = source or emitted(True)
        fast = config.field("fast_math")
        if (source, fast) not in self._loaded:
            if (source.text, fast) not in self._functions:
                self._functions[source.text, fast] = self.device.driver.load(source.text)
            anywhere = cache(lambda: self._kernel(emitted, emitted(False)))
            self._loaded[source, fast] = CudaKernel(source, self._functions[source.text, fast], anywhere)
        return self._loaded[source, fast]

    @property
    def key(self) -> str:
        driver = self.device.driver
        settings = config.read()
        facts = (
            driver.properties.capability,
            driver.most_blocks,
            driver.has_gemm,
            driver.libraries,
            settings.tf32,
            settings.fast_math,
        )
        return f"{self.name} {facts}"

    def find(self, key: str) -> KernelProgram | None:
        found = stored.find(key)
        if found is None:
            return None
        if not all(self._can_run(kept) for _, kept in found.codes if isinstance(kept, RegionSource)):
            return None
        code = CudaCode(self)
        for spec, kept in found.codes:
            code.keep(spec, self._restored(spec, kept))
        return KernelProgram(found.plan.fresh, found.plan.arena_bytes, found.facts, found.plan, code)

    def _restored(self, spec: KernelSpec, kept: stored.Code) -> Any:
        """The code of a spec, of its sources."""
        if isinstance(kept, Source):
            return self._kernel(partial(_source, spec), kept)
        return self._code_of(spec, kept) if isinstance(kept, RegionSource) else kept

    def code(self, outputs: Sequence[Aval], stage: Stage) -> CudaCode:
        return CudaCode(self)

    def executable(self, program: KernelProgram, interface: Interface) -> CudaExecutable:
        return CudaExecutable(program, interface, self.device)


class CudaCode(KernelCode):
    """The code of a program, whose text has the user's lines. It is kept on disk (see stored.py)."""

    def finish(self, plan: Plan, facts: Mapping[str, int], key: str | None) -> KernelProgram:
        if key is not None:
            codes = [(spec, _kept(made)) for spec, made in self.made]
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


def _kept(code: Any) -> stored.Code:
    """The sources of some code; itself where it has none."""
    if isinstance(code, CudaRegion):
        return code.sources
    return code.source if isinstance(code, CudaKernel) else code


def _source(spec: KernelSpec, wide: bool) -> Source:
    """The source of a loop nest, a call or a fusion of tiles that there is a kernel for."""
    if isinstance(spec, Kernel):
        return emit(spec, wide=wide)
    if isinstance(spec, TileFusion):
        found = emit_tiles(spec, wide=wide)
        assert found is not None
        return found
    (only,) = emit_call(spec, wide=wide)
    return only


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
