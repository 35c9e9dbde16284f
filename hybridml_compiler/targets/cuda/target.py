"""The CUDA target (see targets/base.py): loop nests become functions of a driver, NVRTC's PTX on the simulated device.

Elementwise results have the bits of the CPU's: no contraction, no flushing, and the same polynomials. Reductions have a
tree of their own, fixed by the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from ... import config
from ...aval import Aval
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
from ...schedule.kernels.library import Call, Capabilities
from ...schedule.launch import Plan
from ...schedule.text import describe_plan
from ..base import Interface, Stage
from ..kernel_target import KernelCode, KernelProgram, KernelTarget
from . import region, stored
from .availability import checked_driver
from .code import CudaKernel, CudaProduct, CudaRegion, ProductSource, RegionSource
from .contraction.kernel import emit_call
from .contraction.library import LibraryCall, is_left_to_library, library_call
from .contraction.tile_fusion import emit_tiles
from .device import CudaDevice
from .driver import Driver
from .emit.kernel import Source, emit, unsupported
from .executable import CudaExecutable
from .fallback import Interpreted
from .reductions import part_of, worth_rows
from .scatter import launches_of, scratch_of
from .scatter_form import Scatter, scattered
from .schedule import schedule
from .simulated_driver import SimulatedDriver

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
            takes_epilogue=lambda _: True,
            schedule=schedule,
            reads_narrow=lambda node: node.kind == "contraction" or convolution.reads_narrow(node),
            passing=lambda call: replace(call, passing=True),  # its epilogue alone reads it: it needs no memory
            halves=True,
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
            return self._scatter(kernel, found)
        reason = unsupported(kernel)
        return Interpreted(kernel, reason) if reason else self._kernel(partial(_source, kernel))

    def _scatter(self, kernel: Kernel, found: Scatter) -> CudaRegion:
        """The launches of a scatter."""
        parts = [
            (self._kernel(partial(_scatter_source, kernel, k), source), numbers)
            for k, (source, numbers) in enumerate(launches_of(found))
        ]
        return CudaRegion(tuple(parts), tuple(int(x.nbytes) for x in scratch_of(found)))

    def call_of(self, spec: KernelSpec) -> CudaKernel | CudaRegion | CudaProduct | None:
        if isinstance(spec, TileFusion):
            return None if emit_tiles(spec) is None else self._kernel(partial(_source, spec))
        if isinstance(spec, HorizontalFusion):
            return self._region(spec)
        call = spec.call if isinstance(spec, Fused) else spec
        if not isinstance(call, Product | Convolution):
            return None
        if is_left_to_library(spec) and self.device.driver.has_gemm:
            return self._product(library_call(spec))
        return self._kernel(partial(_source, spec))

    def _product(self, call: LibraryCall, source: Source | None = None) -> CudaProduct:
        """A product by the library, with the kernel after it, whose source may be known."""
        after = None if call.epilogue is None else self._kernel(partial(_source, call.epilogue), source)
        return CudaProduct(call, after)

    def _region(self, spec: HorizontalFusion) -> CudaRegion:
        """The kernels of a region, each in one of a few launches."""
        most, made = self.device.driver.most_blocks, []
        for k, stages in enumerate(region.launches(spec.kernels, emit)):
            kernel = self._kernel(partial(self._region_source, spec, k), region.joined(stages, most))
            made.append((kernel, region.order(stages)))
        return CudaRegion(tuple(made))

    def _region_source(self, spec: HorizontalFusion, part: int, wide: bool) -> Source:
        stages = region.launches(spec.kernels, partial(emit, wide=wide))[part]
        return region.joined(stages, self.device.driver.most_blocks)

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
        fast = config.read().fast_math
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
        facts = driver.properties.capability, driver.most_blocks, driver.has_gemm, settings.tf32, settings.fast_math
        return f"{self.name} {facts}"

    def find(self, key: str) -> KernelProgram | None:
        found = stored.find(key)
        if found is None:
            return None
        code = CudaCode(self)
        for spec, kept in found.codes:
            code.keep(spec, self._restored(spec, kept))
        return KernelProgram(found.plan.fresh, found.plan.arena_bytes, found.facts, found.plan, code)

    def _restored(self, spec: KernelSpec, kept: stored.Code) -> Any:
        """The code of a spec, of its sources."""
        if isinstance(kept, Source):
            return self._kernel(partial(_source, spec), kept)
        if isinstance(kept, ProductSource):
            return self._product(kept.call, kept.source)
        if isinstance(kept, RegionSource):
            made: Any = self._region_source if isinstance(spec, HorizontalFusion) else _scatter_source
            parts = [
                (self._kernel(partial(made, spec, k), source), order) for k, (source, order) in enumerate(kept.parts)
            ]
            return CudaRegion(tuple(parts), kept.scratch)
        return kept

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
        parts = tuple((kernel.source, order) for kernel, order in code.parts)
        return RegionSource(parts, code.scratch)
    if isinstance(code, CudaProduct):
        return ProductSource(code.call, None if code.kernel is None else code.kernel.source)
    return code.source if isinstance(code, CudaKernel) else code


def _source(spec: KernelSpec, wide: bool) -> Source:
    """The source of a loop nest, a call or a fusion of tiles that there is a kernel for."""
    if isinstance(spec, Kernel):
        return emit(spec, wide=wide)
    found = emit_tiles(spec, wide=wide) if isinstance(spec, TileFusion) else emit_call(spec, wide=wide)
    assert found is not None
    return found


def _scatter_source(kernel: Kernel, part: int, wide: bool) -> Source:
    """The source of a launch of a scatter."""
    found = scattered(kernel)
    assert found is not None
    return launches_of(found, wide=wide)[part][0]


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
